//! The cost of watching, and how much is known of the memory, as text.

use std::time::Duration;

use isotherm_core::{Attrs, Quality, Restraint, Snapshot, SupportBytes, Unknown};
use serde::Serialize;

/// The first sweep has ended once the coverage reaches this, in units of 1/10,000.
const SWEPT_BP: u32 = 9_500;

/// A shorter time without progress is no sign.
const MIN_STUCK: Duration = Duration::from_secs(1);

/// Sums over the snapshots so far.
pub struct Gauge {
    /// limit on the cost, in millionths of a CPU; `None`: no limit
    budget_ppm: Option<u32>,
    clears: u64,
    looking: Duration,
    lost: Duration,
    /// time covered by snapshots
    watched: Duration,
    /// highest coverage of this sweep so far, in units of 1/10,000, and the time watched until it was reached
    highest: (u32, Duration),
    swept: bool,
    last: Option<Quality>,
    known: SupportTotals,
}

/// Resident memory whose accesses can be observed, in bytes, by the basis of its rate in the last snapshot, and
/// memory that was not looked at yet.
#[derive(Default)]
struct SupportTotals {
    support: SupportBytes,
    unseen: u64,
}

/// Cost as a share of one CPU, over 1 s or more; and shares of the observable memory.
#[derive(Debug, Serialize)]
pub struct CostShares {
    /// CPU time from the start of the process until it started to watch, in seconds; not part of any share
    startup_seconds: f64,
    own_cpu: f64,
    lost: f64,
    /// limit on the sum of both; `None`: no limit
    pub budget: Option<f64>,
    /// share of the observable memory that the snapshot describes, if the monitor reports it
    pub coverage: Option<f64>,
    /// the bases of the rates; memory missing from a sum of 1 was not looked at yet
    #[serde(flatten)]
    pub support: Option<SupportShares>,
}

/// Shares of the resident memory whose accesses can be observed.
#[derive(Debug, Serialize)]
pub struct SupportShares {
    /// looked at itself, recently enough
    pub measured: f64,
    /// presumed from a sample of the same stretch
    pub extended: f64,
    /// known only from an earlier time
    pub old: f64,
}

impl Gauge {
    /// For a monitor with these attributes.
    pub fn new(attrs: &Attrs) -> Self {
        Gauge {
            budget_ppm: attrs.budget(),
            clears: 0,
            looking: Duration::ZERO,
            lost: Duration::ZERO,
            watched: Duration::ZERO,
            highest: (0, Duration::ZERO),
            swept: false,
            last: None,
            known: SupportTotals::default(),
        }
    }

    /// The monitor has these attributes from now on.
    pub fn set_attrs(&mut self, attrs: &Attrs) {
        self.budget_ppm = attrs.budget();
    }

    /// Adds a snapshot.
    pub fn push(&mut self, s: &Snapshot) {
        self.clears += s.cost.clears;
        // A single thread looks, so time beyond the interval was spent before it, at the start.
        self.looking += s.cost.cpu.min(s.end.since(s.start));
        self.lost += s.cost.lost;
        self.watched += s.end.since(s.start);
        self.last = s.quality;
        self.known = SupportTotals::of(s);
        let coverage = s.quality.map_or(0, |q| q.coverage_bp);
        // Much new memory begins another sweep.
        if coverage > self.highest.0 || coverage < self.highest.0 / 2 {
            self.highest = (coverage, self.watched);
        }
        self.swept |= coverage >= SWEPT_BP || self.is_stuck();
    }

    /// Whether the coverage has not risen for as long as it took to rise: new memory comes as fast as it is swept.
    fn is_stuck(&self) -> bool {
        let (highest, rose) = self.highest;
        highest > 0 && self.watched >= 2 * rose + MIN_STUCK
    }

    /// CPU time that the targets have lost.
    pub fn lost_time(&self) -> Duration {
        self.lost
    }

    /// CPU time for looking, in any thread.
    pub fn looking(&self) -> Duration {
        self.looking
    }

    /// The cost after `seconds`, in which this process used the CPU time `own`, after using `startup` before.
    pub fn spent(&self, startup: Duration, own: Duration, seconds: f64) -> CostShares {
        let share = |time: Duration| time.as_secs_f64() / seconds.max(MIN_SECONDS);
        CostShares {
            startup_seconds: startup.as_secs_f64(),
            own_cpu: share(own),
            lost: share(self.lost),
            budget: self.budget_ppm.map(|ppm| f64::from(ppm) / 1e6),
            coverage: self.last.map(|q| f64::from(q.coverage_bp) / 1e4),
            support: self.known.shares(),
        }
    }

    /// The cost for the progress line, after `seconds`, in which this process used the CPU time `own`.
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

    /// The cost for the end of the run.
    pub fn summary(&self, startup: Duration, own: Duration, seconds: f64) -> String {
        let (own, lost) = (percent(own, seconds), self.lost(seconds, "the targets lost"));
        let clears = self.clears as f64 / seconds.max(MIN_SECONDS);
        let startup = startup.as_secs_f64();
        let mut text = format!(
            "own cost {own} of a CPU and {startup:.2} s of CPU time to start{lost}, {clears:.0} TLB \
             shootdowns a second"
        );
        if let Some(q) = &self.last {
            text += &format!("; at the end {}", self.seen(q));
            for more in error(q).into_iter().chain(restraint(q).map(str::to_owned)) {
                text += &format!(", {more}");
            }
        }
        text
    }

    /// Describes the CPU time that the targets have lost, and the limit on the sum.
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
            let seen = || format!("{:.0} % seen", share * 100.0);
            return self.known.words().unwrap_or_else(seen);
        }
        let rest = self.watched.as_secs_f64() * (1.0 / share.max(1e-4) - 1.0);
        let rest = if share > 0.0 { format!(", about {rest:.0} s to go") } else { String::new() };
        format!("sweeping: {:.0} % seen{rest}", share * 100.0)
    }
}

impl SupportTotals {
    fn of(s: &Snapshot) -> Self {
        let regions = s.targets.iter().flat_map(|t| &t.regions);
        let unseen = regions.map(|r| r.unknown_bytes(Unknown::Unseen)).sum();
        SupportTotals { support: s.support_bytes(), unseen }
    }

    /// `None` if nothing is known.
    fn shares(&self) -> Option<SupportShares> {
        let all = (self.support.total() + self.unseen) as f64;
        let share = |bytes: u64| bytes as f64 / all;
        (self.support.total() > 0).then(|| SupportShares {
            measured: share(self.support.measured),
            extended: share(self.support.extended),
            old: share(self.support.old),
        })
    }

    /// For example `92 % measured, 7 % extended, 1 % old`, without shares below 0.5 %.
    fn words(&self) -> Option<String> {
        let s = self.shares()?;
        let unseen = 1.0 - s.measured - s.extended - s.old;
        let more = [(s.extended, "extended"), (s.old, "old"), (unseen, "unseen")];
        let more = more.into_iter().filter(|(share, _)| *share >= 0.005);
        let all = std::iter::once((s.measured, "measured")).chain(more);
        let words = all.map(|(share, name)| format!("{:.0} % {name}", share * 100.0));
        Some(words.collect::<Vec<_>>().join(", "))
    }
}

/// Minimum time for a share, in seconds. A share of a shorter time says more about its length than about the
/// work.
const MIN_SECONDS: f64 = 1.0;

/// CPU time as a percentage of one CPU. CPU time of the first second counts as a share of a full second.
fn percent(cpu: Duration, seconds: f64) -> String {
    format!("{:.1} %", cpu.as_secs_f64() / seconds.max(MIN_SECONDS) * 100.0)
}

/// Error factors above this are not reported more precisely; as a binary logarithm.
const MAX_ERROR: f32 = 10.0;

fn error(q: &Quality) -> Option<String> {
    let within = |e: f32| format!("rates within a factor of {:.1}", e.exp2());
    q.error_log2.map(|e| if e < MAX_ERROR { within(e) } else { "rates not known yet".into() })
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
    use std::sync::Arc;

    use isotherm_core::{
        AddrRange, Cost, MonitorKind, Nanos, Rate, RateSupport, RegionView, TargetId, TargetView,
        UnknownPages,
    };

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
            quality: Some(Quality { coverage_bp, error_log2, externally_cleared: 0, restraint }),
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
    fn the_sweep_is_reported_with_its_remainder() {
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
        // Found by a new user: the remainder grew without an end.
        let stuck = gauge(&[4000, 3900, 3800, 4000], Restraint::None).line(Duration::ZERO, 4.0);
        assert!(stuck.contains("  40 % seen") && !stuck.contains("to go"), "{stuck}");
        let grown = gauge(&[9000, 500, 600, 700, 800], Restraint::None).line(Duration::ZERO, 5.0);
        assert!(grown.contains("sweeping: 8 % seen, about"), "{grown}");
    }

    #[test]
    fn the_summary_has_cost_coverage_and_restraint() {
        let [startup, own] = [60, 4].map(Duration::from_millis);
        let text = gauge(&[9800], Restraint::ReadOnly).summary(startup, own, 1.0);
        assert_eq!(
            text,
            "own cost 0.4 % of a CPU and 0.06 s of CPU time to start, the targets lost 0.1 % (budget 0.5 %), 5 TLB shootdowns a \
             second; at the end 98 % seen, rates within a factor of 1.4, memory is short: clearing \
             nothing"
        );
    }

    /// "own CPU 819 %" was a first round of all processes, divided by a tenth of a second.
    #[test]
    fn nothing_is_divided_by_a_moment() {
        let mut gauge = Gauge::new(&Attrs::default());
        let cost = Cost { cpu: Duration::from_millis(900), ..Cost::default() };
        let s = Snapshot { cost, end: Nanos(SECOND / 10), ..snapshot(0, 0, Restraint::None) };
        gauge.push(&s);
        assert_eq!(gauge.looking(), Duration::from_millis(100), "the rest was before");
        let spent = gauge.spent(Duration::from_millis(800), gauge.looking(), 0.1);
        assert_eq!((spent.own_cpu, spent.startup_seconds), (0.1, 0.8));
        assert!(gauge.line(gauge.looking(), 0.1).starts_with("own CPU 10.0 %"));
    }

    #[test]
    fn support_is_reported_after_the_first_sweep() {
        let region = |at: u64, measured_bp, extended_bp| RegionView {
            range: AddrRange::new(at << 20, (at + 1) << 20),
            accesses_bp: 0,
            age: Duration::ZERO,
            rate: Rate::default(),
            touched_bp: 0,
            resident_bp: 10_000,
            unknown_bp: UnknownPages::default(),
            support: Some(RateSupport { measured_bp, extended_bp }),
        };
        let line = |coverage_bp, regions: Vec<RegionView>| {
            let view = TargetView {
                id: TargetId(0),
                ran: None,
                mappings: Arc::default(),
                left_out: 0,
                dirty: None,
                ages: None,
                regions,
            };
            let mut gauge = Gauge::new(&Attrs::default());
            let s = snapshot(0, coverage_bp, Restraint::None);
            gauge.push(&Snapshot { targets: vec![view], ..s });
            gauge.line(Duration::ZERO, 1.0)
        };
        let all = line(10_000, vec![region(0, 10_000, 0)]);
        assert!(all.contains("  100 % measured  rates"), "{all}");
        let parts = line(9_900, vec![region(0, 9_000, 1_000), region(1, 9_400, 400)]);
        assert!(parts.contains("  92 % measured, 7 % extended, 1 % old  "), "{parts}");
        let mut unseen = UnknownPages::default();
        unseen.0[Unknown::Unseen.index()] = 10_000;
        let new = RegionView { unknown_bp: unseen, ..region(1, 0, 0) };
        let partly = line(9_500, vec![region(0, 10_000, 0), new]);
        assert!(partly.contains("  50 % measured, 50 % unseen  "), "{partly}");
        let sweeping = line(5_000, vec![region(0, 10_000, 0)]);
        assert!(sweeping.contains("sweeping: 50 % seen"), "{sweeping}");
    }

    /// The other monitors have neither a budget nor a quality.
    #[test]
    fn missing_figures_are_not_printed() {
        let mut gauge = Gauge::new(&Attrs { monitor: MonitorKind::Regions, ..Attrs::default() });
        gauge.push(&Snapshot {
            quality: None,
            cost: Cost::default(),
            ..snapshot(0, 0, Restraint::None)
        });
        assert_eq!(gauge.line(Duration::from_millis(20), 1.0), "own CPU 2.0 %");
    }
}
