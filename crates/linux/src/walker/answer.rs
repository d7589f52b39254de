//! The answers of the BPF program.

use isotherm_core::{AddrRange, PAGE_SIZE};

use super::{MAX_ENTRIES, MAX_WINDOWS};
use crate::skel::types;
use crate::x86::{Folio, HUGE_SIZE, LeafEntry, Level};

/// Pages that one table maps.
const TABLE_PAGES: u64 = HUGE_SIZE / PAGE_SIZE;

/// Identifies a process and its address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// nanoseconds since boot when the task started
    pub start_boottime: u64,
    /// address of its `mm_struct`: changes with `exec`
    pub mm: u64,
}

/// State of a process that is known without reading its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Glance {
    /// identity of the process
    pub identity: Identity,
    /// number of its threads
    pub threads: u32,
    /// differs after its mappings have changed; `None` if the kernel does not count changes
    /// (`CONFIG_PER_VMA_LOCK`, since 6.4)
    pub changes: Option<MapChanges>,
}

/// `mm_lock_seq` of the memory map, which grows with each write lock; and its size in pages with the number of
/// its areas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapChanges(u64, u64);

/// The answer for one window.
#[derive(Debug, Clone, Copy)]
pub struct WindowAnswer<'a> {
    /// where the walk ended
    pub level: Level,
    /// one entry per page for [`Level::Pte`], otherwise one entry in total
    pub entries: &'a [u64],
    folios: &'a [u64],
    large_folios: bool,
    counts_pages: bool,
    keeps_folios: bool,
}

impl WindowAnswer<'_> {
    /// The entry for the page at `index` of the window.
    #[must_use]
    pub fn entry(&self, index: usize) -> LeafEntry {
        let index = if self.level == Level::Pte { index } else { 0 };
        LeafEntry(self.entries.get(index).copied().unwrap_or(0))
    }

    /// The page frame of the resident page at `index` of the window `range`.
    #[must_use]
    pub fn frame(&self, range: AddrRange, index: usize) -> u64 {
        let frame = self.entry(index).frame();
        let within = |pages: u64| (range.start / PAGE_SIZE + index as u64) % pages;
        match self.level {
            Level::Pmd => frame & !(TABLE_PAGES - 1) | within(TABLE_PAGES),
            Level::Pud => {
                frame & !(TABLE_PAGES * TABLE_PAGES - 1) | within(TABLE_PAGES * TABLE_PAGES)
            }
            _ => frame,
        }
    }

    /// The folio of a page, if it was requested, if the proof has confirmed the walker's data about such folios,
    /// and if clearing it as a whole does not split it. In a huge page, the folio of its first page.
    #[must_use]
    pub fn folio(&self, index: usize) -> Option<Folio> {
        let is_kept = |f: &Folio| f.order == 0 || self.level != Level::Pte || self.keeps_folios;
        self.any_folio(index).filter(is_kept)
    }

    /// The same, also if a clear splits it.
    pub(crate) fn any_folio(&self, index: usize) -> Option<Folio> {
        let index = if self.level == Level::Pte { index } else { 0 };
        let folio = self.folios.get(index).and_then(|&raw| Folio::from_raw(raw));
        let folio = folio.filter(|f| f.order == 0 || self.large_folios)?;
        let counts = self.counts_pages || folio.order == 0 || self.level != Level::Pte;
        Some(Folio { mapped: if counts { folio.mapped } else { 0 }, ..folio })
    }

    /// The number of entries that map a page, over all processes, if known.
    #[must_use]
    pub fn mapped(&self, index: usize) -> Option<u32> {
        self.any_folio(index).map(|f| f.mapped).filter(|&n| n > 0)
    }
}

/// The answers of one run, in the order of the requested windows.
#[derive(Debug)]
pub struct Batch<'a> {
    /// identity of the process
    pub identity: Identity,
    pub(super) bss: &'a types::bss,
    pub(super) windows: usize,
    pub(super) large_folios: bool,
    pub(super) counts_pages: bool,
    pub(super) keeps_folios: bool,
}

impl Batch<'_> {
    /// The answers, window by window.
    pub fn answers(&self) -> impl Iterator<Item = WindowAnswer<'_>> {
        self.bss.windows.iter().zip(&self.bss.levels).take(self.windows).map(|(w, &level)| {
            let level = Level::from_raw(level);
            let (first, pages) = (w.first as usize, w.pages as usize);
            let n = if level == Level::Pte { pages } else { 1 };
            WindowAnswer {
                level,
                entries: self.bss.entries.get(first..first + n).unwrap_or_default(),
                folios: self.bss.folios.get(first..first + n).unwrap_or_default(),
                large_folios: self.large_folios,
                counts_pages: self.counts_pages,
                keeps_folios: self.keeps_folios,
            }
        })
    }
}

/// The number of leading `ranges` that fit in one run.
#[must_use]
pub fn fitting(ranges: impl Iterator<Item = AddrRange>) -> usize {
    let mut pages = 0;
    ranges
        .take(MAX_WINDOWS)
        .take_while(|r| {
            pages += pages_in(*r) as usize;
            pages <= MAX_ENTRIES
        })
        .count()
}

pub(super) fn pages_in(range: AddrRange) -> u32 {
    u32::try_from(range.len() / PAGE_SIZE).unwrap_or(u32::MAX)
}

pub(super) fn identity(bss: &types::bss) -> Identity {
    Identity { start_boottime: bss.identity.start_boottime, mm: bss.identity.mm }
}

pub(super) fn glance(bss: &types::bss) -> Glance {
    const IS_COUNTED: u64 = 1 << 32;
    let [changes, size] = bss.identity.map_changes;
    Glance {
        identity: identity(bss),
        threads: u32::try_from(bss.identity.threads).unwrap_or(1),
        changes: (changes & IS_COUNTED != 0).then_some(MapChanges(changes, size)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_proven_facts_of_large_folios_are_reported() {
        let raw = |order: u64| 1 << 32 | 1 << 24 | order << 16;
        let folios = [raw(0), raw(4)];
        let answer = WindowAnswer {
            level: Level::Pte,
            entries: &[],
            folios: &folios,
            large_folios: true,
            counts_pages: false,
            keeps_folios: true,
        };
        let orders = |answer: WindowAnswer<'_>| {
            [0, 1].map(|index| answer.folio(index).map(|f| (f.order, f.mapped)))
        };
        let mapped = |answer: WindowAnswer<'_>| [0, 1].map(|index| answer.mapped(index));
        assert_eq!(orders(answer), [Some((0, 1)), Some((4, 0))]);
        assert_eq!(mapped(answer), [Some(1), None], "0 means unknown");
        let unproven = WindowAnswer { large_folios: false, ..answer };
        assert_eq!(orders(unproven), [Some((0, 1)), None]);
        // Clearing would split the folio, but the number of its mappers is known.
        let splitting = WindowAnswer { counts_pages: true, keeps_folios: false, ..answer };
        assert_eq!(orders(splitting), [Some((0, 1)), None]);
        assert_eq!(mapped(splitting), [Some(1), Some(1)]);
        let huge = [raw(9)];
        let huge = WindowAnswer { level: Level::Pmd, folios: &huge, ..splitting };
        assert_eq!(huge.folio(5).map(|f| f.order), Some(9), "one entry maps it");
    }
}
