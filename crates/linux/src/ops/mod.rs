//! Operations sets over the real machine, one file each, and what they share.

mod annotate;
mod clear;
mod epochs;
mod held;
mod idle;
mod mask;
mod plain;
mod process;
mod processes;
mod shape;
pub(crate) mod smaps;
mod targets;
mod vaddr;
mod window;

pub use held::AttachError;
pub use idle::{Idle, IdleError};
pub(crate) use plain::Plain;
pub use processes::Processes;
pub use smaps::Smaps;
pub use vaddr::{Clearing, Vaddr};
