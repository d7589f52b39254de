//! Slices of time in which isotherm is alternately at work and at rest. The comparison is within one process,
//! so the placement of its pages in caches does not matter.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::estimate::Estimate;
use super::statistics::mean;

/// Length of a slice.
pub const SLICE: Duration = Duration::from_secs(2);

/// The result of a slice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slice<T> {
    /// whether isotherm was at work
    pub watched: bool,
    /// the result
    pub found: T,
}

/// The order of work and rest of isotherm, and the number of slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SliceOrder {
    /// work, then two slices of rest, then two of work, and so on, so that drift affects both equally
    Often(u32),
    /// For effects that persist and must be undone before a slice counts as rest: a quarter of the slices at
    /// rest before isotherm has acted, half at work, and a quarter at rest after all effects are undone.
    Once(u32),
}

/// Minimum number of slices, regardless of their length.
pub const FEWEST: u32 = 4;

impl SliceOrder {
    /// The turns for slices of this length, with about the same total time as these turns with slices of
    /// [`SLICE`].
    pub fn in_slices_of(self, slice: Duration) -> Self {
        let n = |n: u32| {
            let fit = (SLICE * n).as_nanos() / slice.as_nanos().max(1);
            u32::try_from(fit).unwrap_or(u32::MAX).next_multiple_of(2).max(FEWEST.min(n))
        };
        match self {
            SliceOrder::Often(count) => SliceOrder::Often(n(count)),
            SliceOrder::Once(count) => SliceOrder::Once(n(count)),
        }
    }

    /// Number of slices at rest before isotherm acts.
    pub fn before(self) -> u32 {
        match self {
            SliceOrder::Often(_) => 0,
            SliceOrder::Once(n) => n / 4,
        }
    }

    /// For each slice from the start of the measurement, whether isotherm is at work.
    pub fn order(self) -> Vec<bool> {
        match self {
            SliceOrder::Often(n) => (0..n).map(|i| matches!(i % 4, 0 | 3)).collect(),
            SliceOrder::Once(n) => vec![true; (n / 2) as usize],
        }
    }

    /// Number of slices at rest after all effects are undone.
    pub fn after(self) -> u32 {
        match self {
            SliceOrder::Often(_) => 0,
            SliceOrder::Once(n) => n / 2 - self.before(),
        }
    }
}

/// Work per second of a process that may be watched, and of a concurrent twin that is never watched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speeds {
    /// speed of the process
    pub own: f64,
    /// speed of its twin
    pub twin: f64,
    /// The share of the time in which it works at that speed; for the rest it is idle.
    pub busy: f64,
}

impl Speeds {
    /// For a process that always works, and has no twin.
    pub fn alone(own: f64) -> Self {
        Speeds { own, twin: 1.0, busy: 1.0 }
    }
}

/// The speed in each slice, corrected for the twin's speed relative to its average, so that influences on both
/// cancel out. `None` if the twin did no work in a slice.
pub fn by_twin(slices: &[Slice<Speeds>]) -> Option<Vec<Slice<f64>>> {
    let worked = slices.iter().all(|s| s.found.twin > 0.0);
    let usual = mean(&slices.iter().map(|s| s.found.twin).collect::<Vec<_>>())?;
    let of = |s: &Slice<Speeds>| s.found.own * usual / s.found.twin;
    let speeds = slices.iter().map(|s| Slice { watched: s.watched, found: of(s) }).collect();
    worked.then(|| over_all_time(speeds, slices))
}

/// Converts `speeds` to the whole time of these slices. A process that is idle for part of the time is assumed
/// to have the same idle time as at rest.
///
/// Example: a process that touches 5000 pages per second of CPU time is paced to use 1/5 of a CPU. If each
/// touch takes 1.25 times as long, the same work takes 1/5 x 1.25 + 4/5 = 1.05 times as long: 4762 per second.
fn over_all_time(speeds: Vec<Slice<f64>>, slices: &[Slice<Speeds>]) -> Vec<Slice<f64>> {
    let at_rest = slices.iter().zip(&speeds).filter(|(s, _)| !s.watched);
    let (busy, rest): (Vec<f64>, Vec<f64>) =
        at_rest.map(|(s, speed)| (s.found.busy.clamp(0.0, 1.0), speed.found)).unzip();
    let Some((busy, rest)) = mean(&busy).zip(mean(&rest)) else { return speeds };
    let of = |speed: f64| 1.0 / (busy / speed + (1.0 - busy) / rest);
    speeds.into_iter().map(|s| Slice { found: of(s.found), ..s }).collect()
}

/// Work per second in a slice of each kind, paired in order of time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SlicePair {
    /// isotherm at work
    pub watched: f64,
    /// isotherm at rest
    pub alone: f64,
}

/// The result of all slices of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sliced {
    /// work per second with isotherm at work
    pub watched: f64,
    /// work per second with isotherm at rest
    pub alone: f64,
    /// slowdown in percent, with its standard error over the pairs
    pub slowdown: Estimate,
    /// in order of time
    pub pairs: Vec<SlicePair>,
}

impl Sliced {
    /// From work per second; `None` if there is no pair, or no work.
    pub fn of(slices: &[Slice<f64>]) -> Option<Self> {
        let of = |watched| slices.iter().filter(move |s| s.watched == watched).map(|s| s.found);
        let pairs = of(true).zip(of(false)).map(|(watched, alone)| SlicePair { watched, alone });
        let pairs: Vec<SlicePair> = pairs.collect();
        let slowdown = slowdown(&pairs)?;
        let [watched, alone] =
            [|p: &SlicePair| p.watched, |p: &SlicePair| p.alone].map(|of| rate(&pairs, of));
        Some(Sliced { watched: watched?, alone: alone?, slowdown, pairs })
    }
}

/// The mean over pairs.
fn rate(pairs: &[SlicePair], of: fn(&SlicePair) -> f64) -> Option<f64> {
    mean(&pairs.iter().map(of).collect::<Vec<_>>())
}

/// The increase in time for the same work with isotherm at work, in percent; `None` if no work was done with
/// isotherm at work.
pub fn slowdown(pairs: &[SlicePair]) -> Option<Estimate> {
    more(pairs, |p| p.alone, |p| p.watched)
}

/// The decrease in work with isotherm at work, in percent; `None` if no work was done with isotherm at rest.
pub fn less_work(pairs: &[SlicePair]) -> Option<Estimate> {
    let more = more(pairs, |p| p.watched, |p| p.alone)?;
    Some(Estimate { value: -more.value, ..more })
}

/// The relative increase of one over the other, in percent, from the ratio of their means, with the standard
/// error of such a ratio (Cochran, Sampling Techniques, 1977, section 6.4), which a single pair does not have.
fn more(
    pairs: &[SlicePair],
    of: fn(&SlicePair) -> f64,
    than: fn(&SlicePair) -> f64,
) -> Option<Estimate> {
    let base = rate(pairs, than)?;
    let ratio = (base > 0.0).then_some(rate(pairs, of)? / base)?;
    let n = pairs.len() as f64;
    let squares: f64 = pairs.iter().map(|p| (of(p) - ratio * than(p)).powi(2)).sum();
    let error = (pairs.len() > 1).then(|| (squares / (n - 1.0) / n).sqrt() / base);
    Some(Estimate { value: 100.0 * (ratio - 1.0), error: error.map(|e| 100.0 * e) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sliced(rate: impl Fn(u32, bool) -> f64, n: u32) -> Sliced {
        let slices = (0..).zip(SliceOrder::Often(n).order());
        let slices = slices.map(|(i, watched)| Slice { watched, found: rate(i, watched) });
        Sliced::of(&slices.collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn each_pair_has_both_and_neighbours_are_alike() {
        let all = SliceOrder::Often(8).order();
        assert_eq!(all, [true, false, false, true, true, false, false, true]);
        assert!(all.chunks(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn long_ones_are_few() {
        let of = |n, seconds| SliceOrder::Once(n).in_slices_of(Duration::from_secs(seconds));
        let all = [(20, 2), (20, 26), (20, 6), (2, 26)].map(|(n, seconds)| of(n, seconds));
        assert_eq!(all, [20, 4, 6, 2].map(SliceOrder::Once));
    }

    #[test]
    fn once_there_is_as_much_before_as_after() {
        for (n, before, work, after) in [(20, 5, 10, 5), (2, 0, 1, 1), (6, 1, 3, 2)] {
            let turns = SliceOrder::Once(n);
            assert_eq!((turns.before(), turns.order().len(), turns.after()), (before, work, after));
            assert!(turns.order().iter().all(|at_work| *at_work));
        }
    }

    /// A tenth less all the time, of what grows from 100 to 135.
    #[test]
    fn a_drift_over_one_long_turn_takes_nothing_either() {
        let slice = |watched, found| Slice { watched, found };
        let at_work = [99.0, 103.5, 108.0, 112.5].map(|rate| slice(true, rate));
        let [before, after] = [[100.0, 105.0], [130.0, 135.0]].map(|r| r.map(|r| slice(false, r)));
        let all = [before.as_slice(), &at_work, &after].concat();
        let reported = Sliced::of(&all).unwrap();
        assert_eq!(reported.pairs.len(), 4);
        let less = less_work(&reported.pairs).unwrap();
        assert!((less.value - 10.0).abs() < 1e-9 && less.error.unwrap() > 0.0, "{less}");
    }

    #[test]
    fn a_drift_takes_nothing_from_either() {
        let reported =
            sliced(|i, watched| f64::from(1000 + i) * if watched { 0.8 } else { 1.0 }, 40);
        assert!((reported.slowdown.value - 25.0).abs() < 1e-9, "{reported:?}");
        assert_eq!(reported.pairs.len(), 20);
        assert!((reported.alone - 1019.5).abs() < 1e-9 && (reported.watched - 815.6).abs() < 1e-9);
        let error = reported.slowdown.error.unwrap();
        assert!(error > 0.0 && error < 0.1, "a drift is no loss: {reported:?}");
    }

    /// Rates are 100 beside it, and 108 and 112 by turns without: a stdev of the residuals of
    /// sqrt(10 x 4 / 9), over sqrt(10).
    #[test]
    fn the_error_is_that_of_the_mean() {
        let alone = |i: u32| if (i / 2).is_multiple_of(2) { 108.0 } else { 112.0 };
        let reported = sliced(|i, watched| if watched { 100.0 } else { alone(i) }, 20);
        assert!((reported.slowdown.value - 10.0).abs() < 1e-9, "{reported:?}");
        assert!((reported.slowdown.error.unwrap() - 2.0 / 3.0).abs() < 1e-9, "{reported:?}");
    }

    /// The machine gets slower all the time, the twin with it; one is a twentieth slower when watched.
    #[test]
    fn what_happens_to_a_twin_too_is_no_matter() {
        let slice = |(i, watched): (usize, bool)| {
            let twin = 1000.0 / (i + 1) as f64;
            let own = 1.2 * twin * if watched { 0.95 } else { 1.0 };
            Slice { watched, found: Speeds { own, twin, busy: 1.0 } }
        };
        let order = [false, false, true, true, true, true, false, false];
        let slices: Vec<_> = order.into_iter().enumerate().map(slice).collect();
        let even = by_twin(&slices).unwrap();
        let less = less_work(&Sliced::of(&even).unwrap().pairs).unwrap();
        assert!((less.value - 5.0).abs() < 1e-9 && less.error.unwrap() < 1e-9, "{less}");
        let alone = Slice { watched: true, found: Speeds::alone(7.0) };
        assert_eq!(by_twin(&[alone]).unwrap()[0].found, 7.0);
        let idle = Slice { watched: true, found: Speeds { twin: 0.0, ..Speeds::alone(7.0) } };
        assert_eq!(by_twin(&[alone, idle]), None);
    }

    #[test]
    fn who_waits_loses_of_all_the_time() {
        let slice = |watched, own, busy| Slice { watched, found: Speeds { own, twin: 1.0, busy } };
        let slowdown = |busy| {
            let slices = [slice(false, 5000.0, busy), slice(true, 4000.0, 0.9)];
            Sliced::of(&by_twin(&slices).unwrap()).unwrap().slowdown.value
        };
        for (busy, longer) in [(0.2, 5.0), (0.5, 12.5), (1.0, 25.0), (0.0, 0.0)] {
            assert!((slowdown(busy) - longer).abs() < 1e-9, "{busy}: {}", slowdown(busy));
        }
        let nothing_at_rest = by_twin(&[slice(true, 4000.0, 0.25)]).unwrap();
        assert_eq!(nothing_at_rest[0].found, 4000.0);
    }

    #[test]
    fn of_few_pairs_or_none() {
        let one = sliced(|_, watched| if watched { 50.0 } else { 100.0 }, 2);
        assert_eq!(one.slowdown, Estimate { value: 100.0, error: None });
        assert_eq!(Sliced::of(&[Slice { watched: true, found: 1.0 }]), None);
        assert_eq!(slowdown(&[SlicePair { watched: 0.0, alone: 1.0 }]), None);
    }
}
