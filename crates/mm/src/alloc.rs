//! Giving out pages: `__alloc_pages_nodemask` of mm/page_alloc.c, for single pages.

use crate::fair::{FairPass, Verdict};
use crate::layout::ZoneKind;
use crate::lru::{FrameId, ListKind, PageKind};
use crate::memory::{Backing, Memory};
use crate::reclaim::Work;

/// Rounds of direct reclaim before an allocation fails.
const MAX_ROUNDS: u32 = 16;

/// What is asked for. CPUs and nodes that there are not are counted on from the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// who asks
    pub cpu: u32,
    /// of which node
    pub node: usize,
    /// the highest kind of zone that will do
    pub class: ZoneKind,
    /// what it is for; none: for what stays
    pub kind: Option<PageKind>,
    /// a page of a file that is about to be written: zones have a limit of these
    pub write: bool,
    /// what the caller knows the page by
    pub owner: u64,
}

/// What was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocated {
    /// the page
    pub frame: FrameId,
    /// what the caller had to reclaim for it
    pub stalled: Work,
    /// whether it took the slow path
    pub slow: bool,
}

/// Nothing can be given, whatever is reclaimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "no zone has a page above its lowest watermark, and none can be reclaimed: ask for less, or give \
     the machine more memory or swap"
)]
pub struct OutOfMemory;

/// What a zone is held against.
#[derive(Clone, Copy, PartialEq)]
enum Mark {
    /// and the dirty limit, for a page that is to be written
    Low,
    Min,
}

impl Memory {
    /// Gives out a page: a fair pass, a plain one, then the slow path: kswapd is woken, the lowest
    /// watermark will do, and memory is reclaimed for it.
    ///
    /// Pages of files begin on their inactive list, those of processes on their active one.
    ///
    /// # Errors
    /// If there is none.
    pub fn allocate(
        &mut self,
        request: Request,
        backing: &mut impl Backing,
    ) -> Result<Allocated, OutOfMemory> {
        let (cpu, node) = (request.cpu % self.cpus, request.node % self.nodes());
        let request = Request { cpu, node, ..request };
        self.stats.allocations += 1;
        if let Some(zone) = self.fast_path(&request) {
            let frame = self.take(&request, zone).ok_or(OutOfMemory)?;
            return Ok(Allocated { frame, stalled: Work::default(), slow: false });
        }
        self.stats.slow_paths += 1;
        self.wake_kswapds(&request);
        let mut stalled = Work::default();
        for round in 0..=MAX_ROUNDS {
            if let Some(zone) = self.plain_pass(&request, Mark::Min) {
                let frame = self.take(&request, zone).ok_or(OutOfMemory)?;
                return Ok(Allocated { frame, stalled, slow: true });
            }
            self.stats.stalls += u64::from(round == 0);
            let work = self.reclaim_directly(request.node, request.class, backing);
            stalled += work;
            if work.reclaimed == 0 {
                break;
            }
        }
        self.stats.failures += 1;
        Err(OutOfMemory)
    }

    /// The zone that a request gets its page from without the slow path. Batches may be set anew
    /// on the way.
    fn fast_path(&mut self, request: &Request) -> Option<usize> {
        if self.policy.has_fair_pass() {
            let mut pass = FairPass::default();
            if let Some(zone) = self.fair_pass(request, &mut pass) {
                return Some(zone);
            }
            let after = self.policy.after(&pass, self.nodes());
            if after.reset {
                self.reset_batches(request);
            }
            if !after.rescan {
                return None;
            }
        }
        self.plain_pass(request, Mark::Low)
    }

    fn fair_pass(&mut self, request: &Request, pass: &mut FairPass) -> Option<usize> {
        self.stats.passes += 1;
        let list = &self.zonelists[request.node][request.class.index()];
        let preferred = self.preferred(request)?;
        for &z in list {
            let local = self.zones[z].node == self.zones[preferred].node;
            match self.policy.judge(pass, &self.zones[z], local) {
                Verdict::Stop => break,
                Verdict::Take if self.is_usable(z, request, Mark::Low) => return Some(z),
                Verdict::Take | Verdict::Skip => {}
            }
        }
        None
    }

    fn plain_pass(&mut self, request: &Request, mark: Mark) -> Option<usize> {
        self.stats.passes += 1;
        let list = &self.zonelists[request.node][request.class.index()];
        list.iter().copied().find(|&z| self.is_usable(z, request, mark))
    }

    #[inline]
    fn is_usable(&self, zone: usize, request: &Request, mark: Mark) -> bool {
        let z = &self.zones[zone];
        // A request for Normal that has only DMA32 left is one for DMA32, with its reserve.
        let class = self.preferred(request).map_or(request.class, |p| self.zones[p].kind);
        let enough = match mark {
            Mark::Low => {
                z.is_above(z.watermarks.low, class) && (!request.write || z.is_within_dirty_limit())
            }
            Mark::Min => z.is_above(z.watermarks.min, class),
        };
        enough && !z.free_frames.is_empty()
    }

    /// The first zone of the list: what is local is local to it.
    #[inline]
    fn preferred(&self, request: &Request) -> Option<usize> {
        self.zonelists[request.node][request.class.index()].first().copied()
    }

    fn take(&mut self, request: &Request, zone: usize) -> Option<FrameId> {
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
            Some(kind) => ListKind::of(kind, kind == PageKind::Anon),
            None => ListKind::Unevictable,
        };
        self.put_on_list(frame, list);
        Some(frame)
    }

    /// Sets the batches of the local zones of the list anew: `reset_alloc_batches`.
    fn reset_batches(&mut self, request: &Request) {
        let Some(node) = self.preferred(request).map(|p| self.zones[p].node) else { return };
        self.stats.resets += 1;
        for &z in &self.zonelists[request.node][request.class.index()] {
            let zone = &mut self.zones[z];
            if zone.node == node {
                let missing = zone.missing_batch();
                zone.add_to_batch(request.cpu, missing);
            }
        }
    }
}
