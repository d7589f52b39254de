//! Estimates the remaining time of runs.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Approximate time to start and fill a workload.
const START: Duration = Duration::from_secs(8);

/// Estimates the remaining time from the expected durations and the progress so far.
#[derive(Debug)]
pub struct RemainingTime {
    begin: Instant,
    /// expected duration of the completed runs
    done: Duration,
    /// expected durations of the remaining runs, the next one first
    left: VecDeque<Duration>,
}

impl RemainingTime {
    /// For runs with these durations, without their start.
    pub fn new(lengths: impl Iterator<Item = Duration>) -> Self {
        let left = lengths.map(|length| length + START).collect();
        RemainingTime { begin: Instant::now(), done: Duration::ZERO, left }
    }

    /// Marks the next run as completed.
    pub fn step(&mut self) {
        self.done += self.left.pop_front().unwrap_or_default();
    }

    /// The remaining time as text, assuming the same speed as so far.
    pub fn left(&self) -> String {
        let pace = match self.done.as_secs_f64() {
            0.0 => 1.0,
            expected => self.begin.elapsed().as_secs_f64() / expected,
        };
        let left: Duration = self.left.iter().sum();
        let minutes = left.as_secs_f64() * pace / 60.0;
        format!("{} left, about {minutes:.0} minutes", self.left.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_is_not_left() {
        let mut pace = RemainingTime::new([52, 112].map(Duration::from_secs).into_iter());
        assert_eq!(pace.left(), "2 left, about 3 minutes");
        pace.step();
        assert!(pace.left().starts_with("1 left"));
        pace.step();
        pace.step();
        assert_eq!(pace.left(), "0 left, about 0 minutes");
    }
}
