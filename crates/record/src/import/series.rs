//! The results of each target that an importer has read, in little memory.

use super::fault::Fault;
use super::scale::AGGR;

/// Maximal number of regions in memory: 24 bytes each, 768 MiB.
pub(super) const MAX_IMPORTED_REGIONS: usize = 32 << 20;
/// Maximal number of results (one target, one aggregation interval) in memory: 40 bytes each, 320 MiB.
const MAX_SPANS: usize = 8 << 20;
/// Maximal number of targets, and of kdamonds.
pub(super) const MAX_IMPORTED_TARGETS: usize = 10_000;
/// Maximal number of regions of one result: a frame of a record has to hold them.
const MAX_SPAN_REGIONS: usize = 100_000;
/// The age of a region whose format has no ages.
pub(super) const NO_AGE: u32 = u32::MAX;

/// One region of one result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Region {
    pub start: u64,
    pub end: u64,
    /// sampling intervals in which it was found accessed
    pub nr_accesses: u32,
    /// aggregation intervals, or [`NO_AGE`]
    pub age: u32,
}

/// The result of one aggregation interval, for one target.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    /// begin in ns, if the format has it
    pub start: Option<u64>,
    /// end in ns
    pub end: u64,
    /// the sampling interval in force in us; 0 if it is not known
    pub sample_us: u32,
    /// number of the first region after it
    regions_end: u32,
}

/// The name or number of a target in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Name {
    /// Kdamond, context and number of a target. Kdamond and context are 0 if the file does not have them.
    Target(i64, i64, u64),
    /// a process
    Pid(u32),
    /// Kdamond, context, scheme and target of a record of a scheme. The target is -1 if there is none.
    Scheme(i64, i64, i64, i64),
}

impl Name {
    /// The number of the kdamond.
    pub fn kdamond(self) -> i64 {
        match self {
            Name::Target(kdamond, ..) | Name::Scheme(kdamond, ..) => kdamond,
            Name::Pid(_) => 0,
        }
    }

    /// The same target of another kdamond.
    pub fn of_kdamond(self, kdamond: i64) -> Self {
        match self {
            Name::Target(_, context, target) => Name::Target(kdamond, context, target),
            Name::Scheme(_, context, scheme, target) => {
                Name::Scheme(kdamond, context, scheme, target)
            }
            Name::Pid(pid) => Name::Pid(pid),
        }
    }
}

/// The intervals of a recording in us; 0 if the file does not have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Intervals {
    pub sample: u64,
    pub aggr: u64,
    pub update: u64,
    /// limits of the sampling interval, if DAMON tunes the intervals
    pub goal: Option<(u64, u64)>,
}

/// All results of one target, in order of time.
#[derive(Debug)]
pub(super) struct Series {
    pub name: Name,
    pub intervals: Intervals,
    pub spans: Vec<Span>,
    regions: Vec<Region>,
}

impl Series {
    /// The regions of a result.
    pub fn regions(&self, span: usize) -> &[Region] {
        let end = |i: usize| self.spans.get(i).map_or(0, |s| s.regions_end as usize);
        let begin = span.checked_sub(1).map_or(0, end);
        self.regions.get(begin..end(span)).unwrap_or_default()
    }

    /// Whether any region has no age.
    pub fn lacks_ages(&self) -> bool {
        self.regions.iter().any(|r| r.age == NO_AGE)
    }

    /// The greatest count of accesses.
    pub fn most_accesses(&self) -> u32 {
        self.regions.iter().map(|r| r.nr_accesses).max().unwrap_or(0)
    }

    /// Gives each result a begin: the end of the one before. The first one is as long as the others on average,
    /// or as the aggregation interval if there is no other.
    /// Returns the mean length of a result in ns.
    pub fn complete(&mut self) -> Option<u64> {
        let (first, last) = (self.spans.first()?.end, self.spans.last()?.end);
        let others = self.spans.len() as u64 - 1;
        let mean = (others > 0).then(|| last.saturating_sub(first) as f64 / others as f64);
        let first_len = match (mean, self.intervals.aggr) {
            (Some(mean), _) => mean.ceil() as u64,
            (None, 0) => AGGR.as_nanos() as u64,
            (None, us) => us.saturating_mul(1000),
        };
        let mut begin = first.saturating_sub(first_len);
        for span in &mut self.spans {
            span.start.get_or_insert(begin);
            begin = span.end;
        }
        let span = self.spans.first()?;
        mean.map(|m| m.round() as u64).or(Some(span.end - span.start?)).filter(|&ns| ns > 0)
    }
}

/// The results of all targets. Everything that an importer reads goes through it, so that memory is bounded.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub series: Vec<Series>,
    /// results that the file breaks off within
    pub incomplete: u64,
    /// name and kernel of the machine, if the file has them
    pub machine: Option<(String, String)>,
    regions: usize,
    spans: usize,
}

impl Results {
    /// The position of the series of a target. It is new if `fresh`, or if there is none of this name.
    pub fn series_of(&mut self, name: Name, fresh: bool, at: u64) -> Result<usize, Fault> {
        if let Some(i) = self.series.iter().rposition(|s| s.name == name).filter(|_| !fresh) {
            return Ok(i);
        }
        if self.series.len() >= MAX_IMPORTED_TARGETS {
            return Err(Fault::large(at, MAX_IMPORTED_TARGETS, "targets"));
        }
        let (spans, regions) = (Vec::new(), Vec::new());
        self.series.push(Series { name, intervals: Intervals::default(), spans, regions });
        Ok(self.series.len() - 1)
    }

    /// Adds a region to the result that [`Results::close`] will end.
    pub fn region(&mut self, series: usize, region: Region, at: u64) -> Result<(), Fault> {
        let Some(series) = self.series.get_mut(series) else { return Ok(()) };
        let from = series.spans.last().map_or(0, |s| s.regions_end as usize);
        let before = series.regions.get(from..).and_then(<[Region]>::last);
        if region.start > region.end {
            return Err(Fault::at(at, "a region ends before it starts"));
        }
        if before.is_some_and(|b| region.start < b.end) {
            return Err(Fault::at(at, "a region begins before the one before it ends"));
        }
        if self.regions >= MAX_IMPORTED_REGIONS {
            return Err(Fault::large(at, MAX_IMPORTED_REGIONS, "regions"));
        }
        if series.regions.len() - from >= MAX_SPAN_REGIONS {
            return Err(Fault::large(at, MAX_SPAN_REGIONS, "regions of a target in one snapshot"));
        }
        // An empty region holds no memory.
        if region.start < region.end {
            self.regions += 1;
            series.regions.push(region);
        }
        Ok(())
    }

    /// Ends the result of the regions that were added since the last call.
    pub fn close(
        &mut self,
        series: usize,
        time: (Option<u64>, u64),
        sample_us: u32,
        at: u64,
    ) -> Result<(), Fault> {
        let Some(series) = self.series.get_mut(series) else { return Ok(()) };
        let (start, end) = time;
        if start.is_some_and(|start| start > end) {
            return Err(Fault::at(at, "a snapshot ends before it starts"));
        }
        if series.spans.last().is_some_and(|before| end < before.end) {
            return Err(Fault::at(at, "a snapshot ends before the one before it"));
        }
        if self.spans >= MAX_SPANS {
            return Err(Fault::large(at, MAX_SPANS, "snapshots"));
        }
        self.spans += 1;
        let regions_end = u32::try_from(series.regions.len()).unwrap_or(u32::MAX);
        series.spans.push(Span { start, end, sample_us, regions_end });
        Ok(())
    }

    /// Drops the regions that were added since the last [`Results::close`].
    pub fn drop_open(&mut self, series: usize) {
        let Some(series) = self.series.get_mut(series) else { return };
        let closed = series.spans.last().map_or(0, |s| s.regions_end as usize);
        self.regions -= series.regions.len() - closed;
        series.regions.truncate(closed);
    }
}
