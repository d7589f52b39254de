//! What the benches share: a process whose accesses are known, and how well they were seen; long
//! records; what a program takes.

pub mod load;
pub mod score;
pub mod synthetic;
pub mod usage;
