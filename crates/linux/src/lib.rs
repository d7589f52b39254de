//! The real machine: `/proc`, system calls, and page tables read by BPF.
//!
//! [`Vaddr`] is the operations set for processes; [`doctor`] tells what works here and why not.

pub mod doctor;
mod log;
mod ops;
pub mod proc;
mod proof;
pub mod sys;
mod walker;
pub mod x86;

pub use ops::{AttachError, Clearing, Vaddr};
pub use proof::ProofError;
pub use walker::{
    Answer, Batch, Identity, MAX_ENTRIES, MAX_WINDOWS, Reading, WalkError, Walker, Want, fitting,
};

/// Generated from `walk.bpf.c` by libbpf-cargo.
#[allow(clippy::all, clippy::pedantic, clippy::restriction, missing_docs, warnings)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/walk.skel.rs"));
}
