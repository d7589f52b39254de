//! The results of schemes, printed at the end.

use std::time::Duration;

use isotherm_core::scheme::{Count, Engine, Scheme, SkipReason, Stats};
use isotherm_linux::damon::ReclaimTotals;
use isotherm_report::{bytes, counted};
use serde::Serialize;

/// A number of regions and of bytes.
#[derive(Debug, Serialize)]
pub struct RegionBytes {
    regions: u64,
    bytes: u64,
}

impl From<Count> for RegionBytes {
    fn from(c: Count) -> Self {
        RegionBytes { regions: c.regions, bytes: c.bytes }
    }
}

/// The results of one scheme.
#[derive(Debug, Serialize)]
pub struct SchemeRow {
    scheme: String,
    action: &'static str,
    tried: RegionBytes,
    applied: RegionBytes,
    failed: RegionBytes,
    /// skipped memory by reason; only reasons that occurred
    passed: Vec<(&'static str, RegionBytes)>,
    took_seconds: f64,
    quota_exceeded: u64,
    inactive: u64,
    /// `None`: no limit
    quota_bytes: Option<u64>,
}

/// The results of all schemes: `docs/abi/testing/run.md`.
#[derive(Debug, Serialize)]
pub struct SchemeTable {
    pub(super) schema_version: u32,
    pub(super) dry_run: bool,
    seconds: f64,
    pub(super) schemes: Vec<SchemeRow>,
}

impl SchemeTable {
    /// The results after `time`.
    pub fn new(engine: &Engine, time: Duration, dry_run: bool) -> Self {
        let schemes = engine.schemes().map(|(scheme, stats)| row(scheme, stats)).collect();
        SchemeTable { schema_version: 1, dry_run, seconds: time.as_secs_f64(), schemes }
    }

    /// The result of the kernel's own scheme, which used the CPU time `took`. The kernel does not report
    /// failures.
    pub fn of_kernel(done: ReclaimTotals, took: Duration, time: Duration, dry_run: bool) -> Self {
        let counted = |regions, bytes| RegionBytes { regions, bytes };
        let row = SchemeRow {
            scheme: "reclaim".to_owned(),
            action: if dry_run { "stat" } else { "pageout" },
            tried: counted(done.tried, done.tried_bytes),
            applied: counted(done.applied, done.applied_bytes),
            failed: counted(0, 0),
            passed: Vec::new(),
            took_seconds: took.as_secs_f64(),
            quota_exceeded: done.exceeded,
            inactive: 0,
            quota_bytes: None,
        };
        SchemeTable { schema_version: 1, dry_run, seconds: time.as_secs_f64(), schemes: vec![row] }
    }

    /// The table as text, for people.
    pub fn text(&self) -> String {
        let applied = if self.dry_run { "would" } else { "applied" };
        let mut out = format!(
            "{:<16} {:<12} {:>10} {applied:>10} {:>10} {:>9} {:>8} {:>8}\n",
            "scheme", "action", "tried", "failed", "took", "exceeded", "inactive"
        );
        for r in &self.schemes {
            out += &format!(
                "{:<16} {:<12} {:>10} {:>10} {:>10} {:>8.3}s {:>8} {:>8}\n",
                r.scheme,
                r.action,
                bytes(r.tried.bytes),
                bytes(r.applied.bytes),
                bytes(r.failed.bytes),
                r.took_seconds,
                r.quota_exceeded,
                r.inactive
            );
            if r.inactive > 0 {
                let checks = counted(r.inactive, "check");
                out += &format!("  inactive at {checks} of its watermarks: it did nothing then\n");
            }
            for (why, c) in &r.passed {
                out += &format!(
                    "  skipped, {why}: {}, {}\n",
                    counted(c.regions, "time"),
                    bytes(c.bytes)
                );
            }
        }
        if self.dry_run {
            out += &self.cost();
        }
        out
    }

    /// The bytes per second that a dry run would act on, and the time that this would require.
    fn cost(&self) -> String {
        let sum = |of: fn(&SchemeRow) -> f64| {
            self.schemes.iter().map(of).sum::<f64>() / self.seconds.max(1e-9)
        };
        let each = sum(|r| r.applied.bytes as f64);
        let cpu = sum(|r| r.took_seconds);
        format!(
            "dry run: nothing was done. Each second would act on about {} and cost about {:.1} \
             ms of CPU time\n",
            bytes(each as u64),
            cpu * 1e3
        )
    }
}

fn row(scheme: &Scheme, stats: &Stats) -> SchemeRow {
    let passed = SkipReason::ALL.into_iter().map(|why| (why.name(), stats.passed(why)));
    SchemeRow {
        scheme: scheme.name.to_string(),
        action: scheme.action.name(),
        tried: stats.tried.into(),
        applied: stats.applied.into(),
        failed: stats.failed.into(),
        passed: passed.filter(|(_, c)| c.regions > 0).map(|(why, c)| (why, c.into())).collect(),
        took_seconds: stats.took.as_secs_f64(),
        quota_exceeded: stats.exceeded,
        inactive: stats.inactive,
        quota_bytes: (stats.effective < u64::MAX).then_some(stats.effective),
    }
}
