//! Finds snapshots of a record by time, without reading what comes before.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use isotherm_core::{Nanos, Snapshot};
use isotherm_record::{Event, Mark, ReadError, Reader};

/// Maximum number of marks. Beyond it, every second one is dropped.
const MAX_MARKS: usize = 8192;
/// Maximum number of regions in memory, of snapshots that were read recently.
const MAX_REGIONS: usize = 400_000;

/// Marks of a record, in order of time, and the snapshots that were read last.
#[derive(Debug, Default)]
pub struct Seeker {
    marks: Mutex<Marks>,
    recent: Mutex<VecDeque<Part>>,
}

#[derive(Debug, Default)]
struct Marks {
    /// each with the end of the snapshot before it
    all: Vec<(Nanos, Arc<Mark>)>,
    /// Of this many marks, one is kept.
    one_in: usize,
    seen: usize,
}

/// The snapshots from one mark to the next.
#[derive(Debug, Clone)]
struct Part {
    from: Nanos,
    to: Nanos,
    snapshots: Arc<Vec<Arc<Snapshot>>>,
}

impl Seeker {
    /// Adds a mark that comes after all others; `end` is the end of the snapshot before it.
    pub fn add(&self, end: Nanos, mark: Mark) {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        if marks.all.last().is_some_and(|(last, _)| *last >= end) {
            return;
        }
        marks.seen += 1;
        if !marks.seen.is_multiple_of(marks.one_in.max(1)) {
            return;
        }
        marks.all.push((end, Arc::new(mark)));
        if marks.all.len() > MAX_MARKS {
            let mut n = 0;
            marks.all.retain(|_| {
                n += 1;
                n % 2 == 1
            });
            marks.one_in = 2 * marks.one_in.max(1);
        }
    }

    /// The mark at or before `at`, and the end of its part.
    fn mark(&self, at: Nanos) -> Option<(Nanos, Nanos, Arc<Mark>)> {
        let marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let i = marks.all.partition_point(|(end, _)| *end <= at).checked_sub(1)?;
        let (from, mark) = marks.all.get(i)?;
        let to = marks.all.get(i + 1).map_or(Nanos(u64::MAX), |(end, _)| *end);
        Some((*from, to, Arc::clone(mark)))
    }

    /// The part that contains `at`; `first` reads the record from its start, for what comes before all marks.
    fn part(
        &self,
        at: Nanos,
        first: impl Fn() -> Result<Reader, ReadError>,
    ) -> Result<Part, ReadError> {
        {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(i) = recent.iter().position(|p| (p.from..p.to).contains(&at)) {
                let found = recent.remove(i);
                recent.extend(found.clone());
                if let Some(found) = found {
                    return Ok(found);
                }
            }
        }
        let (from, to, reader) = match self.mark(at) {
            Some((from, to, mark)) => (from, to, Reader::resume(&mark)?),
            None => {
                let marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
                let to = marks.all.first().map_or(Nanos(u64::MAX), |(end, _)| *end);
                (Nanos(0), to, first()?)
            }
        };
        let mut snapshots: Vec<Arc<Snapshot>> = Vec::new();
        let mut regions = 0;
        for event in reader.skip_damaged() {
            match event {
                Ok(Event::Snapshot(s)) if s.start >= to || regions > MAX_REGIONS => break,
                Ok(Event::Snapshot(s)) => {
                    regions += s.nr_regions();
                    snapshots.push(s);
                }
                Ok(_) => {}
                Err(ReadError::Torn { .. }) => break,
                Err(e) => return Err(e),
            }
        }
        // If it was too long, the next part begins where this one ends.
        let to = if regions > MAX_REGIONS { snapshots.last().map_or(to, |s| s.end) } else { to };
        let part = Part { from, to, snapshots: Arc::new(snapshots) };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.push_back(part.clone());
        let size = |p: &Part| p.snapshots.iter().map(|s| s.nr_regions()).sum::<usize>();
        while recent.len() > 1 && recent.iter().map(size).sum::<usize>() > MAX_REGIONS {
            recent.pop_front();
        }
        Ok(part)
    }

    /// Calls `each` for the snapshots that overlap `time`, in order, until it returns false.
    ///
    /// # Errors
    /// If the record cannot be read any more.
    pub fn each(
        &self,
        time: &Range<Nanos>,
        first: impl Fn() -> Result<Reader, ReadError>,
        mut each: impl FnMut(&Arc<Snapshot>) -> bool,
    ) -> Result<(), ReadError> {
        let mut at = time.start;
        while at < time.end {
            let part = self.part(at, &first)?;
            let inside = part.snapshots.iter().filter(|s| s.end > at && s.start < time.end);
            for s in inside {
                if !each(s) {
                    return Ok(());
                }
            }
            if part.to <= at {
                break;
            }
            at = part.to;
        }
        Ok(())
    }

    /// Number of parts that overlap `time`: what it costs to read them.
    #[must_use]
    pub fn parts(&self, time: &Range<Nanos>) -> usize {
        let marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let at = |t: Nanos| marks.all.partition_point(|(end, _)| *end <= t);
        at(time.end) - at(time.start) + 1
    }

    /// The snapshot that contains `at`, or the last one before it.
    ///
    /// # Errors
    /// If the record cannot be read any more.
    pub fn at(
        &self,
        at: Nanos,
        first: impl Fn() -> Result<Reader, ReadError>,
    ) -> Result<Option<Arc<Snapshot>>, ReadError> {
        let part = self.part(at, first)?;
        let after = part.snapshots.partition_point(|s| s.start <= at);
        Ok(part.snapshots.get(after.saturating_sub(1)).cloned())
    }
}
