//! What the benches share: a process whose accesses are known, how well they were seen, and what
//! seeing them cost.

pub mod bootstrap;
pub mod cpus;
pub mod interrupts;
pub mod load;
pub mod score;
pub mod slices;
pub mod smaps;
pub mod watched;
