//! Reads windows, and determines which of their pages can be observed.

use isotherm_core::{AddrRange, Ask, Nanos, OpsError, PAGE_SIZE, PageMask, Seen, Unknown};

use super::epochs::{CandidatePage, Epochs};
use super::process::VaddrTarget;
use super::shape::{ClearPlan, WindowPages, plan};
use crate::sys::monotonic;
use crate::walker::{Walker, Want, WindowAnswer};
use crate::x86::{LeafEntry, Level};

/// One window after reading.
pub(super) struct Window {
    pub seen: Seen,
    /// The remaining work. Most windows have no young page, and need none.
    pub work: Option<Box<Work>>,
}

pub(super) struct Work {
    range: AddrRange,
    resident: PageMask,
    young: PageMask,
    /// pages that `MADV_COLD` does not clear
    unclearable: PageMask,
    /// the reason why they are unknown if epochs have no result for them
    why: Unknown,
    /// pages to look up in epochs
    asked: Vec<CandidatePage>,
    pub partial: PageMask,
    pub clear: ClearPlan,
}

/// Reads the windows of `asks`; returns none if the process has ended or has been replaced.
pub(super) fn read_windows(
    walker: &mut Walker,
    process: &mut VaddrTarget,
    epochs: &Epochs,
    asks: &[Ask],
) -> Result<Vec<Window>, OpsError> {
    let zero = walker.zero_frames().to_vec();
    let wants: Vec<Want> = asks.iter().map(|a| want(process, epochs, a)).collect();
    let windows = asks.iter().map(|a| a.range).zip(wants.iter().copied());
    let read = walker.read(process.pid, windows);
    let Some(batch) = process.as_it_was(read, |batch| Some(batch.identity))? else {
        return Ok(Vec::new());
    };
    let read_at = monotonic();
    let cover_all = epochs.cover_all();
    let mut out = Vec::with_capacity(asks.len());
    for ((ask, answer), want) in asks.iter().zip(batch.answers()).zip(wants) {
        let asked = want == Want::Folios;
        out.push(Window::read(ask, &answer, process, cover_all, asked, &zero, read_at));
    }
    Ok(out)
}

/// The information to request for a window. The folio of a page reports how often the page is mapped: this is
/// requested for windows with a young page, and where the check is worthwhile.
fn want(process: &mut VaddrTarget, epochs: &Epochs, ask: &Ask) -> Want {
    let mapping = process.mapping_at(ask.range.start).map(|m| (m.range.start, m.unknown));
    let Some((area, unknown)) = mapping else { return Want::FoliosIfYoung };
    let by_epoch = match unknown {
        None => epochs.cover_all() && process.has_strangers(area),
        Some(why) => why == Unknown::Mlocked,
    };
    // Results of epochs are for asks that only read, not for those that clear.
    let for_epoch = by_epoch && !ask.clear && process.takes_epochs();
    if process.asks_for_shared(area) || for_epoch { Want::Folios } else { Want::FoliosIfYoung }
}

/// Which of the first `pages` pages are resident, and which of those are young. The zero page is mapped, but it
/// is not memory of the process.
pub(super) fn resident_and_young(
    answer: &WindowAnswer<'_>,
    pages: usize,
    zero_frames: &[u64],
) -> (PageMask, PageMask) {
    let is_memory = |e: LeafEntry| e.is_memory(answer.level, zero_frames);
    let (mut resident, mut young) = (PageMask::default(), PageMask::default());
    match answer.level {
        Level::Pte => {
            for (i, &raw) in answer.entries.iter().enumerate().take(pages) {
                if is_memory(LeafEntry(raw)) {
                    resident.insert(i);
                    if LeafEntry(raw).is_young() {
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
    /// A window without a result.
    pub(super) fn dropped() -> Self {
        Window { seen: Seen::default(), work: None }
    }

    fn read(
        ask: &Ask,
        answer: &WindowAnswer<'_>,
        process: &mut VaddrTarget,
        cover_all: bool,
        asked: bool,
        zero_frames: &[u64],
        read_at: Nanos,
    ) -> Window {
        let range = ask.range;
        let mapping = process.mapping_at(range.start).map(|m| (m.range, m.unknown));
        let Some((area, unknown)) = mapping.filter(|_| answer.level != Level::Changed) else {
            return Window::dropped();
        };
        let pages = usize::try_from(range.len() / PAGE_SIZE).unwrap_or(0);
        let (resident, young) = resident_and_young(answer, pages, zero_frames);
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        let mut seen = Seen { pages, read_at, cleared_at: read_at, ..Seen::default() };
        let locked = unknown == Some(Unknown::Mlocked) && process.takes_epochs();
        if let Some(why) = unknown.filter(|_| !locked) {
            seen.unknown.0[why.index()] = resident.count();
            return Window { seen, work: None };
        }
        seen.present = resident.count();
        let all = locked || cover_all;
        if resident.is_empty() || !(all || asked || !young.is_empty()) {
            return Window { seen, work: None };
        }
        // Other mappings of the zero page do not matter to this process.
        let unclearable = if all {
            resident
        } else {
            let noted = (resident, area.start);
            process.shared(range.start, &resident, noted, |i| answer.mapped(i))
        };
        let clearable = young.without(&unclearable);
        let (level, mapped) = (answer.level, &resident);
        let pages = WindowPages { window: range, area, level, mapped, young: &clearable };
        let clear = plan(&pages, |i| answer.folio(i));
        let why = match (locked, cover_all) {
            (true, _) => Unknown::Mlocked,
            (_, true) => Unknown::Unseen,
            _ => Unknown::Shared,
        };
        let takes_epochs = process.takes_epochs() && !ask.clear;
        let strangers = process.has_strangers(area.start);
        let asked = unclearable.and(&resident);
        let asked = asked.iter().filter(|_| takes_epochs).map(|page| CandidatePage {
            frame: answer.frame(range, page),
            young: young.contains(page),
            mapped: if strangers { answer.mapped(page) } else { Some(0) },
        });
        let asked = asked.collect();
        let partial = clear.partial;
        let work = Work { range, resident, young, unclearable, why, asked, partial, clear };
        Window { seen, work: Some(Box::new(work)) }
    }

    /// The result of the window.
    ///
    /// If clearing observes one part of the window and epochs observe another, their exposures differ, and one
    /// answer cannot contain both. Then a pseudo-random choice returns one part, as if the window had no other
    /// pages.
    pub(super) fn seen(&self, epochs: &Epochs) -> Seen {
        let mut seen = self.seen;
        let Some(w) = &self.work else { return seen };
        let unclearable = w.resident.and(&w.unclearable);
        let partial = w.resident.and(&w.partial).without(&unclearable);
        let new = w.resident.and(&w.clear.new).without(&unclearable);
        let visible = w.resident.without(&unclearable).without(&partial).without(&new);
        let mut unknown = |why: Unknown, pages| seen.unknown.0[why.index()] += pages;
        unknown(Unknown::Unseen, new.count());
        unknown(Unknown::Partial, partial.count());
        let by_epoch = epochs.answer(w.asked.iter().copied()).filter(|_| !w.asked.is_empty());
        match by_epoch {
            None => unknown(w.why, unclearable.count()),
            Some(e) => {
                unknown(Unknown::Shared, e.shared);
                unknown(w.why, e.unseen);
            }
        }
        (seen.present, seen.young) = (visible.count(), visible.and(&w.young).count());
        let Some(e) = by_epoch.filter(|e| e.visible > 0) else { return seen };
        let coin = seen.read_at.0 >> 4 & 1 == 1;
        if seen.present > 0 && coin {
            seen.pages -= e.visible;
            return seen;
        }
        Seen {
            pages: seen.pages - seen.present,
            present: e.visible,
            young: e.young,
            later: e.later,
            read_at: e.read_at,
            since: Some(e.since),
            ..seen
        }
    }
}

impl Work {
    /// The pages of the window that lie in `range`.
    pub(super) fn pages_of(&self, range: AddrRange) -> std::ops::Range<usize> {
        let index = |addr: u64| {
            usize::try_from(addr.saturating_sub(self.range.start) / PAGE_SIZE).unwrap_or(0)
        };
        index(range.start)..index(range.end.min(self.range.end))
    }
}
