//! Watermarks: when a scheme is active.

use std::time::Duration;

use super::error::SchemeError;
use super::metrics::{Metrics, Scope};
use crate::time::Nanos;

/// A scheme is active only while a metric is between two marks. All marks are of 10,000.
///
/// From `low` to below `mid`, the scheme becomes active. From `mid` to `high`, it keeps its state, which
/// prevents frequent changes. Above `high` and below `low`, it becomes inactive: above, there is no need to
/// act; below, other mechanisms (the kernel's reclaim) are more effective.
#[derive(Debug, Clone, PartialEq)]
pub struct Watermarks {
    /// the metric
    pub metric: WatermarkMetric,
    /// check interval
    pub interval: Duration,
    /// inactive above this mark
    pub high: u32,
    /// becomes active below this mark
    pub mid: u32,
    /// inactive below this mark
    pub low: u32,
}

/// The metric of watermarks, as a share of 10,000.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WatermarkMetric {
    /// free memory
    Free,
    /// unusable free space index
    Fragmentation,
    /// time in which some tasks waited for memory (PSI "some"), in the last check interval
    Stalled(Scope),
}

impl Watermarks {
    pub(super) fn check(&self) -> Result<(), SchemeError> {
        let Watermarks { high, mid, low, interval, .. } = *self;
        if !(low <= mid && mid <= high && high <= 10_000) {
            return Err(SchemeError::Watermarks { high, mid, low });
        }
        if interval.is_zero() { Err(SchemeError::WatermarkInterval) } else { Ok(()) }
    }
}

/// The state of a scheme's watermarks.
#[derive(Debug, Clone, Default)]
pub(super) struct Gate {
    on: bool,
    checked: Option<Nanos>,
    stalled: Option<Duration>,
}

impl Gate {
    /// Whether the scheme may act. A metric that is not available makes the scheme inactive.
    pub fn is_open(&mut self, marks: &Watermarks, now: Nanos, metrics: &Metrics) -> bool {
        if self.checked.is_some_and(|at| now.since(at) < marks.interval) {
            return self.on;
        }
        let over = self.checked.replace(now).map(|at| now.since(at));
        let metric = match &marks.metric {
            WatermarkMetric::Free => metrics.free_bp,
            WatermarkMetric::Fragmentation => metrics.fragmentation_bp,
            WatermarkMetric::Stalled(of) => {
                let stalled = metrics.of(of).and_then(|f| f.pressure).map(|p| p.stalled);
                let before = std::mem::replace(&mut self.stalled, stalled);
                stalled.zip(before).zip(over).map(|((now, then), over)| {
                    let share = now.saturating_sub(then).as_secs_f64() / over.as_secs_f64();
                    (share * 10_000.0) as u32
                })
            }
        };
        let between = metric.filter(|m| (marks.low..=marks.high).contains(m));
        self.on = between.is_some_and(|m| self.on || m < marks.mid);
        self.on
    }

    /// Whether the last check was at `now`.
    pub fn was_checked(&self, now: Nanos) -> bool {
        self.checked == Some(now)
    }

    /// The time of the next check if the scheme is inactive. `None` if it is active, or was never checked.
    pub fn closed_until(&self, marks: &Watermarks) -> Option<Nanos> {
        self.checked.filter(|_| !self.on).map(|at| at + marks.interval)
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::MemoryMetrics;
    use super::*;
    use crate::survey::Pressure;

    const SECOND: Duration = Duration::from_secs(1);

    fn marks(metric: WatermarkMetric) -> Watermarks {
        Watermarks { metric, interval: 5 * SECOND, high: 5000, mid: 4000, low: 2000 }
    }

    fn open(gate: &mut Gate, second: u64, free_bp: Option<u32>) -> bool {
        let metrics = Metrics { free_bp, ..Metrics::default() };
        gate.is_open(&marks(WatermarkMetric::Free), Nanos(second * 1_000_000_000), &metrics)
    }

    #[test]
    fn between_mid_and_high_it_stays_as_it_was() {
        let mut gate = Gate::default();
        let steps = [
            (4500, false),
            (4000, false),
            (3999, true),
            (4000, true),
            (5000, true),
            (5001, false),
            (4999, false),
            (2000, true),
            (1999, false),
            (4000, false),
            (2500, true),
        ];
        for (i, (free, on)) in (0..).zip(steps) {
            assert_eq!(open(&mut gate, i * 5, Some(free)), on, "{i}");
        }
        assert!(!open(&mut gate, 500, None), "what cannot be read");
    }

    #[test]
    fn watermarks_are_checked_once_per_interval() {
        let mut gate = Gate::default();
        assert!(open(&mut gate, 0, Some(3000)));
        assert!(open(&mut gate, 4, Some(9000)));
        assert!(!open(&mut gate, 5, Some(9000)));
    }

    #[test]
    fn a_closed_gate_has_the_time_of_its_next_check() {
        let (mut gate, marks) = (Gate::default(), marks(WatermarkMetric::Free));
        assert_eq!(gate.closed_until(&marks), None);
        open(&mut gate, 7, Some(9000));
        open(&mut gate, 8, Some(9000));
        assert_eq!(gate.closed_until(&marks), Some(Nanos(12_000_000_000)));
        open(&mut gate, 12, Some(3000));
        assert_eq!(gate.closed_until(&marks), None);
    }

    #[test]
    fn pressure_is_that_of_the_last_interval() {
        let mut gate = Gate::default();
        let mut open = |second: u64, stalled_ms| {
            let stalled = Duration::from_millis(stalled_ms);
            let pressure = Some(Pressure { stalled, ..Pressure::default() });
            let machine = MemoryMetrics { pressure, ..MemoryMetrics::default() };
            let metrics = Metrics { machine, ..Metrics::default() };
            let marks = marks(WatermarkMetric::Stalled(Scope::Machine));
            gate.is_open(&marks, Nanos(second * 1_000_000_000), &metrics)
        };
        assert!(!open(0, 90_000), "nothing is known yet");
        assert!(open(5, 91_500), "30 %");
        assert!(!open(10, 95_000), "70 %");
        assert!(!open(15, 95_500), "10 %");
    }

    #[test]
    fn contradictory_marks_are_refused() {
        let check =
            |high, mid, low| Watermarks { high, mid, low, ..marks(WatermarkMetric::Free) }.check();
        assert_eq!(check(5000, 4000, 2000), Ok(()));
        assert!(check(4000, 5000, 2000).is_err() && check(5000, 4000, 4001).is_err());
        assert!(check(10_001, 4000, 2000).is_err());
        let never = Watermarks { interval: Duration::ZERO, ..marks(WatermarkMetric::Free) };
        assert_eq!(never.check(), Err(SchemeError::WatermarkInterval));
    }
}
