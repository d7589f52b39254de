//! Finds snapshots of a record by time, without reading what comes before.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use isotherm_core::{Nanos, Snapshot};
use isotherm_record::{Event, FramePosition, ReadError, Reader};

/// Maximum number of marks, and of their bytes. Beyond it, every second one is dropped.
const MAX_MARKS: usize = 8192;
const MAX_MARK_BYTES: usize = 64 << 20;
/// Maximum number of regions in memory, of snapshots that were read recently.
const MAX_READ_REGIONS: usize = 400_000;

/// Marks of a record, in order of time, and the snapshots that were read last.
#[derive(Debug)]
pub struct Seeker {
    marks: Mutex<Marks>,
    recent: Mutex<VecDeque<Part>>,
    max_regions: usize,
}

impl Default for Seeker {
    fn default() -> Self {
        Seeker::new(MAX_MARK_BYTES, MAX_READ_REGIONS)
    }
}

#[derive(Debug)]
struct Marks {
    all: Vec<Place>,
    /// the memory that they occupy
    bytes: usize,
    max_bytes: usize,
    /// Of this many marks, one is kept.
    one_in: usize,
    seen: usize,
    /// regions of all snapshots
    regions: usize,
}

/// A place in the record.
#[derive(Debug)]
struct Place {
    /// end of the snapshot before it
    end: Nanos,
    /// regions of all snapshots before it
    regions: usize,
    mark: Arc<FramePosition>,
}

/// The snapshots from one mark to the next, or some of them.
#[derive(Debug, Clone)]
struct Part {
    from: Nanos,
    to: Nanos,
    snapshots: Arc<Vec<Arc<Snapshot>>>,
}

impl Part {
    fn regions(&self) -> usize {
        self.snapshots.iter().map(|s| s.nr_regions()).sum()
    }
}

impl Marks {
    /// Adds a mark that comes after all others.
    fn add(&mut self, end: Nanos, mark: FramePosition) {
        self.seen += 1;
        if !self.seen.is_multiple_of(self.one_in) {
            return;
        }
        self.bytes += mark.bytes_beyond(self.all.last().map(|last| &*last.mark));
        self.all.push(Place { end, regions: self.regions, mark: Arc::new(mark) });
        while self.all.len() > MAX_MARKS || self.bytes > self.max_bytes {
            let mut n = 0;
            self.all.retain(|_| {
                n += 1;
                n % 2 == 0
            });
            self.one_in *= 2;
            let before = [None].into_iter().chain(self.all.iter().map(|place| Some(&*place.mark)));
            let places = self.all.iter().zip(before);
            self.bytes = places.map(|(place, before)| place.mark.bytes_beyond(before)).sum();
        }
    }

    /// Number of marks up to a time.
    fn until(&self, at: Nanos) -> usize {
        self.all.partition_point(|place| place.end <= at)
    }

    /// The time from the mark at or before `at` to the next one, and that mark: `None` before all of them.
    fn around(&self, at: Nanos) -> (Range<Nanos>, Option<Arc<FramePosition>>) {
        let next = self.until(at);
        let to = self.all.get(next).map_or(Nanos(u64::MAX), |place| place.end);
        match next.checked_sub(1).and_then(|i| self.all.get(i)) {
            Some(place) => (place.end..to, Some(Arc::clone(&place.mark))),
            None => (Nanos(0)..to, None),
        }
    }
}

impl Seeker {
    /// Keeps marks of at most so many bytes, and snapshots of at most so many regions, or one part.
    fn new(max_bytes: usize, max_regions: usize) -> Self {
        let marks = Marks { all: Vec::new(), bytes: 0, max_bytes, one_in: 1, seen: 0, regions: 0 };
        Seeker { marks: Mutex::new(marks), recent: Mutex::default(), max_regions }
    }

    /// Adds a mark that comes after all others; `end` is the end of the snapshot before it, and `regions` the number of
    /// regions of all snapshots before it.
    pub fn add(&self, end: Nanos, regions: usize, mark: FramePosition) {
        let mut marks = self.marks();
        marks.regions = regions;
        if marks.all.last().is_none_or(|last| last.end < end) {
            marks.add(end, mark);
        }
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recent(&self) -> MutexGuard<'_, VecDeque<Part>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part that contains `at`; `first` reads the record from its start, for what comes before all marks. `rest`
    /// is a reader that goes on at `at`, if there is one. It is set if the part ends before the next mark.
    fn part(
        &self,
        at: Nanos,
        first: impl Fn() -> Result<Reader, ReadError>,
        rest: &mut Option<Reader>,
    ) -> Result<Part, ReadError> {
        let continued = rest.take();
        {
            let mut recent = self.recent();
            let known = recent.iter().position(|p| (p.from..p.to).contains(&at));
            if let Some(found) = known.and_then(|i| recent.remove(i)) {
                recent.push_back(found.clone());
                return Ok(found);
            }
        }
        let (Range { mut start, mut end }, mark) = self.marks().around(at);
        let mut reader = match (continued, mark) {
            (Some(reader), _) => {
                start = at;
                reader
            }
            (None, Some(mark)) => Reader::resume(&mark)?.skip_damaged(),
            (None, None) => first()?.skip_damaged(),
        };
        let mut snapshots: Vec<Arc<Snapshot>> = Vec::new();
        let mut regions = 0;
        while let Some(event) = reader.next() {
            match event {
                Ok(Event::Snapshot(s)) if s.start >= end => break,
                Ok(Event::Snapshot(s)) => {
                    let until = s.end;
                    regions += s.nr_regions();
                    snapshots.push(s);
                    if regions <= self.max_regions {
                        continue;
                    }
                    // It is too long: another part begins where this one ends.
                    if at < until {
                        end = until;
                        *rest = Some(reader);
                        break;
                    }
                    (start, regions) = (until, 0);
                    snapshots.clear();
                }
                Ok(_) => {}
                Err(ReadError::Torn { .. }) => break,
                Err(e) => return Err(e),
            }
        }
        let part = Part { from: start, to: end, snapshots: Arc::new(snapshots) };
        let mut recent = self.recent();
        recent.push_back(part.clone());
        while recent.len() > 1 && recent.iter().map(Part::regions).sum::<usize>() > self.max_regions
        {
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
        let (mut at, mut rest) = (time.start, None);
        while at < time.end {
            let part = self.part(at, &first, &mut rest)?;
            let mut inside = part.snapshots.iter().filter(|s| s.end > at && s.start < time.end);
            if !inside.all(&mut each) {
                break;
            }
            at = part.to;
        }
        Ok(())
    }

    /// Number of parts that overlap `time`, of which long ones are several: what it costs to read them.
    #[must_use]
    pub fn parts(&self, time: &Range<Nanos>) -> usize {
        let marks = self.marks();
        let [first, last] = [time.start, time.end].map(|at| marks.until(at));
        let before = first.checked_sub(1).and_then(|i| marks.all.get(i)).map_or(0, |p| p.regions);
        let regions = marks.all.get(last).map_or(marks.regions, |p| p.regions) - before;
        last - first + 1 + regions / self.max_regions
    }

    /// The snapshot that contains `at`, or the last one before it; before the first one it is the first.
    ///
    /// # Errors
    /// If the record cannot be read any more.
    pub fn at(
        &self,
        at: Nanos,
        first: impl Fn() -> Result<Reader, ReadError>,
    ) -> Result<Option<Arc<Snapshot>>, ReadError> {
        let part = self.part(at, &first, &mut None)?;
        let after = part.snapshots.partition_point(|s| s.start <= at);
        if after == 0 && part.from > Nanos(0) {
            // In a gap, which belongs to the next part.
            let before = Nanos(part.from.0 - 1);
            return Ok(self.part(before, first, &mut None)?.snapshots.last().cloned());
        }
        Ok(part.snapshots.get(after.saturating_sub(1)).cloned())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use isotherm_core::{Attrs, TargetId};
    use isotherm_record::{FileEndReason, Limits, RecordingHeader, TargetInfo, Writer};

    use super::*;
    use crate::scene;

    const MIB: u64 = 1 << 20;
    const REGIONS: u64 = 10;

    /// A time of the record, whose first snapshot starts at 0.
    fn time(seconds: f64) -> Nanos {
        scene::snapshot(0, 1.0, vec![]).start + Duration::from_secs_f64(seconds)
    }

    /// Snapshots of 1 s. Before number 60 there are ten minutes without any. The mappings change with each snapshot.
    fn write(path: &Path, snapshots: u64) {
        let facts = RecordingHeader::new("0.1.0", Attrs::default(), time(0.0));
        let mut writer = Writer::create(path, &facts, Limits::default()).unwrap();
        let fact = TargetInfo { id: TargetId(0), pid: Some(7), command: "app".into() };
        let _ = writer.target(fact).unwrap();
        for seq in 0..snapshots {
            let name = format!("mapping {seq}");
            let all = (0..REGIONS).map(|i| (i * MIB, (i + 1) * MIB));
            let mappings = all.clone().map(|(a, b)| scene::mapping(a, b, &name)).collect();
            let regions = all.map(|(a, b)| scene::region(a, b, 1.0)).collect();
            let mut s = scene::snapshot(seq, 1.0, vec![scene::target(0, mappings, regions)]);
            if seq >= 60 {
                let gap = Duration::from_secs(600);
                (s.start, s.end) = (s.start + gap, s.end + gap);
            }
            let _ = writer.snapshot(&s).unwrap();
        }
        writer.finish(FileEndReason::Stopped, "").unwrap();
    }

    /// A seeker that has read the whole record.
    fn read(path: &Path, max_bytes: usize, max_regions: usize) -> Seeker {
        let seeker = Seeker::new(max_bytes, max_regions);
        let (mut reader, mut end, mut regions) = (Reader::open(path).unwrap(), Nanos(0), 0);
        while let Some(event) = reader.next() {
            if let Event::Snapshot(s) = event.unwrap() {
                (end, regions) = (s.end, regions + s.nr_regions());
            }
            reader.mark().into_iter().for_each(|mark| seeker.add(end, regions, mark));
        }
        seeker
    }

    /// The numbers of the snapshots from one second to another.
    fn numbers(seeker: &Seeker, path: &Path, from: f64, to: f64) -> Vec<u64> {
        let mut found = Vec::new();
        let take = |s: &Arc<Snapshot>| {
            found.push(s.seq);
            true
        };
        seeker.each(&(time(from)..time(to)), || Reader::open(path), take).unwrap();
        found
    }

    fn number_at(seeker: &Seeker, path: &Path, seconds: f64) -> u64 {
        seeker.at(time(seconds), || Reader::open(path)).unwrap().unwrap().seq
    }

    #[test]
    fn marks_use_bounded_memory_and_find_every_snapshot() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r");
        write(&path, 600);
        let all = read(&path, MAX_MARK_BYTES, MAX_READ_REGIONS);
        let bytes = all.marks().bytes;
        assert!(all.marks().all.len() > 20, "{}", all.marks().all.len());
        let few = read(&path, bytes / 3, MAX_READ_REGIONS);
        assert!(few.marks().bytes <= bytes / 3, "{} of {bytes}", few.marks().bytes);
        assert!(few.marks().all.len() >= 5, "{}", few.marks().all.len());
        let none = read(&path, 0, MAX_READ_REGIONS);
        assert_eq!(none.marks().all.len(), 0);
        for seeker in [all, few, none] {
            assert_eq!(numbers(&seeker, &path, 700.0, 1000.0), (100..400).collect::<Vec<_>>());
            assert_eq!(number_at(&seeker, &path, 900.0), 300);
        }
    }

    /// If marks are rare, the snapshots between two of them may not fit into memory.
    #[test]
    fn a_part_with_too_many_regions_is_read_piece_by_piece() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r");
        write(&path, 300);
        // 7 snapshots are more than so many regions.
        let max_regions = 6 * REGIONS as usize + 1;
        let seeker = read(&path, 0, max_regions);
        assert_eq!(numbers(&seeker, &path, 0.0, 900.0), (0..300).collect::<Vec<_>>());
        assert_eq!(numbers(&seeker, &path, 650.0, 850.0), (60..250).collect::<Vec<_>>());
        // Backwards, too.
        for number in (100..110).rev() {
            assert_eq!(number_at(&seeker, &path, 600.0 + number as f64), number);
        }
        let regions: usize = seeker.recent().iter().map(Part::regions).sum();
        assert!(regions <= 7 * REGIONS as usize, "{regions} regions");
        // It costs as much as all of it.
        assert_eq!(seeker.parts(&(time(700.0)..time(701.0))), 1 + 300 * 10 / max_regions);
    }

    #[test]
    fn in_a_gap_it_is_the_last_snapshot_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r");
        write(&path, 70);
        // A part may end at the gap, and be cut there.
        for max_regions in [MAX_READ_REGIONS, REGIONS as usize] {
            let seeker = read(&path, MAX_MARK_BYTES, max_regions);
            for (at, number) in
                [(0.0, 0), (59.5, 59), (60.0, 59), (300.0, 59), (659.5, 59), (660.0, 60)]
            {
                assert_eq!(number_at(&seeker, &path, at), number, "{max_regions}: {at} s");
            }
        }
    }
}
