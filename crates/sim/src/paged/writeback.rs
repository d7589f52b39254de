//! Which pages of files are to be written, and when writers have to wait.

/// Percent of what may be dirty at which pages are written in the background, and at which those
/// who make more wait: `vm.dirty_background_ratio`, `vm.dirty_ratio`.
const BACKGROUND_PERCENT: i64 = 10;
const LIMIT_PERCENT: i64 = 20;

/// The dirty pages of a file.
#[derive(Debug, Default)]
pub(super) struct DirtyPages {
    words: Vec<u64>,
    count: u64,
    /// where the last run ended
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

    /// Whether it was clean.
    pub fn insert(&mut self, page: usize) -> bool {
        if self.contains(page) {
            return false;
        }
        self.words[page / 64] |= 1 << (page % 64);
        self.count += 1;
        true
    }

    /// The next pages in a row, at most `most`, from where the last ones ended; they are taken out.
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

/// How far a machine of so many dirtyable pages is from its limits.
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

    /// Whether pages are written although nobody waits for it.
    pub fn is_background(&self, dirty: i64) -> bool {
        dirty > self.background
    }

    /// Whether writers wait: beyond the middle of both, as `balance_dirty_pages` has it.
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
