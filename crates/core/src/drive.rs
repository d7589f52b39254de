//! The loop that steps a source.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::call::OpsError;
use crate::snapshot::Snapshot;
use crate::source::{EndReason, Source, Step};
use crate::time::Nanos;

/// What happens between the steps of a source: the clock, the wait, and what becomes of snapshots.
pub trait Driver<S: ?Sized> {
    /// Why the loop has ended.
    type End;
    /// What may fail.
    type Error: From<OpsError>;

    /// Called before each step: the time of the step, or the end.
    ///
    /// # Errors
    /// Those of the driver; they end the loop.
    fn turn(&mut self, source: &mut S) -> Result<ControlFlow<Self::End, Nanos>, Self::Error>;

    /// Called when the source has nothing to do before `until`. Returning earlier is allowed.
    ///
    /// # Errors
    /// Those of the driver; they end the loop.
    fn wait(&mut self, source: &mut S, until: Nanos)
    -> Result<ControlFlow<Self::End>, Self::Error>;

    /// Called with each snapshot.
    ///
    /// # Errors
    /// Those of the driver; they end the loop.
    fn snapshot(
        &mut self,
        source: &mut S,
        snapshot: Arc<Snapshot>,
    ) -> Result<ControlFlow<Self::End>, Self::Error>;

    /// Called when the source delivers no more snapshots.
    fn ended(&mut self, why: EndReason) -> Self::End;
}

/// Steps `source` until it ends or `driver` ends the loop; returns why.
///
/// # Errors
/// Those of the source and of the driver.
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
