//! The number of regions, compared with its bounds, and their sizes.

use isotherm_core::Snapshot;
use serde::Serialize;

use crate::basis::{Basis, BasisTally};
use crate::course::{Course, CourseTally};
use crate::distribution::{Distribution, Percentile};
use crate::filter::{FilterError, Gate, Options};

/// Maximum number of different region sizes for exact percentiles.
const SIZES: usize = 1 << 14;

/// The number and sizes of regions, which determine the accuracy and the cost of the monitor: each region
/// requires a look per sampling interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Regions {
    /// version of the keys and their meaning
    pub schema_version: u32,
    /// heading
    pub title: String,
    /// the part of the record that was used
    #[serde(flatten)]
    pub basis: Basis,
    /// minimum number of regions, if there is enough memory; the last value in the record
    pub min_regions: u32,
    /// maximum number of regions, over all targets; the last value in the record
    pub max_regions: u32,
    /// snapshots with more regions than the maximum: 0, unless there is a defect
    pub snapshots_above_max: u64,
    /// number of regions
    pub regions: Course,
    /// sizes of regions; each region of each snapshot counts
    pub sizes: Sizes,
}

/// Sizes of regions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sizes {
    /// mean over all regions
    pub mean_bytes: u64,
    /// percentiles over all regions
    pub percentiles: Vec<Percentile>,
    /// whether the percentiles are exact; otherwise they are too large by less than 0.1 %
    pub exact: bool,
}

/// Makes [`Regions`] from snapshots, which must be pushed in order of time.
#[derive(Debug)]
pub struct RegionsBuilder {
    options: Options,
    gate: Gate,
    tally: BasisTally,
    bounds: (u32, u32),
    above: u64,
    counts: CourseTally,
    sizes: Distribution,
}

impl RegionsBuilder {
    /// A builder that has received no snapshot.
    #[must_use]
    pub fn new(options: Options) -> Self {
        RegionsBuilder {
            gate: Gate::new(options.filter.clone()),
            options,
            tally: BasisTally::default(),
            bounds: (0, 0),
            above: 0,
            counts: CourseTally::new(),
            sizes: Distribution::new(SIZES),
        }
    }

    /// Adds a snapshot, if it is in the selected time.
    pub fn push(&mut self, s: &Snapshot) {
        let Some(time) = self.gate.admit(s) else { return };
        let (mut bytes, mut count) = (isotherm_core::HeatBytes::default(), 0);
        for region in self.options.filter.regions(s) {
            bytes += region.bytes(&self.options.thresholds);
            self.sizes.push(region.range.len(), 1.0);
            count += 1;
        }
        self.tally.whole(&bytes, (time.end - time.start).as_secs_f64());
        self.counts.push(&time, count);
        self.bounds = (s.attrs.min_regions, s.attrs.max_regions);
        self.above += u64::from(s.nr_regions() > s.attrs.max_regions as usize);
    }

    /// The figures, with these percentiles (0 to 100).
    ///
    /// # Errors
    /// If there is nothing in the time or at the addresses wanted.
    pub fn finish(mut self, percents: &[f64]) -> Result<Regions, FilterError> {
        let time = self.gate.found_memory()?;
        Ok(Regions {
            schema_version: 1,
            basis: self.tally.basis(&self.options, &time),
            title: self.options.title,
            min_regions: self.bounds.0,
            max_regions: self.bounds.1,
            snapshots_above_max: self.above,
            regions: self.counts.course(percents),
            sizes: Sizes {
                mean_bytes: self.sizes.mean().round() as u64,
                percentiles: self.sizes.percentiles(percents),
                exact: self.sizes.is_exact(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::{mapping, region, snapshot, target};
    use isotherm_core::{AddrRange, Attrs, TargetId};

    const KIB4: u64 = 4096;

    /// Two targets: one with regions of 1, 2, ... `n` pages, the other with one of 100 pages.
    fn growing(seq: u64, n: u64) -> Snapshot {
        let at = |i: u64| i * (i + 1) / 2 * KIB4;
        let regions = (0..n).map(|i| region(at(i), at(i + 1), 1.0)).collect();
        let map = || vec![mapping(0, 1 << 30, "")];
        let other = target(1, map(), vec![region(0, 100 * KIB4, 1.0)]);
        let s = snapshot(seq, 1.0, vec![target(0, map(), regions), other]);
        let attrs = Attrs { min_regions: 3, max_regions: 5, ..s.attrs };
        Snapshot { attrs, ..s }
    }

    fn regions(options: Options) -> Regions {
        let mut builder = RegionsBuilder::new(options);
        (0..4).for_each(|seq| builder.push(&growing(seq, seq + 2)));
        builder.finish(&[0.0, 50.0, 100.0]).unwrap()
    }

    fn values(all: &[Percentile]) -> Vec<u64> {
        all.iter().map(|p| p.value).collect()
    }

    #[test]
    fn counts_and_sizes_are_those_of_all_snapshots() {
        let r = regions(Options::default());
        assert_eq!(values(&r.regions.percentiles), [3, 4, 6]);
        assert_eq!((r.min_regions, r.max_regions, r.snapshots_above_max), (3, 5, 1));
        // 1 and 2 pages four times, 3 three times, 4 twice, 5 once, 100 four times.
        assert_eq!(values(&r.sizes.percentiles), [KIB4, 3 * KIB4, 100 * KIB4]);
        let pages = 4 + 8 + 9 + 8 + 5 + 400;
        assert_eq!(r.sizes.mean_bytes, (pages as f64 * 4096.0 / 18.0).round() as u64);
    }

    #[test]
    fn a_target_and_addresses_select() {
        let mut options = Options::default();
        options.filter.targets = Some([TargetId(0)].into());
        assert_eq!(values(&regions(options.clone()).regions.percentiles), [2, 3, 5]);
        options.filter.addr = Some(AddrRange::new(0, 2 * KIB4));
        let r = regions(options);
        assert_eq!(values(&r.regions.percentiles), [2, 2, 2]);
        assert_eq!(values(&r.sizes.percentiles), [KIB4; 3]);
    }
}
