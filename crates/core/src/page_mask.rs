//! Sets of pages within 2 MiB, one bit per page.

/// Maximum number of pages in a set.
pub const MASK_PAGES: usize = 512;

/// A set of pages of a window or block of at most `MASK_PAGES` pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageMask([u64; MASK_PAGES / 64]);

impl PageMask {
    /// The set of the pages below `pages` for which `is_in` holds.
    #[must_use]
    pub fn of(pages: usize, is_in: impl Fn(usize) -> bool) -> Self {
        let mut mask = PageMask::default();
        (0..pages.min(MASK_PAGES)).filter(|&i| is_in(i)).for_each(|i| mask.insert(i));
        mask
    }

    /// The set of all pages from `first` to below `end`.
    #[must_use]
    pub fn span(first: usize, end: usize) -> Self {
        PageMask(std::array::from_fn(|i| {
            let (low, high) = (first.clamp(i * 64, i * 64 + 64), end.clamp(i * 64, i * 64 + 64));
            if low < high { u64::MAX >> (64 - (high - low)) << (low - i * 64) } else { 0 }
        }))
    }

    /// The words of the set: page 0 is bit 0 of the first word.
    #[must_use]
    pub fn words(&self) -> &[u64; MASK_PAGES / 64] {
        &self.0
    }

    /// The set with these words.
    #[must_use]
    pub fn from_words(words: [u64; MASK_PAGES / 64]) -> Self {
        PageMask(words)
    }

    /// Number of pages of the set from `first` to below `end`.
    #[must_use]
    pub fn count_in(&self, first: usize, end: usize) -> u32 {
        if end <= first {
            return 0;
        }
        // Most windows lie within one word: 64 KiB are 16 bits.
        if first / 64 == (end - 1) / 64 {
            let word = self.0.get(first / 64).copied().unwrap_or(0);
            return (word >> (first % 64) & (u64::MAX >> (64 - (end - first)))).count_ones();
        }
        self.and(&PageMask::span(first, end)).count()
    }

    /// Union of both sets.
    #[must_use]
    pub fn or(&self, other: &PageMask) -> PageMask {
        PageMask(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// Adds a page.
    pub fn insert(&mut self, page: usize) {
        if let Some(word) = self.0.get_mut(page / 64) {
            *word |= 1 << (page % 64);
        }
    }

    /// Whether the set contains a page.
    #[must_use]
    pub fn contains(&self, page: usize) -> bool {
        self.0.get(page / 64).is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    /// Number of pages in the set.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; MASK_PAGES / 64]
    }

    /// Intersection of both sets.
    #[must_use]
    pub fn and(&self, other: &PageMask) -> PageMask {
        PageMask(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// The pages of this set that are not in the other one.
    #[must_use]
    pub fn without(&self, other: &PageMask) -> PageMask {
        PageMask(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// The pages of the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(i, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some(i * 64 + bit)
            })
        })
    }
}

/// A [`PageMask`] in compact form: most sets are contiguous, or lie within 64 pages, and need 16 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CompactMask {
    /// the pages from the first to below the second
    Span(u16, u16),
    /// bits of the word with this index
    Word(u8, u64),
    Words(Box<[u64; MASK_PAGES / 64]>),
}

impl Default for CompactMask {
    fn default() -> Self {
        CompactMask::Span(0, 0)
    }
}

impl From<&PageMask> for CompactMask {
    fn from(mask: &PageMask) -> Self {
        let first = mask.0.iter().position(|word| *word != 0).unwrap_or(0);
        let last = mask.0.iter().rposition(|word| *word != 0).unwrap_or(0);
        let (low, high) = (mask.0[first], mask.0[last]);
        if low == 0 {
            return CompactMask::default();
        }
        let start = first as u32 * 64 + low.trailing_zeros();
        let end = last as u32 * 64 + 64 - high.leading_zeros();
        if mask.count() == end - start {
            // The values are at most 512.
            CompactMask::Span(start as u16, end as u16)
        } else if first == last {
            CompactMask::Word(first as u8, low)
        } else {
            CompactMask::Words(Box::new(mask.0))
        }
    }
}

impl CompactMask {
    /// The set in full form.
    pub fn get(&self) -> PageMask {
        match self {
            CompactMask::Span(start, end) if start == end => PageMask::default(),
            CompactMask::Span(start, end) => PageMask::span((*start).into(), (*end).into()),
            CompactMask::Word(at, word) => {
                let mut mask = PageMask::default();
                mask.0[usize::from(*at)] = *word;
                mask
            }
            CompactMask::Words(words) => PageMask(**words),
        }
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        matches!(self, CompactMask::Span(start, end) if start == end)
    }

    /// Whether both sets are equal.
    pub fn is(&self, mask: &PageMask) -> bool {
        match self {
            CompactMask::Words(words) => **words == mask.0,
            _ => self.get() == *mask,
        }
    }

    /// Number of pages in the set.
    pub fn count(&self) -> u32 {
        match self {
            CompactMask::Span(start, end) => u32::from(*end) - u32::from(*start),
            CompactMask::Word(_, word) => word.count_ones(),
            CompactMask::Words(words) => words.iter().map(|word| word.count_ones()).sum(),
        }
    }

    /// Number of pages of the set from `first` to below `end`.
    pub fn count_in(&self, first: usize, end: usize) -> u32 {
        match self {
            CompactMask::Span(from, to) => {
                let (from, to) = (first.max((*from).into()), end.min((*to).into()));
                to.saturating_sub(from) as u32
            }
            _ => self.get().count_in(first, end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_kept_as_they_are() {
        let of = |is_in: fn(usize) -> bool| PageMask::of(MASK_PAGES, is_in);
        let both_ends = of(|i| i == 0 || i == 511);
        assert!(matches!(CompactMask::from(&both_ends), CompactMask::Words(_)));
        assert!(matches!(CompactMask::from(&of(|i| i == 64 || i == 127)), CompactMask::Word(1, _)));
        assert!(matches!(
            CompactMask::from(&of(|i| i > 60 && i < 400)),
            CompactMask::Span(61, 400)
        ));
        assert!(CompactMask::from(&PageMask::default()).is_empty());
        assert!(!CompactMask::from(&of(|i| i == 511)).is_empty());
        for mask in [
            both_ends,
            of(|i| i == 64 || i == 127),
            of(|i| i > 60 && i < 400),
            of(|_| true),
            of(|_| false),
            of(|i| i % 3 == 1),
            of(|i| i == 511),
        ] {
            let kept = CompactMask::from(&mask);
            assert_eq!((kept.get(), kept.count()), (mask, mask.count()));
            assert!(kept.is(&mask) && !kept.is(&of(|i| i % 5 == 2)));
            for (first, end) in [(0, 512), (60, 70), (100, 100), (511, 512), (0, 61), (400, 512)] {
                assert_eq!(kept.count_in(first, end), mask.count_in(first, end), "{first}..{end}");
            }
        }
        assert_eq!(size_of::<CompactMask>(), 16);
    }

    #[test]
    fn spans() {
        for (first, end) in [(0, 512), (0, 0), (16, 32), (60, 70), (0, 64), (64, 192), (500, 512)] {
            let span = PageMask::span(first, end);
            assert_eq!(span, PageMask::of(512, |i| (first..end).contains(&i)), "{first}..{end}");
            let even = PageMask::of(512, |i| i % 2 == 0);
            assert_eq!(even.count_in(first, end), even.and(&span).count(), "{first}..{end}");
        }
        assert_eq!(PageMask::default().or(&PageMask::span(3, 5)).count(), 2);
    }

    #[test]
    fn sets() {
        let even = PageMask::of(512, |i| i % 2 == 0);
        let low = PageMask::of(100, |_| true);
        assert_eq!((even.count(), low.count()), (256, 100));
        assert_eq!(even.and(&low).iter().last(), Some(98));
        assert_eq!(low.without(&even).count(), 50);
        assert!(even.contains(510) && !even.contains(511) && !even.contains(9999));
        assert!(PageMask::of(0, |_| true).is_empty());
    }
}
