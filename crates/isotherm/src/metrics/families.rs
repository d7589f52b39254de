//! The figures that the metrics report.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use isotherm_core::scheme::{Engine, Stats};
use isotherm_core::{Snapshot, TargetId, TargetView};

use super::text::{ExpositionFormat, Family, Labels, MetricType, MetricsText};
use crate::session::idle_ages::{BytesByAge, METRIC_AGES_S};
use crate::session::memory::BytesByHeat;
use crate::session::scene::Scene;

/// Maximum number of processes with their own figures: those with the most resident memory. The others are
/// reported as one.
const MAX_PROCESSES: usize = 200;
/// Maximum number of control groups with figures, selected likewise. The others are not reported.
const MAX_GROUPS: usize = 200;
/// Label of the processes that are reported as one.
const OTHERS_LABEL: &str = "(others)";

/// Figures of one process, of one group, or of all targets.
struct MetricRow {
    labels: Vec<(&'static str, String)>,
    memory: BytesByHeat,
    saved: u64,
    /// `None`: not reported
    refaults: Option<u64>,
    /// memory by idle age
    idle: BytesByAge,
    /// idle memory that was touched again, by its age; `None`: not reported
    returned: Option<BytesByAge>,
}

impl MetricRow {
    fn new(labels: Vec<(&'static str, String)>) -> Self {
        MetricRow {
            labels,
            memory: BytesByHeat::default(),
            saved: 0,
            refaults: None,
            idle: BytesByAge::default(),
            returned: None,
        }
    }

    fn add(&mut self, memory: &BytesByHeat, saved: u64) {
        self.memory += memory;
        self.saved += saved;
    }

    fn add_idle(&mut self, idle: &BytesByAge) {
        self.idle.iter_mut().zip(idle).for_each(|(all, more)| *all += more);
    }
}

impl Scene<'_> {
    /// All metrics as text.
    pub fn text(&self, form: ExpositionFormat) -> String {
        let mut out = MetricsText::new(form);
        let build = Family {
            name: "isotherm_build",
            unit: "",
            kind: MetricType::Info,
            help: "Version of isotherm.",
        };
        out.family(build);
        out.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
        self.own(&mut out);
        let processes = self.processes();
        let (groups, left_out) = self.groups(&processes);
        let mut all = MetricRow::new(Vec::new());
        // Targets that are not processes count only in the total.
        let views = self.snapshot.iter().flat_map(|s| &s.targets);
        let watched: BTreeSet<TargetId> = self.follower.targets().into_iter().collect();
        let views = views.filter(|view| watched.contains(&view.id));
        views.for_each(|view| all.add(&BytesByHeat::of(view), 0));
        all.saved = processes.iter().map(|(_, row)| row.saved).sum();
        all.refaults = Some(self.attributions.refaults());
        watched.iter().filter_map(|t| self.ages.idle(*t)).for_each(|idle| all.add_idle(&idle));
        all.returned = Some(*self.ages.returned());
        memory(&mut out, "isotherm", "all watched processes", &[all]);
        memory(&mut out, "isotherm_cgroup", "a control group, with those below it", &groups);
        gauge(
            &mut out,
            "isotherm_cgroups_left_out",
            "",
            "Control groups that are left out because they are smaller.",
            left_out,
        );
        memory(&mut out, "isotherm_process", "a process", &with_others(processes));
        if let Some(engine) = self.engine {
            schemes(&mut out, engine);
        }
        out.end()
    }

    fn own(&self, out: &mut MetricsText) {
        let (own, lost) = self.status.spent_time();
        let spent = self.status.spent();
        seconds(out, "isotherm_cpu_seconds", "CPU time that isotherm has used.", own);
        seconds(
            out,
            "isotherm_lost_seconds",
            "CPU time that the targets have lost by being watched.",
            lost,
        );
        if let Some(budget) = spent.budget {
            gauge(
                out,
                "isotherm_budget_ratio",
                "ratio",
                "Limit of the cost of watching, as a share of one CPU: own CPU time plus the \
                 time that the targets lose.",
                budget,
            );
        }
        if let Some(coverage) = spent.coverage {
            gauge(
                out,
                "isotherm_coverage_ratio",
                "ratio",
                "Share of the observable memory that the last snapshot describes.",
                coverage,
            );
        }
        if let Some(s) = spent.support {
            let help = "Share of the observable resident memory whose rate is measured, extended \
                        from a sample, or old.";
            let (name, unit, kind) = ("isotherm_support_ratio", "ratio", MetricType::Gauge);
            out.family(Family { name, unit, kind, help });
            for (support, share) in
                [("measured", s.measured), ("extended", s.extended), ("old", s.old)]
            {
                out.sample(&[("support", support)], share);
            }
        }
        let s = self.snapshot;
        gauge(
            out,
            "isotherm_targets",
            "",
            "Targets in the last snapshot.",
            s.map_or(0, |s| s.targets.len()),
        );
        gauge(
            out,
            "isotherm_regions",
            "",
            "Regions in the last snapshot.",
            s.map_or(0, Snapshot::nr_regions),
        );
    }

    /// The figures of each watched process, the largest first.
    fn processes(&self) -> Vec<(TargetId, MetricRow)> {
        let views = self.snapshot.iter().flat_map(|s| &s.targets);
        let views: BTreeMap<TargetId, &TargetView> = views.map(|view| (view.id, view)).collect();
        let row = |(pid, target): (i32, TargetId)| {
            let attribution = self.attributions.of(target);
            let text = |of: Option<&str>| of.unwrap_or_default().to_owned();
            let mut row = MetricRow::new(vec![
                ("pid", pid.to_string()),
                ("comm", text(attribution.map(|a| &*a.comm))),
                ("cgroup", text(attribution.map(|a| &*a.cgroup))),
            ]);
            row.refaults = attribution.map(|a| a.major_faults);
            row.add(&BytesByHeat::of(views.get(&target)?), attribution.map_or(0, |a| a.swapped));
            row.add_idle(&self.ages.idle(target).unwrap_or_default());
            Some((target, row))
        };
        let mut rows: Vec<_> = self.follower.processes().filter_map(row).collect();
        rows.sort_by_key(|(_, row)| Reverse(row.memory.resident));
        rows
    }

    /// The figures of the largest control groups, and the number of groups left out.
    fn groups(&self, processes: &[(TargetId, MetricRow)]) -> (Vec<MetricRow>, usize) {
        let mut groups: BTreeMap<&str, MetricRow> = BTreeMap::new();
        for (target, row) in processes {
            let attribution = self.attributions.of(*target).filter(|a| !a.cgroup.is_empty());
            for path in attribution.iter().flat_map(|a| a.groups()) {
                let new = || MetricRow::new(vec![("cgroup", path.to_owned())]);
                let group = groups.entry(path).or_insert_with(new);
                group.add(&row.memory, row.saved);
                group.add_idle(&row.idle);
            }
        }
        let refaults = |path| Some(self.attributions.refaults_in(path));
        let with = |(path, row)| MetricRow {
            refaults: refaults(path),
            returned: self.ages.returned_in(path).copied(),
            ..row
        };
        let mut rows: Vec<MetricRow> = groups.into_iter().map(with).collect();
        rows.sort_by_key(|row| Reverse(row.memory.resident));
        let left_out = rows.len().saturating_sub(MAX_GROUPS);
        rows.truncate(MAX_GROUPS);
        (rows, left_out)
    }
}

/// The largest processes, and all others as one row. That row has no refaults: a counter must not decrease, and
/// the sum would decrease when a process leaves the group.
fn with_others(processes: Vec<(TargetId, MetricRow)>) -> Vec<MetricRow> {
    let mut rows: Vec<MetricRow> = processes.into_iter().map(|(_, row)| row).collect();
    let rest = rows.split_off(MAX_PROCESSES.min(rows.len()));
    if !rest.is_empty() {
        let mut others = MetricRow::new(vec![("comm", OTHERS_LABEL.to_owned())]);
        for row in &rest {
            others.add(&row.memory, row.saved);
            others.add_idle(&row.idle);
        }
        rows.push(others);
    }
    rows
}

fn memory(out: &mut MetricsText, prefix: &str, of: &str, rows: &[MetricRow]) {
    if rows.is_empty() {
        return;
    }
    let bytes = |out: &mut MetricsText, name: &str, help: String| {
        let (name, unit) = (format!("{prefix}_{name}_bytes"), "bytes");
        out.family(Family { name: &name, unit, kind: MetricType::Gauge, help: &help });
    };
    let help = format!(
        "Resident memory of {of}: touched at 10 Hz (hot), untouched for 5 s (cold), the rest (warm), and unknown, by reason."
    );
    bytes(out, "memory", help);
    for row in rows {
        let m = &row.memory;
        for (state, bytes) in [("hot", m.hot), ("warm", m.warm), ("cold", m.cold)] {
            sample(out, row, &[("state", state)], bytes);
        }
        for (why, &bytes) in &m.unknown_by {
            sample(out, row, &[("state", "unknown"), ("reason", why)], bytes);
        }
    }
    bytes(out, "resident", format!("Resident memory of {of}, as far as it is watched."));
    rows.iter().for_each(|row| sample(out, row, &[], row.memory.resident));
    bytes(out, "saved", format!("Memory of {of} in swap, whichever program paged it out."));
    rows.iter().for_each(|row| sample(out, row, &[], row.saved));
    let help = format!(
        "Memory of {of}, resident or in swap, that is untouched for this age in seconds or longer."
    );
    bytes(out, "idle", help);
    for row in rows {
        ages(out, row, &row.idle);
    }
    if rows.iter().any(|row| row.returned.is_some()) {
        let name = format!("{prefix}_returned_bytes");
        let help = format!(
            "Memory of {of} that was touched after it was idle for this age in seconds or longer."
        );
        let (unit, kind) = ("bytes", MetricType::Counter);
        out.family(Family { name: &name, unit, kind, help: &help });
        rows.iter().for_each(|row| row.returned.iter().for_each(|r| ages(out, row, r)));
    }
    let (name, kind) = (format!("{prefix}_refaults"), MetricType::Counter);
    let help = format!("Major faults of {of}: pages read from swap or files.");
    out.family(Family { name: &name, unit: "", kind, help: &help });
    for row in rows {
        row.refaults.iter().for_each(|&faults| sample(out, row, &[], faults));
    }
}

/// A sample for each age.
fn ages(out: &mut MetricsText, row: &MetricRow, bytes: &BytesByAge) {
    for (age, bytes) in METRIC_AGES_S.iter().zip(bytes) {
        sample(out, row, &[("age", &age.to_string())], bytes.round() as u64);
    }
}

fn sample(out: &mut MetricsText, row: &MetricRow, more: &Labels<'_>, value: u64) {
    let own = row.labels.iter().map(|(name, value)| (*name, &**value));
    out.sample(&own.chain(more.iter().copied()).collect::<Vec<_>>(), value);
}

fn gauge(out: &mut MetricsText, name: &str, unit: &str, help: &str, value: impl std::fmt::Display) {
    out.family(Family { name, unit, kind: MetricType::Gauge, help });
    out.sample(&[], value);
}

fn seconds(out: &mut MetricsText, name: &str, help: &str, value: Duration) {
    out.family(Family { name, unit: "seconds", kind: MetricType::Counter, help });
    out.sample(&[], value.as_secs_f64());
}

fn schemes(out: &mut MetricsText, engine: &Engine) {
    type Value = fn(&Stats) -> f64;
    let families: [(&str, &str, &str, Value); 6] = [
        ("isotherm_scheme_tried_bytes", "bytes", "Bytes that a scheme was tried on.", |s| {
            s.tried.bytes as f64
        }),
        ("isotherm_scheme_applied_bytes", "bytes", "Bytes that a scheme was applied to.", |s| {
            s.applied.bytes as f64
        }),
        ("isotherm_scheme_failed_bytes", "bytes", "Bytes on which a scheme has failed.", |s| {
            s.failed.bytes as f64
        }),
        ("isotherm_scheme_act_seconds", "seconds", "Time that a scheme has spent acting.", |s| {
            s.took.as_secs_f64()
        }),
        (
            "isotherm_scheme_quota_exceeded",
            "",
            "Windows of its quota that a scheme has used up.",
            |s| s.exceeded as f64,
        ),
        (
            "isotherm_scheme_inactive",
            "",
            "Times that a scheme was due and its watermarks deactivated it.",
            |s| s.inactive as f64,
        ),
    ];
    for (name, unit, help, value) in families {
        out.family(Family { name, unit, kind: MetricType::Counter, help });
        for (scheme, stats) in engine.schemes() {
            let labels = [("scheme", &*scheme.name), ("action", scheme.action.name())];
            out.sample(&labels, value(stats));
        }
    }
}
