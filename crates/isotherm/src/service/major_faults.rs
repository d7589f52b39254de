//! Major faults of the targets, for schemes with an objective.
//!
//! The attributions of processes have them too. But with a thousand busy processes, a minute passes until each is
//! read again, and an objective must notice within seconds that too much memory returns.

use std::collections::BTreeMap;
use std::time::Duration;

use isotherm_core::{Nanos, TargetId};

use crate::pace::{Pace, PaceLimits, WorkStart};

/// Processes without a reading of this age are read again.
const FRESH: Duration = Duration::from_secs(5);
/// A reading counts for this time: afterwards, the faults of the process are not known.
const KNOWN_FOR: Duration = Duration::from_secs(15);
/// Pace of the readings. The longest pause and [`FRESH`] together are at most [`KNOWN_FOR`].
const READINGS: PaceLimits =
    PaceLimits { cpu_divisor: 1000, min_pause: FRESH, max_pause: Duration::from_secs(10) };

/// The last readings.
#[derive(Default)]
pub struct MajorFaults {
    last: BTreeMap<TargetId, (Nanos, u64)>,
    pace: Pace,
}

impl MajorFaults {
    /// The major faults at `now` of those of `pids` for which they are known. Of some, `known` has a reading; `read`
    /// reads those of one process.
    pub fn read(
        &mut self,
        pids: &BTreeMap<TargetId, i32>,
        known: impl Fn(TargetId) -> Option<(Nanos, u64)>,
        read: impl Fn(TargetId, i32) -> Option<u64>,
        now: Nanos,
    ) -> BTreeMap<TargetId, u64> {
        self.last.retain(|id, _| pids.contains_key(id));
        for id in pids.keys() {
            if let Some(newer) =
                known(*id).filter(|new| self.last.get(id).is_none_or(|old| old < new))
            {
                self.last.insert(*id, newer);
            }
        }
        if now >= self.pace.due() {
            let begun = WorkStart::now();
            for (id, pid) in pids {
                if self.last.get(id).is_none_or(|(at, _)| now.since(*at) >= FRESH) {
                    self.last.extend(read(*id, *pid).map(|faults| (*id, (now, faults))));
                }
            }
            self.pace.pause(&begun, &READINGS);
        }
        let recent = self.last.iter().filter(|(_, (at, _))| now.since(*at) < KNOWN_FOR);
        recent.map(|(id, (_, faults))| (*id, *faults)).collect()
    }
}

#[cfg(test)]
mod tests {
    use isotherm_linux::sys;

    use super::*;

    const PID: [(TargetId, i32); 1] = [(TargetId(1), 7)];

    /// A reading of an attribution counts for 15 s. Then the process itself is read.
    #[test]
    fn old_readings_are_replaced_or_dropped() {
        let (pids, begin) = (BTreeMap::from(PID), sys::monotonic());
        let at = |s: u64| begin + Duration::from_secs(s);
        let mut faults = MajorFaults::default();
        let attributed = |_| Some((begin, 3));
        let mut at_time = |s, answer: Option<u64>| {
            faults.read(&pids, attributed, |_, _| answer, at(s)).get(&TargetId(1)).copied()
        };
        assert_eq!(at_time(1, Some(9)), Some(3), "it was read a second ago");
        assert_eq!(at_time(14, None), Some(3), "it cannot be read");
        assert_eq!(at_time(15, None), None, "and its last reading is too old");
        assert_eq!(at_time(21, Some(9)), Some(9));
        assert_eq!(at_time(35, None), Some(9));
        assert_eq!(at_time(36, None), None);
    }

    #[test]
    fn no_process_is_read_more_often_than_it_has_to_be() {
        let (pids, begin) = (BTreeMap::from(PID), sys::monotonic());
        let reads = std::cell::Cell::new(0);
        let mut faults = MajorFaults::default();
        let read = |_, _| {
            reads.set(reads.get() + 1);
            Some(reads.get())
        };
        for ms in (0..60_000).step_by(100) {
            let known = faults.read(&pids, |_| None, read, begin + Duration::from_millis(ms));
            assert_eq!(known.len(), 1);
        }
        // The pauses begin at the real time, which hardly passes.
        assert!((11..=13).contains(&reads.get()), "{}", reads.get());
        let steady = MajorFaults::default().read(&pids, |_| Some((begin, 5)), |_, _| None, begin);
        assert_eq!(steady, BTreeMap::from([(TargetId(1), 5)]));
    }
}
