//! What the benches share: a process whose accesses are known, and how well they were seen.

pub mod load;
pub mod score;
