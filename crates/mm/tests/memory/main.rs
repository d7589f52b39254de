//! Memory under generated loads, on generated machines.
#![allow(clippy::expect_used, clippy::unwrap_used)]

mod fairness;
mod invariants;
mod slow_path;

use isotherm_mm::{AllocRequest, FrameId, Layout, LruType, Memory, PageOwner, Rules, ZoneKind};
use proptest::prelude::*;

/// Pages by key, which can be reclaimed at any time.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pub(crate) held: Vec<Option<FrameId>>,
    /// whether the page was accessed, by key
    pub(crate) accessed: Vec<bool>,
}

impl PageOwner for Pages {
    fn take_accessed(&mut self, owner: u64) -> bool {
        std::mem::take(&mut self.accessed[usize::try_from(owner).unwrap()])
    }

    fn give_up(&mut self, owner: u64, frame: FrameId) -> bool {
        let held = self.held[usize::try_from(owner).unwrap()].take();
        assert_eq!(held, Some(frame), "a page is taken back from who holds it");
        true
    }
}

impl Pages {
    pub(crate) fn allocate(
        &mut self,
        memory: &mut Memory,
        request: AllocRequest,
    ) -> Option<FrameId> {
        let owner = self.held.len() as u64;
        self.held.push(None);
        self.accessed.push(false);
        let frame = memory.allocate(AllocRequest { owner, ..request }, self).ok()?.frame;
        self.held[usize::try_from(owner).unwrap()] = Some(frame);
        Some(frame)
    }
}

pub(crate) fn file(cpu: u32) -> AllocRequest {
    let kind = Some(LruType::File);
    AllocRequest { cpu, node: 0, class: ZoneKind::Normal, kind, write: false, owner: 0 }
}

/// Streams a file of `pages` pages through memory while kswapd keeps pace. Returns the number of resets.
pub(crate) fn stream(memory: &mut Memory, pages: u32, cpus: u32) -> u64 {
    let mut held = Pages::default();
    let before = memory.stats().resets;
    for i in 0..pages {
        held.allocate(memory, file(i % cpus)).expect("clean pages can be taken back");
        if i % 32 == 31 {
            for node in 0..memory.nodes() {
                memory.run_kswapd(node, 128, &mut held);
            }
        }
    }
    memory.stats().resets - before
}

/// One node of 5 to 10 GiB, with or without a DMA zone, with a DMA32 and a Normal zone.
///
/// From 4 GiB on, only requests for DMA memory get it: the reserve of the zone is larger than the zone.
pub(crate) fn one_node(dma: bool) -> impl Strategy<Value = Layout> {
    (1_u32..9, 500_000_i64..780_000, 550_000_i64..1_700_000).prop_map(move |(cpus, low, normal)| {
        let zones = [(ZoneKind::Dma, 3976), (ZoneKind::Dma32, low), (ZoneKind::Normal, normal)];
        Layout::single(cpus, if dma { &zones } else { &zones[1..] })
    })
}

pub(crate) fn memory(layout: &Layout, rules: Rules) -> Memory {
    Memory::new(layout, rules).expect("the layout makes sense")
}
