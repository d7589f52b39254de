//! Page-table entries of x86-64: all that isotherm knows of them, and the only file that does.

const PRESENT: u64 = 1;
const ACCESSED: u64 = 1 << 5;
/// In an entry without [`PRESENT`]: mapped without any permission (NUMA balancing, `mprotect`).
const PROT_NONE: u64 = 1 << 8;
const FRAME: u64 = 0x000f_ffff_ffff_f000;

/// Bytes that one page table maps: the size of a huge page.
pub const HUGE_SIZE: u64 = 2 << 20;

/// Where the walk ended; the numbers are those of `enum level` in `walk.bpf.c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// nothing is mapped
    None,
    /// entries of a page table
    Pte,
    /// one entry for 2 MiB
    Pmd,
    /// one entry for 1 GiB
    Pud,
    /// the table was replaced while it was read, or its state cannot be told
    Changed,
}

impl Level {
    /// From the number in the BPF program's answer.
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
pub struct Entry(pub u64);

impl Entry {
    /// Whether memory stands behind it, accessible or not. Swap and migration entries have neither
    /// bit.
    #[must_use]
    pub fn is_resident(self) -> bool {
        self.0 & (PRESENT | PROT_NONE) != 0
    }

    /// Not resident, but something is written down of it: where it lies in swap, or that it is just
    /// being moved.
    #[must_use]
    pub fn is_swapped(self) -> bool {
        !self.is_resident() && self.0 != 0
    }

    /// Resident, and accessed since the bit was last cleared.
    #[must_use]
    pub fn is_young(self) -> bool {
        self.is_resident() && self.0 & ACCESSED != 0
    }

    /// The page frame. The kernel inverts it in entries that are not present (L1TF).
    #[must_use]
    pub fn frame(self) -> u64 {
        let bits = if self.0 & PRESENT == 0 { !self.0 } else { self.0 };
        (bits & FRAME) >> 12
    }
}

/// What the kernel knows of the folio behind a page; see `folios` in `walk.bpf.c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Folio {
    /// the folio has 2^order pages
    pub order: u32,
    /// position of the page in it
    pub index: u32,
    /// It is on an LRU list. New pages wait for that on their CPU, up to 31 of them, and cannot be
    /// cleared until then.
    pub on_lru: bool,
    /// by how many entries the page is mapped, over all processes; 0 where that is not counted
    pub mapped: u32,
}

impl Folio {
    /// From the word in the BPF program's answer; `None` if it was not told or makes no sense.
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
        let young = Entry(0x8000_0001_2345_6067);
        assert!(young.is_resident() && young.is_young());
        assert_eq!(young.frame(), 0x0012_3456);
        let old = Entry(0x8000_0001_2345_6047);
        assert!(old.is_resident() && !old.is_young());
        let none = Entry(0);
        assert!(!none.is_resident() && !none.is_young());
        // A swap entry: neither bit 0 nor bit 8, the accessed position means nothing.
        let swapped = Entry(0x07ff_ffff_ffff_f02c & !(PRESENT | PROT_NONE) | ACCESSED);
        assert!(!swapped.is_resident() && !swapped.is_young() && swapped.is_swapped());
        assert!(![young, old, none].map(Entry::is_swapped).contains(&true));
        // PROT_NONE: bit 8, frame inverted.
        let numa = Entry((!(0x0012_3456_u64 << 12) & FRAME) | PROT_NONE | ACCESSED);
        assert!(numa.is_resident() && numa.is_young());
        assert_eq!(numa.frame(), 0x0012_3456);
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
