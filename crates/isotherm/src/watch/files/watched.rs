//! A watched file: what was counted in its windows.

use std::collections::{BTreeMap, HashMap};
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

/// Binary logarithm of the pages of a window: 256 KiB, what a node of the page cache covers.
pub const WINDOW_SHIFT: u32 = 6;
const WINDOW: u64 = PAGE_SIZE << WINDOW_SHIFT;

/// The observed accesses of an interval.
pub struct Interval<'a> {
    /// its length
    pub time: Duration,
    /// the part of it in which accesses were counted; `None` if they cannot be
    pub counted: Option<Duration>,
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

    /// Whether a page was accessed while accesses were counted.
    fn is_marked(self, counter: &ReadCounter, file: u64, page: u64) -> bool {
        let window = page >> WINDOW_SHIFT;
        let is_marked =
            |is_write| self.counts(is_write) && counter.is_marked(file, window, is_write);
        is_marked(false) || is_marked(true)
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

/// A file, and the targets that it is in a record.
#[derive(Default)]
pub struct WatchedFile {
    file: Option<CachedFile>,
    is_tmpfs: bool,
    mappings: Arc<Vec<Mapping>>,
    targets: Vec<(TargetId, Access, CountedTarget)>,
    /// cached pages by the first page of a part
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
        let FoundFile { file, name, is_tmpfs, .. } = found;
        if self.targets.is_empty() {
            let all: &[Access] = match by_access {
                true => &[Access::Read, Access::Written, Access::Mapped],
                false => &[Access::Any],
            };
            for access in all {
                let mut counted = CountedTarget::new(WINDOW);
                if remembers {
                    counted.remember();
                }
                self.targets.push((TargetId(*next_id), *access, counted));
                *next_id += 1;
            }
        }
        let range = AddrRange::new(0, file.size.next_multiple_of(PAGE_SIZE));
        self.is_tmpfs = is_tmpfs;
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

    /// It has returned to the watched files; whether it was not cached meanwhile.
    pub fn resume(&mut self, was_absent: bool) {
        if was_absent {
            self.parts.clear();
        }
        self.was_absent = Some(was_absent);
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

    /// Adds a part.
    pub fn add_part(&mut self, part: &CachedRange) {
        *self.parts.entry(part.first).or_default() += part.cached;
        self.dirty.dirty += u64::from(part.dirty) * PAGE_SIZE;
        self.dirty.writeback += u64::from(part.writeback) * PAGE_SIZE;
    }

    /// Size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.file.as_ref().map_or(0, |f| f.size)
    }

    /// Its identity for the counter, and the target that its accesses belong to.
    pub fn traced(&self) -> Option<(u64, TargetId)> {
        Some((self.file.as_ref()?.id(), self.targets.first()?.0))
    }

    /// Number of windows of the file.
    pub fn nr_windows(&self) -> usize {
        usize::try_from(self.size().div_ceil(WINDOW)).unwrap_or(usize::MAX)
    }

    /// Adds an interval, and appends the targets of the snapshot, each with at most `max` regions if possible.
    pub fn observe(&mut self, interval: &Interval<'_>, max: usize, out: &mut Vec<TargetView>) {
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
            let window = counted.set_size(file.size, interval.now_ms);
            let mut sums = Sums { window, windows: HashMap::new() };
            for (page, cached) in &self.parts {
                let is_marked = interval.counter.is_some_and(|c| access.is_marked(c, id, *page));
                let window = sums.at(page * PAGE_SIZE);
                window.resident += cached;
                if is_marked {
                    window.idle = Some(Duration::ZERO);
                }
            }
            for count in counts.iter().filter(|c| access.counts(c.is_write)) {
                sums.at(count.window.saturating_mul(WINDOW)).counted += count.counted;
            }
            if access.is_mapped() {
                mapped.chunk_by(|a, b| a.pid == b.pid).for_each(|of| sums.add_mapped(of));
            }
            let observing = Observing {
                counted: interval.counted.filter(|_| !self.is_tmpfs && *access != Access::Mapped),
                time: interval.time,
                // Nobody looks at what is mapped.
                is_blind: file.is_mapped && access.is_mapped() && all_mapped.is_none(),
                is_mapped_only: *access == Access::Mapped,
            };
            counted.observe(|i| observing.window(sums.windows.get(&(i as u64))), interval.now_ms);
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
    windows: HashMap<u64, Window>,
}

impl Sums {
    fn at(&mut self, offset: u64) -> &mut Window {
        self.windows.entry(offset / self.window).or_default()
    }

    /// Adds the regions of a process that maps the file.
    fn add_mapped(&mut self, regions: &[MappedRegion]) {
        let mut own = Sums { window: self.window, windows: HashMap::new() };
        regions.iter().for_each(|r| own.add_region(r));
        for (index, window) in own.windows {
            self.windows.entry(index).or_default().add_process(&window);
        }
    }

    /// Adds a region: each window has its share.
    fn add_region(&mut self, MappedRegion { range, region, .. }: &MappedRegion) {
        let mut at = range.start;
        while at < range.end {
            let end = ((at / self.window + 1) * self.window).min(range.end);
            let pages = (end - at) as f64 / PAGE_SIZE as f64;
            match region {
                Some(region) => self.at(at).add_region(pages, region),
                None => self.at(at).add_unobserved(pages),
            }
            at = end;
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
    fn window(&self, sums: Option<&Window>) -> CountedWindow {
        let Some(w) = sums else { return CountedWindow::default() };
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
        let why = w.why.filter(|_| !self.is_blind).unwrap_or(Unknown::Cache);
        CountedWindow {
            resident,
            unknown: (hidden > 0).then_some((why, hidden)),
            accesses,
            exposure: f64::from(resident - hidden) * seconds / share,
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
    use isotherm_core::{Pages, Rate};

    use super::*;

    /// A part of a file in a process, all of it in the page table and touched at this rate.
    fn region(pid: i32, pages: std::ops::Range<u64>, hz: f32) -> MappedRegion {
        let range = AddrRange::new(pages.start * PAGE_SIZE, pages.end * PAGE_SIZE);
        let region = RegionView {
            range,
            accesses_bp: 0,
            age: Duration::from_secs(9),
            rate: Rate { hz, low: hz, high: hz },
            touched_bp: if hz > 0.0 { 10_000 } else { 0 },
            resident_bp: 10_000,
            unknown_bp: Pages::default(),
            support: None,
        };
        MappedRegion { pid, range, region: Some(region) }
    }

    /// The first window of a file whose 64 pages are all cached, after a second.
    fn window(regions: &[MappedRegion], is_mapped_only: bool) -> CountedWindow {
        let mut sums = Sums { window: WINDOW, windows: HashMap::new() };
        sums.at(0).resident = 64;
        regions.chunk_by(|a, b| a.pid == b.pid).for_each(|of| sums.add_mapped(of));
        let second = Duration::from_secs(1);
        let counted = Some(second).filter(|_| !is_mapped_only);
        let observing = Observing { counted, time: second, is_blind: false, is_mapped_only };
        observing.window(sums.windows.get(&0))
    }

    fn hz(window: &CountedWindow) -> f64 {
        window.accesses / window.exposure
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
}
