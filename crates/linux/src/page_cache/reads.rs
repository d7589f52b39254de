//! Counts reads and writes of cached files while they happen.

use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::{CacheAccessKind, Nanos};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, RingBufferBuilder};

use super::PageCacheError;
use crate::reads_skel::{ReadsSkel, ReadsSkelBuilder};
use crate::storage::Storage;
use crate::sys::monotonic;
use crate::walker::bpf_help;

/// One page read or written of this many counts, as in `reads.bpf.c`.
const SHARE: u64 = 64;
/// The bit of a window in `reads.bpf.c` that distinguishes writes from reads.
const WRITTEN: u64 = 1 << 63;
/// Binary logarithm of the number of marks, as in `reads.bpf.c`.
const MARKS_SHIFT: u32 = 20;
/// A file has at most 2^this pages.
const WHOLE_FILE: u32 = 63;
/// Marks are 0 at first, which must not be the last interval.
const FIRST_INTERVAL: u32 = 2;
/// Counts which file is read how often, on the whole machine. It does not observe reads of tmpfs, accesses through
/// mappings, and reads that bypass the page cache.
pub struct ReadCounter {
    /// the attached programs, since a time
    attached: Option<(Nanos, Vec<Link>)>,
    // Declared before the storage it refers to, so that it is dropped first.
    skel: ReadsSkel<'static>,
    _storage: Storage,
    writes: Writes,
    traces: bool,
    /// missing accesses that were reported
    missing: u64,
}

/// An access to a sampled page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracedAccess {
    /// identity of the file: [`super::CachedFile::id`]
    pub file: u64,
    /// number of the page in the file
    pub page: u64,
    /// how it was accessed
    pub kind: CacheAccessKind,
    /// It is in each sample of one page in 2^n, for n up to this.
    pub rarity: u8,
}

/// Accesses to sampled pages since the last call of [`ReadCounter::take_trace`].
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Traced {
    /// accesses, in order
    pub accesses: Vec<TracedAccess>,
    /// pages read or mapped by file, sampled or not
    pub pages: Vec<(u64, u64)>,
    /// accesses that the kernel had no room for
    pub missing: u64,
}

/// Which programs count writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// None.
    None,
    /// Each folio counts as one page, once between two writebacks.
    Dirtied,
    /// On ext4 each write counts, on other file systems each folio as one page, once between two writebacks.
    Ext4,
}

/// Accesses to a window of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessCount {
    /// identity of the file: [`super::CachedFile::id`]
    pub file: u64,
    /// number of the window
    pub window: u64,
    /// writes, not reads
    pub is_write: bool,
    /// counted pages: a sample, one of [`ReadCounter::SHARE`]
    pub counted: u64,
}

/// The reads during one measurement.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct FileReadCounts {
    seconds: f64,
    counts: HashMap<u64, u64>,
}

impl FileReadCounts {
    /// Pages of the file with this [identity](super::CachedFile::id) that were read per second.
    #[must_use]
    pub fn pages_per_second(&self, id: u64) -> f64 {
        let count = self.counts.get(&id).copied().unwrap_or(0);
        (count * SHARE) as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }
}

impl ReadCounter {
    /// One page read or written of this many counts.
    pub const SHARE: u64 = SHARE;

    /// Loads the program for reads, by file. It does not cost anything until [`Self::during`] runs it.
    ///
    /// # Errors
    /// If the kernel rejects it: before Linux 6.12, the tracepoint does not exist.
    pub fn load() -> Result<Self, PageCacheError> {
        Self::load_with(WHOLE_FILE, Writes::None, false)
    }

    /// Loads the programs for reads and writes, by window of 2^`shift` pages. With `traces`, they also list each
    /// access to a sample of pages.
    ///
    /// # Errors
    /// As for [`Self::load`]. Which writes count depends on the kernel: [`Self::writes`].
    pub fn by_window(shift: u32, traces: bool) -> Result<Self, PageCacheError> {
        // Where ext4 is not in the kernel, its tracepoints do not exist.
        let with = |writes| Self::load_with(shift, writes, traces);
        with(Writes::Ext4).or_else(|_| with(Writes::Dirtied)).or_else(|_| with(Writes::None))
    }

    fn load_with(shift: u32, writes: Writes, traces: bool) -> Result<Self, PageCacheError> {
        crate::log::quiet();
        // SAFETY: `ReadCounter` drops the skeleton, which has the only copy of the reference, before the storage.
        let (storage, place) = unsafe { Storage::new() };
        let refused = |e: libbpf_rs::Error| PageCacheError::Load {
            reason: crate::log::reason(&e),
            help: match bpf_help() {
                help if help.contains("Linux 6.1") => {
                    "Counting reads requires Linux 6.12".to_owned()
                }
                help => help,
            },
        };
        let mut open = ReadsSkelBuilder::default().open(place).map_err(refused)?;
        if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
            constants.counts_ext4 = writes == Writes::Ext4;
            constants.traces = traces;
        }
        open.progs.count_ext4.set_autoload(writes == Writes::Ext4);
        open.progs.count_ext4_at_once.set_autoload(writes == Writes::Ext4);
        open.progs.count_ext4_journalled.set_autoload(writes == Writes::Ext4);
        open.progs.count_dirtied.set_autoload(writes != Writes::None);
        open.progs.trace_mapped.set_autoload(traces);
        open.progs.trace_fault.set_autoload(traces);
        if let Some(bss) = open.maps.bss_data.as_deref_mut() {
            bss.interval = FIRST_INTERVAL;
            bss.window_shift = shift;
        }
        let skel = open.load().map_err(refused)?;
        Ok(ReadCounter { attached: None, skel, _storage: storage, writes, traces, missing: 0 })
    }

    /// Which writes count.
    #[must_use]
    pub fn writes(&self) -> Writes {
        self.writes
    }

    /// Counts while `wait` runs. Each read then takes 0.1 to 0.2 us longer.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn during(&mut self, wait: impl FnOnce()) -> Result<FileReadCounts, PageCacheError> {
        self.take()?;
        self.attach()?;
        wait();
        let seconds = self.detach().as_secs_f64();
        let mut counts = HashMap::new();
        for count in self.take()? {
            *counts.entry(count.file).or_default() += count.counted;
        }
        Ok(FileReadCounts { seconds, counts })
    }

    /// Begins or continues to count.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn attach(&mut self) -> Result<(), PageCacheError> {
        if self.attached.is_some() {
            return Ok(());
        }
        let progs = &self.skel.progs;
        let writes: &[_] = match self.writes {
            Writes::None => &[],
            Writes::Dirtied => &[&progs.count_dirtied],
            Writes::Ext4 => &[
                &progs.count_dirtied,
                &progs.count_ext4,
                &progs.count_ext4_at_once,
                &progs.count_ext4_journalled,
            ],
        };
        let traces: &[_] = match self.traces {
            true => &[&progs.trace_mapped, &progs.trace_fault],
            false => &[],
        };
        let all = [&progs.count_reads].into_iter().chain(writes.iter().copied());
        let all = all.chain(traces.iter().copied());
        let links: Result<Vec<Link>, _> = all.map(|program| program.attach()).collect();
        self.attached = Some((monotonic(), links.map_err(failed)?));
        Ok(())
    }

    /// Stops counting, and returns for how long it has counted.
    pub fn detach(&mut self) -> Duration {
        self.attached.take().map_or(Duration::ZERO, |(since, _)| monotonic().since(since))
    }

    /// The time for which it has counted since it was attached, or since the last call. It continues to count.
    pub fn lap(&mut self) -> Duration {
        let now = monotonic();
        let attached = self.attached.as_mut();
        attached.map_or(Duration::ZERO, |(since, _)| now.since(std::mem::replace(since, now)))
    }

    /// Calls of the programs so far, each of which has delayed a read or write.
    #[must_use]
    pub fn calls(&self) -> u64 {
        let cpus = self.skel.maps.bss_data.as_deref().map(|bss| &bss.cpus);
        cpus.into_iter().flatten().map(|cpu| cpu.calls).sum()
    }

    /// Whether it lists accesses to sampled pages.
    #[must_use]
    pub fn traces(&self) -> bool {
        self.traces
    }

    /// Counts by windows of 2^`shift` pages from now on. Call [`Self::take`] afterwards and drop its result, because it is by
    /// the earlier windows.
    pub fn set_window_shift(&mut self, shift: u32) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.window_shift = shift.min(WHOLE_FILE);
        }
    }

    /// Samples one page in 2^`sampling`, up to 15, from now on.
    pub fn set_sampling(&mut self, sampling: u8) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.sampling = u32::from(sampling.min(15));
        }
    }

    /// Whether to list accesses to sampled pages of a file from now on. All files are listed at first. A file that
    /// is not listed may be so again after some time.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn list_file(&mut self, file: u64, is_listed: bool) -> Result<(), PageCacheError> {
        let (map, key) = (&self.skel.maps.ignored, file.to_ne_bytes());
        let done = match is_listed {
            true => map.delete(&key),
            false => map.update(&key, &[1], MapFlags::ANY),
        };
        match done {
            // It was forgotten: the map is bounded.
            Err(e) if is_listed && e.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
            done => done.map_err(failed),
        }
    }

    /// Removes the list of accesses to sampled pages, and returns it.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn take_trace(&mut self) -> Result<Traced, PageCacheError> {
        let mut accesses = Vec::new();
        let mut ring = RingBufferBuilder::new();
        let push = |bytes: &[u8]| {
            accesses.extend(traced_access(bytes));
            0
        };
        ring.add(&self.skel.maps.trace, push).map_err(failed)?;
        ring.build().and_then(|ring| ring.consume()).map_err(failed)?;
        let map = &self.skel.maps.totals;
        let word = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
        let pages = take_all(map)?;
        let pages = pages.filter_map(|(file, pages)| Some((word(&file)?, word(&pages)?))).collect();
        let cpus = self.skel.maps.bss_data.as_deref().map(|bss| &bss.cpus);
        let missing: u64 = cpus.into_iter().flatten().map(|cpu| cpu.missing).sum();
        let missing = missing - std::mem::replace(&mut self.missing, missing);
        Ok(Traced { accesses, pages, missing })
    }

    /// Whether a window was accessed while it was attached, since the call of [`Self::take`] before the last. Unlike
    /// counts, this is no sample. Rarely, a window looks accessed because another one was.
    #[must_use]
    pub fn is_marked(&self, file: u64, window: u64, is_write: bool) -> bool {
        let window = if is_write { window | WRITTEN } else { window };
        let bss = self.skel.maps.bss_data.as_deref();
        bss.is_some_and(|bss| {
            let mark = bss.marks.get(mark(file, window)).copied().unwrap_or_default();
            mark.saturating_add(1) >= bss.interval
        })
    }

    /// Removes all counts, and returns them. The next interval begins.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn take(&mut self) -> Result<Vec<AccessCount>, PageCacheError> {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.interval = bss.interval.saturating_add(1);
        }
        let all = take_all(&self.skel.maps.counts)?;
        Ok(all.filter_map(|(key, count)| access_count(&key, &count)).collect())
    }
}

/// Index of the mark of a window, as in `reads.bpf.c`.
fn mark(file: u64, window: u64) -> usize {
    let shift = u64::BITS - MARKS_SHIFT;
    let first = file.wrapping_mul(0xff51_afd7_ed55_8ccd) >> shift;
    let at = first.wrapping_add(window).wrapping_add(window >> shift);
    (at & ((1 << MARKS_SHIFT) - 1)) as usize
}

fn access_count(key: &[u8], count: &[u8]) -> Option<AccessCount> {
    let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
    let (file, window) = key.split_first_chunk()?;
    let window = word(window.first_chunk()?);
    Some(AccessCount {
        file: word(file),
        window: window & !WRITTEN,
        is_write: window & WRITTEN != 0,
        counted: word(count.first_chunk()?),
    })
}

/// An access as `struct traced` of `reads.bpf.c`.
fn traced_access(bytes: &[u8]) -> Option<TracedAccess> {
    let (file, rest) = bytes.split_first_chunk()?;
    let (page, rest) = rest.split_first_chunk()?;
    let (kind, rest) = rest.split_first_chunk()?;
    let kind = usize::try_from(u32::from_ne_bytes(*kind)).ok()?;
    Some(TracedAccess {
        file: u64::from_ne_bytes(*file),
        page: u64::from_ne_bytes(*page),
        kind: *CacheAccessKind::ALL.get(kind)?,
        rarity: u8::try_from(u32::from_ne_bytes(*rest.first_chunk()?)).ok()?,
    })
}

/// Removes all entries of a map, and returns them.
///
/// One batch has room for all of them. The kernel ends a smaller batch before a bucket that does not fit, and libbpf-rs
/// stops after a batch that is not full. The remaining counts would belong to the next interval.
fn take_all<M: MapCore>(
    map: &M,
) -> Result<impl Iterator<Item = (Vec<u8>, Vec<u8>)>, PageCacheError> {
    map.lookup_and_delete_batch(map.max_entries(), MapFlags::ANY, MapFlags::ANY).map_err(failed)
}

fn failed(e: libbpf_rs::Error) -> PageCacheError {
    PageCacheError::Run(crate::log::reason(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There are so many that many buckets of the map have several: a smaller batch would end before one of these.
    #[test]
    fn all_counts_are_taken_at_once() {
        const COUNTS: u64 = 50_000;
        let mut counter = match ReadCounter::by_window(6, false) {
            Ok(counter) => counter,
            Err(e) => {
                assert!(std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none(), "{e}");
                return eprintln!("skipped: {e}");
            }
        };
        for round in 0..3 {
            for window in 0..COUNTS {
                let key = [round, window].map(u64::to_ne_bytes).concat();
                counter.skel.maps.counts.update(&key, &1_u64.to_ne_bytes(), MapFlags::ANY).unwrap();
            }
            let taken = counter.take().unwrap();
            assert!(taken.iter().all(|count| count.file == round), "counts of an earlier round");
            assert_eq!(taken.len() as u64, COUNTS);
        }
    }
}
