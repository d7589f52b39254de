//! Counts reads of cached files while they happen.

use std::collections::HashMap;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags};

use super::PageCacheError;
use crate::reads_skel::{ReadsSkel, ReadsSkelBuilder};
use crate::storage::Storage;
use crate::sys::monotonic;
use crate::walker::bpf_help;

/// One page read of this many counts, as in `reads.bpf.c`.
const SHARE: f64 = 64.0;

/// Counts which file is read how often, on the whole machine. It does not observe reads of tmpfs, accesses through
/// mappings, and reads that bypass the page cache.
pub struct ReadCounter {
    // Declared before the storage it refers to, so that it is dropped first.
    skel: ReadsSkel<'static>,
    _storage: Storage,
}

/// Reads of one time.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Reads {
    seconds: f64,
    counts: HashMap<u64, u64>,
}

impl Reads {
    /// Pages of the file with this [identity](super::CachedFile::id) that were read per second.
    #[must_use]
    pub fn pages_per_second(&self, id: u64) -> f64 {
        let count = self.counts.get(&id).copied().unwrap_or(0);
        count as f64 * SHARE / self.seconds.max(f64::MIN_POSITIVE)
    }
}

impl ReadCounter {
    /// Loads the program. It does not cost anything until [`Self::during`] runs it.
    ///
    /// # Errors
    /// If the kernel rejects it: before Linux 6.12, the tracepoint does not exist.
    pub fn load() -> Result<Self, PageCacheError> {
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
        let open = ReadsSkelBuilder::default().open(place).map_err(refused)?;
        Ok(ReadCounter { skel: open.load().map_err(refused)?, _storage: storage })
    }

    /// Counts while `wait` runs. Each read then takes about 40 ns longer.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn during(&mut self, wait: impl FnOnce()) -> Result<Reads, PageCacheError> {
        let refused = |e: libbpf_rs::Error| PageCacheError::Run(crate::log::reason(&e));
        self.take().map_err(refused)?;
        let link: Link = self.skel.progs.count_reads.attach().map_err(refused)?;
        let begin = monotonic();
        wait();
        let seconds = monotonic().since(begin).as_secs_f64();
        drop(link);
        let counts = self.take().map_err(refused)?;
        Ok(Reads { seconds, counts })
    }

    /// Removes all counts, and returns them.
    fn take(&mut self) -> Result<HashMap<u64, u64>, libbpf_rs::Error> {
        let map = &self.skel.maps.counts;
        let mut counts = HashMap::new();
        for key in map.keys().collect::<Vec<_>>() {
            let value = map.lookup(&key, MapFlags::ANY)?;
            let word = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
            if let Some((inode, count)) = word(&key).zip(value.as_deref().and_then(word)) {
                counts.insert(inode, count);
            }
            // Another may have displaced it meanwhile.
            let _ = map.delete(&key);
        }
        Ok(counts)
    }
}
