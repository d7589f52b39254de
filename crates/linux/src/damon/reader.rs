//! The ways to read results, the better one first.

use std::fmt::{self, Display};
use std::path::Path;
use std::time::Duration;

use isotherm_core::{Attrs, Nanos};

use super::error::DamonError;
use super::results::Aggregated;
use super::seat::Seat;
use super::trace::{self, Trace, TraceError};
use super::tried::Tried;
use crate::walker::own_pid;

pub(super) enum Reader {
    Trace(Trace),
    /// with the reason why the tracepoint cannot be used
    Tried(Tried, TraceError),
}

impl Reader {
    /// Opens the tracepoint if it can be used. The instance is noted before it is created.
    pub fn open(root: &Path, seat: &mut Seat, max_regions: u32) -> Result<Self, DamonError> {
        let place = trace::place(root, own_pid());
        if let Some(place) = &place {
            seat.note_instance(place)?;
        }
        Ok(match Trace::open(place.as_deref(), max_regions) {
            Ok(trace) => Reader::Trace(trace),
            Err(why) => Reader::Tried(Tried::new(seat.dir()), why),
        })
    }

    /// Called after the kdamond has started.
    pub fn begin(&mut self, now: Nanos, attrs: &Attrs) {
        if let Reader::Tried(tried, _) = self {
            tried.begin(now + attrs.interval());
        }
    }

    /// The next result of the kdamond in `seat` that exists by `now`; results come every `interval`.
    pub fn next(
        &mut self,
        now: Nanos,
        interval: Duration,
        seat: &Seat,
    ) -> Result<Option<Aggregated>, DamonError> {
        Ok(match self {
            Reader::Trace(trace) => trace.next(now, interval)?,
            Reader::Tried(tried, _) if tried.is_due(now) => {
                seat.check()?;
                Some(tried.ask(now, interval)?)
            }
            Reader::Tried(..) => None,
        })
    }

    /// Drops results that were not returned yet, because the positions of targets are about to change.
    pub fn forget(&mut self) -> Result<(), DamonError> {
        match self {
            Reader::Trace(trace) => Ok(trace.forget()?),
            Reader::Tried(..) => Ok(()),
        }
    }

    /// Number of results that were incomplete or missed.
    pub fn dropped(&self) -> u64 {
        match self {
            Reader::Trace(trace) => trace.dropped(),
            Reader::Tried(tried, _) => tried.late,
        }
    }
}

impl Display for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reader::Trace(_) => write!(f, "the tracepoint damon_aggregated"),
            Reader::Tried(_, why) => write!(f, "tried_regions, since {why}"),
        }
    }
}
