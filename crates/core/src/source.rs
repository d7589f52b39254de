//! The upper seam: what delivers snapshots.

use std::sync::Arc;

use crate::call::OpsError;
use crate::snapshot::Snapshot;
use crate::time::Nanos;

/// Why a source has nothing more to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// every target ended
    TargetsGone,
    /// it was asked to stop
    Stopped,
    /// the record played has no more snapshots
    Played,
}

/// What a [`Source`] says when it is asked.
#[derive(Debug, Clone)]
pub enum Step {
    /// nothing to do before then
    Wait(Nanos),
    /// an aggregation interval has ended
    Snapshot(Arc<Snapshot>),
    /// no more will come
    End(EndReason),
}

/// Delivers snapshots. The caller owns the clock: it calls again when the time asked for has come.
pub trait Source {
    /// Does what is due at `now`.
    ///
    /// # Errors
    /// Those of the operations set below.
    fn step(&mut self, now: Nanos) -> Result<Step, OpsError>;
}
