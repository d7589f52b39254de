//! Ranges of virtual addresses.

/// Bytes in a base page, on every machine that isotherm supports.
pub const PAGE_SIZE: u64 = 4096;

/// A half-open range of addresses, `start <= end`, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct AddrRange {
    /// Address of the first byte in the range.
    pub start: u64,
    /// Address of the first byte after the range.
    pub end: u64,
}

impl std::fmt::Debug for AddrRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}-{:#x}", self.start, self.end)
    }
}

impl AddrRange {
    /// The range from `start` to `end`; empty if `end` is below `start`.
    #[must_use]
    pub fn new(start: u64, end: u64) -> Self {
        AddrRange { start, end: end.max(start) }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether the range contains no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end <= self.start
    }

    /// Whether the range contains `addr`.
    #[must_use]
    pub fn contains(&self, addr: u64) -> bool {
        self.start <= addr && addr < self.end
    }

    /// The range, unless it is empty: sets of ranges hold no empty ones.
    #[must_use]
    pub fn non_empty(&self) -> Option<std::ops::Range<u64>> {
        (!self.is_empty()).then_some(self.start..self.end)
    }

    /// The intersection of both ranges; `None` if it is empty.
    #[must_use]
    pub fn intersect(&self, other: &AddrRange) -> Option<AddrRange> {
        let (start, end) = (self.start.max(other.start), self.end.min(other.end));
        (start < end).then_some(AddrRange { start, end })
    }
}

/// Joins adjacent ranges, which must be sorted and disjoint. The result is the list of areas between
/// gaps. A region may cross from one mapping into an adjacent one, but never a gap.
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

/// Joins adjacent ranges, which must be sorted and disjoint, within `mappings`, which are sorted: no result crosses the
/// start of a mapping.
pub(crate) fn join_within(
    ranges: impl IntoIterator<Item = AddrRange>,
    mappings: &[AddrRange],
) -> Vec<AddrRange> {
    let mut out: Vec<AddrRange> = Vec::new();
    for range in ranges {
        let begins = mappings.binary_search_by_key(&range.start, |m| m.start).is_ok();
        match out.last_mut().filter(|last| last.end == range.start && !begins) {
            Some(last) => last.end = range.end,
            None => out.push(range),
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges() -> impl Strategy<Value = AddrRange> {
        (any::<u64>(), any::<u64>()).prop_map(|(start, end)| AddrRange::new(start, end))
    }

    proptest! {
        #[test]
        fn an_intersection_is_in_both(a in ranges(), b in ranges(), addr in any::<u64>()) {
            prop_assert_eq!(a.intersect(&b), b.intersect(&a));
            let both = a.intersect(&b).unwrap_or_default();
            prop_assert!(both.len() <= a.len().min(b.len()));
            prop_assert_eq!(both.contains(addr), a.contains(addr) && b.contains(addr));
        }

        #[test]
        fn alignment_surrounds(x in any::<u64>(), unit in any::<u64>()) {
            let (down, up) = (align_down(x, unit), align_up(x, unit));
            prop_assert!(down <= x && x <= up);
            prop_assert_eq!(down % unit.max(1), 0);
            prop_assert!(up == u64::MAX || up % unit.max(1) == 0);
            prop_assert!(up == u64::MAX || up - down < unit.max(1) || down != x);
        }

        #[test]
        fn joining_keeps_every_byte(
            steps in proptest::collection::vec((0_u64..3, 1_u64..1 << 20), 0..40),
        ) {
            let mut at = 0;
            let ranges: Vec<AddrRange> = steps
                .into_iter()
                .map(|(gap, len)| {
                    let start = at + gap;
                    at = start + len;
                    AddrRange::new(start, at)
                })
                .collect();
            let joined = join_touching(ranges.iter().copied());
            let sum = |of: &[AddrRange]| of.iter().map(AddrRange::len).sum::<u64>();
            prop_assert_eq!(sum(&joined), sum(&ranges));
            prop_assert!(joined.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
}
