//! What the benches share: processes whose accesses are known, and how well they were seen.

pub mod accuracy;
pub mod load;
