//! The loop that steps a source.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::call::OpsError;
use crate::snapshot::Snapshot;
use crate::source::{EndReason, Source, Step};
use crate::time::Nanos;

/// The environment of a source: gives it the time, waits, and receives its snapshots.
pub trait Driver<S: ?Sized> {
    /// The reason for the end of the loop.
    type End;
    /// The errors of the driver.
    type Error: From<OpsError>;

    /// Called before each step. Returns the time of the step, or ends the loop.
    ///
    /// # Errors
    /// Errors of the driver; they end the loop.
    fn turn(&mut self, source: &mut S) -> Result<ControlFlow<Self::End, Nanos>, Self::Error>;

    /// Called when the source has nothing to do before `until`. Returning earlier is allowed.
    ///
    /// # Errors
    /// Errors of the driver; they end the loop.
    fn wait(&mut self, source: &mut S, until: Nanos)
    -> Result<ControlFlow<Self::End>, Self::Error>;

    /// Called with each snapshot.
    ///
    /// # Errors
    /// Errors of the driver; they end the loop.
    fn snapshot(
        &mut self,
        source: &mut S,
        snapshot: Arc<Snapshot>,
    ) -> Result<ControlFlow<Self::End>, Self::Error>;

    /// Called when the source delivers no more snapshots. Returns the reason for the end.
    fn ended(&mut self, why: EndReason) -> Self::End;
}

/// Steps `source` until it ends or `driver` ends the loop. Returns the reason.
///
/// # Errors
/// Errors of the source and of the driver.
pub fn drive<S, D>(source: &mut S, driver: &mut D) -> Result<D::End, D::Error>
where
    S: Source + ?Sized,
    D: Driver<S> + ?Sized,
{
    loop {
        let now = match driver.turn(source)? {
            ControlFlow::Continue(now) => now,
            ControlFlow::Break(end) => return Ok(end),
        };
        let flow = match source.step(now)? {
            Step::Wait(until) => driver.wait(source, until)?,
            Step::Snapshot(snapshot) => driver.snapshot(source, snapshot)?,
            Step::End(why) => return Ok(driver.ended(why)),
        };
        if let ControlFlow::Break(end) = flow {
            return Ok(end);
        }
    }
}
