//! Puts tracepoints together: each has one region, and several are one result of a target.

use std::collections::HashMap;

use super::fault::Fault;
use super::scale::AGGR;
use super::series::{MAX_IMPORTED_TARGETS, Name, Region, Results};

/// Pause in ns after which an event of a scheme belongs to its next result: half of DAMON's default interval, because
/// the events do not have the interval.
const PAUSE: u128 = AGGR.as_nanos() / 2;

/// The number in the name of a kdamond's thread: `kdamond.1`, and in some texts `kdamond.1-4452`.
pub(super) fn kdamond(thread: &str) -> Option<i64> {
    thread.strip_prefix("kdamond.")?.split('-').next()?.parse().ok()
}

/// One event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub name: Name,
    /// number of regions of the target
    pub nr_regions: u64,
    pub region: Region,
    /// time of the event in ns
    pub end: u64,
}

/// A result that is being put together.
#[derive(Debug)]
struct Open {
    series: usize,
    /// time of its first event
    end: u64,
    /// time of its last event
    latest: u64,
    nr_regions: u64,
    /// number of its events, and the end of the last region
    events: u64,
    last: u64,
}

#[derive(Debug, Default)]
pub(super) struct Events {
    results: Results,
    open: HashMap<Name, Open>,
    /// the tuned sampling interval of each kdamond in us
    tuned: HashMap<i64, u32>,
}

impl Events {
    /// Notes the sampling interval of the results of a kdamond that follow.
    pub fn tuned(&mut self, kdamond: i64, sample_us: u32, at: u64) -> Result<(), Fault> {
        self.tuned.insert(kdamond, sample_us);
        match self.tuned.len() > MAX_IMPORTED_TARGETS {
            true => Err(Fault::large(at, MAX_IMPORTED_TARGETS, "kdamonds")),
            false => Ok(()),
        }
    }

    pub fn push(&mut self, e: Event, at: u64) -> Result<(), Fault> {
        // A scheme has events for the regions that match only, so that their number does not say which is last.
        let by_address = matches!(e.name, Name::Scheme(..));
        // Its next interval may match only memory at higher addresses, so that a pause, too, ends a result.
        let again = self.open.get(&e.name).is_some_and(|open| {
            let paused = u128::from(e.end.saturating_sub(open.latest)) > PAUSE;
            e.region.start < open.last
                || if by_address { paused } else { open.nr_regions != e.nr_regions }
        });
        if again {
            self.close(e.name, by_address, at)?;
        }
        let series = self.results.series_of(e.name, false, at)?;
        let (end, nr_regions, last) = (e.end, e.nr_regions, e.region.start);
        let new = Open { series, end, latest: end, nr_regions, events: 0, last };
        let open = self.open.entry(e.name).or_insert(new);
        self.results.region(open.series, e.region, at)?;
        open.events += 1;
        open.latest = end;
        open.last = e.region.end;
        if open.events == open.nr_regions { self.close(e.name, true, at) } else { Ok(()) }
    }

    /// Ends a result, or drops it if events of it are lost.
    fn close(&mut self, name: Name, complete: bool, at: u64) -> Result<(), Fault> {
        let Some(open) = self.open.remove(&name) else { return Ok(()) };
        if complete {
            let tuned = self.tuned.get(&name.kdamond()).copied().unwrap_or(0);
            return self.results.close(open.series, (None, open.end), tuned, at);
        }
        self.results.drop_open(open.series);
        self.results.incomplete += 1;
        Ok(())
    }

    /// Ends the results. `at` is the offset of the end.
    pub fn finish(mut self, at: u64) -> Result<Results, Fault> {
        let names: Vec<Name> = self.open.keys().copied().collect();
        for name in names {
            self.close(name, matches!(name, Name::Scheme(..)), at)?;
        }
        Ok(self.results)
    }
}
