//! Priorities of candidates.

use std::time::Duration;

use crate::act::Action;
use crate::heat::Heat;
use crate::range::PAGE_SIZE;
use crate::snapshot::RegionView;

/// Weights of size, rate and age in the priority. If all are zero, candidates have no priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Weights {
    /// weight of the size: larger regions first
    pub size: u32,
    /// weight of the share of accessed pages
    pub rate: u32,
    /// weight of the age
    pub age: u32,
    /// weight of the expected cost of taking the memory away ([`Prices`](super::Prices)): the cheapest first
    pub cost: u32,
}

/// The maximum score.
pub(super) const MAX_SCORE: f64 = 99.0;

/// The priority score of a region for `action`, 0 to 99; a higher score is earlier.
///
/// Rate and age count as in `damon_hot_score` and `damon_cold_score`, which is 99 minus the hot score, but
/// without rounding. Therefore the score orders regions that the kernel treats as equal; at whole powers of
/// two of a second both agree. The kernel ignores size: here it counts as the binary logarithm of the pages,
/// up to 16 TiB.
#[must_use]
pub fn score(action: &Action, view: &RegionView, weights: &Weights) -> f64 {
    let [ws, wr, wa] = [weights.size, weights.rate, weights.age].map(f64::from);
    if ws + wr + wa == 0.0 {
        return MAX_SCORE;
    }
    let heat = mean(&[(wr, rate_score(view)), (wa, age_score(view))]) * MAX_SCORE / 100.0;
    let heat = match action.prefers() {
        Some(Heat::Cold) => MAX_SCORE - heat,
        Some(_) => heat,
        None => MAX_SCORE,
    };
    mean(&[(wr + wa, heat), (ws, size_score(view))])
}

/// A score that also contains the cost, by its weight. Only taking memory away has a cost.
pub(super) fn with_cost(score: f64, cost: Duration, weights: &Weights) -> f64 {
    let [ws, wr, wa, wc] = [weights.size, weights.rate, weights.age, weights.cost].map(f64::from);
    if wc == 0.0 { score } else { mean(&[(ws + wr + wa, score), (wc, cost_score(cost))]) }
}

/// Score of the cost: 99 (none) to 0 (four seconds), by its binary logarithm.
fn cost_score(cost: Duration) -> f64 {
    let log = (cost.as_nanos() as f64 + 1.0).log2();
    MAX_SCORE - log.min(32.0) * MAX_SCORE / 32.0
}

/// The weighted mean; 0 if all weights are zero.
fn mean(parts: &[(f64, f64)]) -> f64 {
    let weight: f64 = parts.iter().map(|p| p.0).sum();
    parts.iter().map(|(w, x)| w * x).sum::<f64>() / if weight > 0.0 { weight } else { 1.0 }
}

/// Score of the rate, 0 to 100.
fn rate_score(view: &RegionView) -> f64 {
    f64::from(view.accesses_bp.min(10_000)) / 100.0
}

/// Score of the age: 0 (cold for a long time) to 100 (hot for a long time); 50 is new. The kernel counts in whole per cent,
/// so that a region with fewer accesses is cold for it. Here, any access makes a region hot.
fn age_score(view: &RegionView) -> f64 {
    let seconds = view.age.as_secs_f64();
    let log = if seconds < 1.0 { seconds } else { (seconds.log2() + 1.0).min(32.0) };
    let signed = if view.accesses_bp == 0 { -log } else { log };
    (signed + 32.0) * 100.0 / 64.0
}

/// Score of the size: 0 (one page) to 99.
fn size_score(view: &RegionView) -> f64 {
    let pages = (view.range.len() / PAGE_SIZE).max(1);
    (pages as f64).log2().min(32.0) * MAX_SCORE / 32.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::view;
    use super::*;

    const RATE: Weights = Weights { size: 0, rate: 1, age: 0, cost: 0 };
    const AGE: Weights = Weights { size: 0, rate: 0, age: 1, cost: 0 };

    fn of(weights: &Weights, accesses_bp: u32, seconds: u64) -> f64 {
        let view = RegionView { accesses_bp, ..view(0, 1, 0.0, Duration::from_secs(seconds)) };
        score(&Action::LruPrio, &view, weights)
    }

    /// `damon_hot_score`, in the kernel's integers.
    fn kernel(weights: &Weights, accesses_bp: u32, seconds: u64) -> i64 {
        let freq = i64::from(accesses_bp / 100);
        let log = if seconds == 0 { 0 } else { i64::from(seconds.ilog2() + 1).min(32) };
        let age = ((if freq == 0 { -log } else { log }) + 32) * 100 / 64;
        let (wf, wa) = (i64::from(weights.rate), i64::from(weights.age));
        (wf * freq + wa * age) / (wf + wa) * 99 / 100
    }

    #[test]
    fn at_powers_of_two_the_score_is_the_kernels() {
        for weights in [RATE, AGE, Weights { age: 1, ..RATE }] {
            for seconds in [0, 1, 2, 4, 64, 1024, 1 << 20] {
                for bp in [0, 500, 2500, 5000, 10_000] {
                    let (ours, theirs) =
                        (of(&weights, bp, seconds), kernel(&weights, bp, seconds) as f64);
                    assert!((-0.01..3.0).contains(&(ours - theirs)), "{ours} {theirs}");
                }
            }
        }
        assert_eq!(of(&RATE, 10_000, 0), 99.0);
        assert_eq!(of(&AGE, 0, 1 << 40), 0.0);
    }

    #[test]
    fn cold_scores_complement_hot_scores() {
        let old = view(0, 1, 0.0, Duration::from_secs(64));
        let hot = score(&Action::LruPrio, &old, &AGE);
        assert_eq!(score(&Action::PageOut, &old, &AGE), 99.0 - hot);
        assert_eq!(score(&Action::Stat, &old, &AGE), 99.0);
    }

    /// Of two regions that the kernel treats as equal, the older one is colder.
    #[test]
    fn scores_differ_within_a_power_of_two() {
        let score = |s| score(&Action::PageOut, &view(0, 1, 0.0, Duration::from_secs(s)), &AGE);
        assert!(score(120) > score(100) && score(100) > score(70));
    }

    #[test]
    fn size_counts_if_it_has_weight() {
        let size = Weights { size: 1, ..Weights::default() };
        let score = |action: &Action, pages| {
            score(action, &view(0, pages, 0.0, Duration::from_secs(9)), &size)
        };
        for action in [Action::PageOut, Action::LruPrio, Action::Stat] {
            assert!(score(&action, 1) == 0.0 && score(&action, 512) > score(&action, 511));
        }
        let both = Weights { size: 1, ..AGE };
        let of = |pages, s| {
            super::score(&Action::PageOut, &view(0, pages, 0.0, Duration::from_secs(s)), &both)
        };
        assert!(of(512, 10) > of(1, 10) && of(512, 20) > of(512, 10));
    }

    #[test]
    fn the_cost_counts_by_its_weight() {
        let cheap = Duration::from_nanos(1_500);
        let dear = Duration::from_micros(9);
        let cost = Weights { cost: 1, ..Weights::default() };
        let both = Weights { cost: 1, ..AGE };
        assert_eq!(with_cost(40.0, cheap, &AGE), 40.0);
        assert!(with_cost(40.0, cheap, &cost) > with_cost(60.0, dear, &cost));
        assert!(with_cost(40.0, cheap, &both) < with_cost(60.0, dear, &both));
        assert_eq!(with_cost(0.0, Duration::ZERO, &cost), MAX_SCORE);
        assert_eq!(with_cost(0.0, Duration::MAX, &cost), 0.0);
    }

    #[test]
    fn without_weights_all_are_equal() {
        let none = Weights::default();
        let score = |hz, s| score(&Action::PageOut, &view(0, 5, hz, Duration::from_secs(s)), &none);
        assert_eq!(score(0.0, 5), score(20.0, 500));
    }

    proptest! {
        #[test]
        fn scores_are_from_0_to_99(
            bp in 0u32..=10_000, seconds in 0u64..1 << 40, pages in 1u64..1 << 40,
            size in 0u32..9, rate in 0u32..9, age in 0u32..9,
        ) {
            let view = RegionView { accesses_bp: bp, ..view(0, pages, 0.0, Duration::from_secs(seconds)) };
            for action in [Action::PageOut, Action::HugePage, Action::Stat] {
                let score = score(&action, &view, &Weights { size, rate, age, cost: 0 });
                prop_assert!((0.0..=99.0).contains(&score), "{score}");
            }
        }
    }
}
