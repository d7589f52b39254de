//! System calls, one per file. This is the only unsafe code except the BPF loader.

mod arena;
mod cached;
mod clock;
mod cpus;
mod descriptor_limit;
mod forbid_writing;
mod fork;
mod malloc;
mod mempolicy;
mod move_pages;
mod node_mask;
mod own_pages;
mod pagemap_scan;
mod peer;
mod privileges;
mod process_madvise;
mod read_regular;
mod refused_calls;
mod signal;
mod swapon;
mod touch;
mod transient;

pub use arena::{Arena, ArenaKind};
pub use cached::{CacheStat, LockedMapping, access_mapped, cachestat, mincore};
pub use clock::{CpuLaps, Stopwatch, monotonic, own_cpu, process_cpu, thread_cpu};
pub use cpus::{online_cpu_list, online_cpus};
pub use descriptor_limit::descriptor_limit;
pub use forbid_writing::forbid_writing;
pub use fork::SleepingChild;
pub use malloc::keep_little_memory;
pub use mempolicy::{
    Existing, PolicyMode, allowed_nodes, bind, bind_unreadable, policy, policy_at, set_policy,
    set_policy_unreadable,
};
pub use move_pages::{STATUS_NOT_STORED, move_pages, page_nodes};
pub use node_mask::{MAX_KERNEL_NODES, NodeMask};
pub(crate) use own_pages::OwnPages;
pub use pagemap_scan::{PageState, page_state, pagemap_entry, resident_ranges};
pub use peer::{Peer, peer};
pub(crate) use privileges::may_look_at_all;
pub use privileges::{
    KeptCapabilities, drop_privileges, drop_watching, missing as missing_capabilities,
};
pub use process_madvise::{MemoryAdvice, advise_all, process_madvise, supports_advice};
#[cfg(test)]
pub(crate) use read_regular::with_other_kinds;
pub use read_regular::{open_regular, open_regular_itself, read_regular};
#[cfg(test)]
pub(crate) use refused_calls::without;
pub use signal::is_ignored;
pub use swapon::{swap_off, swap_on};
pub use touch::{probe_touch, touch};
pub(crate) use transient::is_transient;
