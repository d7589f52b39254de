//! Operations sets over the real machine, one file each, and what they share.

mod annotate;
mod clear;
mod epochs;
mod held;
mod holder;
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
pub use holder::Holder;
pub use idle::{Idle, IdleError, Physical};
pub(crate) use plain::Plain;
pub use processes::{Hold, Processes};
pub use smaps::Smaps;
pub use vaddr::{Clearing, Vaddr};
