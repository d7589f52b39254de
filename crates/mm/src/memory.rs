//! Memory as a whole: frames, zones, lists.

use serde::Serialize;

use crate::fair::FairPolicy;
use crate::kswapd::Kswapd;
use crate::layout::{Layout, LayoutError, ZoneKind};
use crate::lru::{Frame, FrameId, ListKind, Lruvec};
use crate::rules::{LruScope, Rules};
use crate::watermark::{lowmem, lowmem_reserve, min_free_kbytes, watermarks};
use crate::zone::Zone;
use crate::zonelist::zonelists;

/// Who uses the pages: asked before one is taken back.
pub trait Backing {
    /// Whether a page in page tables was accessed since the last time it was asked.
    fn take_accessed(&mut self, _owner: u64) -> bool {
        false
    }

    /// Gives a page up: it is dropped or swapped out. Whether that could be done.
    fn give_up(&mut self, owner: u64, frame: FrameId) -> bool;
}

/// Pages that may be dropped without a word.
impl Backing for () {
    fn give_up(&mut self, _owner: u64, _frame: FrameId) -> bool {
        true
    }
}

/// What has happened to allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct AllocStats {
    /// pages asked for
    pub allocations: u64,
    /// zonelists gone through for them, slow paths included
    pub passes: u64,
    /// times that batches of a node were set anew
    pub resets: u64,
    /// went to the slow path
    pub slow_paths: u64,
    /// had to reclaim by themselves
    pub stalls: u64,
    /// found nothing
    pub failures: u64,
    /// came from another node
    pub remote: u64,
    /// times that a kswapd was woken
    pub wakeups: u64,
}

impl AllocStats {
    /// What has happened since `before`.
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

/// A page that was taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departure {
    /// of which zone
    pub zone: usize,
    /// when, in the caller's unit of time
    pub at: u64,
    /// how long after it was given out
    pub age: u64,
}

/// Zones, frames and lists, managed by a kernel's rules.
///
/// Time is whatever [`Memory::set_now`] says, and kswapd does as much as [`Memory::run_kswapd`]
/// lets it.
#[derive(Debug)]
pub struct Memory {
    pub(crate) zones: Vec<Zone>,
    pub(crate) frames: Vec<Frame>,
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
    /// All of it free.
    ///
    /// # Errors
    /// If there can be no such memory.
    pub fn new(layout: &Layout, rules: Rules) -> Result<Self, LayoutError> {
        layout.check()?;
        let lowmem = lowmem(layout);
        let by_size = min_free_kbytes(lowmem, rules.watermarks);
        let kbytes = rules.min_free_kbytes.map_or(by_size, i64::from);
        let (mut zones, mut frames) = (Vec::new(), Vec::<Frame>::new());
        for (node, n) in layout.nodes.iter().enumerate() {
            for (i, z) in n.zones.iter().enumerate() {
                let marks = watermarks(z.kind, z.managed, lowmem, kbytes, rules.watermarks);
                let number = u16::try_from(zones.len()).unwrap_or(u16::MAX);
                let first = id(frames.len());
                let pages = usize::try_from(z.managed).unwrap_or(0);
                frames.resize(frames.len() + pages, Frame::new(number));
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

    /// The time, in any unit: pages are as old as the difference.
    pub fn set_now(&mut self, now: u64) {
        self.now = now;
    }

    /// Whether pages of processes can be swapped out at all; not, at first.
    pub fn set_swap(&mut self, swap: bool) {
        self.swap = swap;
    }

    /// From now on keep note of each page taken back, for [`Memory::drain_departures`].
    pub fn note_departures(&mut self) {
        self.departures = Some(Vec::new());
    }

    /// Pages taken back since the last time.
    pub fn drain_departures(&mut self) -> impl Iterator<Item = Departure> + '_ {
        self.departures.iter_mut().flat_map(|d| d.drain(..))
    }

    /// Node by node, the lowest first.
    #[must_use]
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// A zone, to be brought into a state for an experiment; its pages stay where they are.
    pub fn zone_mut(&mut self, zone: usize) -> Option<&mut Zone> {
        self.zones.get_mut(zone)
    }

    /// Puts up to so many free pages of a zone to a use that stays, past all rules: to bring memory
    /// into a state for an experiment. How many there were.
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

    /// What has happened so far.
    #[must_use]
    pub fn stats(&self) -> &AllocStats {
        &self.stats
    }

    /// The rules it is managed by.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// How many nodes there are.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.kswapds.len()
    }

    /// The zones that are asked for a page of `class` on `node`, the first first.
    #[must_use]
    pub fn zonelist(&self, node: usize, class: ZoneKind) -> &[usize] {
        self.zonelists.get(node).map_or(&[], |lists| &lists[class.index()])
    }

    /// The zone of a frame.
    #[must_use]
    pub fn zone_of(&self, frame: FrameId) -> usize {
        self.frames[frame as usize].zone.into()
    }

    /// Where a frame is.
    #[must_use]
    pub fn list_of(&self, frame: FrameId) -> ListKind {
        self.frames[frame as usize].list
    }

    /// What the caller knows a page by.
    #[must_use]
    pub fn owner_of(&self, frame: FrameId) -> u64 {
        self.frames[frame as usize].owner
    }

    /// When a page was given out.
    #[must_use]
    pub fn born(&self, frame: FrameId) -> u64 {
        self.frames[frame as usize].born
    }

    /// Pages on a list, over all zones or nodes.
    #[must_use]
    pub fn list_len(&self, kind: ListKind) -> i64 {
        let lists = ListKind::LRU.contains(&kind);
        if lists { self.lruvecs.iter().map(|l| l.len(kind)).sum() } else { 0 }
    }

    /// Frames on a list, the most recent first: those of a zone, or of its node if lists are per
    /// node.
    pub fn on_list(&self, zone: usize, kind: ListKind) -> impl Iterator<Item = FrameId> + '_ {
        let list = self.lruvecs.get(self.lruvec_of(zone)).zip(ListKind::LRU.get(kind as usize));
        list.into_iter().flat_map(move |(l, &k)| l.lists[k as usize].iter(&self.frames))
    }

    /// Counts that CPUs keep to themselves are handed in, as the kernel has it done each second.
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
