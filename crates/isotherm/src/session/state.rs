//! The state that every watching command has: what `isotherm service status` shows.

use std::collections::BTreeSet;
use std::time::SystemTime;

use isotherm_core::{Attribution, Attrs, TargetId, TargetView};
use isotherm_record::RecordingTotals;
use serde::Serialize;

use super::gauge::CostShares;
use super::memory::BytesByHeat;
use super::scene::Scene;
use crate::control::Attributes;

/// `docs/abi/testing/control.md`.
#[derive(Debug, Serialize)]
pub struct WatchStatus {
    version: &'static str,
    pid: u32,
    since: String,
    started_ns: u64,
    seconds: f64,
    paused: bool,
    postponed: u64,
    cost: CostShares,
    monitor: &'static str,
    attributes: Option<Attributes>,
    record: Option<Record>,
    total: Total,
    targets: Vec<Target>,
}

/// A record in progress.
#[derive(Debug, Serialize)]
pub struct Record {
    file: String,
    snapshots: u64,
    bytes: u64,
    ended: Option<String>,
}

impl Record {
    /// The progress of the record; `ended` is the reason if it has ended.
    pub fn new(file: String, so_far: RecordingTotals, ended: Option<String>) -> Self {
        Record { file, snapshots: so_far.snapshots, bytes: so_far.bytes, ended }
    }
}

/// Sums over all targets.
#[derive(Debug, Serialize)]
struct Total {
    #[serde(flatten)]
    memory: BytesByHeat,
    saved: u64,
}

#[derive(Debug, Serialize)]
struct Target {
    pid: Option<i32>,
    comm: String,
    cgroup: String,
    saved: u64,
    #[serde(flatten)]
    memory: BytesByHeat,
}

impl WatchStatus {
    /// The state at the last snapshot. `attrs` are those of our own monitor; `None` for the kernel's.
    pub fn new(
        scene: &Scene<'_>,
        attrs: Option<Attrs>,
        paused: bool,
        record: Option<Record>,
    ) -> Self {
        let watched: BTreeSet<TargetId> = scene.follower.targets().into_iter().collect();
        let pids = scene.follower.pid_of();
        let views = scene.snapshot.into_iter().flat_map(|s| &s.targets);
        let views: Vec<&TargetView> = views.filter(|v| watched.contains(&v.id)).collect();
        let target = |view: &&TargetView| {
            let attribution = scene.attributions.of(view.id);
            let text =
                |of: fn(&Attribution) -> &str| attribution.map(of).unwrap_or_default().to_owned();
            Target {
                pid: pids.get(&view.id).copied(),
                comm: text(|a| &a.comm),
                cgroup: text(|a| &a.cgroup),
                saved: attribution.map_or(0, |a| a.swapped),
                memory: BytesByHeat::of(view),
            }
        };
        let targets: Vec<Target> = views.iter().map(target).collect();
        let mut memory = BytesByHeat::default();
        targets.iter().for_each(|target| memory += &target.memory);
        let since = SystemTime::now() - scene.status.time();
        WatchStatus {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            since: humantime::format_rfc3339_seconds(since).to_string(),
            started_ns: scene.status.begin().0,
            seconds: scene.status.seconds(),
            paused,
            postponed: scene.follower.postponed(),
            cost: scene.status.spent(),
            monitor: attrs.map_or("damon", |attrs| attrs.monitor.name()),
            attributes: attrs.as_ref().map(Attributes::of),
            record,
            total: Total { memory, saved: targets.iter().map(|target| target.saved).sum() },
            targets,
        }
    }
}
