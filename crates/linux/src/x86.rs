//! Page-table entries of x86-64. No other file depends on their layout.

use isotherm_core::PAGE_SIZE;

const PRESENT: u64 = 1;
const ACCESSED: u64 = 1 << 5;
/// In an entry without [`PRESENT`]: the page is mapped without any permission (NUMA balancing, `mprotect`).
const PROT_NONE: u64 = 1 << 8;
const FRAME_MASK: u64 = 0x000f_ffff_ffff_f000;

/// Bytes that one page table maps: the size of a huge page.
pub const HUGE_SIZE: u64 = 2 << 20;

/// The level at which the walk ended. The numbers are those of `enum level` in `walk.bpf.c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// no mapping
    None,
    /// entries of a page table
    Pte,
    /// one entry for 2 MiB
    Pmd,
    /// one entry for 1 GiB
    Pud,
    /// the table was replaced while it was read, or its state is not known
    Changed,
}

impl Level {
    /// The level with this number in the BPF program's answer.
    #[must_use]
    pub fn from_raw(raw: u32) -> Level {
        match raw {
            0 => Level::None,
            1 => Level::Pte,
            2 => Level::Pmd,
            3 => Level::Pud,
            _ => Level::Changed,
        }
    }
}

/// One leaf entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeafEntry(pub u64);

impl LeafEntry {
    /// Whether it maps a page in memory, accessible or not. Swap and migration entries have neither bit.
    #[must_use]
    pub fn is_resident(self) -> bool {
        self.0 & (PRESENT | PROT_NONE) != 0
    }

    /// Whether it is not resident but has content: a position in swap, or a migration.
    #[must_use]
    pub fn is_swapped(self) -> bool {
        !self.is_resident() && self.0 != 0
    }

    /// Whether it is resident, and was accessed since the bit was last cleared.
    #[must_use]
    pub fn is_young(self) -> bool {
        self.is_resident() && self.0 & ACCESSED != 0
    }

    /// The page frame. The kernel inverts it in entries that are not present (L1TF).
    #[must_use]
    pub fn frame(self) -> u64 {
        let bits = if self.0 & PRESENT == 0 { !self.0 } else { self.0 };
        (bits & FRAME_MASK) >> 12
    }

    /// Whether it maps memory of a process: a page in memory that is not a zero page.
    ///
    /// In the entry of a huge page that is not present, the kernel inverts only the bits that such a page needs,
    /// from 21 on. The lower ones are 0, and [`LeafEntry::frame`] finds ones there: 0x3ff instead of frame 0x200.
    #[must_use]
    pub fn is_memory(self, level: Level, zero_frames: &[u64]) -> bool {
        let within = if level == Level::Pmd { HUGE_SIZE / PAGE_SIZE - 1 } else { 0 };
        self.is_resident() && !zero_frames.contains(&(self.frame() & !within))
    }
}

/// The kernel's data about the folio of a page; see `folios` in `walk.bpf.c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Folio {
    /// the folio has 2^order pages
    pub order: u32,
    /// position of the page in it
    pub index: u32,
    /// whether it is on an LRU list. Up to 31 new pages wait on their CPU until they are on one. Until then
    /// they cannot be cleared.
    pub on_lru: bool,
    /// the number of entries that map the page, over all processes; 0 if the kernel does not count them
    pub mapped: u32,
}

impl Folio {
    /// The data in this word of the BPF program's answer. `None` if it is missing or invalid.
    #[must_use]
    pub fn from_raw(raw: u64) -> Option<Folio> {
        let (order, index, mapped) =
            ((raw >> 16 & 0xff) as u32, (raw & 0xffff) as u32, (raw >> 32) as u32);
        let folio = Folio { order, index, on_lru: raw & 1 << 25 != 0, mapped };
        (raw & 1 << 24 != 0 && folio.order <= 18 && folio.index >> folio.order == 0)
            .then_some(folio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_entries() {
        let young = LeafEntry(0x8000_0001_2345_6067);
        assert!(young.is_resident() && young.is_young());
        assert_eq!(young.frame(), 0x0012_3456);
        let old = LeafEntry(0x8000_0001_2345_6047);
        assert!(old.is_resident() && !old.is_young());
        let none = LeafEntry(0);
        assert!(!none.is_resident() && !none.is_young());
        // A swap entry has neither bit 0 nor bit 8, so the position of the accessed bit has no meaning.
        let swapped = LeafEntry(0x07ff_ffff_ffff_f02c & !(PRESENT | PROT_NONE) | ACCESSED);
        assert!(!swapped.is_resident() && !swapped.is_young() && swapped.is_swapped());
        assert!(![young, old, none].map(LeafEntry::is_swapped).contains(&true));
        // PROT_NONE: bit 8, frame inverted.
        let numa = LeafEntry((!(0x0012_3456_u64 << 12) & FRAME_MASK) | PROT_NONE | ACCESSED);
        assert!(numa.is_resident() && numa.is_young());
        assert_eq!(numa.frame(), 0x0012_3456);
    }

    #[test]
    fn zero_pages_are_not_memory() {
        let small = |frame: u64| LeafEntry(frame << 12 | PRESENT);
        let huge = |frame: u64| LeafEntry((!(frame << 12) & 0x000f_ffff_ffe0_0000) | PROT_NONE);
        let is_memory = |entry: LeafEntry, level| entry.is_memory(level, &[0x200]);
        assert!(!is_memory(small(0x200), Level::Pte) && is_memory(small(0x3ff), Level::Pte));
        assert!(!is_memory(small(0x200), Level::Pmd) && is_memory(small(0x400), Level::Pmd));
        assert!(!is_memory(huge(0x200), Level::Pmd) && is_memory(huge(0x400), Level::Pmd));
        assert!(!is_memory(LeafEntry(0), Level::Pte), "not resident");
    }

    #[test]
    fn folios() {
        assert_eq!(
            Folio::from_raw(1 << 24),
            Some(Folio { order: 0, index: 0, on_lru: false, mapped: 0 })
        );
        let last = Folio { order: 4, index: 15, on_lru: true, mapped: 2 };
        assert_eq!(Folio::from_raw(2 << 32 | 3 << 24 | 4 << 16 | 15), Some(last));
        assert_eq!(Folio::from_raw(1 << 24 | 4 << 16 | 16), None, "index outside");
        assert_eq!(Folio::from_raw(4 << 16), None, "not told");
    }
}
