//! What of a process is hot: the one place where `interleave` uses the monitor.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use isotherm_core::{
    AddrRange, Attrs, Heat, Look, MonitorKind, Snapshot, Step, Thresholds, join_touching, watch,
};
use isotherm_linux::{Best, Way, sys};

use crate::cli::UsageError;
use crate::commands::stop::Stop;
use crate::words::say;

/// How often signals are looked for.
const WAKE: Duration = Duration::from_millis(100);

/// The regions of process `pid` that are hot in the last snapshot of this time, joined.
pub fn ranges(pid: i32, time: Duration, stop: &Stop) -> Result<Vec<AddrRange>> {
    let Best { way, mut ops, .. } = Way::best()?;
    let attrs = attrs(way, ops.survey().is_some());
    if time < attrs.aggr * 2 {
        return Err(UsageError::new(format!("make --watch {:?} or longer", attrs.aggr * 2)).into());
    }
    let target = ops.attach(pid)?;
    let seed = sys::monotonic().0;
    let mut monitor = watch(ops, attrs, &[target], seed).map_err(UsageError::from)?;
    say(format_args!("isotherm: watching process {pid} for {time:?}, by {}", way.name()));
    let end = sys::monotonic() + time;
    // On a busy machine the first snapshot may come late.
    let latest = end + time;
    let mut last = None;
    let is_on = |now, none: bool| now < end || (none && now < latest);
    while is_on(sys::monotonic(), last.is_none()) && !stop.is_over() {
        match monitor.step(sys::monotonic())? {
            Step::Snapshot(snapshot) => last = Some(snapshot),
            Step::End(_) => bail!("process {pid} has ended while it was watched"),
            Step::Wait(until) => {
                let next = until.min(sys::monotonic() + WAKE);
                std::thread::sleep(next.since(sys::monotonic()));
            }
        }
    }
    monitor.stop();
    let last = last.context("no snapshot was made: make --watch longer")?;
    Ok(hot(&last))
}

fn attrs(way: Way, reads_all: bool) -> Attrs {
    let (sample, aggr) = way.intervals();
    let monitor = if reads_all { MonitorKind::Exposure } else { MonitorKind::Regions };
    Attrs { sample, aggr, monitor, ..Attrs::default() }
}

fn hot(snapshot: &Snapshot) -> Vec<AddrRange> {
    let thresholds = Thresholds::default();
    let regions = snapshot.targets.iter().flat_map(|t| &t.regions);
    join_touching(regions.filter(|r| r.heat(&thresholds) == Heat::Hot).map(|r| r.range))
}
