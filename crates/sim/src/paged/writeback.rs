//! Writeback: which pages of files to write, and when writers must wait.

/// Limits in percent of the dirtyable memory: above the first, pages are written in the background; above the
/// second, writers wait: `vm.dirty_background_ratio`, `vm.dirty_ratio`.
const BACKGROUND_PERCENT: i64 = 10;
const LIMIT_PERCENT: i64 = 20;

/// The dirty pages of a file.
#[derive(Debug, Default)]
pub(super) struct DirtyPages {
    words: Vec<u64>,
    count: u64,
    /// where the previous run ended
    cursor: usize,
}

impl DirtyPages {
    pub fn new(pages: usize) -> Self {
        DirtyPages { words: vec![0; pages.div_ceil(64)], count: 0, cursor: 0 }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn contains(&self, page: usize) -> bool {
        self.words[page / 64] & (1 << (page % 64)) != 0
    }

    /// Marks a page as dirty; returns whether it was clean.
    pub fn insert(&mut self, page: usize) -> bool {
        if self.contains(page) {
            return false;
        }
        self.words[page / 64] |= 1 << (page % 64);
        self.count += 1;
        true
    }

    /// Removes and returns the next run of adjacent dirty pages, at most `most`, starting after the previous
    /// run.
    pub fn take_run(&mut self, most: usize) -> Option<(usize, usize)> {
        if most == 0 {
            return None;
        }
        let first = self.next(self.cursor).or_else(|| self.next(0))?;
        let mut len = 0;
        while len < most && self.take(first + len) {
            len += 1;
        }
        self.cursor = first + len;
        Some((first, len))
    }

    fn next(&self, from: usize) -> Option<usize> {
        let start = from / 64;
        let masked = |i: usize| match self.words[i] {
            word if i == start => word & (u64::MAX << (from % 64)),
            word => word,
        };
        let at = (start..self.words.len()).find(|&i| masked(i) != 0)?;
        Some(at * 64 + masked(at).trailing_zeros() as usize)
    }

    fn take(&mut self, page: usize) -> bool {
        if page / 64 >= self.words.len() || !self.contains(page) {
            return false;
        }
        self.words[page / 64] &= !(1 << (page % 64));
        self.count -= 1;
        true
    }
}

/// Limits of a machine with a number of dirtyable pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct DirtyLimits {
    background: i64,
    limit: i64,
}

impl DirtyLimits {
    pub fn of(dirtyable: i64) -> Self {
        let part = |percent: i64| dirtyable.max(0) * percent / 100;
        DirtyLimits { background: part(BACKGROUND_PERCENT), limit: part(LIMIT_PERCENT) }
    }

    /// Whether background writeback is active.
    pub fn is_background(&self, dirty: i64) -> bool {
        dirty > self.background
    }

    /// Whether writers must wait: above the mean of both limits, as in `balance_dirty_pages`.
    pub fn must_wait(&self, dirty: i64) -> bool {
        dirty > self.background.midpoint(self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_go_on_where_the_last_one_ended() {
        let mut d = DirtyPages::new(5000);
        assert_eq!(d.take_run(1024), None);
        for page in (100..103).chain([64, 4999]).chain(2000..4000) {
            assert!(d.insert(page));
            assert!(!d.insert(page));
        }
        assert_eq!(d.count(), 2005);
        let runs: Vec<_> = std::iter::from_fn(|| d.take_run(1024)).collect();
        assert_eq!(runs, [(64, 1), (100, 3), (2000, 1024), (3024, 976), (4999, 1)]);
        d.insert(3);
        assert_eq!((d.take_run(1), d.count()), (Some((3, 1)), 0));
    }

    #[test]
    fn writers_wait_beyond_the_middle() {
        let limits = DirtyLimits::of(1000);
        assert!(!limits.is_background(100) && limits.is_background(101));
        assert!(!limits.must_wait(150) && limits.must_wait(151));
    }
}
