//! The state of a target.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rand_core::Rng;

use super::age_counter::{AgeCounter, BlockState, YoungAge};
use super::coarse::{Sentinels, is_large, nr_blocks};
use super::counts::sum_up;
use super::groups::groups;
use super::piece::{Piece, ReadChange};
use super::published::{PublishedRegion, is_sampled, known_at};
use super::rest::{Resting, SnapshotQualitySums};
use super::stretches::{
    Borders, InOrder, ReactivatedStretch, fall_idle, hot_cells, may_fall, next_piece,
    reactivated_stretches, sampled_hz, within,
};
use super::timing::{ExposureTerms, MAX_SCHED_DELAY_S, Moment};
use super::view::{ViewBasis, Viewed, project, update_ages};
use crate::ages::PageAges;
use crate::bins::PAGES_PER_INDEPENDENT_OBSERVATION;
use crate::borders::WindowGroup;
use crate::call::TargetId;
use crate::ops::{Activity, Ask, Mapping, MappingKind, Seen};
use crate::page_mask::PageMask;
use crate::range::{AddrRange, PAGE_SIZE, align_down, join_touching, join_within};
use crate::region::leave_out;
use crate::roster::RosterMember;
use crate::snapshot::RegionView;
use crate::survey::{BLOCK_SIZE, Block, Cleared, one_each, pages_in_block};
use crate::time::Nanos;
use crate::tuning::{CHANGE_SAMPLING_TIME, NO_HEAT_HZ, SAMPLED_HZ};
use crate::unknown::Unknown;
use crate::unobservable::{MAX_ASKS, UnobservableMappings, next_in_turn};

/// A target and the state of its memory.
pub(super) struct ExposureTarget {
    pub id: TargetId,
    pub mappings: Arc<Vec<Mapping>>,
    /// time of the last read of the mappings
    pub mapped: Nanos,
    /// observable mappings
    pub visible: Vec<AddrRange>,
    /// resident memory, sorted
    pub pieces: Vec<Piece>,
    /// number of blocks in `pieces`
    pub nr_blocks: usize,
    /// unobservable mappings
    pub unobservable: UnobservableMappings,
    /// regions of the last snapshot
    pub regions: Vec<PublishedRegion>,
    /// mapped bytes that no region covers
    pub left_out: u64,
    /// run time at the last snapshot
    pub ran: Option<Duration>,
    pub running: RunShare,
    /// pages that other parties have cleared since the last snapshot
    pub externally_cleared: u64,
    /// Some of its memory was never cleared.
    pub is_new: bool,
    /// time of the last change: a stretch was reactivated or became idle
    pub turned: Option<Nanos>,
    /// Since the last round, the mappings or the resident pieces have changed, or a stretch was reactivated or became
    /// idle; or the target must be looked at in each round anyway.
    pub has_changed: bool,
    /// borders of these stretches
    pub borders: Borders,
    /// reactivated stretches, until their samples show enough
    pub reactivated: Vec<ReactivatedStretch>,
    /// regions for the next snapshot
    pub views: Vec<RegionView>,
    /// time of the last report about unobservable mappings, in ms
    unobservable_ms: u32,
    /// position in the rotation among hidden windows that are asked about
    turn: usize,
    /// The target is large, and the last read found little hidden memory; counting it is expensive.
    pub hides_little: bool,
    /// end of the part that was read last
    read_to: u64,
    /// for a large target
    pub sentinels: Sentinels,
    /// time of the next count of resident pages in unobservable mappings
    pub next_unobservable: Nanos,
    pub rest: Resting,
    /// The last read of all memory found a touched page.
    pub was_touched: bool,
    pub ages: AgeCounter,
}

impl RosterMember for ExposureTarget {
    fn id(&self) -> TargetId {
        self.id
    }
}

impl ExposureTarget {
    pub fn new(id: TargetId, is_new: bool) -> Self {
        ExposureTarget {
            id,
            mappings: Arc::default(),
            mapped: Nanos(0),
            visible: Vec::new(),
            pieces: Vec::new(),
            nr_blocks: 0,
            unobservable: UnobservableMappings::default(),
            regions: Vec::new(),
            left_out: 0,
            ran: None,
            running: RunShare::default(),
            externally_cleared: 0,
            is_new,
            turned: None,
            has_changed: true,
            borders: Borders::default(),
            reactivated: Vec::new(),
            views: Vec::new(),
            unobservable_ms: 0,
            turn: 0,
            hides_little: false,
            read_to: 0,
            sentinels: Sentinels::default(),
            next_unobservable: Nanos(0),
            rest: Resting::default(),
            was_touched: false,
            ages: AgeCounter::default(),
        }
    }

    /// Drops all state, because the target has a new address space.
    pub fn forget(&mut self) {
        *self = ExposureTarget::new(self.id, false);
    }

    /// Whether the target is observed by samples.
    pub fn is_large(&self) -> bool {
        is_large(self.nr_blocks)
    }

    /// Subtracts `ms` from all times; times before the new origin become 0.
    pub fn rebase(&mut self, ms: u32) {
        self.unobservable_ms = self.unobservable_ms.saturating_sub(ms);
        self.pieces.iter_mut().for_each(|p| p.rebase(ms));
        self.borders.rebase(ms);
        self.reactivated.clear();
        self.rest.forget();
        self.ages.rebase(ms);
    }

    /// Applies the mappings, which are sorted and disjoint.
    pub fn map(&mut self, mappings: Vec<Mapping>, now: Nanos, ms: u32) {
        self.mapped = now;
        if *self.mappings == mappings {
            return;
        }
        self.rest.disturb();
        self.has_changed = true;
        let visible = mappings.iter().filter(|m| m.unknown.is_none()).map(|m| m.range).collect();
        let before = std::mem::replace(&mut self.visible, visible);
        self.visible.shrink_to_fit();
        self.unobservable.map(&mappings);
        self.mappings = Arc::new(mappings);
        self.ages.keep(&self.visible);
        let visible = &self.visible;
        // The range of a piece that stays. A sample represents only the memory that it was chosen from.
        let rest = |p: &Piece| {
            let part = visible.get(visible.partition_point(|r| r.end <= p.range.start))?;
            let common = part.intersect(&p.range)?;
            match p.is_coarse() {
                true => (common == p.range).then_some(common),
                false if cut(&before, p.range.start) != Some(p.range) => None,
                false => part.intersect(&AddrRange::new(p.block(), p.block() + BLOCK_SIZE)),
            }
        };
        let mut end = 0;
        self.pieces.retain_mut(|p| {
            let range = rest(p).filter(|r| r.start >= end);
            range.iter().for_each(|r| {
                p.fit(*r, ms);
                end = r.end;
            });
            range.is_some()
        });
        self.nr_blocks = nr_blocks(&self.pieces, Piece::block);
    }

    /// Chooses the ranges to read next, if `part` (0 to 1) of all observable memory is read at a time. Also
    /// returns the address range that they were chosen from.
    pub fn next_part(&mut self, part: f64) -> (Vec<AddrRange>, AddrRange) {
        let all = AddrRange::new(0, u64::MAX);
        if part >= 1.0 {
            self.read_to = 0;
            return (self.visible.clone(), all);
        }
        let total: u64 = self.visible.iter().map(AddrRange::len).sum();
        let mut left = ((total as f64 * part) as u64).max(BLOCK_SIZE);
        let rest = AddrRange::new(self.read_to, u64::MAX);
        let mut end = u64::MAX;
        let mut ranges = Vec::new();
        for range in self.visible.iter().filter_map(|r| r.intersect(&rest)) {
            // Whole blocks, which several mappings may share: each piece in a block that is read must be read.
            if left > 0 {
                end = range.start.saturating_add(left).next_multiple_of(BLOCK_SIZE);
            }
            let Some(range) = range.intersect(&AddrRange::new(0, end)) else { break };
            left = left.saturating_sub(range.len());
            ranges.push(range);
        }
        let from = self.read_to;
        let is_last = self.visible.last().is_none_or(|r| r.end <= end);
        self.read_to = if is_last { 0 } else { end };
        (ranges, AddrRange::new(from, if is_last { u64::MAX } else { end }))
    }

    /// Reads the part that begins at `start` again next: its last read ended early.
    pub fn read_again(&mut self, start: u64) {
        self.read_to = start;
    }

    /// The memory to read in a calm round. A piece whose pages are all young cannot change.
    pub fn calm_read(&self) -> CalmRead {
        let mut out = CalmRead::default();
        let mut pieces = self.pieces.iter().peekable();
        for visible in &self.visible {
            let mut end = visible.start;
            while let Some(p) = pieces.next_if(|p| p.range.start < visible.end) {
                push(&mut out.sampled, AddrRange::new(end, p.range.start), visible.start);
                end = p.range.end;
                if p.calm().is_some() && p.range.len() == BLOCK_SIZE {
                    push(&mut out.sampled, p.range, visible.start);
                } else if !p.is_spent() {
                    push(&mut out.whole, p.range, visible.start);
                }
            }
            push(&mut out.sampled, AddrRange::new(end, visible.end), visible.start);
        }
        out
    }

    /// Applies a read of all observable memory within `bounds`. Returns the addresses of pieces that were
    /// touched after a long idle time.
    pub fn read_all(
        &mut self,
        blocks: &[Block],
        bounds: AddrRange,
        now: &Moment,
        t: &ExposureTerms,
        size: u64,
    ) -> Vec<u64> {
        let mut reactivated = Vec::new();
        let mut stretches = Vec::new();
        let mut new = Vec::new();
        let large = is_large(nr_blocks(blocks, |b| b.start).max(self.nr_blocks));
        self.was_touched = false;
        let begin = self.pieces.partition_point(|p| p.range.start < bounds.start);
        let mut at = begin;
        for block in one_each(blocks) {
            at += self.miss(at, block.start);
            let within = AddrRange::new(block.start, block.start + BLOCK_SIZE);
            let first = self.visible.partition_point(|r| r.end <= within.start);
            for visible in &self.visible[first..] {
                let Some(range) = visible.intersect(&within) else { break };
                let rest = self.pieces[at..].iter();
                let end = at + rest.take_while(|p| p.range.end <= range.end).count();
                let known = &mut self.pieces[at..end];
                at = end;
                if !covers(known, range) {
                    // The mappings have changed.
                    known.iter_mut().for_each(|p| p.missing = MAX_MISSED_READS);
                    let mut piece = match large && !self.ages.sampling.has_block(block.start) {
                        true => Piece::coarse(range, size, now.ms),
                        false => Piece::new(range, size, now.ms),
                    };
                    let change = piece.read(&block, 0, now, t);
                    count_ages(&mut self.ages, &piece, &change, None, now.ms);
                    if !piece.resident().is_empty() {
                        new.push(piece);
                    }
                    continue;
                }
                for piece in known {
                    let class = piece.next_full();
                    let before = piece.read_before(now.ms);
                    let change = piece.read(&block, class, now, t);
                    piece.missing = if piece.nr_resident() > 0 { 0 } else { piece.missing + 1 };
                    self.externally_cleared += u64::from(change.taken.count());
                    self.was_touched |= !change.touched.is_empty();
                    count_ages(&mut self.ages, piece, &change, Some(before), now.ms);
                    match change.reactivated_after {
                        Some(idle) => stretches.push((piece.range.start, idle)),
                        None if change.reactivated => reactivated.push(piece.range.start),
                        None => {}
                    }
                }
            }
        }
        at += self.miss(at, bounds.end);
        if bounds.end == u64::MAX {
            self.ages.end_gap();
        }
        self.replace_pieces(begin..at, new);
        self.reactivate(&stretches, now);
        reactivated
    }

    /// If a piece of `read` has been missing too often, removes all such pieces. Adds `new` ones.
    fn replace_pieces(&mut self, read: Range<usize>, new: Vec<Piece>) {
        let is_gone = |p: &Piece| p.missing >= MAX_MISSED_READS;
        let some_are_gone = self.pieces[read].iter().any(is_gone);
        if some_are_gone {
            let ages = &mut self.ages;
            self.pieces.retain(|p| {
                if is_gone(p) {
                    ages.leave(p.block());
                }
                !is_gone(p)
            });
        }
        let has_changed = some_are_gone || !new.is_empty();
        if !new.is_empty() {
            self.has_changed = true;
            // Most resident memory is found by the first read, and pieces use most of the monitor's memory.
            self.pieces.reserve_exact(new.len());
            self.pieces.extend(new);
            self.pieces.sort_unstable_by_key(|p| p.range.start);
        }
        if has_changed || self.pieces.is_empty() {
            self.nr_blocks = nr_blocks(&self.pieces, Piece::block);
        }
    }

    /// Handles reactivated pieces, given as start address and idle time in s.
    fn reactivate(&mut self, found: &[(u64, f64)], now: &Moment) {
        if !found.is_empty() {
            let stretches =
                reactivated_stretches(&self.pieces, &self.borders, found, now.at, now.ms);
            self.borders.learn(&self.pieces, &stretches, now.ms);
            for w in &stretches {
                let all = within(&self.pieces, &w.range);
                for p in &mut self.pieces[all] {
                    if let YoungAge::IdleSince(since) = presumed_age(p, None) {
                        self.ages.reactivated(p.block(), &p.young(), p.huge, since, now.ms);
                    }
                    p.suspect(now.ms);
                    // A provisional rate until the samples show more. It also prevents a second reactivation when the
                    // stretch is sampled.
                    if p.is_presumed_idle() {
                        p.extend(w.once(), now.at, Some(now.ms));
                    }
                }
            }
            self.reactivated.extend(stretches);
            self.turn(now.at);
        }
    }

    /// Extends the results of samples to their stretches.
    pub fn extend(&mut self, now: Nanos, t: &ExposureTerms) {
        let pieces = &mut self.pieces;
        let borders = &self.borders;
        self.reactivated.retain(|w| {
            !w.settle(pieces, borders, t) && now.since(w.at) < REACTIVATION_SAMPLING_TIME
        });
        let mut fell = false;
        let sampled = may_fall(pieces, &self.regions, now);
        for cell in hot_cells(pieces, &sampled, borders) {
            fell |= fall_idle(pieces, cell, &sampled, now, t);
        }
        if fell {
            self.turn(now);
        }
    }

    fn turn(&mut self, now: Nanos) {
        self.has_changed = true;
        if self.turned.is_none_or(|at| now.since(at) >= CHANGE_SAMPLING_TIME) {
            self.turned = Some(now);
        }
    }

    /// Counts a missed read for the pieces from index `at` on in blocks below `addr`. Returns their number.
    fn miss(&mut self, at: usize, addr: u64) -> usize {
        let missed = self.pieces[at..].iter_mut().take_while(|p| p.block() < addr);
        missed.map(|p| p.missing += 1).count()
    }

    /// Applies an early read of class `class`, or a read of untouched samples if `class` is `None`. Returns
    /// the addresses of pieces that were touched after a long idle time.
    pub fn read_some(
        &mut self,
        (ranges, blocks): (&[AddrRange], &[Block]),
        class: Option<usize>,
        now: &Moment,
        t: &ExposureTerms,
    ) -> Vec<u64> {
        let (mut stretches, mut reactivated) = (Vec::new(), Vec::new());
        let mut at = 0;
        for block in one_each(blocks) {
            let mut externally_cleared = 0;
            // Other pieces in the block were not read.
            at = self.first_in_block(block.start, at);
            let ages = &mut self.ages;
            let asked = in_block(&mut self.pieces, at, block.start).filter(|p| p.is_in(&block));
            for p in asked {
                // A sample is the only part of its piece that was read.
                let first = ranges.partition_point(|r| r.end <= p.range.start);
                let block =
                    match ranges.get(first).filter(|r| r.intersect(&p.range) != Some(p.range)) {
                        Some(sample) => p.complete(&block, sample),
                        None => block,
                    };
                let class = class.unwrap_or_else(|| p.next_full());
                let before = p.read_before(now.ms);
                let change = p.read(&block, class, now, t);
                externally_cleared += change.taken.count();
                count_ages(ages, p, &change, Some(before), now.ms);
                match change.reactivated_after {
                    Some(idle) => stretches.push((p.range.start, idle)),
                    None if change.reactivated => reactivated.push(p.range.start),
                    None => {}
                }
            }
            self.externally_cleared += u64::from(externally_cleared);
        }
        self.reactivate(&stretches, now);
        reactivated
    }

    /// For each of the sorted `ranges`, whether its further reads find nothing new.
    pub fn are_spent(&self, ranges: &[AddrRange]) -> impl Iterator<Item = bool> {
        let mut lookup = InOrder::default();
        ranges.iter().map(move |range| {
            let pieces = lookup.overlapping(&self.pieces, range);
            self.pieces[pieces].iter().all(Piece::is_spent)
        })
    }

    /// Notes that the pieces of `ranges`, in which nothing can change, were looked at for an early read of class
    /// `class`.
    pub fn stay_spent(
        &mut self,
        ranges: &[AddrRange],
        class: usize,
        now: &Moment,
        t: &ExposureTerms,
    ) {
        let mut lookup = InOrder::default();
        for range in ranges {
            let pieces = lookup.overlapping(&self.pieces, range);
            self.pieces[pieces].iter_mut().for_each(|p| p.find_nothing_new(class, now, t));
        }
    }

    /// The ranges of these pieces, joined within mappings: no range crosses the end of a mapping.
    pub fn joined(&self, pieces: Range<usize>) -> Vec<AddrRange> {
        join_within(self.pieces[pieces].iter().map(|p| p.range), &self.visible)
    }

    /// Applies the results of a clear.
    pub fn clear(&mut self, done: &[Cleared], now: &Moment, t: &ExposureTerms, began: Nanos) {
        let mut at = 0;
        let mut sampled_hz = sampled_hz(&self.regions, now.at);
        let mut hz = Vec::new();
        // A block with several mappings has a result for each of them, and each piece is looked up once.
        for same in done.chunk_by(|a, b| a.start == b.start) {
            let Some(Cleared { start, .. }) = same.first() else { continue };
            at = self.first_in_block(*start, at);
            hz.clear();
            hz.extend(in_block(&mut self.pieces, at, *start).map(|p| sampled_hz(p)));
            for c in same {
                let ms = u32::try_from(c.cleared_at.since(began).as_millis()).unwrap_or(u32::MAX);
                let since = Moment { at: c.cleared_at, ms, ran: now.ran };
                let (ages, regions) = (&mut self.ages, &self.regions);
                for (p, hz) in in_block(&mut self.pieces, at, c.start).zip(&hz) {
                    let age = presumed_age(p, known_at(regions, p.range));
                    let (pages, is_hot) = (p.within(&c.armed), age == YoungAge::Hot);
                    match age {
                        _ if p.is_coarse() => {}
                        YoungAge::IdleSince(since) => ages.cleared(c.start, &pages, false, since),
                        _ => ages.cleared(c.start, &pages, is_hot, ms),
                    }
                    p.clear(c, since, *hz, t);
                }
            }
        }
    }

    /// Resident pages of the block at `start`.
    pub fn resident_in_block(&mut self, start: u64) -> PageMask {
        let first = self.first_in_block(start, 0);
        in_block(&mut self.pieces, first, start)
            .fold(PageMask::default(), |all, p| all.or(&p.resident()))
    }

    /// Pages of the block at `start` in mappings of files and of shared memory. Where such a page is absent, its
    /// content is in the file or in swap: the kernel leaves no trace of that in the page table.
    pub fn pages_of_files(&self, start: u64) -> PageMask {
        let first = self.mappings.partition_point(|m| m.range.end <= start);
        let near = self.mappings[first..].iter().take_while(|m| m.range.start < start + BLOCK_SIZE);
        let files = near.filter(|m| m.kind == MappingKind::File);
        pages_in_block(start, files.map(|m| m.range))
    }

    /// Resident pages of observable mappings.
    pub fn resident_pages(&self) -> u64 {
        if let Some(worth) = self.rest.worth() {
            return worth.resident;
        }
        self.pieces.iter().map(|p| u64::from(p.nr_resident())).sum()
    }

    /// Counts its pages from the beginning: those that are young now, and the others since now.
    pub fn recount(&mut self, ms: u32) {
        for p in self.pieces.iter().filter(|p| !p.is_coarse()) {
            let young = p.young();
            self.ages.found(p.block(), &young, p.huge, (ms, ms));
            self.ages.cleared(p.block(), &p.resident().without(&young), false, ms);
        }
    }

    /// The ages of its pages, if a row of them is due.
    pub fn take_ages(&mut self, now: &Moment) -> Option<PageAges> {
        if !self.ages.is_due(now.ms) {
            return None;
        }
        let (pieces, regions, large) = (&self.pieces, &self.regions, self.is_large());
        let state = |p: &Piece| BlockState {
            start: p.block(),
            resident: p.resident(),
            hidden: match p.is_coarse() {
                true if large => PageMask::default(),
                true => p.resident(),
                false => p.unseen_pages(),
            },
            huge: p.huge,
            is_represented: p.is_coarse(),
            young: presumed_age(p, known_at(regions, p.range)),
        };
        let mut row = self.ages.row(pieces.iter().map(state), now.at, now.ms);
        let unobservable = u32::try_from(self.unobservable.resident_pages()).unwrap_or(u32::MAX);
        row.unknown = row.unknown.saturating_add(unobservable);
        Some(row)
    }

    /// Whether the target cannot have mapped memory since its mappings were read.
    pub fn rests_with_its_mappings(&self, activity: Option<Activity>, now: Nanos) -> bool {
        self.rest.is_unbroken(activity) && now.since(self.mapped) < MAPPED_EVERY
    }

    /// Records that the target rested until its last query, before it is read again.
    pub fn end_rest(&mut self, t: &ExposureTerms) {
        if let Some(until) = self.rest.end() {
            for p in &mut self.pieces {
                let class = p.next_full();
                p.find_nothing_new(class, &until, t);
            }
        }
    }

    /// Begins a rest after a snapshot if all memory of the target is idle and no work is pending.
    pub fn may_rest(&mut self, worth: SnapshotQualitySums) {
        let Some(whole) = self.rest.take_whole() else { return };
        let idle = self.regions.iter().all(|k| k.hz <= NO_HEAT_HZ) && self.reactivated.is_empty();
        if idle && self.pieces.iter().all(|p| p.is_seen()) {
            let worth = SnapshotQualitySums { resident: self.resident_pages(), ..worth };
            self.rest.begin(whole, worth, self.views.clone());
        }
    }

    /// Number of areas: joined observable mappings, and unobservable mappings.
    pub fn areas(&self) -> usize {
        join_touching(self.visible.iter().copied()).len() + self.unobservable.len()
    }

    /// Compares the clears since `last` with the published regions. If a region has changed, the evidence of
    /// its other pieces becomes doubtful; if it has become slower, that evidence is replaced by a presumed
    /// rate.
    pub fn doubt(&mut self, last: Nanos, t: &ExposureTerms) {
        let mut lookup = InOrder::default();
        for known in &self.regions {
            let pieces = lookup.overlapping(&self.pieces, &known.range);
            let pieces = &mut self.pieces[pieces];
            let mut run = Compared::default();
            for p in pieces.iter().filter(|p| p.cleared_at().is_some_and(|at| at >= last)) {
                let [touched, seconds, expected] = p.against(known.range, known.hz, t);
                run.touched += touched;
                run.seconds += seconds;
                run.expected += known.share * expected;
            }
            let older = |p: &&mut Piece| p.cleared_at().is_some_and(|at| at < last);
            let rest = pieces.iter_mut().filter(older);
            match run.differs() {
                // Only a part of the region may have changed: each sample represents the memory nearest to
                // it.
                Some(Ordering::Less) if is_sampled(known) => {}
                Some(Ordering::Less) => rest.for_each(|p| p.presume(run.hz())),
                Some(_) => {
                    // Memory that looks hot for the first time must be seen hot twice.
                    let unsure = |p: &&mut Piece| {
                        p.cleared_at().is_some_and(|at| at < last) || p.is_sudden_anywhere(t)
                    };
                    pieces.iter_mut().filter(unsure).for_each(|p| p.doubt());
                }
                None => {}
            }
        }
    }

    /// Makes the regions of a snapshot, at most `max` of them.
    pub fn make_regions(&mut self, b: &ViewBasis, max: usize, windows: bool) -> Vec<Viewed> {
        let areas = join_touching(self.visible.iter().copied());
        let room = max.saturating_sub(self.unobservable.len()).max(1);
        sum_up(&mut self.pieces, &b.terms);
        let mut groups = groups(&self.pieces, &areas, &b.terms, b.now.ms, room, windows);
        self.left_out = leave_out(&mut groups, room, |g| g.range.len());
        let before = std::mem::take(&mut self.regions);
        let view = |g: &WindowGroup| project(g, &self.pieces, known_at(&before, g.range), b);
        let viewed: Vec<Viewed> = groups.iter().map(view).collect();
        for (group, level) in groups.iter().zip(viewed.iter().map(|v| &v.level)) {
            level.iter().for_each(|level| update_ages(group, &mut self.pieces, level));
        }
        let known = |v: &Viewed| PublishedRegion {
            range: v.view.range,
            hz: v.view.rate.hz.into(),
            share: f64::from(v.view.touched_bp) / 10_000.0,
            age: v.view.age,
            extended: v.view.support.is_some_and(|s| s.extended_bp > s.measured_bp),
        };
        self.regions = viewed.iter().map(known).collect();
        self.views = Vec::with_capacity(viewed.len() + self.unobservable.len());
        self.views.extend(viewed.iter().map(|v| v.view));
        let interval = Duration::from_millis(b.now.ms.saturating_sub(self.unobservable_ms).into());
        self.unobservable_ms = b.now.ms;
        self.views.extend(self.unobservable.views(interval));
        self.views.sort_unstable_by_key(|v| v.range.start);
        viewed
    }

    /// Whether enough memory is hidden to justify asking about it: asking costs more than all other work.
    pub fn hides_much(&self) -> bool {
        if self.hides_little {
            return false;
        }
        let hides = self.pieces.iter().filter(|p| p.hides());
        let hidden: u64 = hides.map(|p| u64::from(p.unseen_pages().count())).sum();
        let locked = self.mappings.iter().filter(|m| m.unknown == Some(Unknown::Mlocked));
        let locked: u64 = locked.map(|m| m.range.len() / PAGE_SIZE).sum();
        let is_much = || hidden + locked > (self.resident_pages() + locked) / HIDDEN_PAGES_DIVISOR;
        hidden + locked > 0 && is_much()
    }

    /// The windows to ask about because their accessed bits carry no information: windows of locked mappings,
    /// and of pieces with hidden pages.
    pub fn ask_hidden(&mut self, rng: &mut impl Rng, window: u64) -> Vec<Ask> {
        let target = self.id;
        let ask = |range| Ask { target, range, clear: false };
        let mappings = &self.mappings;
        let is_locked = |range: AddrRange| {
            let at = mappings.partition_point(|m| m.range.end <= range.start);
            mappings.get(at).is_some_and(|m| m.unknown == Some(Unknown::Mlocked))
        };
        let mut asks = self.unobservable.asks(target, rng, window, is_locked);
        let hidden: Vec<usize> =
            (0..self.pieces.len()).filter(|&i| self.pieces[i].hides()).collect();
        let places =
            hidden.iter().flat_map(|&p| (0..self.pieces[p].nr_windows()).map(move |i| (p, i)));
        let places: Vec<(usize, usize)> = places.collect();
        let due = next_in_turn(&places, MAX_ASKS, &mut self.turn);
        asks.extend(due.map(|&(p, i)| ask(self.pieces[p].window_range(i))));
        asks
    }

    /// Applies the answers.
    pub fn take_answers(&mut self, asks: &[Ask], seen: &[Seen], ms: u32) {
        for (ask, seen) in asks.iter().zip(seen).filter(|(_, s)| s.pages > 0) {
            if self.unobservable.take_answer(ask, seen) {
                continue;
            }
            let at = self.pieces.partition_point(|p| p.range.end <= ask.range.start);
            if let Some(p) = self.pieces.get_mut(at).filter(|p| p.range.contains(ask.range.start)) {
                p.take_report(ask.range.start, seen, ms);
            }
        }
    }

    /// Index of the first piece, from `from` on, in the block at `start` or in a later block.
    fn first_in_block(&self, start: u64, from: usize) -> usize {
        next_piece(&self.pieces, from, |p| p.block() < start)
    }
}

/// The reads of a calm round, as ranges within mappings.
#[derive(Default)]
pub(super) struct CalmRead {
    /// calm or absent memory, of which a sample suffices
    pub sampled: Vec<AddrRange>,
    /// memory that may have changed anywhere
    pub whole: Vec<AddrRange>,
}

/// Appends a range of the mapping that begins at `mapping`, joined with the previous range of it.
fn push(ranges: &mut Vec<AddrRange>, range: AddrRange, mapping: u64) {
    match ranges.last_mut().filter(|last| last.end == range.start && range.start > mapping) {
        Some(last) => last.end = range.end,
        None if range.is_empty() => {}
        None => ranges.push(range),
    }
}

/// Observed touches of a region against the touches expected from its published rate.
#[derive(Default)]
struct Compared {
    touched: f64,
    expected: f64,
    seconds: f64,
}

impl Compared {
    /// `Some` if fewer than half or more than twice of the expected pages were touched, and the difference is
    /// significant.
    fn differs(&self) -> Option<Ordering> {
        let (y, n) = (self.touched, self.expected);
        let log = if y > 0.0 { y * (y / n.max(1e-9)).ln() } else { 0.0 };
        let clear = (log - y + n) / PAGES_PER_INDEPENDENT_OBSERVATION > CHANGED_LLR;
        let order = if y < n / 2.0 { Ordering::Less } else { Ordering::Greater };
        (clear && !(n / 2.0..=n * 2.0).contains(&y)).then_some(order)
    }

    fn hz(&self) -> f64 {
        self.touched / self.seconds.max(1e-9)
    }
}

/// The pieces of the block at `start`, the first of which has index `first`.
fn in_block(pieces: &mut [Piece], first: usize, start: u64) -> impl Iterator<Item = &mut Piece> {
    pieces[first..].iter_mut().take_while(move |p| p.block() == start)
}

/// Counts the ages of the pages that a read of `piece` at `ms` found changed; `before` is the time of the previous
/// read, if there was one.
fn count_ages(
    ages: &mut AgeCounter,
    piece: &Piece,
    change: &ReadChange,
    before: Option<u32>,
    ms: u32,
) {
    if piece.is_coarse() {
        // Only its sample is known.
        return;
    }
    if !change.taken.is_empty() {
        ages.cleared(piece.block(), &change.taken, false, ms);
    }
    if !change.touched.is_empty() {
        match before {
            Some(before) => ages.found(piece.block(), &change.touched, piece.huge, (before, ms)),
            None => ages.found_first(piece.block(), &change.touched, piece.huge, ms),
        }
    }
    if change.left {
        ages.leave(piece.block());
    }
}

/// What samples say of the young pages of a piece; `known` is its region in the last snapshot.
fn presumed_age(piece: &Piece, known: Option<&PublishedRegion>) -> YoungAge {
    match piece.presumed_hz() {
        Some(0.0) => YoungAge::IdleSince(piece.last_touched()),
        Some(hz) if hz >= SAMPLED_HZ => YoungAge::Hot,
        _ if known.is_some_and(is_sampled) => YoungAge::Hot,
        _ => YoungAge::Unknown,
    }
}

/// The mappings of a target at rest are still read at this interval.
const MAPPED_EVERY: Duration = Duration::from_secs(5);
/// A piece is dropped after this many missed reads.
const MAX_MISSED_READS: u8 = 2;

/// Whether pieces, none of which ends behind `range`, cover all of it.
fn covers(pieces: &[Piece], range: AddrRange) -> bool {
    let joined = pieces.windows(2).all(|w| w[0].range.end == w[1].range.start);
    let ends = pieces.first().zip(pieces.last()).map(|(a, b)| (a.range.start, b.range.end));
    joined && ends == Some((range.start, range.end))
}

/// Samples of a reactivated stretch show enough within this time, or never.
const REACTIVATION_SAMPLING_TIME: Duration = Duration::from_secs(2);
/// Hidden memory is asked about if more than one in this many pages is hidden.
const HIDDEN_PAGES_DIVISOR: u64 = 32;
/// A log-likelihood ratio above this, in natural logarithms, is significant.
const CHANGED_LLR: f64 = 6.0;

/// The part of the block at `addr` that lies in the same range of `visible`; `None` unless it begins at
/// `addr`.
fn cut(visible: &[AddrRange], addr: u64) -> Option<AddrRange> {
    let range = visible.get(visible.partition_point(|r| r.end <= addr))?;
    let start = align_down(addr, BLOCK_SIZE);
    range.intersect(&AddrRange::new(start, start + BLOCK_SIZE)).filter(|r| r.start == addr)
}

/// The fraction of the time in which a target runs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RunShare {
    last: Option<(Nanos, Duration)>,
    mean: Option<f64>,
    /// Maximum of the share in the last round: see [`RunShare::share`].
    most: Option<f64>,
}

impl RunShare {
    /// Applies the run time at time `at`.
    pub fn update(&mut self, at: Nanos, ran: Option<Duration>) {
        let Some(ran) = ran else { return };
        if let Some((before, had)) = self.last {
            let wall = at.since(before).as_secs_f64();
            if wall < 0.1 {
                return;
            }
            let used = ran.saturating_sub(had).as_secs_f64();
            let now = (used / wall).min(1.0);
            // Averages over some seconds, so that the share does not follow shorter pauses, which it must reveal.
            let weight = (wall / 4.0).min(0.5);
            self.mean = Some(self.mean.map_or(now, |s| s + (now - s) * weight));
            let is_long = wall >= 2.0 * MAX_SCHED_DELAY_S;
            self.most = is_long.then(|| used / (wall - MAX_SCHED_DELAY_S));
        }
        self.last = Some((at, ran));
    }

    /// The share, 0 to 1; 1 until it is known.
    ///
    /// A pause that the target did not choose lasts at most [`MAX_SCHED_DELAY_S`]. A target that ran for less of the last
    /// round than such a pause explains was asleep, and its usual share no longer applies.
    pub fn share(&self) -> f64 {
        let mean = self.mean.unwrap_or(1.0);
        self.most.map_or(mean, |most| mean.min(most))
    }
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod summary_tests;

#[cfg(test)]
mod tests {
    use super::*;

    /// The share after these pairs of wall time and run time, in ms.
    fn share(updates: &[(u64, u64)]) -> f64 {
        let mut running = RunShare::default();
        let (mut at, mut ran) = (Duration::ZERO, Duration::ZERO);
        running.update(Nanos(0), Some(ran));
        for &(wall, used) in updates {
            at += Duration::from_millis(wall);
            ran += Duration::from_millis(used);
            running.update(Nanos(0) + at, Some(ran));
        }
        running.share()
    }

    #[test]
    fn a_pause_is_not_the_usual_share_but_sleep_is() {
        let busy = [(250, 250); 40];
        let after = |last: (u64, u64)| share(&[&busy[..], &[last]].concat());
        assert_eq!(after((250, 250)), 1.0);
        assert!(after((250, 150)) > 0.95, "it waited for a CPU for 100 ms");
        assert!(after((110, 10)) > 0.95, "the same in a short round");
        assert!(after((250, 5)) < 0.05, "it was asleep");
        assert!(share(&[&busy[..], &[(250, 5), (250, 250)]].concat()) > 0.9, "it runs again");
    }

    /// The blocks of `ranges`, with all pages resident and old.
    fn blocks(ranges: &[AddrRange]) -> Vec<Block> {
        let of_range = |range: &AddrRange| {
            let (range, first) = (*range, align_down(range.start, BLOCK_SIZE));
            (first..range.end).step_by(BLOCK_SIZE as usize).map(move |start| {
                let page = |addr: u64| (addr.clamp(start, start + BLOCK_SIZE) - start) / PAGE_SIZE;
                let (first, end) = (page(range.start) as usize, page(range.end) as usize);
                Block { start, resident: PageMask::span(first, end), ..Block::default() }
            })
        };
        ranges.iter().flat_map(of_range).collect()
    }

    const TERMS: ExposureTerms = ExposureTerms { share: 1.0, recent: 500, long: 8.0 };

    fn mapping(range: AddrRange) -> Mapping {
        Mapping { range, kind: MappingKind::Anonymous, name: "".into(), unknown: None }
    }

    /// A target whose mappings have been read.
    fn mapped(ranges: &[AddrRange]) -> ExposureTarget {
        let mut w = ExposureTarget::new(TargetId(1), true);
        w.map(ranges.iter().copied().map(mapping).collect(), Nanos(0), 0);
        w
    }

    fn read(w: &mut ExposureTarget, s: u32, blocks: &[Block]) {
        let now = Moment { at: Nanos(u64::from(s) * 1_000_000_000), ms: s * 1000, ran: None };
        w.read_all(blocks, AddrRange::new(0, u64::MAX), &now, &TERMS, 64 << 10);
    }

    #[test]
    fn many_small_mappings_make_no_large_target() {
        let size = 8 << 10;
        let ranges = |stride: u64| -> Vec<AddrRange> {
            (0..31_000).map(|n| AddrRange::new(n * stride, n * stride + size)).collect()
        };
        for (stride, is_large) in [(size, false), (BLOCK_SIZE, true)] {
            let ranges = ranges(stride);
            let mut w = mapped(&ranges);
            (1..3).for_each(|s| read(&mut w, s, &blocks(&ranges)));
            assert_eq!(w.pieces.len(), ranges.len());
            assert_eq!(w.is_large(), is_large);
        }
    }

    /// A block with several mappings has a result for each of them, and each piece keeps the rate of its own region.
    #[test]
    fn each_mapping_of_a_block_is_cleared_with_its_rate() {
        let third = |n: u64| AddrRange::new(n * 160 * PAGE_SIZE, (n + 1) * 160 * PAGE_SIZE);
        let thirds = [third(0), third(1), third(2)];
        let mut w = mapped(&thirds);
        read(&mut w, 1, &blocks(&thirds));
        let region = |(range, hz)| PublishedRegion {
            range,
            hz,
            share: 1.0,
            age: Duration::from_secs(60),
            extended: false,
        };
        w.regions = thirds.into_iter().zip([10.0, 20.0, 40.0]).map(region).collect();
        let at =
            |s: u32| Moment { at: Nanos(u64::from(s) * 1_000_000_000), ms: s * 1000, ran: None };
        let cleared = |block: Block| Cleared {
            start: block.start,
            huge: false,
            armed: block.resident,
            hidden: Vec::new(),
            cleared_at: at(2).at,
        };
        let done: Vec<Cleared> = blocks(&thirds).into_iter().map(cleared).collect();
        w.clear(&done, &at(2), &TERMS, Nanos(0));
        read(&mut w, 3, &blocks(&thirds));
        let rates: Vec<_> = w.pieces.iter().map(|p| p.may_be_idle(at(3).at)).collect();
        assert_eq!(rates, [10.0, 20.0, 40.0].map(Some));
    }

    /// The first half of a block is used, and the second one is freed before it is cleared.
    #[test]
    fn memory_that_was_freed_is_not_waited_for() {
        let half = |n: u64| AddrRange::new(n * BLOCK_SIZE / 2, (n + 1) * BLOCK_SIZE / 2);
        let mut w = mapped(&[half(0), half(1)]);
        read(&mut w, 1, &blocks(&[half(0), half(1)]));
        assert_eq!(w.pieces.len(), 2);
        (2..4).for_each(|s| read(&mut w, s, &blocks(&[half(0)])));
        assert_eq!(w.pieces.len(), 1);
    }

    /// A mapping grows at its end, and at its start as a stack does, and shrinks at its end.
    #[test]
    fn a_changed_mapping_keeps_the_state_of_memory_that_stays() {
        let kib = |from: u64, to: u64| AddrRange::new(from << 10, to << 10);
        let mut w = mapped(&[kib(512, 1024)]);
        read(&mut w, 1, &blocks(&[kib(512, 1024)]));
        let ranges = [kib(512, 1100), kib(300, 1100), kib(300, 700), kib(300, 400)];
        for (s, range) in (2..).zip(ranges) {
            w.map(vec![mapping(range)], Nanos(0), s * 1000);
            read(&mut w, s, &blocks(&[range]));
            assert_eq!(w.pieces.len(), 1);
            let piece = &w.pieces[0];
            assert_eq!(piece.range, range);
            assert_eq!(u64::from(piece.nr_resident()), range.len() / PAGE_SIZE);
            for i in 0..piece.nr_windows() {
                let is_old = piece.window_range(i).intersect(&kib(512, 1024)).is_some();
                assert_eq!(piece.window(i).touched == 1000, is_old, "{range:?} {i}");
            }
        }
        w.map(vec![mapping(kib(400, 500))], Nanos(0), 9000);
        assert!(w.pieces.is_empty(), "other memory");
    }

    /// A block that two mappings share is read as a whole: otherwise the memory of one would seem to have left.
    #[test]
    fn a_part_ends_where_a_block_ends() {
        let size = BLOCK_SIZE / 4 * 3;
        let ranges: Vec<_> = (0..64).map(|n| AddrRange::new(n * size, (n + 1) * size)).collect();
        let mut w = mapped(&ranges);
        for (round, part) in [0.1, 0.03, 0.37].into_iter().cycle().take(60).enumerate() {
            let ms = 1_000 + 250 * round as u32;
            let now = Moment { at: Nanos(u64::from(ms) * 1_000_000), ms, ran: None };
            let (ranges, bounds) = w.next_part(part);
            w.read_again(bounds.start);
            assert_eq!(
                w.next_part(part),
                (ranges.clone(), bounds),
                "after a read that ended early"
            );
            w.read_all(&blocks(&ranges), bounds, &now, &TERMS, 64 << 10);
            let is_whole = |p: &Piece| u64::from(p.nr_resident()) == p.range.len() / PAGE_SIZE;
            assert!(w.pieces.iter().all(is_whole), "round {round}: {ranges:?}");
        }
        assert_eq!(w.resident_pages(), 64 * size / PAGE_SIZE);
    }
}
