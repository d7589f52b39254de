//! Idle page tracking: for a page frame, the kernel checks the accessed bits of all processes that map it.

mod physical;
mod process;
mod tracking;

pub use physical::Physical;
pub use process::{Idle, IdleError};
