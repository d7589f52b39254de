//! Jobs: consumers of snapshots.

use std::ops::ControlFlow;
use std::sync::Arc;

use isotherm_core::scheme::Engine;
use isotherm_core::{Attribution, Nanos, Snapshot, TargetId};
use isotherm_record::TargetInfo;
use serde::Serialize;

use super::{JobContext, SessionEnd, SessionError};
use crate::control::{Request, Response};

/// A consumer of snapshots. [`Session::run`](super::Session::run) calls each method, in the thread of its caller.
pub trait Job {
    /// The part of the state that `isotherm service status` shows for this job.
    type Status: Serialize;
    /// The errors of this job.
    type Error: From<SessionError> + std::error::Error + 'static;

    /// Processes a snapshot, and may end the session.
    ///
    /// # Errors
    /// An error ends the session.
    fn snapshot(
        &mut self,
        on: &mut JobContext<'_>,
        s: &Arc<Snapshot>,
    ) -> Result<ControlFlow<SessionEnd>, Self::Error>;

    /// Called before each step of the source.
    ///
    /// # Errors
    /// An error ends the session.
    fn turn(&mut self, _on: &mut JobContext<'_>, _now: Nanos) -> Result<(), Self::Error> {
        Ok(())
    }

    /// A process was attached, or its name has changed.
    ///
    /// # Errors
    /// An error ends the session.
    fn target(&mut self, _fact: &TargetInfo) -> Result<(), Self::Error> {
        Ok(())
    }

    /// A process has ended, or a file was forgotten.
    fn gone(&mut self, _target: TargetId) {}

    /// The attribution of a process was read.
    ///
    /// # Errors
    /// An error ends the session.
    fn attribution(&mut self, _a: Attribution) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Does work that is due without a new snapshot; returns whether there was any.
    ///
    /// # Errors
    /// An error ends the session.
    fn work(&mut self, _on: &mut JobContext<'_>) -> Result<bool, Self::Error> {
        Ok(false)
    }

    /// When the next such work is due, or [`Job::turn`] must be called.
    fn by(&self) -> Option<Nanos> {
        None
    }

    /// SIGHUP has arrived.
    fn reload(&mut self, _on: &mut JobContext<'_>) {}

    /// Carries out a request from the control socket.
    ///
    /// # Errors
    /// The reason for refusing it; the session continues.
    fn request(
        &mut self,
        on: &mut JobContext<'_>,
        request: Request,
    ) -> Result<Response<Self::Status>, Self::Error>;

    /// The engine of the running schemes, for metrics.
    fn engine(&self) -> Option<&Engine> {
        None
    }
}

/// Keeps the last snapshot.
pub struct KeepLast {
    pub snapshot: Option<Arc<Snapshot>>,
    /// The session ends at the first one.
    pub first: bool,
}

impl Job for KeepLast {
    type Status = ();
    type Error = SessionError;

    fn snapshot(
        &mut self,
        _: &mut JobContext<'_>,
        s: &Arc<Snapshot>,
    ) -> Result<ControlFlow<SessionEnd>, SessionError> {
        self.snapshot = Some(Arc::clone(s));
        Ok(match self.first {
            true => ControlFlow::Break(SessionEnd::Stopped(String::new())),
            false => ControlFlow::Continue(()),
        })
    }

    fn request(
        &mut self,
        _: &mut JobContext<'_>,
        _: Request,
    ) -> Result<Response<()>, SessionError> {
        Err(SessionError::NoRequests)
    }
}
