//! Ranges of virtual addresses.

/// Bytes in a base page on every machine that isotherm runs on today.
pub const PAGE_SIZE: u64 = 4096;

/// A half-open range of addresses, `start <= end`, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct AddrRange {
    /// First byte inside.
    pub start: u64,
    /// First byte behind.
    pub end: u64,
}

impl std::fmt::Debug for AddrRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}-{:#x}", self.start, self.end)
    }
}

impl AddrRange {
    /// The range from `start` up to `end`; empty if `end` lies before `start`.
    #[must_use]
    pub fn new(start: u64, end: u64) -> Self {
        AddrRange { start, end: end.max(start) }
    }

    /// Bytes inside.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether there is no byte inside.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end <= self.start
    }

    /// Whether `addr` lies inside.
    #[must_use]
    pub fn contains(&self, addr: u64) -> bool {
        self.start <= addr && addr < self.end
    }

    /// What both hold, if anything.
    #[must_use]
    pub fn intersect(&self, other: &AddrRange) -> Option<AddrRange> {
        let (start, end) = (self.start.max(other.start), self.end.min(other.end));
        (start < end).then_some(AddrRange { start, end })
    }
}

/// Sorted, disjoint ranges with touching ones joined: areas between gaps. A region may cross from
/// one mapping into the next, never a gap.
#[must_use]
pub fn join_touching(ranges: impl IntoIterator<Item = AddrRange>) -> Vec<AddrRange> {
    let mut out: Vec<AddrRange> = Vec::new();
    for r in ranges {
        match out.last_mut() {
            Some(last) if last.end == r.start => last.end = r.end,
            _ => out.push(r),
        }
    }
    out
}

/// `x` rounded down to a multiple of `unit`.
#[must_use]
pub fn align_down(x: u64, unit: u64) -> u64 {
    x - x % unit.max(1)
}

/// `x` rounded up to a multiple of `unit`.
pub(crate) fn align_up(x: u64, unit: u64) -> u64 {
    x.checked_next_multiple_of(unit.max(1)).unwrap_or(u64::MAX)
}
