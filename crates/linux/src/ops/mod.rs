//! Operations sets over the real machine, one file each.

mod annotate;
mod mask;
mod shape;
mod vaddr;
mod window;

pub use vaddr::{AttachError, Vaddr};
