//! Repeated readings of the page cache within a budget of CPU time.

use std::time::Duration;

use isotherm_core::Nanos;
use isotherm_linux::sys::{self, CpuLaps};

use super::kept::{Kept, NR_FIRST};
use super::{CacheReader, FilesOutput, Observed, RowOrder, ScopeError};
use crate::pace::{Pace, PaceLimits, WorkStart};

/// Reads the page cache repeatedly. One half of the budget is for listing all files. The other half is for reading the
/// figures of the first files again in the time between, and for printing.
pub struct CacheWatch {
    reader: CacheReader,
    order: RowOrder,
    kept: Option<Kept>,
    listing: Pace,
    limits: PaceLimits,
    /// half of the budget, as a share of a CPU
    share: f64,
    /// CPU time in s that may be used until the next listing
    credit: f64,
    cpu: CpuLaps,
    is_once: bool,
    /// time of the last reading
    last: Nanos,
}

impl CacheWatch {
    /// Reads with at most `budget_ppm` millionths of a CPU. The first reading is not limited. `None`: there is only one
    /// reading.
    #[must_use]
    pub fn new(reader: CacheReader, order: RowOrder, budget_ppm: Option<u32>) -> Self {
        let half = budget_ppm.unwrap_or(0).div_ceil(2).max(1);
        let limits = PaceLimits {
            cpu_divisor: 1_000_000_u32.div_ceil(half),
            min_pause: Duration::ZERO,
            max_pause: Duration::MAX,
        };
        CacheWatch {
            reader,
            order,
            kept: None,
            listing: Pace::default(),
            limits,
            share: f64::from(half) / 1e6,
            credit: 0.0,
            cpu: CpuLaps::begin(),
            is_once: budget_ppm.is_none(),
            last: sys::monotonic(),
        }
    }

    /// The present figures: of all files if it is time to list them, else of those that come first. `seen` was
    /// observed just before.
    ///
    /// # Errors
    /// If the kernel refuses, or if the group has been removed.
    pub fn read(&mut self, seen: Observed<'_>) -> Result<FilesOutput<'_>, ScopeError> {
        let begun = WorkStart::now();
        let now = begun.at;
        let earned = now.since(std::mem::replace(&mut self.last, now)).as_secs_f64() * self.share;
        // Watching has a budget of its own.
        self.cpu.leave_out(seen.heat.map_or(Duration::ZERO, |heat| heat.cpu));
        let used = self.cpu.lap().as_secs_f64();
        self.credit = (self.credit + earned - used).min(earned);
        let kept = match self.kept.take().filter(|_| now < self.listing.due()) {
            Some(mut kept) => {
                let time = Duration::from_secs_f64(self.credit.max(0.0));
                kept.read_again(&mut self.reader, time, now)?;
                kept.set_observed(seen);
                kept
            }
            None => {
                let scan = self.reader.read(&self.order, self.is_once, seen)?;
                let kept = Kept::new(scan, self.order, NR_FIRST.max(self.order.limit), now);
                self.listing.pause(&begun, &self.limits);
                // The pause pays for it.
                self.cpu.lap();
                kept
            }
        };
        let kept = self.kept.insert(kept);
        Ok(FilesOutput::new(kept, self.order.by, seen.heat.map(|heat| heat.watched), now))
    }
}
