//! Operations sets over the real machine, one file each, and what they share.

mod annotate;
mod clear;
mod epochs;
mod held;
mod mask;
mod process;
mod shape;
mod vaddr;
mod window;

pub use held::AttachError;
pub use vaddr::{Clearing, Vaddr};
