//! The memory of a machine: frames, zones, lists.

use serde::Serialize;

use crate::fair::FairPolicy;
use crate::kswapd::Kswapd;
use crate::layout::{Layout, LayoutError, ZoneKind};
use crate::lru::{FrameId, ListKind, Lruvec, PageFrame};
use crate::rules::{LruScope, Rules};
use crate::watermark::{lowmem, lowmem_reserve, min_free_kbytes, watermarks};
use crate::zone::Zone;
use crate::zonelist::zonelists;

/// The owner of the pages: reclaim asks it before it reclaims a page.
pub trait PageOwner {
    /// Whether a mapped page was accessed since the last call.
    fn take_accessed(&mut self, _owner: u64) -> bool {
        false
    }

    /// Drops or swaps out a page. Returns whether that was possible.
    fn give_up(&mut self, owner: u64, frame: FrameId) -> bool;
}

/// Pages that may be dropped without notice.
impl PageOwner for () {
    fn give_up(&mut self, _owner: u64, _frame: FrameId) -> bool {
        true
    }
}

/// Counters of allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct AllocStats {
    /// pages asked for
    pub allocations: u64,
    /// passes through a zonelist, including those of slow paths
    pub passes: u64,
    /// resets of a node's batches
    pub resets: u64,
    /// allocations that took the slow path
    pub slow_paths: u64,
    /// allocations that had to reclaim directly
    pub stalls: u64,
    /// allocations that failed
    pub failures: u64,
    /// allocations from a remote node
    pub remote: u64,
    /// wakeups of a kswapd
    pub wakeups: u64,
}

impl AllocStats {
    /// The differences from `before`.
    #[must_use]
    pub fn since(&self, before: &AllocStats) -> AllocStats {
        AllocStats {
            allocations: self.allocations - before.allocations,
            passes: self.passes - before.passes,
            resets: self.resets - before.resets,
            slow_paths: self.slow_paths - before.slow_paths,
            stalls: self.stalls - before.stalls,
            failures: self.failures - before.failures,
            remote: self.remote - before.remote,
            wakeups: self.wakeups - before.wakeups,
        }
    }
}

/// A reclaimed page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departure {
    /// zone of the page
    pub zone: usize,
    /// time of reclaim, in the caller's unit
    pub at: u64,
    /// time since its allocation, in the same unit
    pub age: u64,
}

/// Zones, frames and lists, managed by a kernel's rules.
///
/// The caller sets the time with [`Memory::set_now`], and runs kswapd with [`Memory::run_kswapd`].
#[derive(Debug)]
pub struct Memory {
    pub(crate) zones: Vec<Zone>,
    pub(crate) frames: Vec<PageFrame>,
    pub(crate) lruvecs: Vec<Lruvec>,
    pub(crate) kswapds: Vec<Kswapd>,
    /// by node, then by [`ZoneKind::index`]
    pub(crate) zonelists: Vec<[Vec<usize>; 5]>,
    pub(crate) rules: Rules,
    pub(crate) policy: &'static dyn FairPolicy,
    pub(crate) stats: AllocStats,
    pub(crate) cpus: u32,
    pub(crate) now: u64,
    pub(crate) swap: bool,
    departures: Option<Vec<Departure>>,
}

impl Memory {
    /// Creates memory in which all pages are free.
    ///
    /// # Errors
    /// If the layout is invalid.
    pub fn new(layout: &Layout, rules: Rules) -> Result<Self, LayoutError> {
        layout.check()?;
        let lowmem = lowmem(layout);
        let by_size = min_free_kbytes(lowmem, rules.watermarks);
        let kbytes = rules.min_free_kbytes.map_or(by_size, i64::from);
        let (mut zones, mut frames) = (Vec::new(), Vec::<PageFrame>::new());
        for (node, n) in layout.nodes.iter().enumerate() {
            for (i, z) in n.zones.iter().enumerate() {
                let marks = watermarks(z.kind, z.managed, lowmem, kbytes, rules.watermarks);
                let number = u16::try_from(zones.len()).unwrap_or(u16::MAX);
                let first = id(frames.len());
                let pages = usize::try_from(z.managed).unwrap_or(0);
                frames.resize(frames.len() + pages, PageFrame::new(number));
                let reserve = lowmem_reserve(n, i);
                let range = first..id(frames.len());
                zones.push(Zone::new((z.kind, node), range, marks, reserve, layout.cpus));
            }
        }
        if !rules.drift {
            zones.iter_mut().for_each(Zone::without_drift);
        }
        let lruvecs = match rules.lru {
            LruScope::Zone => zones.len(),
            LruScope::Node => layout.nodes.len(),
        };
        let number =
            |node, kind| zones.iter().position(|z| z.node == node && z.kind.index() == kind);
        let nodes = 0..layout.nodes.len();
        let list = |node| zonelists(layout, node, rules.zonelist, number);
        Ok(Memory {
            zonelists: nodes.clone().map(list).collect(),
            lruvecs: (0..lruvecs).map(|_| Lruvec::new()).collect(),
            kswapds: nodes.map(|_| Kswapd::default()).collect(),
            policy: rules.fair.policy(),
            zones,
            frames,
            rules,
            stats: AllocStats::default(),
            cpus: layout.cpus,
            now: 0,
            swap: false,
            departures: None,
        })
    }

    /// Sets the time, in any unit; ages of pages are differences.
    pub fn set_now(&mut self, now: u64) {
        self.now = now;
    }

    /// Sets whether process pages can be swapped out; initially they cannot.
    pub fn set_swap(&mut self, swap: bool) {
        self.swap = swap;
    }

    /// From now on, records each reclaimed page for [`Memory::drain_departures`].
    pub fn note_departures(&mut self) {
        self.departures = Some(Vec::new());
    }

    /// The pages that were reclaimed since the last call.
    pub fn drain_departures(&mut self) -> impl Iterator<Item = Departure> + '_ {
        self.departures.iter_mut().flat_map(|d| d.drain(..))
    }

    /// All zones, by node and then in ascending order of kind.
    #[must_use]
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// Mutable access to a zone, to set up an experiment; its pages stay in place.
    pub fn zone_mut(&mut self, zone: usize) -> Option<&mut Zone> {
        self.zones.get_mut(zone)
    }

    /// Makes up to `pages` free pages of a zone permanently used, without applying any rule, to set up an
    /// experiment. Returns their number.
    pub fn occupy(&mut self, zone: usize, pages: i64) -> i64 {
        let Some(z) = self.zones.get_mut(zone) else { return 0 };
        let free = z.free_frames.len();
        let taken = z.free_frames.split_off(free - usize::try_from(pages).unwrap_or(0).min(free));
        let n: i64 = taken.iter().map(|_| 1).sum();
        z.free.add(0, -n);
        z.stats.allocated += n.unsigned_abs();
        taken.into_iter().for_each(|f| self.put_on_list(f, ListKind::Unevictable));
        n
    }

    /// The counters since the start.
    #[must_use]
    pub fn stats(&self) -> &AllocStats {
        &self.stats
    }

    /// The rules in use.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Number of nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.kswapds.len()
    }

    /// The zones for a page of `class` on `node`, in order of preference.
    #[must_use]
    pub fn zonelist(&self, node: usize, class: ZoneKind) -> &[usize] {
        self.zonelists.get(node).map_or(&[], |lists| &lists[class.index()])
    }

    /// The zone of a frame.
    #[must_use]
    pub fn zone_of(&self, frame: FrameId) -> usize {
        self.frames[frame as usize].zone.into()
    }

    /// The list of a frame.
    #[must_use]
    pub fn list_of(&self, frame: FrameId) -> ListKind {
        self.frames[frame as usize].list
    }

    /// The caller's identifier of a page.
    #[must_use]
    pub fn owner_of(&self, frame: FrameId) -> u64 {
        self.frames[frame as usize].owner
    }

    /// Number of pages on a list, over all zones or nodes.
    #[must_use]
    pub fn list_len(&self, kind: ListKind) -> i64 {
        let lists = ListKind::LRU.contains(&kind);
        if lists { self.lruvecs.iter().map(|l| l.len(kind)).sum() } else { 0 }
    }

    /// The frames on a list, the most recent first: of a zone, or of its node if lists are per node.
    pub fn on_list(&self, zone: usize, kind: ListKind) -> impl Iterator<Item = FrameId> + '_ {
        let list = self.lruvecs.get(self.lruvec_of(zone)).zip(ListKind::LRU.get(kind as usize));
        list.into_iter().flat_map(move |(l, &k)| l.lists[k as usize].iter(&self.frames))
    }

    /// Makes CPUs report their counters, as the kernel does every second.
    pub fn fold_counters(&mut self) {
        for zone in &mut self.zones {
            zone.free.fold();
            zone.batch.fold();
        }
    }

    pub(crate) fn note_departure(&mut self, frame: FrameId) {
        let f = &self.frames[frame as usize];
        let (zone, age) = (usize::from(f.zone), self.now.saturating_sub(f.born));
        self.zones[zone].stats.age_sum += u128::from(age);
        let at = self.now;
        if let Some(departures) = &mut self.departures {
            departures.push(Departure { zone, at, age });
        }
    }
}

fn id(n: usize) -> FrameId {
    FrameId::try_from(n).unwrap_or(FrameId::MAX)
}
