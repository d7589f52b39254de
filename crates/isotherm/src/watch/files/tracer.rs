//! Lists accesses to a sample of the pages of the watched files, at a bounded rate.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use isotherm_core::{CacheAccess, CacheTrace, Nanos, PAGE_SIZE, TargetId};
use isotherm_linux::page_cache::{PageCacheError, ReadCounter, Traced};

/// Minimum number of pages to sample, if the files have as many.
const SAMPLED_PAGES: u64 = 16_384;
/// Fewer are sampled only if their accesses come faster than `MAX_PER_SECOND`.
const FEWEST_SAMPLED: u64 = 2048;
/// Maximum number of accesses per second to record, on average over time: about 40 KB per second.
const MAX_PER_SECOND: f64 = 8000.0;
/// Maximum number of accesses in a burst. The kernel's list has room for three times as many.
const BURST_ACCESSES: f64 = 40_000.0;
/// Number of accesses after which the sampling becomes coarser, so that long records stay small.
const MAX_PER_SAMPLING: u64 = 1 << 19;
/// Maximum number of accesses to files that may or may not be watched. Beyond it, the kernel lists no more accesses to
/// these files until that is known.
const MAX_UNKNOWN_ACCESSES: usize = 20_000;
/// Maximum number of accesses that wait until their files are known.
const MAX_WAITING_ACCESSES: usize = 1 << 20;
/// Maximum number of unwatched files to remember.
const MAX_OTHER_FILES: usize = 50_000;
/// Time between two readings of the kernel's list.
const READ_INTERVAL: Duration = Duration::from_millis(100);

/// The watched files by their identity for the counter, and the bytes that they have together.
pub struct TracedFiles {
    pub targets: HashMap<u64, TargetId>,
    pub bytes: u64,
}

/// The accesses since a time.
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
    files: TracedFiles,
    waiting: Traced,
    /// accesses to unknown files since the last look for files
    unknown: usize,
    /// Files that are not watched: the kernel does not list accesses to them.
    others: HashSet<u64>,
}

impl Tracer {
    /// Begins to sample these files. More may be found later.
    pub fn begin(counter: &mut ReadCounter, now: Nanos, files: TracedFiles) -> Self {
        let sampling = (files.bytes / PAGE_SIZE / SAMPLED_PAGES).checked_ilog2().unwrap_or(0);
        let sampling = u8::try_from(sampling)
            .unwrap_or(CacheTrace::MAX_SAMPLING)
            .min(CacheTrace::MAX_SAMPLING);
        counter.set_sampling(sampling);
        Tracer {
            since: now,
            read: now,
            sampling,
            tokens: BURST_ACCESSES,
            listed: 0,
            files,
            waiting: Traced::default(),
            unknown: 0,
            others: HashSet::new(),
        }
    }

    /// When to call [`Self::read`] next.
    pub fn due(&self) -> Nanos {
        self.read + READ_INTERVAL
    }

    /// Reads the kernel's list. Samples fewer pages from now on, if accesses come too fast.
    pub fn read(&mut self, counter: &mut ReadCounter, now: Nanos) -> Result<(), PageCacheError> {
        let mut new = counter.take_trace()?;
        let is_known = |file| self.files.targets.contains_key(&file);
        let count = new.accesses.iter().filter(|a| is_known(a.file)).count();
        self.unknown += new.accesses.len() - count;
        if self.unknown > MAX_UNKNOWN_ACCESSES {
            let all = self.waiting.accesses.iter().chain(&new.accesses).map(|a| a.file);
            let unknown: HashSet<u64> = all.filter(|file| !is_known(*file)).collect();
            for file in unknown.difference(&self.others) {
                counter.list_file(*file, false)?;
            }
            self.others.extend(unknown);
            self.unknown = 0;
        }
        let count = count as u64;
        self.waiting.accesses.append(&mut new.accesses);
        self.waiting.pages.append(&mut new.pages);
        self.waiting.missing += new.missing;
        let seconds = now.since(std::mem::replace(&mut self.read, now)).as_secs_f64();
        self.tokens = (self.tokens + seconds * MAX_PER_SECOND).min(BURST_ACCESSES) - count as f64;
        self.listed += count;
        let is_enough = (self.files.bytes / PAGE_SIZE) >> (self.sampling + 1) >= FEWEST_SAMPLED;
        let is_long = self.listed > MAX_PER_SAMPLING && is_enough;
        let is_too_much = self.tokens < 0.0 || self.waiting.accesses.len() > MAX_WAITING_ACCESSES;
        if (is_long || is_too_much) && self.sampling < CacheTrace::MAX_SAMPLING {
            self.sampling += 1;
            (self.listed, self.tokens) = (0, BURST_ACCESSES / 2.0);
            counter.set_sampling(self.sampling);
            self.waiting.accesses.retain(|a| a.rarity >= self.sampling);
        }
        Ok(())
    }

    /// The accesses until the last reading. Call it after a look for files. Accesses to other files are left out, and
    /// the kernel does not list them any more.
    pub fn take(
        &mut self,
        counter: &mut ReadCounter,
        files: TracedFiles,
    ) -> Result<CacheTrace, PageCacheError> {
        self.files = files;
        self.unknown = 0;
        let target_of = |file: u64| self.files.targets.get(&file).copied();
        let waiting = std::mem::take(&mut self.waiting);
        let mut pages = BTreeMap::new();
        for (id, n) in waiting.pages.iter().filter_map(|(file, n)| Some((target_of(*file)?, *n))) {
            *pages.entry(id).or_default() += n;
        }
        let mut accesses = Vec::new();
        let mut new = HashSet::new();
        for a in &waiting.accesses {
            match target_of(a.file) {
                // The sampling may have become coarser within the interval.
                Some(_) if a.rarity < self.sampling => {}
                Some(target) => accesses.push(CacheAccess {
                    target,
                    page: a.page,
                    kind: a.kind,
                    rarity: a.rarity,
                }),
                None => _ = new.insert(a.file),
            }
        }
        // A file may have been renamed into a watched folder.
        let is_full = self.others.len() > MAX_OTHER_FILES;
        let back: Vec<u64> =
            self.others.iter().copied().filter(|f| is_full || target_of(*f).is_some()).collect();
        for file in back {
            counter.list_file(file, true)?;
            self.others.remove(&file);
        }
        for file in new {
            counter.list_file(file, false)?;
            self.others.insert(file);
        }
        Ok(CacheTrace {
            since: std::mem::replace(&mut self.since, self.read),
            until: self.read,
            sampling: self.sampling,
            pages: pages.into_iter().collect(),
            missing: waiting.missing,
            accesses,
        })
    }
}
