//! Stretches: adjacent memory that became young, or idle, between the same two reads.
//!
//! Whole areas of memory change at once: when a phase of a program begins, its data become hot. Clearing all
//! of this repeatedly, to measure each page, costs more than any budget allows. Therefore the monitor clears
//! a *sample*, a few pages of a stretch, and *extends* its result to the rest of the stretch:
//!
//! - Memory that became young together after it was idle is a reactivated stretch. Its samples are cleared at once.
//!   If they are touched again, the whole stretch is as hot as the samples; if not, it was touched in a
//!   single pass.
//! - Samples of hot memory are cleared from time to time, and earlier if other memory has changed. If a sample
//!   is untouched for three times its mean time between touches, the memory around it has become idle.
//! - Memory that has become idle still has its bits set, and would not show that it is reactivated. Therefore it gets
//!   *sentinels*: a sample in each piece, which stays clear while the piece is idle.
//!
//! If samples disagree, each represents the memory nearest to it. A border is remembered for a while after it
//! has shown: no sample represents memory beyond a border. If both sides become hot together, it is soon forgotten: the
//! read that showed it may have come in the middle of a pass.

use std::collections::BTreeMap;
use std::ops::Range;
use std::slice;
use std::time::Duration;

use super::piece::Piece;
use super::published::{PublishedRegion, is_sampled};
use super::timing::{ExposureTerms, Moment};
use crate::range::AddrRange;
use crate::time::Nanos;
use crate::tuning::{CHECKED_IDLE, MIN_SAMPLE_PAGES, SAMPLED_HZ};

/// A sample is idle if it was untouched for this many times the mean time between two touches of a page...
const MEAN_TIMES: f64 = 3.0;
/// ... except for this fraction of its pages.
const MAX_EXCEPTION_SHARE: f64 = 1.0 / 50.0;
/// Samples contradict a presumed rate if they differ from it by more than this factor. The sample of memory
/// that is accessed in address order may be off by a factor of three.
const CONTRARY_FACTOR: f64 = 5.0;
/// Touched samples cleared at most this long ago count.
const CHECKED_WITHIN: Duration = Duration::from_millis(500);
/// Reactivated memory with a lower rate, in Hz, may have been touched only once.
const HOT_HZ: f64 = 10.0;
/// A border is forgotten this many ms after it last showed.
const BORDER_TIMEOUT_MS: u32 = 60_000;
/// A border that has shown this often is forgotten after as many changes of both sides together.
const MAX_TRUST: u8 = 4;
/// Neighbours that were reactivated within this time, in ms, changed together: the read that found the first one may
/// have come during a pass through both.
const TOGETHER_MS: u32 = 300;
/// A piece that was read within this time, in ms, was read together with its neighbours.
const READ_TOGETHER_MS: u32 = 10;
/// Maximum number of remembered borders of a target.
const MAX_BORDERS: usize = 4096;

/// Borders between memory that behaved differently, by address. Neighbouring areas that change independently show their
/// border several times as often as they become hot together.
#[derive(Debug, Default)]
pub(super) struct Borders(BTreeMap<u64, Border>);

#[derive(Debug, Clone, Copy)]
struct Border {
    /// time when it last showed, in ms
    ms: u32,
    /// Grows by 1 if the border shows, and falls by 1 if both sides change together; at most [`MAX_TRUST`]. At 0 the
    /// border is forgotten.
    trust: u8,
}

impl Borders {
    fn forget_older_half(&mut self) {
        let mut times: Vec<u32> = self.0.values().map(|b| b.ms).collect();
        let middle = times.len() / 2;
        let (_, &mut median, _) = times.select_nth_unstable(middle);
        self.0.retain(|_, b| b.ms > median);
    }

    /// Notes what reactivated stretches show: a border at each end whose neighbour was not reactivated, and no border
    /// inside, nor beside memory that was reactivated just before.
    pub fn learn(&mut self, pieces: &[Piece], stretches: &[ReactivatedStretch], ms: u32) {
        for range in stretches.iter().map(|w| w.range) {
            let inside = self.0.range(range.start + 1..range.end).map(|(addr, _)| *addr);
            inside.collect::<Vec<_>>().into_iter().for_each(|addr| self.doubt(addr));
            let of = within(pieces, &range);
            let before = pieces[..of.start].last().filter(|p| p.range.end == range.start);
            let after = pieces.get(of.end).filter(|p| p.range.start == range.end);
            for (end, beside) in [(range.start, before), (range.end, after)] {
                match beside {
                    Some(p) if p.was_reactivated_within(TOGETHER_MS, ms) => self.doubt(end),
                    // An early read does not include it.
                    Some(p) if p.is_quiet() && ms.abs_diff(p.read_ms()) > READ_TOGETHER_MS => {}
                    Some(_) => self.note(end, ms),
                    None => {}
                }
            }
        }
        self.0.retain(|_, b| ms.saturating_sub(b.ms) < BORDER_TIMEOUT_MS);
        if self.0.len() > MAX_BORDERS {
            self.forget_older_half();
        }
    }

    fn note(&mut self, addr: u64, ms: u32) {
        let trust = self.0.get(&addr).map_or(1, |b| (b.trust + 1).min(MAX_TRUST));
        self.0.insert(addr, Border { ms, trust });
    }

    fn doubt(&mut self, addr: u64) {
        if let Some(border) = self.0.get_mut(&addr) {
            border.trust -= 1;
            if border.trust == 0 {
                self.0.remove(&addr);
            }
        }
    }

    /// Subtracts `ms` from all times; times before the new origin become 0.
    pub fn rebase(&mut self, ms: u32) {
        self.0.values_mut().for_each(|b| b.ms = b.ms.saturating_sub(ms));
    }

    /// Whether there is a gap or a border behind the start of `a` and up to the start of `b`, which follows
    /// `a`.
    fn between(&self, a: &Piece, b: &Piece) -> bool {
        a.range.end != b.range.start
            || self.0.range(a.range.start + 1..=b.range.start).next().is_some()
    }

    /// The pieces of `all`, divided into cells at the borders.
    pub fn cells(&self, pieces: &[Piece], all: Range<usize>) -> Vec<Range<usize>> {
        let mut out: Vec<Range<usize>> = Vec::new();
        for i in all {
            match out.last_mut().filter(|c| c.end == i && !self.between(&pieces[i - 1], &pieces[i]))
            {
                Some(cell) => cell.end = i + 1,
                None => out.push(i..i + 1),
            }
        }
        out
    }
}

/// The pieces that lie completely in `range`.
pub(super) fn within(pieces: &[Piece], range: &AddrRange) -> Range<usize> {
    let first = pieces.partition_point(|p| p.range.start < range.start);
    let inside = pieces[first..].iter().take_while(|p| p.range.end <= range.end);
    first..first + inside.count()
}

/// Index of the first piece, from `from` on, for which `is_before` does not hold. The search doubles its steps,
/// because memory is visited in order, and the piece is near.
pub(super) fn next_piece(
    pieces: &[Piece],
    from: usize,
    is_before: impl Fn(&Piece) -> bool,
) -> usize {
    let rest = &pieces[from.min(pieces.len())..];
    let mut near = 1;
    while rest.get(near - 1).is_some_and(&is_before) {
        near *= 2;
    }
    from + rest[..rest.len().min(near)].partition_point(is_before)
}

/// Looks up ranges in the order of their addresses, so that each lookup begins where the previous one ended.
#[derive(Debug, Default)]
pub(super) struct InOrder(usize);

impl InOrder {
    /// The pieces that overlap `range`, as indices. The range begins at the end of the previous one, or later.
    pub fn overlapping(&mut self, pieces: &[Piece], range: &AddrRange) -> Range<usize> {
        let first = next_piece(pieces, self.0, |p| p.range.end <= range.start);
        let end = next_piece(pieces, first, |p| p.range.start < range.end);
        // The next range may begin within the last piece.
        self.0 = end.saturating_sub(1).max(first);
        first..end
    }
}

/// For each piece the rate in Hz, if samples represent it: the rate of the hot region that contains the whole
/// piece. If a sample differs from its surroundings, regions begin and end within a piece: then the presumed
/// rate counts. A piece that was hot until its last clear, and was not touched since, still belongs to its
/// surroundings: it may show that all of them are idle.
pub(super) fn sampled(
    pieces: &[Piece],
    regions: &[PublishedRegion],
    now: Nanos,
) -> Vec<Option<f64>> {
    pieces.iter().map(sampled_hz(regions, now)).collect()
}

/// The same for pieces in the order of their addresses.
pub(super) fn sampled_hz(
    regions: &[PublishedRegion],
    now: Nanos,
) -> impl FnMut(&Piece) -> Option<f64> {
    let mut overlapping = overlapping(regions);
    move |p| {
        let whole = |k: &&PublishedRegion| k.range.intersect(&p.range) == Some(p.range);
        let region = overlapping(&p.range).next().filter(whole);
        let region = region.filter(|k| is_sampled(k)).map(|k| k.hz);
        region.or(p.presumed_hz().filter(|hz| *hz >= SAMPLED_HZ)).or_else(|| p.may_be_idle(now))
    }
}

/// The regions that overlap a range, for ranges in the order of their addresses.
fn overlapping<'a>(
    regions: &'a [PublishedRegion],
) -> impl FnMut(&AddrRange) -> slice::Iter<'a, PublishedRegion> {
    let mut at = 0;
    move |range| {
        at += regions[at..].iter().take_while(|k| k.range.end <= range.start).count();
        let count = regions[at..].iter().take_while(|k| k.range.start < range.end).count();
        regions[at..at + count].iter()
    }
}

/// The same as [`sampled`], for memory that may have become idle. A piece with several hot regions counts with the
/// lowest rate: such a piece has no samples, but those around it show when it becomes idle.
pub(super) fn may_fall(
    pieces: &[Piece],
    regions: &[PublishedRegion],
    now: Nanos,
) -> Vec<Option<f64>> {
    let (mut sampled, mut overlapping) = (sampled_hz(regions, now), overlapping(regions));
    let hz = |p: &Piece| {
        let hot = overlapping(&p.range).filter(|k| is_sampled(k));
        let of_parts = || {
            let part = |k: &PublishedRegion| k.range.intersect(&p.range).map_or(0, |r| r.len());
            let (bytes, slowest) =
                hot.fold((0, f64::INFINITY), |(bytes, hz), k| (bytes + part(k), hz.min(k.hz)));
            (bytes == p.range.len()).then_some(slowest)
        };
        sampled(p).or_else(of_parts)
    };
    pieces.iter().map(hz).collect()
}

/// The cells of adjacent `sampled` pieces without a known border between them.
pub(super) fn hot_cells(
    pieces: &[Piece],
    sampled: &[Option<f64>],
    borders: &Borders,
) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let mut at = 0;
    for run in sampled.chunk_by(|a, b| a.is_some() == b.is_some()) {
        if run.first().is_some_and(Option::is_some) {
            out.extend(borders.cells(pieces, at..at + run.len()));
        }
        at += run.len();
    }
    out
}

/// The statement of a sample about the memory around it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum SampleVerdict {
    Touched,
    /// not touched since its clear
    Idle(Moment),
}

/// The verdict of a piece from a sample that was cleared at `since` or later, or that was cleared at
/// `idle_since` or later and is untouched. Memory with rate `hz` would have been touched within a third of
/// the time required for an idle verdict.
fn verdict(
    piece: &Piece,
    hz: f64,
    (since, idle_since): (Nanos, Nanos),
    t: &ExposureTerms,
) -> Option<SampleVerdict> {
    let at = piece.cleared_at().filter(|at| *at >= since.min(idle_since))?;
    let shown = piece.shown_since(t).filter(|s| s.pages >= f64::from(MIN_SAMPLE_PAGES))?;
    if shown.touched > shown.pages * MAX_EXCEPTION_SHARE {
        return (at >= since).then_some(SampleVerdict::Touched);
    }
    let idle = at >= idle_since && hz * shown.open >= MEAN_TIMES;
    idle.then_some(SampleVerdict::Idle(shown.since))
}

/// For each piece of `cell`, the verdict of the nearest sample among those cleared recently enough.
fn verdicts(
    pieces: &[Piece],
    cell: Range<usize>,
    hz: impl Fn(usize) -> f64,
    since: (Nanos, Nanos),
    t: &ExposureTerms,
) -> Vec<(usize, SampleVerdict)> {
    let samples: Vec<(usize, SampleVerdict)> =
        cell.clone().filter_map(|i| Some((i, verdict(&pieces[i], hz(i), since, t)?))).collect();
    let nearest = |i: usize| {
        let next = samples.partition_point(|(at, _)| *at < i);
        let around = [next.checked_sub(1), Some(next)].into_iter().flatten();
        around.filter_map(|k| samples.get(k)).min_by_key(|(at, _)| at.abs_diff(i))
    };
    cell.filter_map(|i| nearest(i).map(|(_, v)| (i, *v))).collect()
}

/// The common rate of all touched samples in a cell, in Hz.
fn pooled(
    pieces: &[Piece],
    all: &[(usize, SampleVerdict)],
    since: Nanos,
    t: &ExposureTerms,
) -> f64 {
    let own = |i: usize| {
        let sampled = pieces[i].cleared_at().is_some_and(|at| at >= since);
        let shown = sampled.then(|| pieces[i].shown_since(t)).flatten();
        shown.filter(|s| s.touched > 0.0)
    };
    let (d, e) = all
        .iter()
        .filter_map(|(i, _)| own(*i))
        .fold((0.0, 0.0), |(d, e), s| (d + s.touched, e + s.seconds));
    d / e.max(1e-9)
}

/// Presumes hot memory around idle samples to be idle. Returns whether any memory became idle.
pub(super) fn fall_idle(
    pieces: &mut [Piece],
    cell: Range<usize>,
    sampled: &[Option<f64>],
    now: Nanos,
    t: &ExposureTerms,
) -> bool {
    let mut fell = false;
    let hz = |i: usize| sampled[i].unwrap_or(HOT_HZ);
    let (since, idle_since) = (now.before(CHECKED_WITHIN), now.before(CHECKED_IDLE));
    let all = verdicts(pieces, cell, hz, (since, idle_since), t);
    let pooled = pooled(pieces, &all, since, t);
    for (i, verdict) in all {
        let known = pieces[i].presumed_hz();
        if pieces[i].is_idle_for_sure() && known.is_none_or(|hz| hz == 0.0) {
            if verdict != SampleVerdict::Touched {
                pieces[i].settle_idle();
            }
            continue;
        }
        match verdict {
            SampleVerdict::Idle(cleared) if known != Some(0.0) => {
                pieces[i].extend(0.0, cleared.at, Some(cleared.ms));
                fell = true;
            }
            SampleVerdict::Touched
                if known.is_some_and(|k| {
                    k >= SAMPLED_HZ && k.max(pooled) > CONTRARY_FACTOR * k.min(pooled)
                }) =>
            {
                pieces[i].extend(pooled, since, None);
            }
            _ => {}
        }
    }
    fell
}

/// Memory that was reactivated between the same two reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReactivatedStretch {
    pub range: AddrRange,
    /// rate in Hz if it was touched once since it became idle
    pub hz: f64,
    /// time of the read that found it
    pub at: Nanos,
    pub ms: u32,
}

impl ReactivatedStretch {
    /// Its rate if it was touched in a single pass, in Hz: too low to be sampled.
    pub fn once(&self) -> f64 {
        self.hz.min(SAMPLED_HZ / 2.0)
    }

    /// Extends the results of its samples to the whole stretch. Returns whether the samples are sufficient.
    pub fn settle(&self, pieces: &mut [Piece], borders: &Borders, t: &ExposureTerms) -> bool {
        let mut settled = true;
        for cell in borders.cells(pieces, within(pieces, &self.range)) {
            let all = verdicts(pieces, cell, |_| HOT_HZ, (self.at, self.at), t);
            settled &= !all.is_empty();
            let pooled = pooled(pieces, &all, self.at, t);
            for (i, verdict) in all {
                let (hz, touched) = match verdict {
                    SampleVerdict::Touched => (pooled, None),
                    // It was touched in a single pass.
                    SampleVerdict::Idle(_) => (self.once(), Some(self.ms)),
                };
                if !pieces[i].is_idle_for_sure() {
                    pieces[i].extend(hz, self.at, touched);
                }
            }
        }
        settled
    }
}

/// Joins the pieces that a read found reactivated into stretches. `found` lists their start addresses, ascending, and
/// their idle times in s. A stretch includes the pieces between and beside them that are presumed idle and
/// have too few sentinels to show a touch.
pub(super) fn reactivated_stretches(
    pieces: &[Piece],
    borders: &Borders,
    found: &[(u64, f64)],
    at: Nanos,
    ms: u32,
) -> Vec<ReactivatedStretch> {
    let is_blind = |p: &Piece| {
        p.presumed_hz().is_some_and(|hz| hz < SAMPLED_HZ) && p.sentinels() < MIN_SAMPLE_PAGES
    };
    let joined = |a: usize, b: usize| !borders.between(&pieces[a], &pieces[b]);
    let mut out: Vec<(Range<usize>, f64)> = Vec::new();
    for &(start, idle) in found {
        let Ok(i) = pieces.binary_search_by_key(&start, |p| p.range.start) else { continue };
        let floor = out.last().map_or(0, |(r, _)| r.end);
        let before = (floor..i).rev().take_while(|&k| is_blind(&pieces[k]) && joined(k, k + 1));
        let first = i - before.count();
        let after = (i + 1..pieces.len()).take_while(|&k| is_blind(&pieces[k]) && joined(k - 1, k));
        let end = (i + 1 + after.count()).max(floor);
        let adjacent = |r: &Range<usize>| {
            r.end >= first && first > 0 && pieces[first - 1].range.end == pieces[first].range.start
        };
        match out.last_mut().filter(|(r, _)| adjacent(r)) {
            Some((r, longest)) => (r.end, *longest) = (end, idle.max(*longest)),
            None => out.push((first..end, idle)),
        }
    }
    let stretch = |(r, idle): (Range<usize>, f64)| ReactivatedStretch {
        range: AddrRange::new(pieces[r.start].range.start, pieces[r.end - 1].range.end),
        hz: 1.0 / idle.max(0.1),
        at,
        ms,
    };
    out.into_iter().map(stretch).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::page_mask::PageMask;
    use crate::survey::{BLOCK_SIZE, Block, Cleared};

    /// Every second piece of `n` adjacent ones of 64 KiB.
    fn every_second(n: u64) -> Vec<Piece> {
        let range = |i: u64| AddrRange::new(i << 16, (i + 1) << 16);
        (0..n).step_by(2).map(|i| Piece::new(range(i), 64 << 10, 0)).collect()
    }

    #[test]
    fn lookups_in_order_find_all_pieces_that_overlap() {
        let pieces = every_second(400);
        // Short ranges, of which some begin within the piece in which the previous one ended, and long ones.
        for (step, len) in [(8, 8), (12, 5), (100, 60), (1000, 1000), (7000, 3000)] {
            let mut lookup = InOrder::default();
            for start in (0..6000).step_by(step) {
                let range = AddrRange::new(start << 12, (start + len) << 12);
                let found = lookup.overlapping(&pieces, &range);
                let overlaps = |i: &usize| pieces[*i].range.intersect(&range).is_some();
                let expected: Vec<usize> = (0..pieces.len()).filter(overlaps).collect();
                assert_eq!(found.collect::<Vec<_>>(), expected, "{range:?}");
            }
        }
    }

    /// The work of a lookup does not depend on the number of pieces.
    #[test]
    fn a_lookup_in_order_visits_near_pieces_only() {
        let pieces = every_second(20_000);
        let visited = Cell::new(0);
        let mut at = 0;
        for piece in &pieces {
            at = next_piece(&pieces, at, |p| {
                visited.set(visited.get() + 1);
                p.range.end <= piece.range.start
            });
            assert_eq!(pieces[at].range, piece.range);
        }
        assert!(visited.get() <= 5 * pieces.len(), "{} visits", visited.get());
    }

    #[test]
    fn of_too_many_borders_the_latest_are_kept() {
        let mut borders = Borders::default();
        let addr = |i: u64| i << 21;
        for i in 0..3 * MAX_BORDERS as u64 {
            let ms = 1000 + i as u32 / 8;
            borders.note(addr(i), ms);
            borders.learn(&[], &[], ms);
        }
        let newest = 3 * MAX_BORDERS as u64 - 1;
        assert!(borders.0.len() <= MAX_BORDERS);
        assert!(
            (newest - MAX_BORDERS as u64 / 4..=newest).all(|i| borders.0.contains_key(&addr(i)))
        );
    }

    const TERMS: ExposureTerms = ExposureTerms { share: 1.0, recent: 0, long: 8.0 };

    fn moment(ms: u32) -> Moment {
        Moment { at: Nanos(u64::from(ms) * 1_000_000), ms, ran: None }
    }

    /// Block `n`, of which the first 16 pages were cleared at `cleared` ms and read at `read` ms. `touched` of them were
    /// young then. It is presumed hot before.
    fn sampled_piece(n: u64, cleared: u32, read: u32, touched: usize) -> Piece {
        let start = n * BLOCK_SIZE;
        let all = PageMask::span(0, 512);
        let (armed, rest) = (PageMask::span(0, 16), PageMask::span(16, 512));
        let block = |at: u32, young: PageMask| Block {
            start,
            huge: false,
            resident: all,
            young,
            read_at: moment(at).at,
        };
        let mut piece = Piece::new(AddrRange::new(start, start + BLOCK_SIZE), 64 << 10, 0);
        piece.read(&block(cleared, all), 10, &moment(cleared), &TERMS);
        let hidden = Vec::new();
        let done = Cleared { start, huge: false, armed, hidden, cleared_at: moment(cleared).at };
        piece.extend(40.0, moment(0).at, None);
        piece.clear(&done, moment(cleared), Some(40.0), &TERMS);
        let young = rest.or(&PageMask::span(0, touched));
        piece.read(&block(read, young), 4, &moment(read), &TERMS);
        piece
    }

    /// The sizes of the cells of `pieces`, after stretches of these pieces were reactivated at these times in ms.
    fn cells_after(pieces: &mut [Piece], stretches: &[(Range<usize>, u32)]) -> Vec<usize> {
        let mut borders = Borders::default();
        for (of, ms) in stretches {
            let range = AddrRange::new(pieces[of.start].range.start, pieces[of.end - 1].range.end);
            let stretch = ReactivatedStretch { range, hz: 1.0, at: moment(*ms).at, ms: *ms };
            borders.learn(pieces, &[stretch], *ms);
            pieces[of.clone()].iter_mut().for_each(|p| p.suspect(*ms));
        }
        borders.cells(pieces, 0..pieces.len()).into_iter().map(|cell| cell.len()).collect()
    }

    /// A border that a read in the middle of a pass showed does not divide an area for long.
    #[test]
    fn a_border_is_forgotten_when_both_sides_change_together() {
        let cells = |stretches: &[(Range<usize>, u32)]| {
            let mut pieces: Vec<Piece> = (0..8).map(|n| sampled_piece(n, 1, 40_000, 16)).collect();
            cells_after(&mut pieces, stretches)
        };
        assert_eq!(cells(&[(0..4, 5_000)]), [4, 4]);
        assert_eq!(cells(&[(0..4, 5_000), (0..8, 9_000)]), [8]);
        assert_eq!(cells(&[(0..4, 5_000), (4..8, 5_200)]), [8], "the next read found the rest");
        // After the first two changes it has shown twice.
        let independent = [(0..4, 5_000), (4..8, 9_000), (0..8, 13_000)];
        assert_eq!(cells(&independent), [4, 4]);
        assert_eq!(cells(&[&independent[..], &[(0..8, 17_000)]].concat()), [8]);
    }

    /// An early read includes only memory that was just cleared.
    #[test]
    fn memory_that_was_not_read_has_no_border() {
        let cells = |read| {
            let mut pieces: Vec<Piece> = (0..8).map(|n| sampled_piece(n, 1, read, 0)).collect();
            cells_after(&mut pieces, &[(2..4, 5_000)])
        };
        assert_eq!(cells(5_000), [2, 2, 4]);
        assert_eq!(cells(4_000), [8]);
    }

    #[test]
    fn a_piece_with_several_hot_regions_may_fall_idle() {
        let part = |from: u64, to: u64| AddrRange::new(from << 18, to << 18);
        let region = |(range, hz)| PublishedRegion {
            range,
            hz,
            share: 1.0,
            age: Duration::ZERO,
            extended: false,
        };
        let hz = |parts: &[(AddrRange, f64)]| {
            let regions: Vec<PublishedRegion> = parts.iter().copied().map(region).collect();
            let pieces = [Piece::new(part(8, 16), 64 << 10, 0)];
            assert_eq!(sampled(&pieces, &regions, moment(0).at), [None]);
            may_fall(&pieces, &regions, moment(0).at)[0]
        };
        assert_eq!(
            hz(&[(part(0, 11), 40.0), (part(11, 13), 170.0), (part(13, 20), 30.0)]),
            Some(30.0)
        );
        assert_eq!(hz(&[(part(0, 11), 40.0), (part(11, 13), 0.0), (part(13, 20), 30.0)]), None);
        assert_eq!(hz(&[(part(0, 11), 40.0), (part(13, 20), 30.0)]), None, "a gap");
    }

    /// A sample that was touched before the memory became idle does not keep its windows hot.
    #[test]
    fn the_idle_sample_outweighs_earlier_samples() {
        // The sample of the third piece was cleared at 3 s and is untouched at 3.3 s.
        let mut pieces = [
            sampled_piece(0, 1_500, 1_600, 16),
            sampled_piece(1, 2_400, 2_500, 16),
            sampled_piece(2, 3_000, 3_300, 0),
        ];
        let hot = [Some(40.0); 3];
        assert!(fall_idle(&mut pieces, 0..3, &hot, moment(3_300).at, &TERMS));
        for p in &pieces[..2] {
            assert!(p.is_presumed_idle() && (0..p.nr_windows()).all(|i| p.is_extended(i)));
        }
    }
}
