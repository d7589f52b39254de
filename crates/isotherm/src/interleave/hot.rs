//! The hot memory of a process: the only place where `interleave` uses the monitor.

use std::time::Duration;

use isotherm_core::{AddrRange, Heat, Snapshot, Thresholds, join_touching};
use isotherm_linux::sys;
use tracing::info;

use super::InterleaveError;
use crate::follow::{Follower, Selection};
use crate::session::{Session, Silent};
use crate::stop::Stop;
use crate::usage::UsageError;
use crate::watch::{DefaultAttrs, Looks, Ready};

/// The hot regions of process `pid` in the last snapshot within `time`; adjacent regions are joined.
///
/// # Errors
/// If the process cannot be watched, or ends during the observation.
pub fn ranges(pid: i32, time: Duration, stop: &Stop) -> Result<Vec<AddrRange>, InterleaveError> {
    let mut looks = Looks::open(None)?;
    let attrs = looks.attrs(&DefaultAttrs)?;
    if time < attrs.aggr * 2 {
        return Err(UsageError::new(format!("make --watch {:?} or longer", attrs.aggr * 2)).into());
    }
    let mut follower = Follower::new(None);
    follower.attach_all(looks.hold(), &Selection::pid(pid))?;
    info!("watching process {pid} for {time:?}, by {}", looks.name());
    let seed = sys::monotonic().0;
    let mut session = Session::begin(Box::new(looks), follower, attrs, seed, Box::new(Silent))?;
    let last = session.last_snapshot(time, stop)?;
    session.stop()?;
    let last = last.ok_or(InterleaveError::NoSnapshot)?;
    Ok(hot(&last))
}

fn hot(snapshot: &Snapshot) -> Vec<AddrRange> {
    let thresholds = Thresholds::default();
    let regions = snapshot.targets.iter().flat_map(|t| &t.regions);
    join_touching(regions.filter(|r| r.heat(&thresholds) == Heat::Hot).map(|r| r.range))
}
