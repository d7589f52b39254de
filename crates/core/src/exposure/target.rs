//! What is known of a target.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use rand_core::Rng;

use super::coarse::{Sentinels, is_large};
use super::counts::sum_up;
use super::groups::groups;
use super::piece::Piece;
use super::published::{PublishedRegion, is_sampled, known_at};
use super::rest::{Resting, Worth};
use super::stretches::{Seams, WokenStretch, fall_idle, hot_cells, sampled, within, woken};
use super::timing::{ExposureTerms, Moment};
use super::view::{ViewBasis, Viewed, project, update_ages};
use crate::bins::PAGES_PER_INDEPENDENT_OBSERVATION;
use crate::borders::Group;
use crate::call::TargetId;
use crate::ops::{Activity, Ask, Mapping, Seen};
use crate::range::{AddrRange, PAGE_SIZE, align_down, join_touching};
use crate::region::leave_out;
use crate::roster::RosterMember;
use crate::snapshot::RegionView;
use crate::survey::{BLOCK_SIZE, Block, Cleared, one_each};
use crate::time::Nanos;
use crate::tuning::{NO_HEAT_HZ, TURNING};
use crate::unknown::Unknown;
use crate::unobservable::{MOST_ASKS, UnobservableMappings};

/// A target, and what is known of its memory.
pub(super) struct ExposureTarget {
    pub id: TargetId,
    pub mappings: Arc<Vec<Mapping>>,
    /// when they were read
    pub mapped: Nanos,
    /// the mappings that can be seen
    pub visible: Vec<AddrRange>,
    /// resident memory, sorted
    pub pieces: Vec<Piece>,
    /// mappings that cannot be seen
    pub unobservable: UnobservableMappings,
    /// as of the last snapshot
    pub regions: Vec<PublishedRegion>,
    /// bytes that no region covers
    pub left_out: u64,
    /// how long it had run at the last snapshot
    pub ran: Option<Duration>,
    pub running: RunShare,
    /// pages cleared by others since the last snapshot
    pub externally_cleared: u64,
    /// Not all of it has been cleared once.
    pub is_new: bool,
    /// when something woke or fell idle all at once
    pub turned: Option<Nanos>,
    /// borders of what did
    pub seams: Seams,
    /// what woke, until it is known what came of it
    pub woken: Vec<WokenStretch>,
    /// what the next snapshot says
    pub views: Vec<RegionView>,
    /// when what cannot be seen was last told of
    unobservable_ms: u32,
    /// which of what is hidden was asked about last
    turn: usize,
    /// It is large, and too little of it was hidden at the last reading: to count that takes long.
    pub hides_little: bool,
    /// where the last part that was read ends
    read_to: u64,
    /// of a large target
    pub sentinels: Sentinels,
    /// when to look again how much of what cannot be seen is resident
    pub next_unobservable: Nanos,
    pub rest: Resting,
    /// The last reading of everything has found something touched.
    pub was_touched: bool,
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
            unobservable: UnobservableMappings::default(),
            regions: Vec::new(),
            left_out: 0,
            ran: None,
            running: RunShare::default(),
            externally_cleared: 0,
            is_new,
            turned: None,
            seams: Seams::default(),
            woken: Vec::new(),
            views: Vec::new(),
            unobservable_ms: 0,
            turn: 0,
            hides_little: false,
            read_to: 0,
            sentinels: Sentinels::default(),
            next_unobservable: Nanos(0),
            rest: Resting::default(),
            was_touched: false,
        }
    }

    /// Forgets all: it has a new address space.
    pub fn forget(&mut self) {
        *self = ExposureTarget::new(self.id, false);
    }

    /// Whether it is known by samples.
    pub fn is_large(&self) -> bool {
        is_large(self.pieces.len())
    }

    /// Time is counted from so many ms later on.
    pub fn rebase(&mut self, ms: u32) {
        self.unobservable_ms = self.unobservable_ms.saturating_sub(ms);
        self.pieces.iter_mut().for_each(|p| p.rebase(ms));
        self.seams.rebase(ms);
        self.woken.clear();
        self.rest.forget();
    }

    /// Takes in the mappings, which are sorted and disjoint.
    pub fn map(&mut self, mappings: Vec<Mapping>, now: Nanos) {
        self.mapped = now;
        if *self.mappings == mappings {
            return;
        }
        self.rest.disturb();
        self.visible = mappings.iter().filter(|m| m.unknown.is_none()).map(|m| m.range).collect();
        self.visible.shrink_to_fit();
        self.unobservable.map(&mappings);
        self.mappings = Arc::new(mappings);
        let visible = &self.visible;
        let inside = |p: &Piece| {
            let part = visible.get(visible.partition_point(|r| r.end <= p.range.start));
            p.is_coarse() && part.is_some_and(|r| r.intersect(&p.range) == Some(p.range))
        };
        self.pieces.retain(|p| cut(visible, p.range.start) == Some(p.range) || inside(p));
    }

    /// What to read next, if a part of all that is visible is to be read at a time, and between which
    /// addresses that lies.
    pub fn next_part(&mut self, part: f64) -> (Vec<AddrRange>, AddrRange) {
        let all = AddrRange::new(0, u64::MAX);
        if part >= 1.0 {
            self.read_to = 0;
            return (self.visible.clone(), all);
        }
        let total: u64 = self.visible.iter().map(AddrRange::len).sum();
        let mut left = ((total as f64 * part) as u64).max(BLOCK_SIZE);
        let rest = AddrRange::new(self.read_to, u64::MAX);
        let mut ranges = Vec::new();
        for range in self.visible.iter().filter_map(|r| r.intersect(&rest)) {
            // Whole blocks, so that no piece is read in part.
            let end = range.start.saturating_add(left).next_multiple_of(BLOCK_SIZE);
            let range = AddrRange::new(range.start, range.end.min(end));
            left = left.saturating_sub(range.len());
            ranges.push(range);
            if left == 0 {
                break;
            }
        }
        let from = self.read_to;
        let end = ranges.last().map_or(u64::MAX, |r| r.end);
        let is_last = self.visible.last().is_none_or(|r| r.end <= end);
        self.read_to = if is_last { 0 } else { end };
        (ranges, AddrRange::new(from, if is_last { u64::MAX } else { end }))
    }

    /// Takes in blocks of a reading of all that is visible within `bounds`; returns those pieces that
    /// were touched after a long time, by their address.
    pub fn read_all(
        &mut self,
        blocks: &[Block],
        bounds: AddrRange,
        now: &Moment,
        t: &ExposureTerms,
        size: u64,
    ) -> Vec<u64> {
        let mut reactivated = Vec::new();
        let mut wake = Vec::new();
        let mut new = Vec::new();
        let large = is_large(blocks.len().max(self.pieces.len()));
        self.was_touched = false;
        let mut at = self.pieces.partition_point(|p| p.range.start < bounds.start);
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
                    // What is mapped has changed.
                    known.iter_mut().for_each(|p| p.missing = MISSED);
                    let mut piece = match large {
                        true => Piece::coarse(range, size, now.ms),
                        false => Piece::new(range, size, now.ms),
                    };
                    piece.read(&block, 0, now, t);
                    if !piece.resident().is_empty() {
                        new.push(piece);
                    }
                    continue;
                }
                for piece in known {
                    let class = piece.next_full();
                    let change = piece.read(&block, class, now, t);
                    piece.missing = 0;
                    self.externally_cleared += u64::from(change.externally_cleared);
                    self.was_touched |= change.touched;
                    match change.woken {
                        Some(idle) => wake.push((piece.range.start, idle)),
                        None if change.reactivated => reactivated.push(piece.range.start),
                        None => {}
                    }
                }
            }
        }
        self.miss(at, bounds.end);
        self.pieces.retain(|p| p.missing < MISSED);
        if !new.is_empty() {
            // Most of what is resident is there at the first reading; much of what is known is of pieces.
            self.pieces.reserve_exact(new.len());
            self.pieces.extend(new);
            self.pieces.sort_unstable_by_key(|p| p.range.start);
        }
        self.wake(&wake, now);
        reactivated
    }

    /// Takes in what woke, by the starts of pieces.
    fn wake(&mut self, found: &[(u64, f64)], now: &Moment) {
        if !found.is_empty() {
            let woken = woken(&self.pieces, &self.seams, found, now.at, now.ms);
            self.seams.note(woken.iter().flat_map(|w| [w.range.start, w.range.end]), now.ms);
            for w in &woken {
                let all = within(&self.pieces, &w.range);
                for p in &mut self.pieces[all] {
                    p.suspect(now.ms);
                    // Until its samples say more, and so that it does not wake again when it is sampled.
                    if p.is_presumed_idle() {
                        p.extend(w.once(), now.at, Some(now.ms));
                    }
                }
            }
            self.woken.extend(woken);
            self.turn(now.at);
        }
    }

    /// Extends what samples have shown to the stretches that they are of.
    pub fn extend(&mut self, now: Nanos, t: &ExposureTerms) {
        let pieces = &mut self.pieces;
        let seams = &self.seams;
        self.woken.retain(|w| !w.settle(pieces, seams, t) && now.since(w.at) < WOKEN_FOR);
        let mut fell = false;
        let sampled = sampled(pieces, &self.regions);
        for cell in hot_cells(pieces, &sampled, seams) {
            fell |= fall_idle(pieces, cell, &sampled, now, t);
        }
        if fell {
            self.turn(now);
        }
    }

    fn turn(&mut self, now: Nanos) {
        if self.turned.is_none_or(|at| now.since(at) >= TURNING) {
            self.turned = Some(now);
        }
    }

    /// Marks pieces from `at` on in blocks below `addr`, which nothing was read of; says how many.
    fn miss(&mut self, at: usize, addr: u64) -> usize {
        let missed = self.pieces[at..].iter_mut().take_while(|p| p.block() < addr);
        missed.map(|p| p.missing += 1).count()
    }

    /// Takes in blocks that were cleared lately, or, without a class, samples that nobody has touched; returns the
    /// pieces that were touched after a long time, by their address.
    pub fn read_some(
        &mut self,
        (ranges, blocks): (&[AddrRange], &[Block]),
        class: Option<usize>,
        now: &Moment,
        t: &ExposureTerms,
    ) -> Vec<u64> {
        let (mut wake, mut reactivated) = (Vec::new(), Vec::new());
        let mut at = 0;
        for block in one_each(blocks) {
            let mut externally_cleared = 0;
            // Others in the block were not asked for.
            at = self.first_in_block(block.start, at);
            let asked = self.in_block(at, block.start).filter(|p| p.is_in(&block));
            for p in asked {
                // A sample is a part of its piece, and the only one that is read.
                let first = ranges.partition_point(|r| r.end <= p.range.start);
                let block =
                    match ranges.get(first).filter(|r| r.intersect(&p.range) != Some(p.range)) {
                        Some(sample) => p.complete(&block, sample),
                        None => block,
                    };
                let class = class.unwrap_or_else(|| p.next_full());
                let change = p.read(&block, class, now, t);
                externally_cleared += change.externally_cleared;
                match change.woken {
                    Some(idle) => wake.push((p.range.start, idle)),
                    None if change.reactivated => reactivated.push(p.range.start),
                    None => {}
                }
            }
            self.externally_cleared += u64::from(externally_cleared);
        }
        self.wake(&wake, now);
        reactivated
    }

    /// The ranges of these pieces, joined within mappings: no range may reach over the end of one.
    pub fn joined(&self, pieces: std::ops::Range<usize>) -> Vec<AddrRange> {
        let mut out: Vec<AddrRange> = Vec::new();
        for range in self.pieces[pieces].iter().map(|p| p.range) {
            let begins = self.visible.binary_search_by_key(&range.start, |r| r.start).is_ok();
            match out.last_mut().filter(|last| last.end == range.start && !begins) {
                Some(last) => last.end = range.end,
                None => out.push(range),
            }
        }
        out
    }

    /// Takes in what clearing has done to the pieces within `runs`.
    pub fn clear(&mut self, done: &[Cleared], now: &Moment, t: &ExposureTerms, began: Nanos) {
        let mut at = 0;
        for c in done {
            at = self.first_in_block(c.start, at);
            let ms = u32::try_from(c.cleared_at.since(began).as_millis()).unwrap_or(u32::MAX);
            let since = Moment { at: c.cleared_at, ms, ran: now.ran };
            self.in_block(at, c.start).for_each(|p| p.clear(c, since, t));
        }
    }

    /// Resident pages that can be seen.
    pub fn resident_pages(&self) -> u64 {
        if let Some(worth) = self.rest.worth() {
            return worth.resident;
        }
        self.pieces.iter().map(|p| u64::from(p.nr_resident())).sum()
    }

    /// Whether it has had no occasion to map anything since its mappings were read.
    pub fn rests_with_its_mappings(&self, activity: Option<Activity>, now: Nanos) -> bool {
        self.rest.is_unbroken(activity) && now.since(self.mapped) < MAPPED_EVERY
    }

    /// Takes in that it rested until it was last asked, before it is read again.
    pub fn end_rest(&mut self, t: &ExposureTerms) {
        if let Some(until) = self.rest.end() {
            self.pieces.iter_mut().for_each(|p| p.stay_untouched(&until, t));
        }
    }

    /// After a snapshot: it rests from now on, if all of it is idle, and there is nothing to be done for it.
    pub fn may_rest(&mut self, worth: Worth) {
        let Some(whole) = self.rest.take_whole() else { return };
        let idle = self.regions.iter().all(|k| k.hz <= NO_HEAT_HZ) && self.woken.is_empty();
        if idle && self.pieces.iter().all(|p| p.is_seen()) {
            let worth = Worth { resident: self.resident_pages(), ..worth };
            self.rest.begin(whole, worth, self.views.clone());
        }
    }

    /// Stretches of what is mapped.
    pub fn areas(&self) -> usize {
        join_touching(self.visible.iter().copied()).len() + self.unobservable.len()
    }

    /// Where a region has changed as far as it was looked at since `last`, what is known of the rest of it
    /// is in doubt, and where it has become slower it is taken to be no longer true.
    pub fn doubt(&mut self, last: Nanos, t: &ExposureTerms) {
        for known in &self.regions {
            let first = self.pieces.partition_point(|p| p.range.end <= known.range.start);
            let all = self.pieces[first..].iter();
            let len = all.take_while(|p| p.range.start < known.range.end).count();
            let pieces = &mut self.pieces[first..first + len];
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
                // A part of it, perhaps: each sample speaks for what is nearest to it.
                Some(Ordering::Less) if is_sampled(known) => {}
                Some(Ordering::Less) => rest.for_each(|p| p.presume(run.hz())),
                Some(_) => {
                    // What looks hot for the first time is to be seen twice.
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
        let view = |g: &Group| project(g, &self.pieces, known_at(&before, g.range), b);
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

    /// Whether enough memory is hidden for it to be worth asking about: that costs more than all else.
    pub fn hides_much(&self) -> bool {
        if self.hides_little {
            return false;
        }
        let hides = self.pieces.iter().filter(|p| p.hides());
        let hidden: u64 = hides.map(|p| u64::from(p.unseen_pages().count())).sum();
        let locked = self.mappings.iter().filter(|m| m.unknown == Some(Unknown::Mlocked));
        let locked: u64 = locked.map(|m| m.range.len() / PAGE_SIZE).sum();
        hidden + locked > (self.resident_pages() + locked) / MUCH
    }

    fn is_locked(&self, range: AddrRange) -> bool {
        let at = self.mappings.partition_point(|m| m.range.end <= range.start);
        self.mappings.get(at).is_some_and(|m| m.unknown == Some(Unknown::Mlocked))
    }

    /// Windows to ask about whose bits tell nothing: of locked mappings, and of the memory in which
    /// something is hidden.
    pub fn ask_hidden(&mut self, rng: &mut impl Rng, window: u64) -> Vec<Ask> {
        let target = self.id;
        let ask = |range| Ask { target, range, clear: false };
        let mut asks = self.unobservable.asks(target, rng, window, |r| self.is_locked(r));
        let hidden: Vec<usize> =
            (0..self.pieces.len()).filter(|&i| self.pieces[i].hides()).collect();
        let places =
            hidden.iter().flat_map(|&p| (0..self.pieces[p].nr_windows()).map(move |i| (p, i)));
        let places: Vec<(usize, usize)> = places.collect();
        let n = places.len().min(MOST_ASKS);
        self.turn = if places.is_empty() { 0 } else { (self.turn + n) % places.len() };
        let due = places.iter().cycle().skip(self.turn).take(n);
        asks.extend(due.map(|&(p, i)| ask(self.pieces[p].window_range(i))));
        asks
    }

    /// The answers.
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

    /// The first piece, not before `from`, of the block from `start` on, or of one behind: most often it is near.
    fn first_in_block(&self, start: u64, from: usize) -> usize {
        let rest = &self.pieces[from.min(self.pieces.len())..];
        let is_before = |p: &Piece| p.block() < start;
        let mut near = 1;
        while rest.get(near - 1).is_some_and(is_before) {
            near *= 2;
        }
        from + rest[..rest.len().min(near)].partition_point(is_before)
    }

    /// The pieces of the block from `start` on, the first of which is known.
    fn in_block(&mut self, first: usize, start: u64) -> impl Iterator<Item = &mut Piece> {
        self.pieces[first..].iter_mut().take_while(move |p| p.block() == start)
    }
}

/// What was just looked at of a region, against what was known of it.
#[derive(Default)]
struct Compared {
    touched: f64,
    expected: f64,
    seconds: f64,
}

impl Compared {
    /// Whether fewer than half of the pages were touched that should have been, or more than twice as
    /// many, and not by chance.
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

/// Mappings of a target at rest are read once in so much time all the same.
const MAPPED_EVERY: Duration = Duration::from_secs(5);
/// A piece is gone that was missing in so many readings.
const MISSED: u8 = 2;

/// Whether pieces, of which none ends behind `range`, are all of it.
fn covers(pieces: &[Piece], range: AddrRange) -> bool {
    let joined = pieces.windows(2).all(|w| w[0].range.end == w[1].range.start);
    let ends = pieces.first().zip(pieces.last()).map(|(a, b)| (a.range.start, b.range.end));
    joined && ends == Some((range.start, range.end))
}

/// What came of what woke is known by then, or never.
const WOKEN_FOR: Duration = Duration::from_secs(2);
/// One in so many pages is worth asking about.
const MUCH: u64 = 32;
/// A difference above is no chance, in natural logarithms.
const CHANGED_LLR: f64 = 6.0;

/// The part of the block that holds `addr` which lies in the same one of `visible`.
fn cut(visible: &[AddrRange], addr: u64) -> Option<AddrRange> {
    let range = visible.get(visible.partition_point(|r| r.end <= addr))?;
    let start = align_down(addr, BLOCK_SIZE);
    range.intersect(&AddrRange::new(start, start + BLOCK_SIZE)).filter(|r| r.start == addr)
}

/// The part of the time in which a target runs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RunShare {
    last: Option<(Nanos, Duration)>,
    share: Option<f64>,
}

impl RunShare {
    /// Takes in how long it has run by now.
    pub fn update(&mut self, at: Nanos, ran: Option<Duration>) {
        let Some(ran) = ran else { return };
        if let Some((before, had)) = self.last {
            let wall = at.since(before).as_secs_f64();
            if wall < 0.1 {
                return;
            }
            let now = (ran.saturating_sub(had).as_secs_f64() / wall).min(1.0);
            // Over some seconds: shorter pauses are what it is there to tell.
            let weight = (wall / 4.0).min(0.5);
            self.share = Some(self.share.map_or(now, |s| s + (now - s) * weight));
        }
        self.last = Some((at, ran));
    }

    /// 1 as long as that is not known.
    pub fn share(&self) -> f64 {
        self.share.unwrap_or(1.0)
    }
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod summary_tests;
