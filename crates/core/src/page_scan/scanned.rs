//! The state of a target.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand_core::Rng;

use super::piece::ScannedPiece;
use super::view::{parts, view};
use crate::attrs::Attrs;
use crate::borders::{FIRST_PASS, Joined, cover, fit};
use crate::call::TargetId;
use crate::ops::{Ask, Mapping, Seen};
use crate::range::{AddrRange, align_down, join_touching, join_within};
use crate::region::leave_out;
use crate::roster::RosterMember;
use crate::snapshot::RegionView;
use crate::survey::{BLOCK_SIZE, Block, Cleared, one_each};
use crate::time::Nanos;
use crate::unobservable::{MAX_ASKS, UnobservableMappings, next_in_turn};

/// A target and the state of its memory.
pub(super) struct ScannedTarget {
    pub id: TargetId,
    pub mappings: Arc<Vec<Mapping>>,
    /// observable mappings
    pub visible: Vec<AddrRange>,
    /// unobservable mappings
    unobservable: UnobservableMappings,
    /// resident memory, by start address
    pieces: BTreeMap<u64, ScannedPiece>,
    /// mapped bytes that no region covers
    pub left_out: u64,
    /// run time at the last snapshot
    pub ran: Option<Duration>,
    /// position in the rotation among hidden windows that are asked about
    turn: usize,
}

impl RosterMember for ScannedTarget {
    fn id(&self) -> TargetId {
        self.id
    }
}

impl ScannedTarget {
    pub fn new(id: TargetId) -> Self {
        ScannedTarget {
            id,
            mappings: Arc::default(),
            visible: Vec::new(),
            unobservable: UnobservableMappings::default(),
            pieces: BTreeMap::new(),
            left_out: 0,
            ran: None,
            turn: 0,
        }
    }

    /// Drops all state, because the target has a new address space.
    pub fn forget(&mut self) {
        *self = ScannedTarget { ran: self.ran, ..ScannedTarget::new(self.id) };
    }

    /// Subtracts `ms` from all times; times before the new origin become 0.
    pub fn rebase(&mut self, ms: u32) {
        self.pieces.values_mut().for_each(|p| p.rebase(ms));
    }

    /// Applies the mappings, which are sorted and disjoint.
    pub fn map(&mut self, mappings: Vec<Mapping>) {
        if *self.mappings == mappings {
            return;
        }
        self.unobservable.map(&mappings);
        self.visible = mappings.iter().filter(|m| m.unknown.is_none()).map(|m| m.range).collect();
        self.mappings = Arc::new(mappings);
        for (_, old) in std::mem::take(&mut self.pieces) {
            let parts = in_block(&self.visible, old.block());
            for range in parts.filter(|r| r.intersect(&old.range).is_some()) {
                let new = || ScannedPiece::new(range, 0);
                self.pieces.entry(range.start).or_insert_with(new).take_over(&old);
            }
        }
    }

    /// Applies a read of all blocks; `counts` states whether it counts as a sample.
    pub fn read(&mut self, blocks: &[Block], began: Nanos, counts: bool) {
        self.pieces.values_mut().for_each(|p| p.missing += 1);
        for block in one_each(blocks) {
            let ms = block.read_at.since(began).as_micros().div_ceil(1000);
            let ms = u32::try_from(ms).unwrap_or(u32::MAX);
            for range in in_block(&self.visible, block.start) {
                let piece =
                    self.pieces.entry(range.start).or_insert_with(|| ScannedPiece::new(range, ms));
                piece.read(&block, ms, counts);
                piece.missing = 0;
            }
        }
        // A block that changes while it is read is missing once.
        self.pieces.retain(|_, p| p.missing < 2 && !p.resident.is_empty());
    }

    /// The runs of pages to clear, each within one mapping; with `all`, all pages.
    pub fn runs(&self, all: bool) -> Vec<AddrRange> {
        let due = self.pieces.values().filter(|p| all || p.is_due());
        join_within(due.map(|p| p.range), &self.visible)
    }

    /// Applies the results of a clear.
    pub fn clear(&mut self, done: &[Cleared], began: Nanos) {
        for c in done {
            let ms = u32::try_from(c.cleared_at.since(began).as_millis()).unwrap_or(u32::MAX);
            let block = c.start..c.start + BLOCK_SIZE;
            self.pieces.range_mut(block).for_each(|(_, piece)| piece.clear(c, ms));
        }
    }

    /// Resident pages of observable mappings.
    pub fn resident_pages(&self) -> u64 {
        self.pieces.values().map(|p| u64::from(p.resident.count())).sum()
    }

    /// Number of areas of mapped memory.
    pub fn areas(&self) -> usize {
        join_touching(self.visible.iter().copied()).len() + self.unobservable.len()
    }

    /// Windows to ask about because their accessed bits carry no information, a limited number at a time.
    pub fn ask_hidden(&mut self, rng: &mut impl Rng, size: u64) -> Vec<Ask> {
        let target = self.id;
        let mut asks = self.unobservable.asks(target, rng, size, |_| true);
        let windows = |p: &ScannedPiece| {
            let (range, unseen) = (p.range, p.unseen());
            let first = align_down(range.start, size);
            let count = (range.end - first).div_ceil(size);
            let windows = (0..count)
                .map(move |i| first + i * size)
                .filter_map(move |start| AddrRange::new(start, start + size).intersect(&range));
            windows.filter(|w| !unseen.and(&p.span(*w)).is_empty()).collect::<Vec<_>>()
        };
        let hidden = self.pieces.values().filter(|p| !p.hidden.is_empty());
        let windows: Vec<AddrRange> = hidden.flat_map(windows).collect();
        let due = next_in_turn(&windows, MAX_ASKS, &mut self.turn);
        asks.extend(due.map(|&range| Ask { target, range, clear: false }));
        asks
    }

    /// Applies the answers.
    pub fn take_answers(&mut self, asks: &[Ask], seen: &[Seen], ms: u32, sample: Duration) {
        for (ask, seen) in asks.iter().zip(seen).filter(|(_, s)| s.pages > 0) {
            if self.unobservable.take_answer(ask, seen) {
                continue;
            }
            if let Some((_, p)) = self.pieces.range_mut(..=ask.range.start).next_back() {
                p.take_report(ask.range, seen, ms, sample);
            }
        }
    }

    /// Makes the regions of a snapshot, at most `max` of them, and begins the next interval.
    pub fn make_regions(
        &mut self,
        attrs: &Attrs,
        max: usize,
        now: u32,
        interval: Duration,
    ) -> Vec<RegionView> {
        let areas = join_touching(self.visible.iter().copied());
        let room = max.saturating_sub(self.unobservable.len()).max(1);
        let pieces: Vec<&ScannedPiece> = self.pieces.values().collect();
        let parts = |p: &&ScannedPiece, _: usize, out: &mut Joined| {
            parts(p, now, attrs.windows).into_iter().for_each(|group| out.push(group));
        };
        let mut joined = Joined::new(FIRST_PASS, attrs.windows, now);
        cover(&pieces, |p| p.range, parts, &areas, &mut joined);
        let mut groups = fit(joined, room);
        self.left_out = leave_out(&mut groups, room, |g| g.range.len());
        let pieces = &mut self.pieces;
        let mut views: Vec<RegionView> =
            groups.iter().map(|g| view(g.range, pieces, attrs.window, now)).collect();
        views.extend(self.unobservable.views(interval));
        views.sort_unstable_by_key(|v| v.range.start);
        self.begin_anew();
        views
    }

    /// Discards the counts of the current interval.
    pub fn begin_anew(&mut self) {
        self.pieces.values_mut().for_each(ScannedPiece::restart);
    }
}

/// The parts of `visible` in the block at `start`.
fn in_block(visible: &[AddrRange], start: u64) -> impl Iterator<Item = AddrRange> + '_ {
    let block = AddrRange::new(start, start + BLOCK_SIZE);
    let first = visible.partition_point(|r| r.end <= start);
    visible[first..].iter().map_while(move |r| r.intersect(&block))
}
