//! The real machine: `/proc`, system calls, and page tables read by BPF.
//!
//! [`Way`] lists the ways to look at processes, and opens the best one that works on this machine; [`doctor`]
//! reports which ones work, and why others do not.

mod act;
pub mod allocations;
mod attribution;
pub mod cgroup;
pub mod code;
pub mod damon;
pub mod doctor;
mod elf;
mod elf_budget;
pub mod faults;
mod generated;
pub mod inject;

mod log;
mod machine;
mod metrics;
pub mod numa;
mod ops;
pub mod page_cache;
mod physical;
pub mod proc;
mod proof;
mod state;
mod storage;
pub mod swap;
pub mod sys;
#[cfg(test)]
mod testing;
pub mod unwind;
mod walker;
mod ways;
pub mod x86;

pub use act::possible;
pub use attribution::attribution;
pub use machine::{MachineMemory, machine_memory};
pub use metrics::{counts_stalls, fragmentation, free, of_group, of_machine};
pub use ops::{
    AttachError, Clearing, HeldProcesses, Hold, Idle, IdleError, Physical, Postponed, Processes,
    Smaps, Vaddr,
};
pub use physical::{PhysicalError, PhysicalSelection, RamRange, physical_memory};
pub use proof::ProofError;
pub use state::{Thread, boot_id, lock as lock_file};
pub use walker::{
    Batch, Identity, MAX_ENTRIES, MAX_WINDOWS, WalkError, WalkMethod, Walker, Want, WindowAnswer,
    fitting,
};
pub use ways::{Best, Way, WayError};

/// Generated from `walk.bpf.c` by libbpf-cargo.
#[allow(clippy::all, clippy::pedantic, clippy::restriction, missing_docs, warnings)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/walk.skel.rs"));
}

/// Generated from `reads.bpf.c` by libbpf-cargo.
#[allow(clippy::all, clippy::pedantic, clippy::restriction, missing_docs, warnings)]
mod reads_skel {
    include!(concat!(env!("OUT_DIR"), "/reads.skel.rs"));
}

/// Generated from `thin.bpf.c` by libbpf-cargo.
#[allow(clippy::all, clippy::pedantic, clippy::restriction, missing_docs, warnings)]
mod thin_skel {
    include!(concat!(env!("OUT_DIR"), "/thin.skel.rs"));
}

/// Generated from `cache.bpf.c` by libbpf-cargo.
#[allow(clippy::all, clippy::pedantic, clippy::restriction, missing_docs, warnings)]
mod cache_skel {
    include!(concat!(env!("OUT_DIR"), "/cache.skel.rs"));
}
