//! Duration and cost of watching.

use std::time::Duration;

use isotherm_core::{Attrs, Nanos, Snapshot, Thresholds};
use isotherm_linux::sys;
use isotherm_report::bytes;

use super::gauge::{CostShares, Gauge};

/// A display for a progress line.
pub trait Progress {
    /// Whether a line at this time would be displayed.
    fn is_wanted(&self, now: Nanos) -> bool;

    /// Shows a line.
    fn show(&mut self, now: Nanos, line: String);

    /// Removes it.
    fn clear(&self);
}

/// Shows nothing.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {
    fn is_wanted(&self, _: Nanos) -> bool {
        false
    }

    fn show(&mut self, _: Nanos, _: String) {}

    fn clear(&self) {}
}

/// Duration of watching, hot memory, and the cost of watching.
pub struct Status {
    begin: Nanos,
    /// CPU time of this process from its start until it started to watch
    startup: Duration,
    gauge: Gauge,
    progress: Box<dyn Progress>,
}

impl Status {
    /// Starts to measure now.
    #[must_use]
    pub fn new(attrs: &Attrs, progress: Box<dyn Progress>) -> Self {
        let begin = sys::monotonic();
        Status { begin, startup: sys::own_cpu(), gauge: Gauge::new(attrs), progress }
    }

    /// The monitor has other attributes from now on.
    pub fn set_attrs(&mut self, attrs: &Attrs) {
        self.gauge.set_attrs(attrs);
    }

    /// Adds a snapshot, and shows a progress line that ends with `more`.
    pub fn show(&mut self, s: &Snapshot, more: impl FnOnce() -> String) {
        self.gauge.push(s);
        if !self.progress.is_wanted(s.end) {
            return;
        }
        let b = s.bytes(&Thresholds::default());
        let [hot, warm, cold, unknown] = [b.hot, b.warm, b.cold, b.unknown].map(bytes);
        let line = format!(
            "{:.1} s  {} regions  hot {hot}  warm {warm}  cold {cold}  unknown {unknown}  {}{}",
            s.end.since(self.begin).as_secs_f64(),
            s.nr_regions(),
            more(),
            self.gauge.line(self.own_cpu(), self.seconds()),
        );
        self.progress.show(s.end, line);
    }

    /// Removes the progress line.
    pub fn clear(&self) {
        self.progress.clear();
    }

    /// The start of watching.
    #[must_use]
    pub fn begin(&self) -> Nanos {
        self.begin
    }

    /// The duration of watching.
    #[must_use]
    pub fn time(&self) -> Duration {
        sys::monotonic().since(self.begin)
    }

    /// The duration in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.time().as_secs_f64()
    }

    /// The cost as text, for the end of the run.
    #[must_use]
    pub fn cost(&self) -> String {
        self.gauge.summary(self.startup, self.own_cpu(), self.seconds())
    }

    /// The cost, for programs.
    #[must_use]
    pub fn spent(&self) -> CostShares {
        self.gauge.spent(self.startup, self.own_cpu(), self.seconds())
    }

    /// CPU time of this process since its start, and what the targets have lost.
    #[must_use]
    pub fn spent_time(&self) -> (Duration, Duration) {
        (self.startup + self.own_cpu(), self.gauge.lost_time())
    }

    /// CPU time since watching started. A kdamond has its own thread, whose time is not part of this process
    /// and is added.
    fn own_cpu(&self) -> Duration {
        sys::own_cpu().saturating_sub(self.startup).max(self.gauge.looking())
    }
}
