//! A bit for each page of a window.

/// Pages in the biggest window.
pub const MAX_PAGES: usize = 512;

/// A set of pages of a window of at most [`MAX_PAGES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageMask([u64; MAX_PAGES / 64]);

impl PageMask {
    /// The pages below `pages` for which `is_in` holds.
    pub fn of(pages: usize, is_in: impl Fn(usize) -> bool) -> Self {
        let mut mask = PageMask::default();
        (0..pages.min(MAX_PAGES)).filter(|&i| is_in(i)).for_each(|i| mask.insert(i));
        mask
    }

    /// Adds a page.
    pub fn insert(&mut self, page: usize) {
        if let Some(word) = self.0.get_mut(page / 64) {
            *word |= 1 << (page % 64);
        }
    }

    /// Whether a page is in.
    pub fn contains(&self, page: usize) -> bool {
        self.0.get(page / 64).is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    /// How many are in.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether none is in.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; MAX_PAGES / 64]
    }

    /// Pages in both.
    pub fn and(&self, other: &PageMask) -> PageMask {
        PageMask(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// Pages in this one alone.
    pub fn without(&self, other: &PageMask) -> PageMask {
        PageMask(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// The pages in, ascending.
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

#[cfg(test)]
mod tests {
    use super::*;

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
