//! The loop that steps a source, by the clock of this machine.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Error, Result, bail};
use isotherm_core::{Driver, EndReason, Nanos, Snapshot, Source, drive};
use isotherm_linux::sys;

/// Steps `source` for `length`, and sleeps while it waits. `each` gets every snapshot. Fails if the source ends earlier.
pub fn watch_for<S: Source + ?Sized>(
    source: &mut S,
    length: Duration,
    each: impl FnMut(Arc<Snapshot>),
) -> Result<()> {
    let end = sys::monotonic() + length;
    match drive(source, &mut Clock { end, each })? {
        None => Ok(()),
        Some(why) => bail!("the process ended: {why:?}"),
    }
}

struct Clock<F> {
    end: Nanos,
    each: F,
}

impl<S: ?Sized, F: FnMut(Arc<Snapshot>)> Driver<S> for Clock<F> {
    type End = Option<EndReason>;
    type Error = Error;

    fn turn(&mut self, _: &mut S) -> Result<ControlFlow<Self::End, Nanos>> {
        let now = sys::monotonic();
        Ok(if now < self.end { ControlFlow::Continue(now) } else { ControlFlow::Break(None) })
    }

    fn wait(&mut self, _: &mut S, until: Nanos) -> Result<ControlFlow<Self::End>> {
        std::thread::sleep(until.min(self.end).since(sys::monotonic()));
        Ok(ControlFlow::Continue(()))
    }

    fn snapshot(&mut self, _: &mut S, s: Arc<Snapshot>) -> Result<ControlFlow<Self::End>> {
        (self.each)(s);
        Ok(ControlFlow::Continue(()))
    }

    fn ended(&mut self, why: EndReason) -> Self::End {
        Some(why)
    }
}
