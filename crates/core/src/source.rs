//! The upper interface: sources of snapshots.

use std::sync::Arc;

use crate::call::OpsError;
use crate::snapshot::Snapshot;
use crate::time::Nanos;

/// The reason why a source has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// every target ended
    TargetsGone,
    /// a caller requested the end
    Stopped,
    /// the replayed record has no more snapshots
    Played,
}

/// The result of a step of a [`Source`].
#[derive(Debug, Clone)]
pub enum Step {
    /// no work is due before this time
    Wait(Nanos),
    /// an aggregation interval has ended
    Snapshot(Arc<Snapshot>),
    /// no more snapshots will follow
    End(EndReason),
}

/// Delivers snapshots. The caller owns the clock: it calls again at the requested time.
pub trait Source {
    /// Does the work that is due at `now`.
    ///
    /// # Errors
    /// Errors of the operations set below.
    fn step(&mut self, now: Nanos) -> Result<Step, OpsError>;
}
