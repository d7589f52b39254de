//! The line on standard error that tells how it goes.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use isotherm_core::{Attrs, Nanos, Snapshot, Thresholds};
use isotherm_linux::sys;
use isotherm_report::bytes;

use super::gauge::{Gauge, Spent};
use crate::words::say;

/// Where standard error is no terminal, a line comes this often.
const EVERY: Duration = Duration::from_secs(5);

/// What all who watch tell meanwhile: for how long, what is hot, and what it costs.
pub struct Status {
    begin: Nanos,
    /// CPU time of this process from its start until it watched
    startup: Duration,
    gauge: Gauge,
    line: Line,
}

impl Status {
    /// From now on.
    pub fn new(attrs: &Attrs) -> Self {
        let begin = sys::monotonic();
        let (gauge, line) = (Gauge::new(attrs), Line::new(begin));
        Status { begin, startup: sys::own_cpu(), gauge, line }
    }

    /// The monitor has other attributes from now on.
    pub fn set_attrs(&mut self, attrs: &Attrs) {
        self.gauge.set_attrs(attrs);
    }

    /// Tells of a snapshot, and what `more` there is to say.
    pub fn show(&mut self, s: &Snapshot, more: &str) {
        self.gauge.push(s);
        if !self.line.is_wanted(s.end) {
            return;
        }
        let b = s.bytes(&Thresholds::default());
        let [hot, warm, cold, unknown] = [b.hot, b.warm, b.cold, b.unknown].map(bytes);
        let line = format!(
            "{:.1} s  {} regions  hot {hot}  warm {warm}  cold {cold}  unknown {unknown}  {more}{}",
            s.end.since(self.begin).as_secs_f64(),
            s.nr_regions(),
            self.gauge.line(self.own_cpu(), self.seconds()),
        );
        self.line.show(s.end, line);
    }

    /// Takes the line away.
    pub fn clear(&self) {
        self.line.clear();
    }

    /// For how long.
    pub fn time(&self) -> Duration {
        sys::monotonic().since(self.begin)
    }

    /// The same in seconds.
    pub fn seconds(&self) -> f64 {
        self.time().as_secs_f64()
    }

    /// What it has cost, for the end.
    pub fn cost(&self) -> String {
        self.gauge.summary(self.startup, self.own_cpu(), self.seconds())
    }

    /// The same, for programs.
    pub fn spent(&self) -> Spent {
        self.gauge.spent(self.startup, self.own_cpu(), self.seconds())
    }

    /// CPU time of ours since the start of the process, and what the targets have lost.
    pub fn spent_time(&self) -> (Duration, Duration) {
        (self.startup + self.own_cpu(), self.gauge.lost_time())
    }

    /// Since it watches. A kdamond works in a thread of its own, whose time is not in ours.
    fn own_cpu(&self) -> Duration {
        sys::own_cpu().saturating_sub(self.startup).max(self.gauge.looking())
    }
}

/// One line that changes; where there is no terminal, a line now and then.
struct Line {
    bar: ProgressBar,
    next: Nanos,
}

impl Line {
    fn new(begin: Nanos) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let to =
            if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, to);
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            bar.set_style(style);
        }
        Line { bar, next: if is_terminal { Nanos(u64::MAX) } else { begin } }
    }

    /// Whether what is told now is seen by anybody.
    fn is_wanted(&self, now: Nanos) -> bool {
        now >= self.next || !self.bar.is_hidden()
    }

    fn show(&mut self, now: Nanos, text: String) {
        if now >= self.next {
            self.next = now + EVERY;
            say(&text);
        }
        self.bar.set_message(text);
    }

    fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
