//! Shared parts of the benches: processes with known accesses, the accuracy and the cost of watching them, the
//! effects of schemes on a machine that swaps, long records, and the resource use of a program.

pub mod accuracy;
pub mod bootstrap;
pub mod cpus;
pub mod fading;
pub mod interrupts;
pub mod limit_search;
pub mod limited;
pub mod load;
pub mod many;
pub mod output;
pub mod page_cache;
pub mod postgres;
pub mod prediction;
pub mod program;
pub mod quotas;
pub mod reclaimer;
pub mod settling;
pub mod setups;
pub mod sites;
pub mod slices;
pub mod smaps;
pub mod synthetic;
pub mod threads;
pub mod toucher;
pub mod usage;
pub mod user;
pub mod watch_for;
pub mod watched_load;
