//! The loop that steps a source, by the clock of this machine.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{Driver, EndReason, Nanos, OpsError, Snapshot, Source, drive};

use crate::sys;

/// Steps `source` for `length`, and sleeps while it waits. `each` gets every snapshot, and may end the loop.
///
/// Returns why the source ended, or `None` if `length` is over or `each` ended the loop.
///
/// # Errors
/// Those of the source and of `each`.
pub fn watch_for<S, E, F>(source: &mut S, length: Duration, each: F) -> Result<Option<EndReason>, E>
where
    S: Source + ?Sized,
    E: From<OpsError>,
    F: FnMut(&mut S, Arc<Snapshot>) -> Result<ControlFlow<()>, E>,
{
    let end = sys::monotonic() + length;
    let mut clock = Clock { end, each, error: std::marker::PhantomData::<fn() -> E> };
    drive(source, &mut clock)
}

struct Clock<F, E> {
    end: Nanos,
    each: F,
    error: std::marker::PhantomData<fn() -> E>,
}

impl<S, E, F> Driver<S> for Clock<F, E>
where
    S: Source + ?Sized,
    E: From<OpsError>,
    F: FnMut(&mut S, Arc<Snapshot>) -> Result<ControlFlow<()>, E>,
{
    type End = Option<EndReason>;
    type Error = E;

    fn turn(&mut self, _: &mut S) -> Result<ControlFlow<Self::End, Nanos>, E> {
        let now = sys::monotonic();
        Ok(if now < self.end { ControlFlow::Continue(now) } else { ControlFlow::Break(None) })
    }

    fn wait(&mut self, _: &mut S, until: Nanos) -> Result<ControlFlow<Self::End>, E> {
        std::thread::sleep(until.min(self.end).since(sys::monotonic()));
        Ok(ControlFlow::Continue(()))
    }

    fn snapshot(&mut self, source: &mut S, s: Arc<Snapshot>) -> Result<ControlFlow<Self::End>, E> {
        Ok((self.each)(source, s)?.map_break(|()| None))
    }

    fn ended(&mut self, why: EndReason) -> Self::End {
        Some(why)
    }
}
