//! What watching costs, and how much of the memory it has seen, in words.

use std::time::Duration;

use isotherm_core::{Attrs, Quality, Restraint, Snapshot};
use serde::Serialize;

/// From this coverage on the first sweep is over, of 10,000.
const SWEPT_BP: u32 = 9_500;

/// What the snapshots so far have told.
pub struct Gauge {
    /// what it may cost, in millionths of a CPU, if there is a bound
    budget_ppm: Option<u32>,
    clears: u64,
    looking: Duration,
    lost: Duration,
    /// time that has been watched
    watched: Duration,
    swept: bool,
    last: Option<Quality>,
}

/// Shares: of a CPU, and of the memory that can be seen.
#[derive(Debug, Serialize)]
pub struct Spent {
    own_cpu: f64,
    lost: f64,
    /// what the two may be together, if there is a bound
    pub budget: Option<f64>,
    /// how much is seen, if the monitor tells
    pub coverage: Option<f64>,
}

impl Gauge {
    /// Of a monitor with these attributes.
    pub fn new(attrs: &Attrs) -> Self {
        Gauge {
            budget_ppm: attrs.budget(),
            clears: 0,
            looking: Duration::ZERO,
            lost: Duration::ZERO,
            watched: Duration::ZERO,
            swept: false,
            last: None,
        }
    }

    /// It has these from now on.
    pub fn set_attrs(&mut self, attrs: &Attrs) {
        self.budget_ppm = attrs.budget();
    }

    /// Takes in a snapshot.
    pub fn push(&mut self, s: &Snapshot) {
        self.clears += s.cost.clears;
        self.looking += s.cost.cpu;
        self.lost += s.cost.lost;
        self.watched += s.end.since(s.start);
        self.last = s.quality;
        self.swept |= s.quality.is_some_and(|q| q.coverage_bp >= SWEPT_BP);
    }

    /// What the targets have lost.
    pub fn lost_time(&self) -> Duration {
        self.lost
    }

    /// What looking has cost, by whomever.
    pub fn looking(&self) -> Duration {
        self.looking
    }

    /// What it costs, `own` CPU time having been used in so many seconds.
    pub fn spent(&self, own: Duration, seconds: f64) -> Spent {
        let share = |time: Duration| time.as_secs_f64() / seconds.max(1e-9);
        Spent {
            own_cpu: share(own),
            lost: share(self.lost),
            budget: self.budget_ppm.map(|ppm| f64::from(ppm) / 1e6),
            coverage: self.last.map(|q| f64::from(q.coverage_bp) / 1e4),
        }
    }

    /// For the line that tells how it goes, `own` CPU time having been used in so many seconds.
    pub fn line(&self, own: Duration, seconds: f64) -> String {
        let lost = self.lost(seconds, "lost");
        let mut parts = vec![format!("own CPU {}{lost}", percent(own, seconds))];
        if let Some(q) = &self.last {
            parts.push(self.seen(q));
            parts.extend(error(q));
            parts.extend(restraint(q).map(str::to_owned));
        }
        parts.join("  ")
    }

    /// For the end.
    pub fn summary(&self, own: Duration, seconds: f64) -> String {
        let (own, lost) = (percent(own, seconds), self.lost(seconds, "the targets lost"));
        let clears = self.clears as f64 / seconds.max(1e-9);
        let mut text =
            format!("own cost {own} of a CPU{lost}, {clears:.0} TLB shootdowns a second");
        if let Some(q) = &self.last {
            text += &format!("; at the end {}", self.seen(q));
            for more in error(q).into_iter().chain(restraint(q).map(str::to_owned)) {
                text += &format!(", {more}");
            }
        }
        text
    }

    /// What the targets lost, and what all of it may be.
    fn lost(&self, seconds: f64, words: &str) -> String {
        let mut text = String::new();
        if !self.lost.is_zero() {
            text += &format!(", {words} {}", percent(self.lost, seconds));
        }
        if let Some(ppm) = self.budget_ppm {
            text += &format!(" (budget {} %)", f64::from(ppm) / 1e4);
        }
        text
    }

    fn seen(&self, q: &Quality) -> String {
        let share = f64::from(q.coverage_bp) / 1e4;
        if self.swept {
            return format!("{:.0} % seen", share * 100.0);
        }
        let rest = self.watched.as_secs_f64() * (1.0 / share.max(1e-4) - 1.0);
        let rest = if share > 0.0 { format!(", about {rest:.0} s to go") } else { String::new() };
        format!("sweeping: {:.0} % seen{rest}", share * 100.0)
    }
}

fn percent(cpu: Duration, seconds: f64) -> String {
    format!("{:.1} %", cpu.as_secs_f64() / seconds.max(1e-9) * 100.0)
}

/// A greater factor says no more than that, as a binary logarithm.
const MOST_ERROR: f32 = 10.0;

fn error(q: &Quality) -> Option<String> {
    let within = |e: f32| format!("rates within a factor of {:.1}", e.exp2());
    q.error_log2.map(|e| if e < MOST_ERROR { within(e) } else { "rates not known yet".into() })
}

fn restraint(q: &Quality) -> Option<&'static str> {
    match q.restraint {
        Restraint::None => None,
        Restraint::ShortRuns => Some("memory is short: clearing little"),
        Restraint::ReadOnly => Some("memory is short: clearing nothing"),
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::{Cost, MonitorKind, Nanos};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn snapshot(seq: u64, coverage_bp: u32, restraint: Restraint) -> Snapshot {
        let error_log2 = Some(0.5);
        Snapshot {
            seq,
            start: Nanos(seq * SECOND),
            end: Nanos((seq + 1) * SECOND),
            attrs: Attrs::default(),
            cost: Cost { clears: 5, lost: Duration::from_millis(1), ..Cost::default() },
            quality: Some(Quality { coverage_bp, error_log2, stolen: 0, restraint }),
            targets: Vec::new(),
        }
    }

    fn gauge(coverages: &[u32], restraint: Restraint) -> Gauge {
        let mut gauge = Gauge::new(&Attrs { budget_ppm: 5_000, ..Attrs::default() });
        for (seq, &bp) in (0..).zip(coverages) {
            gauge.push(&snapshot(seq, bp, restraint));
        }
        gauge
    }

    #[test]
    fn the_sweep_is_told_with_what_is_left_of_it() {
        let sweeping = gauge(&[1000, 2000, 4000], Restraint::None);
        let line = sweeping.line(Duration::from_millis(12), 3.0);
        assert_eq!(
            line,
            "own CPU 0.4 %, lost 0.1 % (budget 0.5 %)  sweeping: 40 % seen, about 4 s to go  \
             rates within a factor of 1.4"
        );
        let over = gauge(&[4000, 9900, 8000], Restraint::None).line(Duration::ZERO, 3.0);
        assert!(over.contains("  80 % seen") && !over.contains("sweeping"), "{over}");
        let nothing = gauge(&[0], Restraint::None).line(Duration::ZERO, 1.0);
        assert!(nothing.contains("sweeping: 0 % seen  "), "{nothing}");
    }

    #[test]
    fn the_end_tells_cost_coverage_and_restraint() {
        let text = gauge(&[9800], Restraint::ReadOnly).summary(Duration::from_millis(4), 1.0);
        assert_eq!(
            text,
            "own cost 0.4 % of a CPU, the targets lost 0.1 % (budget 0.5 %), 5 TLB shootdowns a \
             second; at the end 98 % seen, rates within a factor of 1.4, memory is short: clearing \
             nothing"
        );
    }

    /// The other monitors have neither a budget nor a quality.
    #[test]
    fn what_is_not_told_is_not_said() {
        let mut gauge = Gauge::new(&Attrs { monitor: MonitorKind::Regions, ..Attrs::default() });
        gauge.push(&Snapshot {
            quality: None,
            cost: Cost::default(),
            ..snapshot(0, 0, Restraint::None)
        });
        assert_eq!(gauge.line(Duration::from_millis(20), 1.0), "own CPU 2.0 %");
    }
}
