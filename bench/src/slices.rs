//! A run divided into slices of time, in each of which a target is watched in one way or not at all.

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use crate::bootstrap::{Estimate, below, median_of};

/// The way without watching; the others are numbered from 1.
pub const OFF: usize = 0;

/// The measurements of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Slice {
    /// how the target was watched
    pub way: usize,
    /// length
    pub seconds: f64,
    /// pages that the target touched
    pub touched: u64,
    /// CPU time of the monitor
    pub cpu_seconds: f64,
    /// CPU time that the target lost by being watched, as the monitor reports it
    pub lost_seconds: f64,
    /// ranges that the monitor cleared, each a TLB shootdown
    pub clears: u64,
    /// TLB shootdowns that the kernel has counted on the target's CPUs
    pub shootdowns: u64,
    /// CPU time of the target, where it has one thread
    pub target_cpu_seconds: f64,
    /// major faults of the target, which wait for swap or a disk
    pub major_faults: u64,
}

/// One slice for each of `ways`, repeated `n` times, each time in a different random order.
pub fn order(ways: usize, n: usize, seed: u64) -> Vec<Vec<usize>> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut shuffled = || {
        let mut round: Vec<usize> = (0..ways).collect();
        for i in (1..round.len()).rev() {
            round.swap(i, below(&mut rng, i + 1));
        }
        round
    };
    (0..n).map(|_| shuffled()).collect()
}

/// The cost of watching in one way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WatchingCost {
    /// how
    pub way: usize,
    /// Share of the target's work that is lost: 1 minus the ratio of the rates with and without watching, from
    /// the two slices of a round.
    pub slowdown: Estimate,
    /// CPU time of the monitor, as a fraction of one CPU
    pub cpu: f64,
    /// CPU time that the target lost, as the monitor reports it, as a fraction of one CPU
    pub lost: f64,
    /// ranges that the monitor cleared, per second
    pub clears: f64,
    /// TLB shootdowns on the target's CPUs per second, minus those without watching
    pub shootdowns: f64,
}

/// The cost of watching in `way` in `rounds`, if there are slices of it and of [`OFF`].
pub fn figures(rounds: &[Vec<Slice>], way: usize, seed: u64) -> Option<WatchingCost> {
    let of = |round: &Vec<Slice>, way| round.iter().find(|s| s.way == way).copied();
    let pairs: Vec<(Slice, Slice)> =
        rounds.iter().filter_map(|r| of(r, way).zip(of(r, OFF))).collect();
    let work = |s: &Slice| s.touched as f64 / s.seconds;
    let lost: Vec<f64> = pairs.iter().map(|(on, off)| 1.0 - work(on) / work(off)).collect();
    let (on, off): (Vec<Slice>, Vec<Slice>) = pairs.into_iter().unzip();
    Some(WatchingCost {
        way,
        slowdown: median_of(&lost, seed)?,
        cpu: rate(&on, |s| s.cpu_seconds),
        lost: rate(&on, |s| s.lost_seconds),
        clears: rate(&on, |s| s.clears as f64),
        shootdowns: rate(&on, |s| s.shootdowns as f64) - rate(&off, |s| s.shootdowns as f64),
    })
}

/// `count` over all `slices`, a second.
pub fn rate(slices: &[Slice], count: impl Fn(&Slice) -> f64) -> f64 {
    slices.iter().map(count).sum::<f64>() / slices.iter().map(|s| s.seconds).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(way: usize, touched: u64) -> Slice {
        Slice {
            way,
            seconds: 2.0,
            touched,
            cpu_seconds: 0.1,
            lost_seconds: 0.02,
            clears: 40,
            shootdowns: 50,
            target_cpu_seconds: 2.0,
            major_faults: 0,
        }
    }

    #[test]
    fn each_round_has_each_way_in_an_order_of_its_own() {
        let rounds = order(3, 60, 1);
        assert_eq!(rounds, order(3, 60, 1));
        for way in 0..3 {
            assert!(rounds.iter().all(|r| r.iter().filter(|w| **w == way).count() == 1));
            for place in 0..3 {
                let there = rounds.iter().filter(|r| r[place] == way).count();
                assert!((8..=35).contains(&there), "{way:?} {place}: {there} of 60");
            }
        }
    }

    /// The target slows down over the run for other reasons; each pair still shows the same loss.
    #[test]
    fn only_slices_of_one_round_are_compared() {
        let rounds: Vec<Vec<Slice>> =
            (1..=20).map(|i| vec![slice(OFF, 10_000 * i), slice(1, 9_900 * i)]).collect();
        let f = figures(&rounds, 1, 1).unwrap();
        for value in [f.slowdown.median, f.slowdown.low, f.slowdown.high] {
            assert!((value - 0.01).abs() < 1e-9, "{f:?}");
        }
        assert!((f.cpu - 0.05).abs() < 1e-9 && (f.clears - 20.0).abs() < 1e-9);
        assert!((f.lost - 0.01).abs() < 1e-9, "{f:?}");
        assert!(f.shootdowns.abs() < 1e-9, "as many as in the others");
    }

    #[test]
    fn what_was_not_run_has_no_figures() {
        let rounds = [vec![slice(OFF, 1), slice(1, 1)]];
        assert_eq!(figures(&rounds, 2, 1), None);
        assert_eq!(figures(&[], 1, 1), None);
    }
}
