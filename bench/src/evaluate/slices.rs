//! A time cut into slices, in which isotherm is at work and at rest by turns: what it costs shows within one
//! process, where it does not matter in which caches its pages lie.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::estimate::Estimate;
use super::statistics::mean;

/// Length of one.
pub const SLICE: Duration = Duration::from_secs(2);

/// What was found in a slice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slice<T> {
    /// whether isotherm was at work
    pub watched: bool,
    /// what was found
    pub found: T,
}

/// Whether isotherm is at work, for each of `n` slices: first, then not for two, then for two and so on, so
/// that what drifts does so for both alike.
pub fn order(n: u32) -> impl Iterator<Item = bool> {
    (0..n).map(|i| matches!(i % 4, 0 | 3))
}

/// Work a second in two slices next to each other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// isotherm at work
    pub watched: f64,
    /// isotherm at rest
    pub alone: f64,
}

/// What came of all slices of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sliced {
    /// work a second, isotherm at work
    pub watched: f64,
    /// isotherm at rest
    pub alone: f64,
    /// in percent, with its standard error over the pairs
    pub slowdown: Estimate,
    /// in their order
    pub pairs: Vec<Pair>,
}

impl Sliced {
    /// Of work a second; none if there is no pair, or no work.
    #[must_use]
    pub fn of(slices: &[Slice<f64>]) -> Option<Self> {
        let pairs: Vec<Pair> = slices.chunks_exact(2).filter_map(pair).collect();
        let slowdown = slowdown(&pairs)?;
        let [watched, alone] = rates(&pairs)?;
        Some(Sliced { watched, alone, slowdown, pairs })
    }
}

fn pair(slices: &[Slice<f64>]) -> Option<Pair> {
    let of = |watched| slices.iter().find(|s| s.watched == watched).map(|s| s.found);
    Some(Pair { watched: of(true)?, alone: of(false)? })
}

/// The mean of each.
fn rates(pairs: &[Pair]) -> Option<[f64; 2]> {
    let of = |rate: fn(&Pair) -> f64| mean(&pairs.iter().map(rate).collect::<Vec<_>>());
    Some([of(|p| p.watched)?, of(|p| p.alone)?])
}

/// How much longer the same work takes beside isotherm, in percent, by the ratio of mean rates; with the
/// standard error of such a ratio (Cochran, Sampling Techniques, 1977, section 6.4), of which one pair has
/// none. None if nothing was done beside it.
#[must_use]
pub fn slowdown(pairs: &[Pair]) -> Option<Estimate> {
    let [watched, alone] = rates(pairs)?;
    let ratio = (watched > 0.0).then(|| alone / watched)?;
    let n = pairs.len() as f64;
    let squares: f64 = pairs.iter().map(|p| (p.alone - ratio * p.watched).powi(2)).sum();
    let error = (pairs.len() > 1).then(|| (squares / (n - 1.0) / n).sqrt() / watched);
    Some(Estimate { value: 100.0 * (ratio - 1.0), error: error.map(|e| 100.0 * e) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sliced(rate: impl Fn(u32, bool) -> f64, n: u32) -> Sliced {
        let slices = (0..).zip(order(n));
        let slices = slices.map(|(i, watched)| Slice { watched, found: rate(i, watched) });
        Sliced::of(&slices.collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn each_pair_has_both_and_neighbours_are_alike() {
        let all: Vec<bool> = order(8).collect();
        assert_eq!(all, [true, false, false, true, true, false, false, true]);
        assert!(all.chunks(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn a_drift_takes_nothing_from_either() {
        let told = sliced(|i, watched| f64::from(1000 + i) * if watched { 0.8 } else { 1.0 }, 40);
        assert!((told.slowdown.value - 25.0).abs() < 1e-9, "{told:?}");
        assert_eq!(told.pairs.len(), 20);
        assert!((told.alone - 1019.5).abs() < 1e-9 && (told.watched - 815.6).abs() < 1e-9);
        let error = told.slowdown.error.unwrap();
        assert!(error > 0.0 && error < 0.1, "a drift is no loss: {told:?}");
    }

    /// Rates are 100 beside it, and 108 and 112 by turns without: a stdev of the residuals of
    /// sqrt(10 x 4 / 9), over sqrt(10).
    #[test]
    fn the_error_is_that_of_the_mean() {
        let alone = |i: u32| if (i / 2).is_multiple_of(2) { 108.0 } else { 112.0 };
        let told = sliced(|i, watched| if watched { 100.0 } else { alone(i) }, 20);
        assert!((told.slowdown.value - 10.0).abs() < 1e-9, "{told:?}");
        assert!((told.slowdown.error.unwrap() - 2.0 / 3.0).abs() < 1e-9, "{told:?}");
    }

    #[test]
    fn of_few_pairs_or_none() {
        let one = sliced(|_, watched| if watched { 50.0 } else { 100.0 }, 2);
        assert_eq!(one.slowdown, Estimate { value: 100.0, error: None });
        assert_eq!(Sliced::of(&[Slice { watched: true, found: 1.0 }]), None);
        assert_eq!(slowdown(&[Pair { watched: 0.0, alone: 1.0 }]), None);
    }
}
