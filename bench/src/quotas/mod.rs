//! Quotas and priority on real processes: what the program does is held against its log, against what
//! the kernel says of the target, and against what the target knows of itself.

pub mod audit;
mod bounds;
mod priority;
mod resume;
mod run;
mod size;
mod swapped;
mod time;

pub use bounds::Bounds;
pub use priority::priority;
pub use resume::resume;
pub use size::size;
pub use time::time;
