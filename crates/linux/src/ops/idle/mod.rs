//! Idle page tracking: the kernel asks all who map a page, by its frame.

mod physical;
mod process;
mod tracking;

pub use physical::Physical;
pub use process::{Idle, IdleError};
