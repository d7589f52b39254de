//! Operations sets for the real machine, one file each, and their common code.

mod annotate;
mod busy;
pub(crate) mod clear;
pub(crate) mod epochs;
mod held;
mod held_processes;
mod idle;
pub(crate) mod process;
mod processes;
mod procfs_process;
mod shape;
pub(crate) mod smaps;
pub(crate) mod survey;
pub(crate) mod targets;
pub(crate) mod touched;
pub(crate) mod vaddr;
mod window;

pub use held::{AttachError, Postponed};
pub(crate) use held::{HeldProcess, refused};
pub use held_processes::HeldProcesses;
pub use idle::{Idle, IdleError, Physical};
pub use processes::{Hold, Processes};
pub(crate) use procfs_process::ProcfsProcess;
pub use smaps::Smaps;
pub use vaddr::{Clearing, Vaddr};
