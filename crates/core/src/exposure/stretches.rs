//! Stretches: adjacent memory that turned young, or fell idle, between the same two reads.
//!
//! Whole areas of memory change at once: a phase of a program begins, and what it works on turns hot. To clear all of
//! that, again and again, to learn what each page does costs more than any budget has. So a *sample*, a few pages
//! of a stretch, is cleared, and what it shows is *extended* to the rest of the stretch:
//!
//! - What turned young together after it had been idle is a woken stretch. Samples of it are cleared at once. If
//!   they are touched again, all of the stretch is as hot as they are; if they are not, it was gone through once.
//! - Samples of what is hot are cleared now and then, and soon where something else has changed. If one is untouched
//!   for three times as long as its rate allows, the memory around it has fallen idle.
//! - What has fallen idle still has its bits set, and would not show that it wakes. So it gets *sentinels*: a sample in
//!   each piece, which stays clear as long as the piece is idle.
//!
//! Where samples disagree, each speaks for what is nearest to it. Borders that have shown once are kept for a while:
//! no sample speaks beyond one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::piece::Piece;
use super::published::{PublishedRegion, is_sampled};
use super::timing::ExposureTerms;
use crate::range::AddrRange;
use crate::time::Nanos;
use crate::tuning::{LEAST_SAMPLE_PAGES, SAMPLED_HZ};

/// A sample is idle if it was untouched for so many times the mean time between two touches of a page...
const MEAN_TIMES: f64 = 3.0;
/// ... but for one in so many of its pages.
const ALMOST_NONE: f64 = 1.0 / 50.0;
/// Samples that are so many times as hot as their stretch was presumed to be, or as much less hot, contradict that:
/// one of memory that is gone through in order is off by a factor of three.
const CONTRARY: f64 = 5.0;
/// What samples of so long ago have shown counts.
const CHECKED: Duration = Duration::from_millis(500);
/// The same of one that is untouched: where a process runs little, it takes some rounds to show that.
const CHECKED_IDLE: Duration = Duration::from_millis(2_500);
/// What is touched more seldom after it woke may have been touched once, in Hz.
const HOT_HZ: f64 = 10.0;
/// For so long a border is remembered that does not show any more, in ms.
const SEAM_MS: u32 = 60_000;
/// Borders that are remembered of a target.
const MOST_SEAMS: usize = 4096;

/// Borders between memory that differed, and when it last did, in ms.
#[derive(Debug, Default)]
pub(super) struct Seams(BTreeMap<u64, u32>);

impl Seams {
    fn forget_older_half(&mut self) {
        let mut times: Vec<u32> = self.0.values().copied().collect();
        let middle = times.len() / 2;
        let (_, &mut median, _) = times.select_nth_unstable(middle);
        self.0.retain(|_, at| *at > median);
    }

    /// Takes in that memory woke from one address to another, and what lies beside it did not then.
    pub fn note(&mut self, ends: impl IntoIterator<Item = u64>, ms: u32) {
        self.0.extend(ends.into_iter().map(|addr| (addr, ms)));
        self.0.retain(|_, at| ms.saturating_sub(*at) < SEAM_MS);
        if self.0.len() > MOST_SEAMS {
            self.forget_older_half();
        }
    }

    /// Time is counted from so many ms later on.
    pub fn rebase(&mut self, ms: u32) {
        self.0.values_mut().for_each(|at| *at = at.saturating_sub(ms));
    }

    /// Whether one lies behind the start of `a` and not behind that of `b`, which follows.
    fn between(&self, a: &Piece, b: &Piece) -> bool {
        a.range.end != b.range.start
            || self.0.range(a.range.start + 1..=b.range.start).next().is_some()
    }

    /// The pieces from `all`, cut at the borders.
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

/// The pieces that lie in `range` as a whole.
pub(super) fn within(pieces: &[Piece], range: &AddrRange) -> Range<usize> {
    let first = pieces.partition_point(|p| p.range.start < range.start);
    let inside = pieces[first..].iter().take_while(|p| p.range.end <= range.end);
    first..first + inside.count()
}

/// The pieces that samples speak for, as those that lie in a hot region as a whole: how hot that is, in Hz. Where a
/// sample differs from what lies around it, regions begin and end within a piece: what it is presumed to be counts.
pub(super) fn sampled(pieces: &[Piece], regions: &[PublishedRegion]) -> Vec<Option<f64>> {
    let mut at = 0;
    let rate = |p: &Piece| {
        at += regions[at..].iter().take_while(|k| k.range.end <= p.range.start).count();
        let region = regions.get(at).filter(|k| k.range.intersect(&p.range) == Some(p.range));
        let region = region.filter(|k| is_sampled(k)).map(|k| k.hz);
        region.or(p.presumed_hz().filter(|hz| *hz >= SAMPLED_HZ))
    };
    pieces.iter().map(rate).collect()
}

/// The stretches of `sampled` pieces between which no border is known.
pub(super) fn hot_cells(
    pieces: &[Piece],
    sampled: &[Option<f64>],
    seams: &Seams,
) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let mut at = 0;
    for run in sampled.chunk_by(|a, b| a.is_some() == b.is_some()) {
        if run.first().is_some_and(Option::is_some) {
            out.extend(seams.cells(pieces, at..at + run.len()));
        }
        at += run.len();
    }
    out
}

/// What a sample says of the memory around it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum SampleVerdict {
    Touched,
    /// not since so many ms
    Idle(u32),
}

/// What a piece says of itself if something of it was cleared at `since` or later, or at `idle_since` and not touched.
/// Memory of this rate would have been touched within a third of the time that idle memory was not.
fn verdict(
    piece: &Piece,
    hz: f64,
    (since, idle_since): (Nanos, Nanos),
    t: &ExposureTerms,
) -> Option<SampleVerdict> {
    let at = piece.cleared_at().filter(|at| *at >= since.min(idle_since))?;
    let shown = piece.shown_since(t).filter(|s| s.pages >= f64::from(LEAST_SAMPLE_PAGES))?;
    if shown.touched > shown.pages * ALMOST_NONE {
        return (at >= since).then_some(SampleVerdict::Touched);
    }
    let idle = at >= idle_since && hz * shown.open >= MEAN_TIMES;
    idle.then_some(SampleVerdict::Idle(shown.since.ms))
}

/// What the samples in `cell` that were cleared at `since` or later say, for each of its pieces: the nearest one.
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

/// The rate of all samples in a cell that were touched, in Hz.
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

/// Takes what is hot around samples that are idle to be idle; says whether there was any.
pub(super) fn fall_idle(
    pieces: &mut [Piece],
    cell: Range<usize>,
    sampled: &[Option<f64>],
    now: Nanos,
    t: &ExposureTerms,
) -> bool {
    let mut fell = false;
    let hz = |i: usize| sampled[i].unwrap_or(HOT_HZ);
    let (since, idle_since) = (now.before(CHECKED), now.before(CHECKED_IDLE));
    let all = verdicts(pieces, cell, hz, (since, idle_since), t);
    let pooled = pooled(pieces, &all, since, t);
    for (i, verdict) in all {
        let known = pieces[i].presumed_hz();
        if pieces[i].is_idle_for_sure() && known.is_none_or(|hz| hz == 0.0) {
            continue;
        }
        match verdict {
            SampleVerdict::Idle(ms) if known != Some(0.0) => {
                pieces[i].extend(0.0, idle_since, Some(ms));
                fell = true;
            }
            SampleVerdict::Touched
                if known.is_some_and(|k| {
                    k >= SAMPLED_HZ && k.max(pooled) > CONTRARY * k.min(pooled)
                }) =>
            {
                pieces[i].extend(pooled, since, None);
            }
            _ => {}
        }
    }
    fell
}

/// Memory that woke between the same two reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct WokenStretch {
    pub range: AddrRange,
    /// how often it was touched, if that was once since it fell idle
    pub hz: f64,
    /// when that was found
    pub at: Nanos,
    pub ms: u32,
}

impl WokenStretch {
    /// Its rate if it was gone through once, in Hz: too slow to be sampled.
    pub fn once(&self) -> f64 {
        self.hz.min(SAMPLED_HZ / 2.0)
    }

    /// Extends what its samples have shown by now to all of it; says whether they have shown enough.
    pub fn settle(&self, pieces: &mut [Piece], seams: &Seams, t: &ExposureTerms) -> bool {
        let mut settled = true;
        for cell in seams.cells(pieces, within(pieces, &self.range)) {
            let all = verdicts(pieces, cell, |_| HOT_HZ, (self.at, self.at), t);
            settled &= !all.is_empty();
            let pooled = pooled(pieces, &all, self.at, t);
            for (i, verdict) in all {
                let (hz, touched) = match verdict {
                    SampleVerdict::Touched => (pooled, None),
                    // It was gone through.
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

/// Stretches of what woke at a read (ascending starts of pieces, and for how many seconds they were idle), with what
/// lies between and is presumed idle without a page that could show more.
pub(super) fn woken(
    pieces: &[Piece],
    seams: &Seams,
    found: &[(u64, f64)],
    at: Nanos,
    ms: u32,
) -> Vec<WokenStretch> {
    let is_blind = |p: &Piece| {
        p.presumed_hz().is_some_and(|hz| hz < SAMPLED_HZ) && p.sentinels() < LEAST_SAMPLE_PAGES
    };
    let joined = |a: usize, b: usize| !seams.between(&pieces[a], &pieces[b]);
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
    let stretch = |(r, idle): (Range<usize>, f64)| WokenStretch {
        range: AddrRange::new(pieces[r.start].range.start, pieces[r.end - 1].range.end),
        hz: 1.0 / idle.max(0.1),
        at,
        ms,
    };
    out.into_iter().map(stretch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_borders_the_latest_are_kept() {
        let mut seams = Seams::default();
        let addr = |i: u64| i << 21;
        for i in 0..3 * MOST_SEAMS as u64 {
            seams.note([addr(i)], 1000 + i as u32 / 8);
        }
        let newest = 3 * MOST_SEAMS as u64 - 1;
        assert!(seams.0.len() <= MOST_SEAMS);
        assert!((newest - MOST_SEAMS as u64 / 4..=newest).all(|i| seams.0.contains_key(&addr(i))));
    }
}
