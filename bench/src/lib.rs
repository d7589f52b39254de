//! What the benches share: processes whose accesses are known, how well they were seen, and what seeing
//! them cost; what schemes do to a machine that swaps; long records; what a program takes.

pub mod accuracy;
pub mod bootstrap;
pub mod cpus;
pub mod fading;
pub mod interrupts;
pub mod limited;
pub mod load;
pub mod output;
pub mod program;
pub mod quotas;
pub mod reclaimer;
pub mod settling;
pub mod setups;
pub mod slices;
pub mod smaps;
pub mod synthetic;
pub mod toucher;
pub mod usage;
pub mod watched;
