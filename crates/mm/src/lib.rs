//! The rules of Linux's zoned page allocator and of reclaim, without I/O, clocks or threads.
//!
//! [`Memory`] has nodes with zones. It allocates single pages by the kernel's watermarks, zonelists and one of its
//! fair policies, keeps them on active and inactive lists, and reclaims them when memory is short. It reclaims
//! directly if necessary, and by kswapd when the caller runs it ([`Memory::run_kswapd`]). The rules are those of
//! Linux 3.15 or of 4.8 ([`Rules`]); each formula names the kernel function that it is from. [`mempolicy`] selects
//! the node for a page.
//!
//! ```
//! use isotherm_mm::{AllocRequest, Fair, Layout, Memory, LruType, ZoneKind};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let layout = Layout::single(1, &[(ZoneKind::Dma32, 1000), (ZoneKind::Normal, 3000)]);
//! let mut memory = Memory::new(&layout, Fair::Baseline.rules())?;
//! let request = AllocRequest {
//!     cpu: 0, node: 0, class: ZoneKind::Normal, kind: Some(LruType::File), write: false, owner: 7,
//! };
//! let page = memory.allocate(request, &mut ())?.frame;
//! assert_eq!(memory.owner_of(page), 7);
//! assert_eq!(memory.zones()[memory.zone_of(page)].kind, ZoneKind::Normal);
//! memory.free(0, page);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod alloc;
mod counter;
pub mod fair;
mod fairness;
mod fragmentation;
mod kswapd;
mod layout;
mod lru;
mod memory;
pub mod mempolicy;
mod nodes;
mod pages;
mod reclaim;
mod rules;
mod watermark;
mod zone;
mod zonelist;

pub use alloc::{AllocRequest, Allocated, OutOfMemory};
pub use counter::{Counter, normal_threshold, pressure_threshold};
pub use fair::{FAIR, Fair};
pub use fairness::jain;
pub use fragmentation::unusable_free_index;
pub use layout::{
    KINDS, Layout, LayoutError, MAX_CPUS, MAX_NODES, MAX_PAGES, NodeLayout, ZoneKind, ZoneLayout,
};
pub use lru::{FrameId, ListKind, LruType};
pub use memory::{AllocStats, Departure, Memory, PageOwner};
pub use nodes::NodeSet;
pub use reclaim::ReclaimStats;
pub use rules::{LruScope, Rules, ZoneBalance};
pub use watermark::{
    WatermarkRule, ZoneWatermarks, lowmem, lowmem_reserve, min_free_kbytes, watermarks,
};
pub use zone::{Zone, ZoneStats};
pub use zonelist::{ZonelistOrder, zonelists};
