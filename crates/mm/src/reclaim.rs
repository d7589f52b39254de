//! Page reclaim: `shrink_lruvec` and the functions that it calls, of mm/vmscan.c.

use std::ops::AddAssign;

use serde::Serialize;

use crate::alloc::AllocRequest;
use crate::layout::ZoneKind;
use crate::lru::{DIRTY, FrameId, ListKind, LruType, Lruvec, MAPPED, RECLAIM, REFERENCED};
use crate::memory::{Memory, PageOwner};
use crate::nodes::NodeSet;
use crate::rules::LruScope;

/// Number of pages that are processed together: `SWAP_CLUSTER_MAX`.
pub(crate) const CLUSTER: i64 = 32;
/// The first pass scans 1/4096 of each list, and each later one twice as much as the previous:
/// `DEF_PRIORITY`.
pub(crate) const FIRST_PRIORITY: u32 = 12;

/// Counters of reclaim, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ReclaimStats {
    /// scanned pages
    pub scanned: u64,
    /// reclaimed pages
    pub reclaimed: u64,
}

impl AddAssign for ReclaimStats {
    fn add_assign(&mut self, other: ReclaimStats) {
        self.scanned += other.scanned;
        self.reclaimed += other.reclaimed;
    }
}

/// The task that reclaims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reclaimer {
    Kswapd,
    Direct,
}

/// The remaining scan of the lists of a zone or node, at one priority.
#[derive(Debug, Clone)]
pub(crate) struct Shrink {
    pub lruvec: usize,
    /// zones above this kind are not useful for the request
    pub class: ZoneKind,
    /// pages left to scan, in the order of [`ListKind::LRU`]
    pub left: [i64; 4],
    pub to_reclaim: u64,
    pub done: ReclaimStats,
}

impl Memory {
    /// Plans the scan of lists at a priority: `get_scan_count`.
    pub(crate) fn shrink(
        &self,
        lruvec: usize,
        priority: u32,
        class: ZoneKind,
        to_reclaim: u64,
    ) -> Shrink {
        let l = &self.lruvecs[lruvec];
        let share = |kind: LruType| self.share(lruvec, kind);
        let (anon, file) = (share(LruType::Anon), share(LruType::File));
        let left = ListKind::LRU.map(|list| {
            let len = l.len(list);
            let scan = match len >> priority {
                // Otherwise the last pages of a small list would never be scanned.
                0 => len.min(CLUSTER),
                scan => scan,
            };
            let (part, whole) = if list.lru_type() == Some(LruType::Anon) { anon } else { file };
            if whole == 0 { 0 } else { scan * part / whole }
        });
        Shrink { lruvec, class, left, to_reclaim, done: ReclaimStats::default() }
    }

    /// The share of a kind's pages that is scanned. No process memory is scanned while there are enough
    /// inactive file pages. Otherwise the share is higher, the fewer of the recently scanned pages were in
    /// use.
    fn share(&self, lruvec: usize, kind: LruType) -> (i64, i64) {
        let l = &self.lruvecs[lruvec];
        if !self.swap || !l.inactive_is_low(LruType::File) && l.len(ListKind::InactiveFile) > 0 {
            return (i64::from(kind == LruType::File), 1);
        }
        if self.is_short_of_files(lruvec) {
            return (i64::from(kind == LruType::Anon), 1);
        }
        let swappiness = i64::from(self.rules.swappiness);
        let part = |kind: LruType, weight: i64| {
            weight * (l.scanned[kind as usize] + 1) / (l.rotated[kind as usize] + 1)
        };
        let anon = part(LruType::Anon, swappiness);
        let file = part(LruType::File, 200 - swappiness);
        (if kind == LruType::Anon { anon } else { file }, anon + file + 1)
    }

    /// Whether all file pages and free pages together are below the high watermark.
    fn is_short_of_files(&self, lruvec: usize) -> bool {
        let zones = (0..self.zones.len()).filter(|&z| self.lruvec_of(z) == lruvec);
        let sums = zones.map(|z| &self.zones[z]).fold((0, 0), |(have, high), z| {
            (have + z.free.read() + z.file, high + z.watermarks.high)
        });
        sums.0 <= sums.1
    }

    /// Scans up to one cluster of each list; returns whether more remains.
    pub(crate) fn shrink_step(
        &mut self,
        shrink: &mut Shrink,
        who: Reclaimer,
        backing: &mut impl PageOwner,
    ) -> bool {
        for list in ListKind::LRU {
            let left = &mut shrink.left[list as usize];
            let scan = (*left).min(CLUSTER);
            *left -= scan;
            if scan == 0 {
                continue;
            }
            let kind = list.lru_type().unwrap_or(LruType::File);
            if !list.is_active() {
                shrink.done +=
                    self.shrink_inactive(shrink.lruvec, list, scan, shrink.class, who, backing);
            } else if self.lruvecs[shrink.lruvec].inactive_is_low(kind) {
                self.shrink_active(shrink.lruvec, kind, scan, backing);
            }
        }
        // Scanning only the active lists frees no page.
        let inactive = shrink.left[ListKind::InactiveAnon as usize]
            + shrink.left[ListKind::InactiveFile as usize]
            + shrink.left[ListKind::ActiveFile as usize];
        inactive > 0 && shrink.done.reclaimed < shrink.to_reclaim
    }

    /// Reclaims the oldest inactive pages that are neither in use nor dirty.
    fn shrink_inactive(
        &mut self,
        lruvec: usize,
        list: ListKind,
        scan: i64,
        class: ZoneKind,
        who: Reclaimer,
        backing: &mut impl PageOwner,
    ) -> ReclaimStats {
        let kind = list.lru_type().unwrap_or(LruType::File);
        let mut work = ReclaimStats::default();
        for _ in 0..scan {
            let Some(frame) = self.lruvecs[lruvec].lists[list as usize].tail() else { break };
            let zone = self.zone_of(frame);
            if self.rules.lru == LruScope::Node && self.zones[zone].kind > class {
                self.move_to(frame, list);
                continue;
            }
            work.scanned += 1;
            self.lruvecs[lruvec].scanned_one(kind);
            let z = &mut self.zones[zone];
            z.scanned_in_vain += 1;
            match who {
                Reclaimer::Kswapd => z.stats.scanned_kswapd += 1,
                Reclaimer::Direct => z.stats.scanned_direct += 1,
            }
            match self.verdict(frame, kind, backing) {
                ScanResult::Keep => self.move_to(frame, list),
                ScanResult::Activate => self.activate(frame),
                ScanResult::Reclaim => {
                    let owner = self.frames[frame as usize].owner;
                    if backing.give_up(owner, frame) {
                        work.reclaimed += 1;
                        self.note_departure(frame);
                        match who {
                            Reclaimer::Kswapd => self.zones[zone].stats.reclaimed_kswapd += 1,
                            Reclaimer::Direct => self.zones[zone].stats.reclaimed_direct += 1,
                        }
                        // The CPU does not matter here: the numbers of allocated and freed pages are equal.
                        self.free(0, frame);
                    } else {
                        self.activate(frame);
                    }
                }
            }
        }
        work
    }

    /// As `page_check_references`; also, dirty file pages are skipped until they are written.
    fn verdict(
        &mut self,
        frame: FrameId,
        kind: LruType,
        backing: &mut impl PageOwner,
    ) -> ScanResult {
        let f = &mut self.frames[frame as usize];
        let used_before = f.take(REFERENCED);
        let accessed = f.has(MAPPED) && backing.take_accessed(f.owner);
        if accessed && (kind == LruType::Anon || used_before) {
            return ScanResult::Activate;
        }
        if accessed {
            f.set(REFERENCED, true);
            return ScanResult::Keep;
        }
        if f.has(DIRTY) {
            f.set(RECLAIM, true);
            return ScanResult::Keep;
        }
        ScanResult::Reclaim
    }

    /// Deactivates the oldest active pages.
    pub(crate) fn shrink_active(
        &mut self,
        lruvec: usize,
        kind: LruType,
        scan: i64,
        backing: &mut impl PageOwner,
    ) {
        for _ in 0..scan {
            let list = &self.lruvecs[lruvec].lists[ListKind::of(kind, true) as usize];
            let Some(frame) = list.tail() else { break };
            self.lruvecs[lruvec].scanned_one(kind);
            let f = &self.frames[frame as usize];
            // A page in use is counted but deactivated too: it can be activated again.
            if f.has(MAPPED) && backing.take_accessed(f.owner) {
                self.lruvecs[lruvec].rotated[kind as usize] += 1;
                self.frames[frame as usize].set(REFERENCED, true);
            }
            self.move_to(frame, ListKind::of(kind, false));
        }
    }

    /// `try_to_free_pages`: reclaims from all zones of the list in order, with increasing effort, until a
    /// cluster is free.
    pub(crate) fn reclaim_directly(
        &mut self,
        request: &AllocRequest,
        nodes: NodeSet,
        backing: &mut impl PageOwner,
    ) -> ReclaimStats {
        let class = request.class;
        let mut work = ReclaimStats::default();
        let mut lruvecs: Vec<usize> = Vec::new();
        for zone in self.usable_zones(request, nodes) {
            let lruvec = self.lruvec_of(zone);
            if !lruvecs.contains(&lruvec) {
                lruvecs.push(lruvec);
            }
        }
        for priority in (0..=FIRST_PRIORITY).rev() {
            for &lruvec in &lruvecs {
                let mut shrink = self.shrink(lruvec, priority, class, CLUSTER.unsigned_abs());
                while self.shrink_step(&mut shrink, Reclaimer::Direct, backing) {}
                work += shrink.done;
                self.age_anon(lruvec, backing);
            }
            if work.reclaimed >= CLUSTER.unsigned_abs() {
                break;
            }
        }
        work
    }

    /// Keeps enough process pages inactive: `age_active_anon`.
    pub(crate) fn age_anon(&mut self, lruvec: usize, backing: &mut impl PageOwner) {
        if self.swap && self.lruvecs[lruvec].inactive_is_low(LruType::Anon) {
            self.shrink_active(lruvec, LruType::Anon, CLUSTER, backing);
        }
    }
}

impl Lruvec {
    /// Counts a scanned page; older counts are halved repeatedly.
    fn scanned_one(&mut self, kind: LruType) {
        let k = kind as usize;
        self.scanned[k] += 1;
        let len = self.len(ListKind::of(kind, true)) + self.len(ListKind::of(kind, false));
        if self.scanned[k] > len / 4 {
            self.scanned[k] /= 2;
            self.rotated[k] /= 2;
        }
    }
}

enum ScanResult {
    Keep,
    Activate,
    Reclaim,
}
