//! Windows: reading them, finding out what of them can be seen, and clearing them.

use std::collections::HashSet;
use std::os::fd::AsFd;

use isotherm_core::{AddrRange, Ask, Nanos, OpsError, PAGE_SIZE, Seen, Unknown};

use super::mask::PageMask;
use super::shape::{Pages, Plan, is_whole, plan};
use super::vaddr::{AttachError, Process};
use crate::sys::{Advice, monotonic, process_madvise};
use crate::walker::{Answer, WalkError, Walker, fitting};
use crate::x86::{Entry, Level};

/// Ranges cleared between two time stamps: at 10 to 25 us each, a stamp is wrong by 1.6 ms at most.
const CLEARED_AT_ONCE: usize = 64;

/// One window as read.
pub(super) struct Window {
    seen: Seen,
    /// What is left to find out. Most windows are old, and done with.
    work: Option<Box<Work>>,
}

struct Work {
    range: AddrRange,
    resident: PageMask,
    young: PageMask,
    shared: PageMask,
    partial: PageMask,
    clear: Plan,
}

/// Reads the windows of `asks`; none if the process is no longer what it was.
pub(super) fn read_windows(
    walker: &mut Walker,
    process: &mut Process,
    asks: &[Ask],
) -> Result<Vec<Window>, OpsError> {
    let zero = walker.zero_frames().to_vec();
    let batch = match walker.read(process.pid, asks.iter().map(|a| a.range), true) {
        Ok(batch) => batch,
        Err(WalkError::NoTask(_) | WalkError::NoMemory(_)) => return Ok(Vec::new()),
        Err(e) => return Err(OpsError::Failed(e.to_string())),
    };
    if batch.identity != process.identity {
        return Ok(Vec::new());
    }
    let read_at = monotonic();
    let pairs = asks.iter().zip(batch.answers());
    Ok(pairs.map(|(ask, a)| Window::read(ask.range, &a, process, &zero, read_at)).collect())
}

/// Decides on the large folios of the plans: they may be cleared only if they are mapped whole.
pub(super) fn check_folios(
    walker: &mut Walker,
    process: &Process,
    windows: &mut [Window],
) -> Result<(), OpsError> {
    let works = windows.iter().filter_map(|w| w.work.as_ref());
    let wanted: HashSet<AddrRange> = works.flat_map(|w| w.clear.folios.iter().copied()).collect();
    let mut whole = HashSet::new();
    let mut rest: &[AddrRange] = &wanted.into_iter().collect::<Vec<_>>();
    while !rest.is_empty() {
        let n = fitting(rest.iter().copied()).max(1).min(rest.len());
        let (now, later) = rest.split_at(n);
        match walker.read(process.pid, now.iter().copied(), false) {
            Ok(batch) if batch.identity == process.identity => {
                let pairs = now.iter().zip(batch.answers());
                whole.extend(pairs.filter(|(r, a)| is_mapped_whole(**r, a)).map(|(r, _)| *r));
            }
            Ok(_) | Err(WalkError::NoTask(_) | WalkError::NoMemory(_)) => {}
            Err(e) => return Err(OpsError::Failed(e.to_string())),
        }
        rest = later;
    }
    for w in windows.iter_mut().filter_map(|w| w.work.as_mut()) {
        for folio in std::mem::take(&mut w.clear.folios) {
            if whole.contains(&folio) {
                w.clear.ranges.push(folio);
            } else {
                w.pages_of(folio).for_each(|page| w.partial.insert(page));
            }
        }
    }
    Ok(())
}

fn is_mapped_whole(range: AddrRange, answer: &Answer<'_>) -> bool {
    let pages = usize::try_from(range.len() / PAGE_SIZE).unwrap_or(0);
    let frame = |i| Some(answer.entry(i)).filter(|e| e.is_resident()).map(|e| e.frame());
    answer.level == Level::Pte && is_whole((0..pages).map(frame))
}

/// Clears the planned ranges where that was asked for; returns how many. A range that is refused
/// makes its window a dropped one.
pub(super) fn clear(
    process: &Process,
    asks: &[Ask],
    windows: &mut [Window],
) -> Result<u64, OpsError> {
    let mut done = HashSet::new();
    let mut todo: Vec<(AddrRange, usize)> = Vec::new();
    let wanted = asks.iter().zip(windows.iter()).enumerate().filter(|(_, (a, _))| a.clear);
    for (i, w) in wanted.filter_map(|(i, (_, w))| Some((i, w.work.as_ref()?))) {
        // Two windows in one huge page or folio: both were read, it is cleared once.
        todo.extend(w.clear.ranges.iter().filter(|r| done.insert(**r)).map(|r| (*r, i)));
    }
    let mut cleared = 0;
    for part in todo.chunks(CLEARED_AT_ONCE) {
        let ranges: Vec<AddrRange> = part.iter().map(|(r, _)| *r).collect();
        let failed = advise_cold(process, &ranges)?;
        cleared += (ranges.len() - failed.len()) as u64;
        let at = monotonic();
        for (k, (_, i)) in part.iter().enumerate() {
            if let Some(w) = windows.get_mut(*i) {
                w.seen.cleared_at = at;
                if failed.contains(&k) {
                    *w = Window::dropped();
                }
            }
        }
    }
    Ok(cleared)
}

/// Gives all `ranges` the advice; a bad one stops the kernel, is skipped, and its index returned.
fn advise_cold(process: &Process, ranges: &[AddrRange]) -> Result<Vec<usize>, OpsError> {
    let mut failed = Vec::new();
    let mut at = 0;
    while let Some(rest) = ranges.get(at..).filter(|r| !r.is_empty()) {
        match process_madvise(process.pidfd.as_fd(), rest, Advice::Cold) {
            Ok(bytes) => at += whole_ranges(rest, bytes),
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
                let e = AttachError::NoClearing { pid: process.pid, source: e };
                return Err(OpsError::Failed(e.to_string()));
            }
            Err(_) => {}
        }
        if at < ranges.len() {
            failed.push(at);
            at += 1;
        }
    }
    Ok(failed)
}

/// How many of `ranges`, from the first on, `bytes` cover whole.
fn whole_ranges(ranges: &[AddrRange], bytes: u64) -> usize {
    let mut sum = 0;
    ranges
        .iter()
        .take_while(|r| {
            sum += r.len();
            sum <= bytes
        })
        .count()
}

/// Which of the first `pages` pages are resident, and which of these young. The zero page is mapped,
/// but it is no memory of the process.
fn resident_and_young(
    answer: &Answer<'_>,
    pages: usize,
    zero_frames: &[u64],
) -> (PageMask, PageMask) {
    let is_memory = |e: Entry| e.is_resident() && !zero_frames.contains(&e.frame());
    let (mut resident, mut young) = (PageMask::default(), PageMask::default());
    match answer.level {
        Level::Pte => {
            for (i, &raw) in answer.entries.iter().enumerate().take(pages) {
                if is_memory(Entry(raw)) {
                    resident.insert(i);
                    if Entry(raw).is_young() {
                        young.insert(i);
                    }
                }
            }
        }
        Level::Pmd | Level::Pud => {
            let entry = answer.entry(0);
            let all = |yes| PageMask::of(if yes { pages } else { 0 }, |_| true);
            (resident, young) = (all(is_memory(entry)), all(is_memory(entry) && entry.is_young()));
        }
        Level::None | Level::Changed => {}
    }
    (resident, young)
}

impl Window {
    /// It says nothing.
    fn dropped() -> Self {
        Window { seen: Seen::default(), work: None }
    }

    fn read(
        range: AddrRange,
        answer: &Answer<'_>,
        process: &mut Process,
        zero_frames: &[u64],
        read_at: Nanos,
    ) -> Window {
        let mapping = process.mapping_at(range.start).map(|m| (m.range, m.unknown));
        let Some((area, unknown)) = mapping.filter(|_| answer.level != Level::Changed) else {
            return Window::dropped();
        };
        let pages = range.len() / PAGE_SIZE;
        let (resident, young) = resident_and_young(answer, pages as usize, zero_frames);
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        let mut seen = Seen { pages, read_at, cleared_at: read_at, ..Seen::default() };
        if let Some(why) = unknown {
            seen.unknown.0[why.index()] = resident.count();
            return Window { seen, work: None };
        }
        seen.present = resident.count();
        let has_work =
            !resident.is_empty() && process.asks_for_shared(area.start, !young.is_empty());
        let work = has_work.then(|| {
            let shared = process.shared(range, area.start);
            let clearable = young.without(&shared);
            let (level, mapped) = (answer.level, &resident);
            let pages = Pages { window: range, area, level, mapped, young: &clearable };
            let clear = plan(&pages, |i| answer.folio(i));
            Box::new(Work { range, resident, young, shared, partial: clear.partial, clear })
        });
        Window { seen, work }
    }

    /// What the window has shown.
    pub(super) fn seen(&self) -> Seen {
        let mut seen = self.seen;
        if let Some(w) = &self.work {
            let shared = w.resident.and(&w.shared);
            let partial = w.resident.and(&w.partial).without(&shared);
            let new = w.resident.and(&w.clear.new).without(&shared);
            let visible = w.resident.without(&shared).without(&partial).without(&new);
            seen.unknown.0[Unknown::Shared.index()] = shared.count();
            seen.unknown.0[Unknown::Unseen.index()] = new.count();
            seen.unknown.0[Unknown::Partial.index()] = partial.count();
            seen.present = visible.count();
            seen.young = visible.and(&w.young).count();
        }
        seen
    }
}

impl Work {
    /// The pages of the window that lie in `range`.
    fn pages_of(&self, range: AddrRange) -> std::ops::Range<usize> {
        let index = |addr: u64| {
            usize::try_from(addr.saturating_sub(self.range.start) / PAGE_SIZE).unwrap_or(0)
        };
        index(range.start)..index(range.end.min(self.range.end))
    }
}
