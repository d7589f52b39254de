//! The times of the phases.

use std::time::Duration;

use super::check::{MAX_COUNTS, MAX_LENGTH, time};
use super::{Order, Workload, WorkloadError, WorkloadLayout};

/// Maximum length of an interval of the truth.
const MAX_TRUTH_INTERVAL: Duration = Duration::from_secs(1);
const MIN_TRUTH_INTERVAL: Duration = Duration::from_millis(10);

/// The phases of a workload in order of time, until it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// in order of time, from zero on
    pub slots: Vec<Slot>,
}

/// A phase and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// index of the phase
    pub phase: usize,
    /// its beginning
    pub start: Duration,
    /// the ends of intervals of the truth, ascending; the last one is the end of the phase
    pub cuts: Vec<Duration>,
}

impl Schedule {
    /// The phases over `duration`, cut or repeated to fill it. Without `duration`, all phases once with their
    /// repetitions.
    ///
    /// # Errors
    /// If the truth would be too long.
    pub fn new(
        workload: &Workload,
        layout: &WorkloadLayout,
        duration: Option<Duration>,
    ) -> Result<Self, WorkloadError> {
        let length = duration.unwrap_or(workload.length());
        time("duration", length, [MIN_TRUTH_INTERVAL, MAX_LENGTH])?;
        let (mut slots, mut start, mut counts) = (Vec::new(), Duration::ZERO, 0);
        for phase in (0..workload.phases.len()).cycle() {
            let end = length.min(start + workload.phases[phase].duration);
            let cuts = cuts(workload, phase, start, end);
            counts += cuts.len() * layout.parts.len();
            if counts > MAX_COUNTS {
                return Err(WorkloadError::Counts { found: counts });
            }
            slots.push(Slot { phase, start, cuts });
            if end >= length {
                break;
            }
            start = end;
        }
        Ok(Schedule { slots })
    }
}

impl Slot {
    /// The end of the schedule.
    #[must_use]
    pub fn end(&self) -> Duration {
        self.cuts.last().copied().unwrap_or(self.start)
    }
}

/// A cut after each second, at each move of a window, and at the end.
fn cuts(workload: &Workload, phase: usize, start: Duration, end: Duration) -> Vec<Duration> {
    let moves = workload.phases[phase].accesses.iter().filter_map(|a| match a.order {
        Order::Moving { every, .. } => Some(every),
        _ => None,
    });
    let mut cuts: Vec<Duration> = moves
        .chain([MAX_TRUTH_INTERVAL])
        .flat_map(|step| {
            std::iter::successors(Some(start + step), move |&at| Some(at + step))
                .take_while(|&at| at < end)
        })
        .collect();
    cuts.push(end);
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}
