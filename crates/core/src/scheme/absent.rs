//! Tracks the time since which memory is absent. Monitors that look only at resident pages know no age of
//! absent memory.

use std::collections::BTreeMap;
use std::time::Duration;

use rangemap::RangeMap;

use crate::call::TargetId;
use crate::snapshot::{RegionView, Snapshot};
use crate::time::Nanos;

/// For each target, the ranges without a resident page in the last snapshot, each with the time of the first
/// snapshot that showed it so.
#[derive(Debug, Clone, Default)]
pub(super) struct Absent {
    since: BTreeMap<TargetId, RangeMap<u64, Nanos>>,
    /// number of the last snapshot
    seq: u64,
}

impl Absent {
    /// Applies a snapshot. Applying the same snapshot again changes nothing. After a gap, all absences begin anew:
    /// memory may have been resident in a snapshot that was not applied.
    pub fn note(&mut self, snapshot: &Snapshot) {
        let mut before = std::mem::take(&mut self.since);
        let last = std::mem::replace(&mut self.seq, snapshot.seq);
        if !(last..=last.saturating_add(1)).contains(&snapshot.seq) {
            before.clear();
        }
        for target in &snapshot.targets {
            let absent = target.regions.iter().filter(|r| r.resident_bp == 0);
            let mut now = RangeMap::new();
            for range in absent.filter_map(|r| r.range.non_empty()) {
                now.insert(range.clone(), snapshot.end);
                for (part, &since) in
                    before.get(&target.id).iter().flat_map(|b| b.overlapping(range.clone()))
                {
                    now.insert(part.start.max(range.start)..part.end.min(range.end), since);
                }
            }
            self.since.insert(target.id, now);
        }
    }

    /// The age of a region for actions on absent memory, in a snapshot made at `end`. If no page of the
    /// region is resident, this is the time for which the whole region has been absent, unless the monitor
    /// knows a greater age.
    pub fn age(&self, target: TargetId, view: &RegionView, end: Nanos) -> Duration {
        let range = view.range.non_empty().filter(|_| view.resident_bp == 0);
        let since =
            self.since.get(&target).zip(range).and_then(|(absent, range)| {
                absent.overlapping(range).map(|(_, &since)| since).max()
            });
        since.map_or(view.age, |since| view.age.max(end.since(since)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{pages, snapshot, target, view};
    use super::*;

    const T: TargetId = TargetId(1);

    fn out(at: u64, len: u64) -> RegionView {
        RegionView { resident_bp: 0, ..view(at, len, 0.0, Duration::ZERO) }
    }

    fn seconds(absent: &Absent, view: &RegionView, now: u64) -> u64 {
        absent.age(T, view, Nanos(now * 1_000_000_000)).as_secs()
    }

    #[test]
    fn a_region_is_as_old_as_the_part_that_went_last() {
        let mut absent = Absent::default();
        absent
            .note(&snapshot(1_000, vec![target(1, &[out(0, 8), view(8, 8, 0.0, Duration::ZERO)])]));
        absent.note(&snapshot(4_000, vec![target(1, &[out(0, 16)])]));
        assert_eq!(seconds(&absent, &out(0, 8), 4), 3);
        assert_eq!(seconds(&absent, &out(0, 16), 4), 0);
        assert_eq!(seconds(&absent, &out(0, 16), 9), 5);
        assert_eq!(seconds(&absent, &view(0, 16, 0.0, Duration::ZERO), 9), 0, "it is back");
        let older = RegionView { age: Duration::from_secs(60), ..out(0, 16) };
        assert_eq!(seconds(&absent, &older, 9), 60, "the monitor knows better");
    }

    #[test]
    fn what_no_snapshot_shows_ends_an_absence() {
        let mut absent = Absent::default();
        for (second, seq, expected) in [(1, 7, 0), (2, 7, 1), (3, 8, 2), (4, 10, 0), (5, 0, 0)] {
            let snapshot = snapshot(second * 1000, vec![target(1, &[out(0, 8)])]);
            absent.note(&Snapshot { seq, ..snapshot });
            assert_eq!(seconds(&absent, &out(0, 8), second), expected, "{second} s");
        }
    }

    #[test]
    fn memory_that_returned_starts_a_new_absence() {
        let mut absent = Absent::default();
        absent.note(&snapshot(1_000, vec![target(1, &[out(0, 8)])]));
        absent.note(&snapshot(2_000, vec![target(1, &[view(0, 8, 0.0, Duration::ZERO)])]));
        absent.note(&snapshot(3_000, vec![target(1, &[out(0, 8)])]));
        assert_eq!(seconds(&absent, &out(0, 8), 5), 2);
        let gone = RegionView { range: pages(100, 1), ..out(0, 1) };
        assert_eq!(seconds(&absent, &gone, 5), 0, "nothing is known of it");
    }
}
