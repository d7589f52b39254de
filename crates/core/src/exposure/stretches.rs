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
//! has shown: no sample represents memory beyond a border.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::piece::Piece;
use super::published::{PublishedRegion, is_sampled};
use super::timing::ExposureTerms;
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
/// Maximum number of remembered borders of a target.
const MAX_BORDERS: usize = 4096;

/// Borders between memory that behaved differently, each with the time when it last showed, in ms.
#[derive(Debug, Default)]
pub(super) struct Borders(BTreeMap<u64, u32>);

impl Borders {
    fn forget_older_half(&mut self) {
        let mut times: Vec<u32> = self.0.values().copied().collect();
        let middle = times.len() / 2;
        let (_, &mut median, _) = times.select_nth_unstable(middle);
        self.0.retain(|_, at| *at > median);
    }

    /// Notes the ends of memory that was reactivated while its neighbours did not.
    pub fn note(&mut self, ends: impl IntoIterator<Item = u64>, ms: u32) {
        self.0.extend(ends.into_iter().map(|addr| (addr, ms)));
        self.0.retain(|_, at| ms.saturating_sub(*at) < BORDER_TIMEOUT_MS);
        if self.0.len() > MAX_BORDERS {
            self.forget_older_half();
        }
    }

    /// Subtracts `ms` from all times; times before the new origin become 0.
    pub fn rebase(&mut self, ms: u32) {
        self.0.values_mut().for_each(|at| *at = at.saturating_sub(ms));
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
    let mut at = 0;
    move |p| {
        at += regions[at..].iter().take_while(|k| k.range.end <= p.range.start).count();
        let region = regions.get(at).filter(|k| k.range.intersect(&p.range) == Some(p.range));
        let region = region.filter(|k| is_sampled(k)).map(|k| k.hz);
        region.or(p.presumed_hz().filter(|hz| *hz >= SAMPLED_HZ)).or_else(|| p.may_be_idle(now))
    }
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
    /// not touched since this time, in ms
    Idle(u32),
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
    idle.then_some(SampleVerdict::Idle(shown.since.ms))
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
            SampleVerdict::Idle(ms) if known != Some(0.0) => {
                pieces[i].extend(0.0, idle_since, Some(ms));
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
            borders.note([addr(i)], 1000 + i as u32 / 8);
        }
        let newest = 3 * MAX_BORDERS as u64 - 1;
        assert!(borders.0.len() <= MAX_BORDERS);
        assert!(
            (newest - MAX_BORDERS as u64 / 4..=newest).all(|i| borders.0.contains_key(&addr(i)))
        );
    }
}
