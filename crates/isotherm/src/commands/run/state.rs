//! How things are: what `isotherm status` shows.

use std::collections::BTreeMap;
use std::time::SystemTime;

use isotherm_core::{Attrs, HeatBytes, TargetView, Thresholds, Unknown};
use isotherm_linux::{proc, sys};
use isotherm_record::TargetFact;
use serde::Serialize;

use super::recording;
use super::running::Running;
use super::table::Table;
use crate::commands::watch::{ROOT, Spent, Status};
use crate::control::Attributes;

/// `docs/abi/testing/control.md`.
#[derive(Debug, Serialize)]
pub struct State {
    version: &'static str,
    pid: u32,
    since: String,
    paused: bool,
    #[serde(flatten)]
    table: Table,
    cost: Spent,
    monitor: &'static str,
    attributes: Attributes,
    record: Option<recording::State>,
    total: Memory,
    targets: Vec<Target>,
}

/// In bytes.
#[derive(Debug, Default, Serialize)]
struct Memory {
    resident: u64,
    hot: u64,
    warm: u64,
    cold: u64,
    unknown: u64,
    /// only the reasons there are
    unknown_by: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Serialize)]
struct Target {
    pid: Option<u32>,
    comm: String,
    #[serde(flatten)]
    memory: Memory,
}

impl State {
    /// As of the last snapshot.
    pub fn new(r: &Running, attrs: Attrs, status: &Status) -> Self {
        let views = r.last.iter().flat_map(|s| &s.targets);
        let views: Vec<&TargetView> = views.filter(|v| r.facts.contains_key(&v.id)).collect();
        let target = |v: &&TargetView| target(r.facts.get(&v.id), v);
        let time = sys::monotonic().since(r.begin);
        State {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            since: humantime::format_rfc3339_seconds(SystemTime::now() - time).to_string(),
            paused: r.paused,
            table: Table::new(&r.engine, time, r.dry),
            cost: status.spent(),
            monitor: attrs.monitor.name(),
            attributes: Attributes::of(&attrs),
            record: r.recording.state(),
            total: memory(&views),
            targets: views.iter().map(target).collect(),
        }
    }
}

fn target(fact: Option<&TargetFact>, view: &TargetView) -> Target {
    let pid = fact.and_then(|fact| fact.pid);
    let comm =
        pid.and_then(|pid| Some(proc::stat(ROOT.as_ref(), i32::try_from(pid).ok()?).ok()?.comm));
    Target { pid, comm: comm.unwrap_or_default(), memory: memory(&[view]) }
}

fn memory(views: &[&TargetView]) -> Memory {
    let b: HeatBytes = views.iter().map(|v| v.bytes(&Thresholds::default())).sum();
    let mut unknown_by = BTreeMap::new();
    for region in views.iter().flat_map(|v| &v.regions) {
        for why in Unknown::ALL {
            let bytes = region.unknown_bytes(why);
            if bytes > 0 {
                *unknown_by.entry(why.name()).or_default() += bytes;
            }
        }
    }
    let resident = b.hot + b.warm + b.cold + b.unknown;
    Memory { resident, hot: b.hot, warm: b.warm, cold: b.cold, unknown: b.unknown, unknown_by }
}
