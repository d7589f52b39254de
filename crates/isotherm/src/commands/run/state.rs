//! How things are: what `isotherm status` shows.

use std::time::SystemTime;

use isotherm_core::TargetView;
use isotherm_linux::{proc, sys};
use isotherm_record::TargetFact;
use serde::Serialize;

use super::running::Running;
use super::table::Table;
use crate::commands::watch::{Memory, ROOT, Spent, Status};

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
    total: Memory,
    targets: Vec<Target>,
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
    pub fn new(r: &Running, status: &Status) -> Self {
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
            total: memory(&views),
            targets: views.iter().map(target).collect(),
        }
    }
}

fn target(fact: Option<&TargetFact>, view: &TargetView) -> Target {
    let pid = fact.and_then(|fact| fact.pid);
    let comm =
        pid.and_then(|pid| Some(proc::stat(ROOT.as_ref(), i32::try_from(pid).ok()?).ok()?.comm));
    Target { pid, comm: comm.unwrap_or_default(), memory: Memory::of(view) }
}

fn memory(views: &[&TargetView]) -> Memory {
    let mut all = Memory::default();
    views.iter().for_each(|view| all += &Memory::of(view));
    all
}
