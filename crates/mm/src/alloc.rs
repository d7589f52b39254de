//! Page allocation: `__alloc_pages_nodemask` of mm/page_alloc.c, for single pages.

use crate::fair::{FairPass, FairVerdict};
use crate::layout::ZoneKind;
use crate::lru::{FrameId, ListKind, LruType};
use crate::memory::{Memory, PageOwner};
use crate::nodes::NodeSet;
use crate::reclaim::ReclaimStats;
use crate::zone::Zone;

/// Maximum rounds of direct reclaim before an allocation fails.
const MAX_ROUNDS: u32 = 16;

/// An allocation request. Numbers of CPUs and nodes that do not exist wrap around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocRequest {
    /// the CPU that allocates
    pub cpu: u32,
    /// the preferred node
    pub node: usize,
    /// the highest permitted kind of zone
    pub class: ZoneKind,
    /// the use of the page; `None` for unevictable memory
    pub kind: Option<LruType>,
    /// a page of a file that will be written soon: zones limit the number of such pages
    pub write: bool,
    /// the caller's identifier of the page
    pub owner: u64,
}

/// An allocated page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocated {
    /// the frame of the page
    pub frame: FrameId,
    /// pages that the caller had to reclaim first
    pub stalled: ReclaimStats,
}

/// Allocation failed: reclaim cannot free any page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "no zone has a page above its lowest watermark, and none can be reclaimed: ask for less, or give \
     the machine more memory or swap"
)]
pub struct OutOfMemory;

/// A request and its preferred zone, the first one that may serve it: zones on its node count as local.
struct ZonedRequest {
    request: AllocRequest,
    /// the permitted nodes
    nodes: NodeSet,
    preferred: usize,
    /// the kind of the preferred zone: a request for Normal that has only DMA32 available counts as a request
    /// for DMA32, with its reserve
    class: ZoneKind,
}

/// The condition that a zone must satisfy.
#[derive(Clone, Copy, PartialEq)]
enum WatermarkLevel {
    /// the low watermark; also the dirty limit, for a page that will be written
    Low,
    Min,
}

impl Memory {
    /// Allocates a page: a fair pass, then a normal pass, then the slow path, which starts kswapd, permits
    /// allocation down to the min watermark, and reclaims directly.
    ///
    /// File pages start on the inactive list, process pages on the active list.
    ///
    /// # Errors
    /// If no page is available.
    pub fn allocate(
        &mut self,
        request: AllocRequest,
        backing: &mut impl PageOwner,
    ) -> Result<Allocated, OutOfMemory> {
        self.allocate_on(request, NodeSet::ALL, backing)
    }

    /// As [`Memory::allocate`], from the given nodes only, the nearest first.
    ///
    /// # Errors
    /// If these nodes have no page available.
    pub fn allocate_on(
        &mut self,
        request: AllocRequest,
        nodes: NodeSet,
        backing: &mut impl PageOwner,
    ) -> Result<Allocated, OutOfMemory> {
        self.stats.allocations += 1;
        let wanted = self.wanted(request, nodes).ok_or_else(|| self.failure())?;
        if let Some(zone) = self.fast_path(&wanted) {
            let frame = self.take(&wanted.request, zone).ok_or(OutOfMemory)?;
            return Ok(Allocated { frame, stalled: ReclaimStats::default() });
        }
        self.slow_path(&wanted, backing)
    }

    fn wanted(&self, request: AllocRequest, nodes: NodeSet) -> Option<ZonedRequest> {
        let (cpu, node) = (request.cpu % self.cpus, request.node % self.nodes());
        let request = AllocRequest { cpu, node, ..request };
        let preferred = self.usable_zones(&request, nodes).next()?;
        let class = self.zones[preferred].kind;
        Some(ZonedRequest { request, nodes, preferred, class })
    }

    /// The zonelist of a request, limited to these nodes.
    pub(crate) fn usable_zones(
        &self,
        request: &AllocRequest,
        nodes: NodeSet,
    ) -> impl Iterator<Item = usize> + '_ {
        let list = self.zonelist(request.node, request.class).iter().copied();
        list.filter(move |&z| nodes.contains(self.zones[z].node))
    }

    fn failure(&mut self) -> OutOfMemory {
        self.stats.failures += 1;
        OutOfMemory
    }

    fn slow_path(
        &mut self,
        wanted: &ZonedRequest,
        backing: &mut impl PageOwner,
    ) -> Result<Allocated, OutOfMemory> {
        let request = &wanted.request;
        self.stats.slow_paths += 1;
        self.wake_kswapds(request, wanted.nodes);
        let mut stalled = ReclaimStats::default();
        for round in 0..=MAX_ROUNDS {
            if let Some(zone) = self.plain_pass(wanted, WatermarkLevel::Min) {
                let frame = self.take(request, zone).ok_or(OutOfMemory)?;
                return Ok(Allocated { frame, stalled });
            }
            self.stats.stalls += u64::from(round == 0);
            let work = self.reclaim_directly(request, wanted.nodes, backing);
            stalled += work;
            if work.reclaimed == 0 {
                break;
            }
        }
        Err(self.failure())
    }

    /// The zone that serves a request without the slow path. This may reset batches.
    fn fast_path(&mut self, wanted: &ZonedRequest) -> Option<usize> {
        if self.policy.has_fair_pass() {
            let mut pass = FairPass::default();
            if let Some(zone) = self.fair_pass(wanted, &mut pass) {
                return Some(zone);
            }
            let after = self.policy.after(&pass, self.nodes());
            if after.reset {
                self.reset_batches(wanted);
            }
            if !after.rescan {
                return None;
            }
        }
        self.plain_pass(wanted, WatermarkLevel::Low)
    }

    fn fair_pass(&mut self, wanted: &ZonedRequest, pass: &mut FairPass) -> Option<usize> {
        self.stats.passes += 1;
        let node = self.zones[wanted.preferred].node;
        for z in self.list(wanted) {
            let zone = &self.zones[z];
            match self.policy.judge(pass, zone, zone.node == node) {
                FairVerdict::Stop => break,
                FairVerdict::Take if is_usable(zone, wanted, WatermarkLevel::Low) => {
                    return Some(z);
                }
                FairVerdict::Take | FairVerdict::Skip => {}
            }
        }
        None
    }

    fn plain_pass(&mut self, wanted: &ZonedRequest, mark: WatermarkLevel) -> Option<usize> {
        self.stats.passes += 1;
        self.list(wanted).find(|&z| is_usable(&self.zones[z], wanted, mark))
    }

    fn list(&self, wanted: &ZonedRequest) -> impl Iterator<Item = usize> + '_ {
        self.usable_zones(&wanted.request, wanted.nodes)
    }

    fn take(&mut self, request: &AllocRequest, zone: usize) -> Option<FrameId> {
        let policy = self.policy;
        let z = &mut self.zones[zone];
        let frame = z.free_frames.pop()?;
        z.free.add(request.cpu, -1);
        z.batch.add(request.cpu, -1);
        z.stats.allocated += 1;
        policy.charged(z);
        let remote = z.node != request.node;
        self.stats.remote += u64::from(remote);
        let f = &mut self.frames[frame as usize];
        (f.owner, f.born, f.flags) = (request.owner, self.now, 0);
        let list = match request.kind {
            Some(kind) => ListKind::of(kind, kind == LruType::Anon),
            None => ListKind::Unevictable,
        };
        self.put_on_list(frame, list);
        Some(frame)
    }

    /// Resets the batches of the local zones of the list: `reset_alloc_batches`.
    fn reset_batches(&mut self, wanted: &ZonedRequest) {
        let AllocRequest { cpu, node, class, .. } = wanted.request;
        let local = self.zones[wanted.preferred].node;
        self.stats.resets += 1;
        for &z in &self.zonelists[node][class.index()] {
            let zone = &mut self.zones[z];
            if zone.node == local {
                let missing = zone.missing_batch();
                zone.add_to_batch(cpu, missing);
            }
        }
    }
}

#[inline]
fn is_usable(zone: &Zone, wanted: &ZonedRequest, mark: WatermarkLevel) -> bool {
    let enough = match mark {
        WatermarkLevel::Low => {
            zone.is_above(zone.watermarks.low, wanted.class)
                && (!wanted.request.write || zone.is_within_dirty_limit())
        }
        WatermarkLevel::Min => zone.is_above(zone.watermarks.min, wanted.class),
    };
    enough && !zone.free_frames.is_empty()
}
