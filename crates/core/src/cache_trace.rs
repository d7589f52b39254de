//! Sampled accesses to the page cache: each access to a few pages, in order.

use crate::call::TargetId;
use crate::time::Nanos;

/// How a page was accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CacheAccessKind {
    /// by `read()` and similar calls
    Read,
    /// By `write()` and similar calls. Such a page need not be read from the disk.
    Written,
    /// A process has mapped it after a page fault.
    Mapped,
}

impl CacheAccessKind {
    /// All kinds.
    pub const ALL: [CacheAccessKind; 3] =
        [CacheAccessKind::Read, CacheAccessKind::Written, CacheAccessKind::Mapped];

    /// The word in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CacheAccessKind::Read => "read",
            CacheAccessKind::Written => "written",
            CacheAccessKind::Mapped => "mapped",
        }
    }
}

/// An access to a sampled page of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheAccess {
    /// the file
    pub target: TargetId,
    /// number of the page in the file
    pub page: u64,
    /// how it was accessed
    pub kind: CacheAccessKind,
    /// The page is in each sample of one page in 2^n, for n up to this. At least the sampling of the trace.
    pub rarity: u8,
}

/// All accesses to a sample of the pages of the watched files in an interval, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CacheTrace {
    /// begin of the interval
    pub since: Nanos,
    /// its end
    pub until: Nanos,
    /// One page in 2^this is sampled.
    pub sampling: u8,
    /// pages of each file that were read or mapped, sampled or not; a page counts for each access
    pub pages: Vec<(TargetId, u64)>,
    /// accesses to sampled pages that are missing, because they came faster than they could be recorded
    pub missing: u64,
    /// accesses to sampled pages
    pub accesses: Vec<CacheAccess>,
}

impl CacheTrace {
    /// The coarsest sampling: one page in 2^this.
    pub const MAX_SAMPLING: u8 = 15;

    /// Adds the trace of the next interval. Of both, the accesses remain that are in the smaller sample.
    pub fn append(&mut self, next: CacheTrace) {
        self.until = next.until;
        self.sampling = self.sampling.max(next.sampling);
        for (target, pages) in next.pages {
            match self.pages.iter_mut().find(|(id, _)| *id == target) {
                Some((_, sum)) => *sum += pages,
                None => self.pages.push((target, pages)),
            }
        }
        self.missing += next.missing;
        self.accesses.extend(next.accesses);
        self.accesses.retain(|a| a.rarity >= self.sampling);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(since: u64, sampling: u8, rarities: &[u8]) -> CacheTrace {
        let access = |rarity| CacheAccess {
            target: TargetId(1),
            page: since,
            kind: CacheAccessKind::Read,
            rarity,
        };
        CacheTrace {
            since: Nanos(since),
            until: Nanos(since + 1),
            sampling,
            pages: vec![(TargetId(1), 10), (TargetId(since as u32 + 2), 1)],
            missing: 1,
            accesses: rarities.iter().copied().map(access).collect(),
        }
    }

    #[test]
    fn a_trace_of_two_intervals_is_in_order_and_of_one_sample() {
        let mut both = trace(0, 1, &[1, 2, 3]);
        both.append(trace(1, 2, &[2, 4]));
        assert_eq!((both.since, both.until), (Nanos(0), Nanos(2)));
        assert_eq!((both.sampling, both.missing), (2, 2));
        assert_eq!(both.pages, [(TargetId(1), 20), (TargetId(2), 1), (TargetId(3), 1)]);
        let accesses: Vec<_> = both.accesses.iter().map(|a| (a.page, a.rarity)).collect();
        assert_eq!(accesses, [(0, 2), (0, 3), (1, 2), (1, 4)]);
    }
}
