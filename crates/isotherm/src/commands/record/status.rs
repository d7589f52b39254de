//! What the recorder says while it records, and at its end.

use std::path::Path;
use std::time::Duration;

use isotherm_core::{Attrs, Nanos, Snapshot, Thresholds};
use isotherm_linux::sys;
use isotherm_record::{Summary, Why};
use isotherm_report::bytes;

use crate::commands::watch::{Gauge, Line};

/// The line on standard error.
pub struct Status {
    begin: Nanos,
    cpu_before: Duration,
    gauge: Gauge,
    line: Line,
}

impl Status {
    /// From now on.
    pub fn new(begin: Nanos, cpu_before: Duration, attrs: &Attrs) -> Self {
        Status { begin, cpu_before, gauge: Gauge::new(attrs), line: Line::new(begin) }
    }

    /// Tells of a snapshot.
    pub fn show(&mut self, s: &Snapshot) {
        self.gauge.push(s);
        let b = s.bytes(&Thresholds::default());
        let line = format!(
            "{:.1} s  {} regions  hot {}  warm {}  cold {}  unknown {}  {}",
            s.end.since(self.begin).as_secs_f64(),
            s.nr_regions(),
            bytes(b.hot),
            bytes(b.warm),
            bytes(b.cold),
            bytes(b.unknown),
            self.gauge.line(self.own_cpu(), self.seconds()),
        );
        self.line.show(s.end, line);
    }

    /// Takes the line away.
    pub fn clear(&self) {
        self.line.clear();
    }

    fn seconds(&self) -> f64 {
        sys::monotonic().since(self.begin).as_secs_f64()
    }

    /// A kdamond works in a thread of its own, whose time is not in ours.
    fn own_cpu(&self) -> Duration {
        sys::own_cpu().saturating_sub(self.cpu_before).max(self.gauge.looking())
    }

    /// What was recorded and what it cost; and what to type next.
    pub fn last_lines(
        &self,
        (why, note): &(Why, String),
        s: &Summary,
        watched: &str,
        path: &Path,
    ) -> String {
        let because = match why {
            Why::TargetsGone => "all targets have ended",
            Why::MaxSize => "the record has reached --max-size",
            _ => note,
        };
        let name = path.display();
        let seconds = self.seconds();
        let count = |n: u64, one, many| format!("{n} {}", if n == 1 { one } else { many });
        let recorded = format!(
            "recorded {seconds:.1} s ({because}): {watched} in {}",
            count(s.snapshots, "snapshot", "snapshots"),
        );
        if s.snapshots == 0 {
            let kept = if s.in_place { "" } else { ", which is as it was before" };
            return format!(
                "{recorded}\nit was too short for a snapshot in {name}{kept}: record for longer than --aggr"
            );
        }
        format!(
            "{recorded}, {} in {name}; {}\nnext: isotherm report heatmap -i {name}",
            bytes(s.bytes),
            self.gauge.summary(self.own_cpu(), seconds),
        )
    }
}
