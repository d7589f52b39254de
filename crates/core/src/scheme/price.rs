//! What it costs to take memory away, and to bring it back.

use std::time::Duration;

use crate::ops::{Mapping, MappingKind, is_shared_memory};
use crate::snapshot::{RegionView, TargetView};

/// Times for a page of 4 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prices {
    /// to read a page of a file from its disk
    pub read: Duration,
    /// to move a page to swap
    pub swap_out: Duration,
    /// to bring it back
    pub swap_in: Duration,
    /// Share of a page in swap that becomes free memory, of 10,000: compressed swap keeps the rest.
    pub freed_bp: u32,
}

impl Default for Prices {
    /// Swap in compressed memory as `docs/concepts/acting.md` measured it, and a disk without moving parts.
    fn default() -> Self {
        Prices {
            read: Duration::from_micros(100),
            swap_out: Duration::from_nanos(4220),
            swap_in: Duration::from_nanos(3900),
            freed_bp: 6667,
        }
    }
}

impl Prices {
    /// Swap on a disk, where a page takes as long to write and to read as one of a file.
    #[must_use]
    pub fn on_disk(read: Duration) -> Self {
        Prices { read, swap_out: read, swap_in: read, freed_bp: 10_000 }
    }

    /// Expected time for each page of free memory, if a region is taken away: to take it, and to bring it back if it
    /// is touched within `horizon`.
    ///
    /// This has the probability `horizon / (age + horizon)`: memory that was idle for ten times as long returns a
    /// tenth as often. To drop a page of a file takes no time. Example, with the default prices and a horizon of
    /// 60 s: a file that is idle for 10 minutes costs 9 us, and anonymous memory of the same age 7 us. A file that
    /// is idle for an hour costs 1.6 us.
    #[must_use]
    pub fn expected(&self, is_file: bool, age: Duration, horizon: Duration) -> Duration {
        let (age, horizon) = (age.as_secs_f64(), horizon.as_secs_f64());
        let returns = if horizon > 0.0 { horizon / (age + horizon) } else { 0.0 };
        if is_file {
            return self.read.mul_f64(returns);
        }
        let time = self.swap_out + self.swap_in.mul_f64(returns);
        time.mul_f64(10_000.0 / f64::from(self.freed_bp.clamp(1, 10_000)))
    }
}

/// Whether a region is of a file, so that its pages are copies of a disk. Those of shared memory go to swap.
pub(super) fn is_file(target: &TargetView, view: &RegionView) -> bool {
    let after = target.mappings.partition_point(|m| m.range.end <= view.range.start);
    let is_file = |m: &Mapping| m.kind == MappingKind::File && !is_shared_memory(&m.name);
    target.mappings.get(after).is_some_and(is_file)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::testing::{target, view};
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_file_is_cheaper_only_if_it_hardly_returns() {
        let prices = Prices::default();
        let file = |age| prices.expected(true, age, MINUTE);
        let anonymous = |age| prices.expected(false, age, MINUTE);
        assert!(file(10 * MINUTE) > anonymous(10 * MINUTE));
        assert!(file(60 * MINUTE) < anonymous(60 * MINUTE));
        assert!(
            file(60 * MINUTE) < anonymous(600 * MINUTE),
            "taking anonymous memory is never free"
        );
        assert!(file(MINUTE) > file(2 * MINUTE) && anonymous(MINUTE) > anonymous(2 * MINUTE));
    }

    #[test]
    fn shared_memory_is_no_file() {
        let of = |name: &str| {
            let mut target = target(1, &[view(0, 4, 0.0, MINUTE)]);
            let file =
                |m: &Mapping| Mapping { kind: MappingKind::File, name: name.into(), ..m.clone() };
            target.mappings = Arc::new(target.mappings.iter().map(file).collect());
            is_file(&target, &target.regions[0])
        };
        assert!(of("/usr/bin/postgres") && of("/dev/shmem"));
        for name in ["/dev/zero (deleted)", "/SYSV0052e2c1 (deleted)", "/memfd:x", "/dev/shm/x"] {
            assert!(!of(name), "{name}");
        }
    }

    #[test]
    fn files_are_cheaper_than_swap_on_the_same_disk() {
        let prices = Prices::on_disk(Duration::from_millis(5));
        for age in [Duration::ZERO, MINUTE, 1000 * MINUTE] {
            assert!(prices.expected(true, age, MINUTE) < prices.expected(false, age, MINUTE));
        }
        assert_eq!(prices.expected(true, MINUTE, Duration::ZERO), Duration::ZERO);
    }
}
