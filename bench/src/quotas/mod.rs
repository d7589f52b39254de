//! Quotas and priority on real processes: compares the program's actions with its log, with the kernel's
//! figures of the target, and with the target's own records.

pub mod audit;
mod bounds;
mod priority;
mod resume;
mod run;
mod size;
mod swapped;
mod time;

pub use bounds::BrokenBounds;
pub use priority::priority;
pub use resume::resume;
pub use size::size;
pub use time::time;
