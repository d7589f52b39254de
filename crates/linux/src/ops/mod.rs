//! Operations sets over the real machine, one file each.

mod annotate;
mod mask;
mod shape;
mod vaddr;

pub use vaddr::{AttachError, Vaddr};
