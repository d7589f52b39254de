//! A watched file: what was counted in its windows.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, CountedTarget, CountedWindow, DirtyBytes, Mapping, MappingKind, NO_HEAT_HZ, Nanos,
    PAGE_SIZE, RegionView, TargetId, TargetView, Unknown,
};
use isotherm_linux::page_cache::{AccessCount, CachedFile, CachedRange, FileKey, ReadCounter};
use isotherm_record::TargetInfo;

use super::mapped::{MappedRegion, MappedRegions};
use crate::page_cache::FoundFile;

/// Binary logarithm of the pages of a window at first: 256 KiB, what a node of the page cache covers.
pub const WINDOW_SHIFT: u32 = 6;
/// Binary logarithm of the most windows of counts whose marks are read for one window.
const MAX_MARKS_SHIFT: u32 = 8;

/// The observed accesses of an interval.
pub struct FileInterval<'a> {
    /// its length
    pub time: Duration,
    /// the part of it in which accesses were counted; `None` if they cannot be
    pub counted: Option<Duration>,
    /// binary logarithm of the pages of a window; and of those by which accesses were counted, at most as many
    pub window_shift: u32,
    pub counted_shift: u32,
    /// the counts by file
    pub counts: &'a HashMap<u64, Vec<AccessCount>>,
    /// knows which windows were accessed while accesses were counted
    pub counter: Option<&'a ReadCounter>,
    /// mapped parts by file; `None` if they are unknown
    pub mapped: Option<&'a MappedRegions>,
    /// its end
    pub now: Nanos,
    pub now_ms: u32,
    /// the sampling interval
    pub sample: Duration,
}

/// The accesses that a target consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Any,
    Read,
    Written,
    Mapped,
}

impl Access {
    fn counts(self, is_write: bool) -> bool {
        self == Access::Any || self == if is_write { Access::Written } else { Access::Read }
    }

    /// Whether a window was accessed while accesses were counted.
    fn is_marked(self, interval: &FileInterval<'_>, file: u64, number: u64) -> bool {
        let Some(counter) = interval.counter.filter(|_| self != Access::Mapped) else {
            return false;
        };
        let shift = interval.window_shift - interval.counted_shift;
        let Some(mut windows) = counted_windows(number, shift) else { return true };
        let is_marked =
            |window, is_write| self.counts(is_write) && counter.is_marked(file, window, is_write);
        windows.any(|window| is_marked(window, false) || is_marked(window, true))
    }

    fn is_mapped(self) -> bool {
        matches!(self, Access::Any | Access::Mapped)
    }

    fn name(self, path: &str) -> String {
        match self {
            Access::Any => path.to_owned(),
            Access::Read => format!("{path} (read)"),
            Access::Written => format!("{path} (written)"),
            Access::Mapped => format!("{path} (mapped)"),
        }
    }
}

/// The windows of counts in a window of 2^`shift` of them. `None` for very many: files share the marks of windows, so that
/// at least one of them is marked nearly always.
fn counted_windows(number: u64, shift: u32) -> Option<Range<u64>> {
    (shift <= MAX_MARKS_SHIFT).then(|| number << shift..(number + 1) << shift)
}

/// A file, and the targets that it is in a record.
#[derive(Default)]
pub struct WatchedFile {
    file: Option<CachedFile>,
    /// Nobody sees its reads, or not all of them.
    hides_reads: bool,
    mappings: Arc<Vec<Mapping>>,
    targets: Vec<(TargetId, Access, CountedTarget)>,
    /// cached pages by window
    parts: BTreeMap<u64, u32>,
    dirty: DirtyBytes,
    /// It was not observed since the last interval; whether it was not cached meanwhile.
    pub(super) was_absent: Option<bool>,
}

impl WatchedFile {
    /// The present state of the file; returns the names to report, if they are new.
    pub fn update(
        &mut self,
        found: FoundFile,
        (by_access, remembers): (bool, bool),
        next_id: &mut u32,
    ) -> Vec<TargetInfo> {
        let FoundFile { file, name, hides_reads, .. } = found;
        if self.targets.is_empty() {
            let all: &[Access] = match by_access {
                true => &[Access::Read, Access::Written, Access::Mapped],
                false => &[Access::Any],
            };
            for access in all {
                let mut counted = CountedTarget::new(PAGE_SIZE << WINDOW_SHIFT);
                if remembers {
                    counted.remember();
                }
                self.targets.push((TargetId(*next_id), *access, counted));
                *next_id += 1;
            }
        }
        let range = AddrRange::new(0, file.size.next_multiple_of(PAGE_SIZE));
        self.hides_reads = hides_reads;
        self.file = Some(file);
        let known = self.mappings.first();
        if known.is_some_and(|m| m.range == range && *m.name == *name) {
            return Vec::new();
        }
        let is_named = known.is_some_and(|m| *m.name == *name);
        let kind = MappingKind::File;
        let mapping = Mapping { range, kind, name: name.as_str().into(), unknown: None };
        self.mappings = Arc::new(vec![mapping]);
        let fact = |&(id, access, _): &(TargetId, Access, CountedTarget)| TargetInfo {
            id,
            pid: None,
            command: access.name(&name),
        };
        if is_named { Vec::new() } else { self.targets.iter().map(fact).collect() }
    }

    #[cfg(test)]
    pub fn of_target(id: TargetId) -> Self {
        let counted = CountedTarget::new(PAGE_SIZE << WINDOW_SHIFT);
        WatchedFile { targets: vec![(id, Access::Any, counted)], ..WatchedFile::default() }
    }

    /// The targets that it is.
    pub fn targets(&self) -> impl Iterator<Item = TargetId> {
        self.targets.iter().map(|(id, ..)| *id)
    }

    /// It has returned to the watched files; whether it was not cached meanwhile.
    pub fn resume(&mut self, was_absent: bool) {
        if was_absent {
            self.parts.clear();
        }
        self.was_absent = Some(was_absent);
        // Its name is reported again: a record that has ended its part of the file no longer knows it.
        self.mappings = Arc::default();
    }

    /// Sets its size, which may have changed since it was listed.
    pub fn resize(&mut self, size: u64) {
        let Some(file) = &mut self.file else { return };
        file.size = size;
        let range = AddrRange::new(0, size.next_multiple_of(PAGE_SIZE));
        if let Some(mapping) = self.mappings.first().filter(|mapping| mapping.range != range) {
            self.mappings = Arc::new(vec![Mapping { range, ..mapping.clone() }]);
        }
    }

    /// Its path and its identity, if `target` is it.
    pub fn is(&self, target: TargetId) -> Option<(&str, FileKey)> {
        let file =
            self.file.as_ref().filter(|_| self.targets.iter().any(|(id, ..)| *id == target))?;
        Some((&*self.mappings.first()?.name, file.key()))
    }

    /// Forgets its cached parts; returns the file whose parts to read.
    pub fn begin_parts(&mut self) -> Option<CachedFile> {
        self.parts.clear();
        self.dirty = DirtyBytes::default();
        self.file.clone()
    }

    /// Adds a part to its window of 2^`shift` pages. Returns the number of windows that the targets have more.
    pub fn add_part(&mut self, part: &CachedRange, shift: u32) -> usize {
        self.dirty.dirty += u64::from(part.dirty) * PAGE_SIZE;
        self.dirty.writeback += u64::from(part.writeback) * PAGE_SIZE;
        let before = self.parts.len();
        if part.cached > 0 {
            *self.parts.entry(part.first >> shift).or_default() += part.cached;
        }
        (self.parts.len() - before) * self.targets.len()
    }

    /// Joins pairs of cached windows. Returns the number of windows that the targets have then.
    pub fn join_parts(&mut self) -> usize {
        for (number, cached) in std::mem::take(&mut self.parts) {
            *self.parts.entry(number / 2).or_default() += cached;
        }
        self.parts.len() * self.targets.len()
    }

    /// The counts of its targets.
    pub fn counted(&mut self) -> impl Iterator<Item = &mut CountedTarget> {
        self.targets.iter_mut().map(|(.., counted)| counted)
    }

    /// Size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.file.as_ref().map_or(0, |f| f.size)
    }

    /// Its pages in the cache, as last read.
    pub fn cached_pages(&self) -> u64 {
        self.parts.values().map(|pages| u64::from(*pages)).sum()
    }

    /// Its identity for the counter, and the target that its accesses belong to.
    pub fn traced(&self) -> Option<(u64, TargetId)> {
        Some((self.file.as_ref()?.id(), self.targets.first()?.0))
    }

    /// Number of windows of a target that are cached or that it remembers.
    pub fn nr_windows(&self) -> usize {
        let counted = self.targets.iter().map(|(.., counted)| counted.nr_windows()).max();
        self.parts.len().max(counted.unwrap_or(0))
    }

    /// Adds an interval, and appends the targets of the snapshot, each with at most `max` regions if possible.
    pub fn observe(&mut self, interval: &FileInterval<'_>, max: usize, out: &mut Vec<TargetView>) {
        let Some(file) = &self.file else { return };
        let id = file.id();
        let counts = interval.counts.get(&id).map(Vec::as_slice).unwrap_or_default();
        let all_mapped = interval.mapped.map(|all| all.get(&id).map(Vec::as_slice));
        let mapped = all_mapped.flatten().unwrap_or_default();
        if let Some(was_absent) = self.was_absent.take() {
            let length = u32::try_from(interval.time.as_millis()).unwrap_or(u32::MAX);
            let start = interval.now_ms.saturating_sub(length);
            self.targets.iter_mut().for_each(|(.., counted)| counted.resume(was_absent, start));
        }
        for (target, access, counted) in &mut self.targets {
            let window = PAGE_SIZE << interval.window_shift;
            counted.set_size(file.size, window, interval.now_ms);
            let cached = |(&number, &resident): (&u64, &u32)| {
                let idle = access.is_marked(interval, id, number).then_some(Duration::ZERO);
                (number, Window { resident, idle, ..Window::default() })
            };
            let mut sums = Sums { window, windows: self.parts.iter().map(cached).collect() };
            for count in counts.iter().filter(|c| access.counts(c.is_write)) {
                let number = count.window >> (interval.window_shift - interval.counted_shift);
                sums.windows.entry(number).or_default().counted += count.counted;
            }
            if access.is_mapped() {
                mapped.chunk_by(|a, b| a.pid == b.pid).for_each(|of| sums.add_mapped(of));
            }
            let observing = Observing {
                counted: interval
                    .counted
                    .filter(|_| !self.hides_reads && *access != Access::Mapped),
                time: interval.time,
                // Nobody looks at what is mapped.
                is_blind: file.is_mapped && access.is_mapped() && all_mapped.is_none(),
                is_mapped_only: *access == Access::Mapped,
            };
            let seen = sums.windows.iter().map(|(number, sums)| (*number, observing.window(sums)));
            counted.observe(seen, interval.now_ms);
            out.push(TargetView {
                id: *target,
                ran: None,
                mappings: Arc::clone(&self.mappings),
                left_out: 0,
                dirty: Some(self.dirty),
                regions: counted.regions(max, interval.sample, interval.now_ms),
                ages: counted.ages(interval.now, interval.now_ms).map(Arc::new),
            });
        }
    }
}

/// Sums of a window.
#[derive(Debug, Default, Clone, Copy)]
struct Window {
    resident: u32,
    counted: u64,
    /// Pages in page tables, those of them whose accesses cannot be observed, and why. Several processes mostly map the
    /// same pages, so these are the most that one of them maps.
    mapped: f64,
    unknown: f64,
    why: Option<Unknown>,
    /// accesses through mappings in Hz, of all pages together
    touches: f64,
    /// time since the last of them
    idle: Option<Duration>,
}

/// Sums by window.
struct Sums {
    window: u64,
    windows: BTreeMap<u64, Window>,
}

impl Sums {
    /// Adds the regions of a process that maps the file. Each window in memory has its share.
    fn add_mapped(&mut self, regions: &[MappedRegion]) {
        let mut own: BTreeMap<u64, Window> = BTreeMap::new();
        for MappedRegion { range, region, .. } in regions {
            let numbers = range.start / self.window..range.end.div_ceil(self.window);
            for (&number, _) in self.windows.range(numbers) {
                let start = number.saturating_mul(self.window).max(range.start);
                let end = (number + 1).saturating_mul(self.window).min(range.end);
                let pages = end.saturating_sub(start) as f64 / PAGE_SIZE as f64;
                let window = own.entry(number).or_default();
                match region {
                    Some(region) => window.add_region(pages, region),
                    None => window.add_unobserved(pages),
                }
            }
        }
        for (number, window) in own {
            self.windows.entry(number).or_default().add_process(&window);
        }
    }
}

impl Window {
    /// Adds pages of a region of the process that maps them.
    fn add_region(&mut self, pages: f64, region: &RegionView) {
        let share = |bp: u32| f64::from(bp) / 10_000.0 * pages;
        let unknown: f64 = region.unknown_bp.0.iter().map(|bp| share(*bp)).sum();
        let seen = (share(region.resident_bp) - unknown).max(0.0);
        self.mapped += seen + unknown;
        self.unknown += unknown;
        let most = Unknown::ALL.into_iter().max_by_key(|why| region.unknown_bp.0[why.index()]);
        if unknown > 0.0 {
            self.why = most;
        }
        let touched = f64::from(region.touched_bp) / 10_000.0;
        let hz = f64::from(region.rate.hz);
        if hz >= NO_HEAT_HZ {
            self.touches += hz * touched * seen;
        }
        if seen > 0.0 && hz < NO_HEAT_HZ {
            self.add_idle(region.age);
        }
    }

    /// Adds pages that a process maps, and accesses that are not observed.
    fn add_unobserved(&mut self, pages: f64) {
        self.mapped += pages;
        self.unknown += pages;
        self.why = Some(Unknown::Unseen);
    }

    /// Adds what a process maps of the window.
    fn add_process(&mut self, of: &Window) {
        if of.unknown > self.unknown {
            self.why = of.why;
        }
        self.unknown = self.unknown.max(of.unknown);
        self.mapped = self.mapped.max(of.mapped);
        self.touches += of.touches;
        of.idle.into_iter().for_each(|idle| self.add_idle(idle));
    }

    fn add_idle(&mut self, age: Duration) {
        self.idle = Some(self.idle.map_or(age, |idle| idle.min(age)));
    }
}

/// How the windows of a target were observed.
struct Observing {
    counted: Option<Duration>,
    time: Duration,
    is_blind: bool,
    is_mapped_only: bool,
}

impl Observing {
    fn window(&self, w: &Window) -> CountedWindow {
        let seconds = self.counted.unwrap_or(self.time).as_secs_f64();
        let share = ReadCounter::SHARE as f64;
        let accesses = w.counted as f64 + w.touches * seconds / share;
        // Of pages that are not mapped, no access through a mapping is missed.
        let mapped = (w.mapped.round() as u32).min(w.resident);
        let resident = if self.is_mapped_only { mapped } else { w.resident };
        let hidden = match () {
            () if accesses > 0.0 => 0.0,
            () if self.is_blind => f64::from(resident),
            () if self.counted.is_none() && !self.is_mapped_only => {
                f64::from(resident) - (w.mapped - w.unknown).min(f64::from(resident))
            }
            () => w.unknown,
        };
        let hidden = (hidden.round() as u32).min(resident);
        // Reads are counted in all pages.
        let observed = if self.counted.is_some() { resident } else { resident - hidden };
        let why = w.why.filter(|_| !self.is_blind).unwrap_or(Unknown::Cache);
        CountedWindow {
            resident,
            unknown: (hidden > 0).then_some((why, hidden)),
            accesses,
            exposure: f64::from(observed) * seconds / share,
            idle: w.idle,
            // Page tables keep accesses until they are read. What is neither counted nor mapped is unknown: later it may
            // be known again, and accesses until then were missed.
            watched: match hidden < resident {
                true => seconds / self.time.as_secs_f64().max(f64::MIN_POSITIVE),
                false => 0.0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::{Rate, UnknownPages};

    use super::*;

    /// A part of a file in a process, all of it in the page table and touched at this rate.
    fn region(pid: i32, pages: Range<u64>, hz: f32) -> MappedRegion {
        let range = AddrRange::new(pages.start * PAGE_SIZE, pages.end * PAGE_SIZE);
        let region = RegionView {
            range,
            accesses_bp: 0,
            age: Duration::from_secs(9),
            rate: Rate { hz, low: hz, high: hz },
            touched_bp: if hz > 0.0 { 10_000 } else { 0 },
            resident_bp: 10_000,
            unknown_bp: UnknownPages::default(),
            support: None,
        };
        MappedRegion { pid, range, region: Some(region) }
    }

    /// The first window of a file whose 64 pages are all cached, after a second.
    fn window(regions: &[MappedRegion], is_mapped_only: bool) -> CountedWindow {
        let cached = Window { resident: 64, ..Window::default() };
        let window = PAGE_SIZE << WINDOW_SHIFT;
        let mut sums = Sums { window, windows: BTreeMap::from([(0, cached)]) };
        regions.chunk_by(|a, b| a.pid == b.pid).for_each(|of| sums.add_mapped(of));
        let second = Duration::from_secs(1);
        let counted = Some(second).filter(|_| !is_mapped_only);
        let observing = Observing { counted, time: second, is_blind: false, is_mapped_only };
        observing.window(&sums.windows[&0])
    }

    fn hz(window: &CountedWindow) -> f64 {
        window.accesses / window.exposure
    }

    /// In a sparse file of 8 EiB, a window had billions of windows of counts, and each of their marks was read.
    #[test]
    fn a_window_has_a_bounded_number_of_marks() {
        assert_eq!(counted_windows(3, 0), Some(3..4));
        assert_eq!(counted_windows(3, 8), Some(768..1024));
        assert_eq!(counted_windows(3, 31), None);
    }

    #[test]
    fn parts_cost_by_cached_windows_and_can_be_joined() {
        let counted = || CountedTarget::new(PAGE_SIZE << WINDOW_SHIFT);
        let targets =
            [Access::Read, Access::Written].map(|access| (TargetId(0), access, counted()));
        let mut file = WatchedFile { targets: targets.into(), ..WatchedFile::default() };
        let mut add = |first, cached| {
            let part =
                CachedRange { first, cached, evicted: 9, dirty: 0, writeback: 0, sample: None };
            file.add_part(&part, WINDOW_SHIFT)
        };
        assert_eq!(
            [add(0, 5), add(64, 6), add(128, 0), add(1 << 40, 7), add(64, 1)],
            [2, 2, 0, 2, 0]
        );
        assert_eq!(file.join_parts(), 4);
        assert_eq!(file.parts.into_iter().collect::<Vec<_>>(), [(0, 12), (1 << 33, 7)]);
    }

    #[test]
    fn a_mapping_of_a_large_file_costs_by_its_cached_windows() {
        let window = PAGE_SIZE << WINDOW_SHIFT;
        let cached = Window { resident: 1, ..Window::default() };
        let mut sums = Sums { window, windows: BTreeMap::from([(3, cached), (1 << 20, cached)]) };
        sums.add_mapped(&[region(1, 0..1 << 30, 2.0)]);
        assert_eq!(sums.windows.keys().copied().collect::<Vec<_>>(), [3, 1 << 20]);
        assert!(sums.windows.values().all(|w| w.mapped == 64.0));
    }

    #[test]
    fn rates_of_several_processes_add_up() {
        let processes: Vec<_> = (1..=8).map(|pid| region(pid, 0..64, 2.0)).collect();
        for is_mapped_only in [true, false] {
            let window = window(&processes, is_mapped_only);
            assert_eq!((window.resident, hz(&window)), (64, 16.0), "{is_mapped_only}");
        }
        // Two parts in one process are different pages.
        let parts = window(&[region(1, 0..16, 2.0), region(1, 16..32, 2.0)], true);
        assert_eq!((parts.resident, hz(&parts)), (32, 2.0));
        let same = window(&[region(1, 0..16, 2.0), region(2, 0..16, 0.0)], true);
        assert_eq!((same.resident, hz(&same), same.idle), (16, 2.0, Some(Duration::from_secs(9))));
    }

    #[test]
    fn a_part_with_a_process_that_is_not_watched_is_unknown() {
        let unwatched = |pages| MappedRegion { region: None, ..region(0, pages, 0.0) };
        let idle = region(1, 0..64, 0.0);
        for is_mapped_only in [true, false] {
            let of = |regions: &[MappedRegion]| window(regions, is_mapped_only);
            assert_eq!(of(&[idle]).unknown, None);
            let unknown = of(&[idle, unwatched(0..64)]);
            assert_eq!((unknown.unknown, unknown.watched), (Some((Unknown::Unseen, 64)), 0.0));
            assert_eq!(of(&[idle, unwatched(0..16)]).unknown, Some((Unknown::Unseen, 16)));
            let hot = of(&[region(1, 0..64, 2.0), unwatched(0..64)]);
            assert_eq!((hot.unknown, hz(&hot)), (None, 2.0), "known accesses are known");
        }
    }

    /// Found by a review: one read in 64 s was one per second, because only the second with the read counted.
    #[test]
    fn seconds_without_reads_count_where_mapped_pages_are_hidden() {
        let second = Duration::from_secs(1);
        let observing = Observing {
            counted: Some(second),
            time: second,
            is_blind: true,
            is_mapped_only: false,
        };
        let quiet = Window { resident: 64, ..Window::default() };
        let read = Window { counted: 1, ..quiet };
        let all = std::iter::once(&read).chain(std::iter::repeat_n(&quiet, 63));
        let (mut accesses, mut exposure) = (0.0, 0.0);
        for window in all.map(|window| observing.window(window)) {
            accesses += window.accesses;
            exposure += window.exposure;
        }
        let once = observing.window(&read);
        assert_eq!(accesses / exposure, hz(&once) / 64.0);
    }
}
