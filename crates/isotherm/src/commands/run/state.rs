//! How things are: what `isotherm status` shows.

use std::time::SystemTime;

use isotherm_core::{Attribution, Attrs, TargetView};
use isotherm_linux::sys;
use serde::Serialize;

use super::recording;
use super::running::Running;
use super::table::Table;
use crate::commands::watch::{Memory, Spent, Status};
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
    total: Total,
    targets: Vec<Target>,
}

/// Of all targets.
#[derive(Debug, Serialize)]
struct Total {
    #[serde(flatten)]
    memory: Memory,
    saved: u64,
}

#[derive(Debug, Serialize)]
struct Target {
    pid: Option<u32>,
    comm: String,
    cgroup: String,
    saved: u64,
    #[serde(flatten)]
    memory: Memory,
}

impl State {
    /// As of the last snapshot.
    pub fn new(r: &Running, attrs: Attrs, status: &Status) -> Self {
        let views = r.last.iter().flat_map(|s| &s.targets);
        let views: Vec<&TargetView> = views.filter(|v| r.facts.contains_key(&v.id)).collect();
        let targets: Vec<Target> = views.iter().map(|v| target(r, v)).collect();
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
            total: Total {
                memory: memory(&views),
                saved: targets.iter().map(|target| target.saved).sum(),
            },
            targets,
        }
    }
}

fn target(r: &Running, view: &TargetView) -> Target {
    let told = r.attributions.of(view.id);
    let text = |of: fn(&Attribution) -> &str| told.map(of).unwrap_or_default().to_owned();
    Target {
        pid: r.facts.get(&view.id).and_then(|fact| fact.pid),
        comm: text(|a| &a.comm),
        cgroup: text(|a| &a.cgroup),
        saved: told.map_or(0, |a| a.swapped),
        memory: Memory::of(view),
    }
}

fn memory(views: &[&TargetView]) -> Memory {
    let mut all = Memory::default();
    views.iter().for_each(|view| all += &Memory::of(view));
    all
}
