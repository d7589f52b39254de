//! What is done with snapshots.

use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::{Result, bail};
use isotherm_core::scheme::Engine;
use isotherm_core::{Attribution, Nanos, Snapshot, TargetId};
use isotherm_record::TargetFact;
use serde::Serialize;

use super::{End, JobContext};
use crate::control::{Answer, Request};

/// What is done with snapshots: each method is called by [`Session::run`](super::Session::run), in its thread.
pub trait Job {
    /// What `isotherm service status` shows of it.
    type Status: Serialize;

    /// Does something with a snapshot, and may end the session.
    ///
    /// # Errors
    /// They end the session.
    fn snapshot(&mut self, on: &mut JobContext<'_>, s: &Arc<Snapshot>) -> Result<ControlFlow<End>>;

    /// Called before each step of the source.
    ///
    /// # Errors
    /// They end the session.
    fn turn(&mut self, _now: Nanos) -> Result<()> {
        Ok(())
    }

    /// A process has come, or is called otherwise now.
    ///
    /// # Errors
    /// They end the session.
    fn target(&mut self, _fact: &TargetFact) -> Result<()> {
        Ok(())
    }

    /// A process has ended.
    fn gone(&mut self, _target: TargetId) {}

    /// It was read whose a process is.
    ///
    /// # Errors
    /// They end the session.
    fn attribution(&mut self, _a: Attribution) -> Result<()> {
        Ok(())
    }

    /// Does what is due without a new snapshot; returns whether something was.
    ///
    /// # Errors
    /// They end the session.
    fn work(&mut self, _on: &mut JobContext<'_>) -> Result<bool> {
        Ok(false)
    }

    /// When the next of that is due, or [`Job::turn`] has to be called.
    fn by(&self) -> Option<Nanos> {
        None
    }

    /// SIGHUP has come.
    fn reload(&mut self, _on: &mut JobContext<'_>) {}

    /// Does what was asked for over the control socket.
    ///
    /// # Errors
    /// Why it was not done; the session goes on.
    fn request(
        &mut self,
        on: &mut JobContext<'_>,
        request: Request,
    ) -> Result<Answer<Self::Status>>;

    /// The schemes at work, for metrics.
    fn engine(&self) -> Option<&Engine> {
        None
    }
}

/// Keeps the last snapshot.
pub struct Keep {
    pub snapshot: Option<Arc<Snapshot>>,
    /// The session ends at the first one.
    pub first: bool,
}

impl Job for Keep {
    type Status = ();

    fn snapshot(&mut self, _: &mut JobContext<'_>, s: &Arc<Snapshot>) -> Result<ControlFlow<End>> {
        self.snapshot = Some(Arc::clone(s));
        Ok(match self.first {
            true => ControlFlow::Break(End::Stopped(String::new())),
            false => ControlFlow::Continue(()),
        })
    }

    fn request(&mut self, _: &mut JobContext<'_>, _: Request) -> Result<Answer<()>> {
        bail!("this accepts no requests")
    }
}
