//! The ways to read results, the better one first.

use std::fmt::{self, Display};
use std::path::Path;
use std::time::Duration;

use isotherm_core::{Attrs, Nanos};

use super::error::DamonError;
use super::own_kdamond::OwnKdamond;
use super::results::AggregationResult;
use super::trace::{self, Trace, TraceError};
use super::tried::TriedRegionsReader;
use crate::walker::own_pid;

pub(super) enum Reader {
    Trace(Trace),
    /// with the reason why the tracepoint cannot be used
    Tried(TriedRegionsReader, TraceError),
}

impl Reader {
    /// Opens the tracepoint if it can be used. The instance is noted before it is created.
    pub fn open(
        root: &Path,
        own_kdamond: &mut OwnKdamond,
        max_regions: u32,
    ) -> Result<Self, DamonError> {
        let place = trace::place(root, own_pid());
        if let Some(place) = &place {
            own_kdamond.note_instance(place)?;
        }
        Ok(match Trace::open(place.as_deref(), max_regions) {
            Ok(trace) => Reader::Trace(trace),
            Err(why) => Reader::Tried(TriedRegionsReader::new(own_kdamond.dir()), why),
        })
    }

    /// Called after the kdamond has started.
    pub fn begin(&mut self, now: Nanos, attrs: &Attrs) {
        if let Reader::Tried(tried, _) = self {
            tried.begin(now + attrs.interval());
        }
    }

    /// The next result of the kdamond in `own_kdamond` that exists by `now`; results come every `interval`.
    pub fn next(
        &mut self,
        now: Nanos,
        interval: Duration,
        own_kdamond: &OwnKdamond,
    ) -> Result<Option<AggregationResult>, DamonError> {
        Ok(match self {
            Reader::Trace(trace) => trace.next(now, interval)?,
            Reader::Tried(tried, _) if tried.is_due(now) => {
                own_kdamond.check()?;
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
