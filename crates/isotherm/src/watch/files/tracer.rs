//! Lists accesses to a sample of the pages of the watched files, at a bounded rate.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use isotherm_core::{CacheAccess, CacheTrace, Nanos, PAGE_SIZE, TargetId};
use isotherm_linux::page_cache::{PageCacheError, ReadCounter, Traced};

/// Pages to sample at least, if the files have as many.
const SAMPLED_PAGES: u64 = 16_384;
/// Fewer are sampled only if their accesses come faster than `MOST_PER_SECOND`.
const FEWEST_SAMPLED: u64 = 2048;
/// The coarsest sampling: one page in 2^this.
const MOST_SAMPLING: u8 = 15;
/// Accesses per second that are recorded at most in the long run: about 40 KB.
const MOST_PER_SECOND: f64 = 8000.0;
/// Accesses of a burst. The kernel's list has room for three times as many.
const BURST: f64 = 40_000.0;
/// After so many accesses the sampling becomes coarser, so that long records stay small.
const MOST_PER_SAMPLING: u64 = 1 << 19;
/// Accesses to all files of the machine between two readings. The kernel's list has room for twice as many.
const MOST_AT_ONCE: usize = 60_000;
/// Other files that are known as such.
const MOST_OTHERS: usize = 100_000;
/// Time between two readings of the kernel's list.
const EVERY: Duration = Duration::from_millis(100);

/// The accesses since a time.
#[derive(Debug)]
pub struct Tracer {
    since: Nanos,
    /// time of the last reading
    read: Nanos,
    /// One page in 2^this is sampled now.
    sampling: u8,
    /// accesses that may still come before the sampling becomes coarser
    tokens: f64,
    /// accesses with this sampling
    listed: u64,
    /// pages of all files
    pages: u64,
    waiting: Traced,
    /// Files that are not watched. Which files others are, is known after the next look for files.
    others: HashSet<u64>,
}

impl Tracer {
    /// Begins to sample files that have so many bytes together.
    pub fn begin(counter: &mut ReadCounter, now: Nanos, bytes: u64) -> Self {
        let pages = bytes / PAGE_SIZE;
        let sampling = (pages / SAMPLED_PAGES).checked_ilog2().unwrap_or(0);
        let sampling = u8::try_from(sampling).unwrap_or(MOST_SAMPLING).min(MOST_SAMPLING);
        counter.set_sampling(sampling);
        let waiting = Traced::default();
        let tokens = BURST;
        let others = HashSet::new();
        Tracer { since: now, read: now, sampling, tokens, listed: 0, pages, waiting, others }
    }

    /// When to call [`Self::read`] next.
    pub fn due(&self) -> Nanos {
        self.read + EVERY
    }

    /// Reads the kernel's list. Samples fewer pages from now on, if accesses come too fast.
    pub fn read(&mut self, counter: &mut ReadCounter, now: Nanos) -> Result<(), PageCacheError> {
        let mut new = counter.take_trace()?;
        let all = new.accesses.len();
        new.accesses.retain(|a| !self.others.contains(&a.file));
        let count = new.accesses.len() as u64;
        let seconds = now.since(std::mem::replace(&mut self.read, now)).as_secs_f64();
        self.tokens = (self.tokens + seconds * MOST_PER_SECOND).min(BURST) - count as f64;
        self.listed += count;
        self.waiting.accesses.append(&mut new.accesses);
        self.waiting.pages.append(&mut new.pages);
        self.waiting.missing += new.missing;
        let is_enough = self.pages >> (self.sampling + 1) >= FEWEST_SAMPLED;
        let is_long = self.listed > MOST_PER_SAMPLING && is_enough;
        let is_too_much = self.tokens < 0.0 || all > MOST_AT_ONCE || is_long;
        if is_too_much && self.sampling < MOST_SAMPLING {
            self.sampling += 1;
            (self.listed, self.tokens) = (0, BURST / 2.0);
            counter.set_sampling(self.sampling);
        }
        Ok(())
    }

    /// The accesses until the last reading, by the targets that files are. Call it after a look for files, which
    /// have so many bytes together. Accesses to other files are left out.
    pub fn take(&mut self, target_of: impl Fn(u64) -> Option<TargetId>, bytes: u64) -> CacheTrace {
        self.pages = bytes / PAGE_SIZE;
        if self.others.len() > MOST_OTHERS {
            self.others.clear();
        }
        self.others.retain(|file| target_of(*file).is_none());
        let seen = self.waiting.accesses.iter().map(|a| a.file);
        self.others.extend(seen.filter(|file| target_of(*file).is_none()));
        let waiting = std::mem::take(&mut self.waiting);
        let mut pages = BTreeMap::new();
        for (id, n) in waiting.pages.iter().filter_map(|(file, n)| Some((target_of(*file)?, *n))) {
            *pages.entry(id).or_default() += n;
        }
        // It may have become coarser within the interval.
        let sampled = waiting.accesses.iter().filter(|a| a.rarity >= self.sampling);
        let accesses = sampled.filter_map(|a| {
            let target = target_of(a.file)?;
            Some(CacheAccess { target, page: a.page, kind: a.kind, rarity: a.rarity })
        });
        CacheTrace {
            since: std::mem::replace(&mut self.since, self.read),
            until: self.read,
            sampling: self.sampling,
            pages: pages.into_iter().collect(),
            missing: waiting.missing,
            accesses: accesses.collect(),
        }
    }
}
