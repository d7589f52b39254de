//! The working set: its distribution, and its values over time.

use isotherm_core::{Heat, RegionView, Snapshot, Thresholds};
use serde::Serialize;

use crate::basis::{Basis, BasisTally};
use crate::course::{Course, CourseTally};
use crate::filter::{FilterError, Gate, Options};

/// The working set by three measures. Each contains the previous one, and none contains unknown memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Wss {
    /// version of the keys and their meaning
    pub schema_version: u32,
    /// heading
    pub title: String,
    /// the part of the record that was used
    #[serde(flatten)]
    pub basis: Basis,
    /// touched memory of regions whose touched pages are touched at the hot rate or more
    pub hot_bytes: Course,
    /// touched memory of regions in which any sampled page was touched in the snapshot
    pub touched_bytes: Course,
    /// Hot and warm: resident bytes in regions that were touched within the cold age, or whose age is not yet
    /// known to exceed it.
    pub working_set_bytes: Course,
}

/// Makes a [`Wss`] from snapshots, which must be pushed in order of time.
#[derive(Debug)]
pub struct WssBuilder {
    options: Options,
    gate: Gate,
    tally: BasisTally,
    hot: CourseTally,
    touched: CourseTally,
    working_set: CourseTally,
}

impl WssBuilder {
    /// A builder that has received no snapshot.
    #[must_use]
    pub fn new(options: Options) -> Self {
        WssBuilder {
            gate: Gate::new(options.filter.clone()),
            options,
            tally: BasisTally::default(),
            hot: CourseTally::new(),
            touched: CourseTally::new(),
            working_set: CourseTally::new(),
        }
    }

    /// Adds a snapshot, if it is in the selected time.
    pub fn push(&mut self, s: &Snapshot) {
        let Some(time) = self.gate.admit(s) else { return };
        let (mut all, mut touched) = (isotherm_core::HeatBytes::default(), 0);
        for region in self.options.filter.regions(s) {
            let bytes = region.bytes(&self.options.thresholds);
            if is_touched(&region, &self.options.thresholds) {
                let seen = bytes.working_set() + bytes.cold;
                touched += seen * u64::from(region.touched_bp) / 10_000;
            }
            all += bytes;
        }
        self.tally.whole(&all, (time.end - time.start).as_secs_f64());
        self.hot.push(&time, all.hot);
        self.touched.push(&time, touched);
        self.working_set.push(&time, all.working_set());
    }

    /// The figures, with these percentiles (0 to 100).
    ///
    /// # Errors
    /// If there is nothing in the time or at the addresses wanted.
    pub fn finish(self, percents: &[f64]) -> Result<Wss, FilterError> {
        let time = self.gate.found_memory()?;
        Ok(Wss {
            schema_version: 1,
            basis: self.tally.basis(&self.options, &time),
            title: self.options.title,
            hot_bytes: self.hot.course(percents),
            touched_bytes: self.touched.course(percents),
            working_set_bytes: self.working_set.course(percents),
        })
    }
}

/// Whether any page that was looked at in the interval was touched. A hot region counts as touched, because its
/// rounded share may be 0.
fn is_touched(r: &RegionView, t: &Thresholds) -> bool {
    r.accesses_bp > 0 || r.heat(t) == Heat::Hot
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::{absent, mapping, region, snapshot, target, unknown};
    use isotherm_core::Unknown;
    use std::time::Duration;

    const MIB: u64 = 1 << 20;

    /// 2 MiB hot, 3 warm and touched, 4 warm and not touched, 5 cold, 6 unknown, 7 absent.
    fn six_kinds(seq: u64, hot: u64) -> Snapshot {
        let sizes = [hot, 3, 4, 5, 6, 7];
        let ends = sizes.iter().scan(0, |at, n| {
            *at += n * MIB;
            Some(*at)
        });
        let ranges: Vec<(u64, u64)> =
            ends.zip(sizes).map(|(end, n)| (end - n * MIB, end)).collect();
        let lately = |r: RegionView| RegionView { age: Duration::from_secs(1), ..r };
        let at = |i: usize| ranges[i];
        let regions = vec![
            region(at(0).0, at(0).1, 50.0),
            region(at(1).0, at(1).1, 1.0),
            lately(region(at(2).0, at(2).1, 0.0)),
            region(at(3).0, at(3).1, 0.0),
            unknown(at(4).0, at(4).1, Unknown::Shared),
            absent(at(5).0, at(5).1),
        ];
        snapshot(seq, 1.0, vec![target(0, vec![mapping(0, 40 * MIB, "")], regions)])
    }

    fn values(course: &Course) -> Vec<u64> {
        course.percentiles.iter().map(|p| p.value / MIB).collect()
    }

    #[test]
    fn each_measure_counts_its_bytes() {
        let mut builder = WssBuilder::new(Options::default());
        for (seq, hot) in [(0, 2), (1, 2), (2, 2), (3, 10)] {
            builder.push(&six_kinds(seq, hot));
        }
        let wss = builder.finish(&[0.0, 75.0, 100.0]).unwrap();
        assert_eq!(values(&wss.hot_bytes), [2, 2, 10]);
        assert_eq!(values(&wss.touched_bytes), [5, 5, 13]);
        assert_eq!(values(&wss.working_set_bytes), [9, 9, 17]);
        assert_eq!(wss.hot_bytes.mean, 4 * MIB);
        assert_eq!(wss.basis.unknown_bytes, 6 * MIB);
        assert_eq!(wss.basis.resident_bytes, Some((20 + 20 + 20 + 28) * MIB / 4));
        assert_eq!(wss.touched_bytes.over_time.len(), 4);
        assert!(wss.hot_bytes.exact);
    }

    /// If a quarter of a region is touched, that quarter is hot; the rest is cold once it is old enough.
    #[test]
    fn a_part_that_is_touched_counts_for_itself() {
        let mut part = region(0, 4 * MIB, 50.0);
        part.touched_bp = 2500;
        let old = RegionView { age: Duration::from_secs(9), ..part };
        for (r, working_set) in [(part, 4), (old, 1)] {
            let mut builder = WssBuilder::new(Options::default());
            builder.push(&snapshot(
                0,
                1.0,
                vec![target(0, vec![mapping(0, 4 * MIB, "")], vec![r])],
            ));
            let wss = builder.finish(&[100.0]).unwrap();
            assert_eq!((values(&wss.hot_bytes), values(&wss.touched_bytes)), (vec![1], vec![1]));
            assert_eq!(values(&wss.working_set_bytes), [working_set]);
        }
    }

    #[test]
    fn an_address_range_clips() {
        let mut options = Options::default();
        options.filter.addr = Some(isotherm_core::AddrRange::new(MIB, 4 * MIB));
        let mut builder = WssBuilder::new(options.clone());
        builder.push(&six_kinds(0, 2));
        let wss = builder.finish(&[50.0]).unwrap();
        assert_eq!((values(&wss.hot_bytes), values(&wss.touched_bytes)), (vec![1], vec![3]));
        options.filter.addr = Some(isotherm_core::AddrRange::new(1 << 40, 2 << 40));
        let mut builder = WssBuilder::new(options);
        builder.push(&six_kinds(0, 2));
        assert!(matches!(builder.finish(&[]), Err(FilterError::Addr { .. })));
    }
}
