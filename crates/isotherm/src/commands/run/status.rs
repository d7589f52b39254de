//! What is said while schemes act.

use std::time::Duration;

use isotherm_core::scheme::Engine;
use isotherm_core::{Attrs, Nanos, Snapshot, Thresholds};
use isotherm_linux::sys;
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
    pub fn new(begin: Nanos, attrs: &Attrs) -> Self {
        let gauge = Gauge::new(attrs);
        Status { begin, cpu_before: sys::own_cpu(), gauge, line: Line::new(begin) }
    }

    /// Tells of a snapshot, and of what has been done so far.
    pub fn show(&mut self, s: &Snapshot, engine: &Engine) {
        self.gauge.push(s);
        let b = s.bytes(&Thresholds::default());
        let done = engine.schemes().map(|(scheme, stats)| {
            let off = if stats.exceeded > 0 { " (quota)" } else { "" };
            format!("{} {}{off}", scheme.name, bytes(stats.applied.bytes))
        });
        let done = done.collect::<Vec<_>>().join("  ");
        let seconds = s.end.since(self.begin).as_secs_f64();
        let cpu = sys::own_cpu().saturating_sub(self.cpu_before);
        let text = format!(
            "{seconds:.1} s  hot {}  warm {}  cold {}  {done}  {}",
            bytes(b.hot),
            bytes(b.warm),
            bytes(b.cold),
            self.gauge.line(cpu, seconds)
        );
        self.line.show(s.end, text);
    }

    /// Takes the line away.
    pub fn clear(&self) {
        self.line.clear();
    }
}
