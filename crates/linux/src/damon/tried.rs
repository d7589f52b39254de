//! Results from `tried_regions`, if tracefs cannot be used: for each target, a scheme that only counts is tried
//! on all of its memory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::{AddrRange, Nanos};

use super::results::{AggregationResult, RawRegion};
use super::sysfs::{
    self, AccessPattern, Action, Bounds, Command, Filter, FilterType, Scheme, SysfsError,
    TriedRegions,
};
use crate::sys::monotonic;

/// The kernel accepts the largest number of the field's type, but no longer text.
const ALL_SIZES: Bounds = Bounds { min: 0, max: u64::MAX };
const ALL_COUNTS: Bounds = Bounds { min: 0, max: u32::MAX as u64 };

/// A scheme for each of `targets`. They are tried every sampling interval, because `tried_regions` then
/// contains a moving sum: the counts of the last aggregation interval until now.
pub(super) fn schemes(targets: usize, sample_us: u64) -> Vec<Scheme> {
    let scheme = |i: usize| Scheme {
        action: Action::Stat,
        target_nid: -1,
        apply_interval_us: sample_us,
        access_pattern: AccessPattern { sz: ALL_SIZES, nr_accesses: ALL_COUNTS, age: ALL_COUNTS },
        filters: if targets > 1 { vec![others_than(i)] } else { Vec::new() },
        ..Scheme::default()
    };
    (0..targets).map(scheme).collect()
}

/// A filter that rejects the memory of all targets but `i`.
fn others_than(i: usize) -> Filter {
    Filter {
        kind: FilterType::Target,
        matching: false,
        damon_target_idx: i32::try_from(i).unwrap_or(i32::MAX),
        ..Filter::default()
    }
}

/// Reads the current regions of the kdamond in directory `kdamond`.
///
/// # Errors
/// If it does not run, or its files cannot be read.
pub(super) fn ask(kdamond: &Path) -> Result<AggregationResult, SysfsError> {
    sysfs::write(&kdamond.join("state"), &Command::UpdateTriedRegions)?;
    let at = monotonic();
    let schemes = kdamond.join("contexts/0/schemes");
    let count = sysfs::read::<u64>(&schemes.join("nr_schemes"))?;
    let tried = |i: u64| -> PathBuf { schemes.join(i.to_string()).join("tried_regions") };
    let targets = (0..count).map(|i| Ok((i, regions(sysfs::read(&tried(i))?))));
    Ok(AggregationResult { at, targets: targets.collect::<Result<_, SysfsError>>()? })
}

fn regions(tried: TriedRegions) -> Vec<RawRegion> {
    let raw = tried.regions.0.into_iter().map(|r| RawRegion {
        range: AddrRange::new(r.start.0, r.end.0),
        nr_accesses: r.nr_accesses.0,
        age: r.age.0,
    });
    raw.collect()
}

/// Reads once per interval.
#[derive(Debug)]
pub(super) struct TriedRegionsReader {
    kdamond: PathBuf,
    next: Nanos,
    /// number of reads that came so late that at least one result was missed
    pub late: u64,
}

impl TriedRegionsReader {
    /// Reads the kdamond in this directory.
    pub fn new(kdamond: PathBuf) -> Self {
        TriedRegionsReader { kdamond, next: Nanos(0), late: 0 }
    }

    /// Called after a start; the first result exists from `first` on.
    pub fn begin(&mut self, first: Nanos) {
        self.next = first;
    }

    /// Whether the next read is due.
    pub fn is_due(&self, now: Nanos) -> bool {
        now >= self.next
    }

    /// The current result: always of one aggregation interval, however long ago the last read was.
    pub fn ask(&mut self, now: Nanos, interval: Duration) -> Result<AggregationResult, SysfsError> {
        self.late += u64::from(now.since(self.next) > interval / 2);
        self.next = now + interval;
        ask(&self.kdamond)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn one_target_needs_no_filter_and_several_do() {
        assert_eq!(schemes(1, 5000)[0].filters, []);
        let two = schemes(2, 5000);
        let targets: Vec<i32> = two.iter().map(|s| s.filters[0].damon_target_idx).collect();
        assert_eq!(targets, [0, 1]);
        assert!(two.iter().all(|s| !s.filters[0].matching && s.apply_interval_us == 5000));
    }

    /// A tree with a scheme for each of two targets; the second one has no regions yet.
    #[test]
    fn regions_are_those_of_their_scheme() {
        let kdamond = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = kdamond.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        file("state", "on");
        file("contexts/0/schemes/nr_schemes", "2");
        for i in 0..2 {
            file(&format!("contexts/0/schemes/{i}/tried_regions/total_bytes"), "0");
        }
        for (name, value) in
            [("start", "4096"), ("end", "8192"), ("nr_accesses", "7"), ("age", "3")]
        {
            file(&format!("contexts/0/schemes/0/tried_regions/5/{name}"), value);
        }
        let mut tried = TriedRegionsReader::new(kdamond.path().to_owned());
        tried.begin(Nanos(100));
        let interval = Duration::from_secs(1);
        assert!(!tried.is_due(Nanos(99)) && tried.is_due(Nanos(100)));
        let result = tried.ask(Nanos(100), interval).unwrap();
        let region = RawRegion { range: AddrRange::new(4096, 8192), nr_accesses: 7, age: 3 };
        assert_eq!(result.targets[&0], [region]);
        assert_eq!(result.targets[&1], []);
        let asked = fs::read_to_string(kdamond.path().join("state")).unwrap();
        assert_eq!(asked, "update_schemes_tried_regions");
        assert!(!tried.is_due(Nanos(200)));
        let second = |n: u64| Nanos(n * 1_000_000_000);
        for (at, late) in [(1, 0), (2, 0), (5, 1)] {
            let _ = tried.ask(second(at), interval).unwrap();
            assert_eq!(tried.late, late, "at {at} s");
        }
    }
}
