//! A workload in its own process, watched by a monitor in this process.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use isotherm_core::{Monitor, Nanos, Snapshot, watch as monitor_of};
use isotherm_linux::{Processes, sys};
use isotherm_record::{FileEndReason, Limits, RecordingHeader, Writer};
use isotherm_sim::{AGED, GroundTruth};
use rustix::process::{Signal, geteuid};
use serde::Deserialize;

use super::Observation;
use crate::program::{self, Helper};
use crate::setups::MonitorSetup;
use crate::watch_for::watch_for;

/// The workload is started for this much longer than it is watched, and is then ended.
const LONGER: Duration = Duration::from_secs(10);

/// The message of the workload after it has allocated its memory.
#[derive(Deserialize)]
struct Ready {
    pid: i32,
}

/// Watches a workload of this name for `length`.
pub fn watch(setup: &MonitorSetup, seed: u64, name: &str, length: Duration) -> Result<Observation> {
    if !geteuid().is_root() {
        bail!("observing a process requires root: run as root, or with --only simulated");
    }
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("truth.json");
    let (workload, ready) = start(seed, name, &path, length)?;
    let mut ops = setup.look.open()?;
    let target = ops.attach(ready.pid)?;
    let mut monitor = monitor_of(ops, setup.attrs, &[target], seed)?;
    let (snapshots, own_cpu) = snapshots(&mut *monitor, length)?;
    // It writes its ground truth at the end.
    if !workload.process.stop(Signal::TERM)?.success() {
        bail!("the workload failed");
    }
    let record_bytes = Some(recorded(setup, &dir.path().join("a.rec"), &snapshots)?);
    Ok(Observation {
        snapshots,
        target,
        truth: GroundTruth::read(File::open(&path)?)?,
        own_cpu: Some(own_cpu),
        record_bytes,
    })
}

/// The snapshots, and the monitor's CPU time as a fraction of one CPU, from the time at which memory can be
/// cold, because this is the long-term cost.
fn snapshots(
    monitor: &mut dyn Monitor<Ops = Box<dyn Processes>>,
    length: Duration,
) -> Result<(Vec<Arc<Snapshot>>, f64)> {
    let mut snapshots = Vec::new();
    let mut from = (sys::monotonic(), sys::own_cpu());
    let aged = from.0 + AGED;
    watch_for(monitor, length, |s| {
        if s.start < aged && s.end >= aged {
            from = (sys::monotonic(), sys::own_cpu());
        }
        snapshots.push(s);
    })?;
    let used = sys::own_cpu().saturating_sub(from.1).as_secs_f64();
    Ok((snapshots, used / sys::monotonic().since(from.0).as_secs_f64().max(1e-9)))
}

/// Bytes of a record of `snapshots`.
fn recorded(setup: &MonitorSetup, path: &Path, snapshots: &[Arc<Snapshot>]) -> Result<u64> {
    let begin = snapshots.first().map_or(Nanos(0), |s| s.start);
    let mut writer = Writer::create(
        path,
        &RecordingHeader::new("bench", setup.attrs, begin),
        Limits::default(),
    )?;
    for s in snapshots {
        let _ = writer.snapshot(s)?;
        if writer.flush_by().is_some_and(|by| s.end >= by) {
            let _ = writer.flush()?;
        }
    }
    Ok(writer.finish(FileEndReason::Stopped, "")?.bytes)
}

/// Starts `isotherm lab workload`.
fn start(seed: u64, name: &str, truth: &Path, length: Duration) -> Result<(Helper, Ready)> {
    let seconds = (length + LONGER).as_secs_f64().to_string();
    let mut command = Command::new(program::beside()?);
    command.args(["lab", "workload", name, "--seed", &seed.to_string(), "--duration", &seconds]);
    let mut process = Helper::start(command.arg("--truth").arg(truth).stderr(Stdio::null()))?;
    let ready = serde_json::from_str(&process.line()?).context("the workload did not begin")?;
    Ok((process, ready))
}
