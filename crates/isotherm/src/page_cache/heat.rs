//! Cached pages by heat.

use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::HeatBytes;
use isotherm_linux::page_cache::FileReadCounts;
use serde::Serialize;

/// Maximum number of files that are watched at once: those with the most cached pages.
pub(crate) const MAX_WATCHED_FILES: usize = 1000;

/// Resident bytes by heat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct CacheHeat {
    /// accessed often
    pub hot_bytes: u64,
    /// neither hot nor cold
    pub warm_bytes: u64,
    /// not accessed for a while
    pub cold_bytes: u64,
    /// the rest: not watched, or its accesses cannot be observed
    pub unknown_bytes: u64,
}

impl CacheHeat {
    /// Combines each figure with that of another one.
    pub(super) fn combine(self, o: Self, with: fn(u64, u64) -> u64) -> Self {
        CacheHeat {
            hot_bytes: with(self.hot_bytes, o.hot_bytes),
            warm_bytes: with(self.warm_bytes, o.warm_bytes),
            cold_bytes: with(self.cold_bytes, o.cold_bytes),
            unknown_bytes: with(self.unknown_bytes, o.unknown_bytes),
        }
    }

    /// The same shares of the known heat for pages that were counted at another time, or that are a part of these. What is
    /// missing is unknown. Example: of 8 MiB, 6 are hot and 2 cold. If 4 MiB are resident, 3 are hot and 1 is cold; if 10
    /// MiB are, 2 of them are unknown.
    pub(super) fn of_resident(self, resident_bytes: u64) -> Self {
        let known = self.hot_bytes + self.warm_bytes + self.cold_bytes;
        let all = (known + self.unknown_bytes).max(resident_bytes).max(1);
        let part =
            |bytes| (u128::from(bytes) * u128::from(resident_bytes) / u128::from(all)) as u64;
        let parts = [self.hot_bytes, self.warm_bytes, self.cold_bytes];
        let mut scaled = if all > resident_bytes { parts.map(part) } else { parts };
        // If nothing is unknown, nothing becomes so by rounding.
        if all > resident_bytes && self.unknown_bytes == 0 {
            let rest = resident_bytes - scaled.iter().sum::<u64>();
            scaled.iter_mut().max().into_iter().for_each(|largest| *largest += rest);
        }
        let [hot_bytes, warm_bytes, cold_bytes] = scaled;
        let unknown_bytes = resident_bytes - (hot_bytes + warm_bytes + cold_bytes);
        CacheHeat { hot_bytes, warm_bytes, cold_bytes, unknown_bytes }
    }
}

impl From<HeatBytes> for CacheHeat {
    fn from(b: HeatBytes) -> Self {
        let HeatBytes { hot, warm, cold, unknown, .. } = b;
        CacheHeat { hot_bytes: hot, warm_bytes: warm, cold_bytes: cold, unknown_bytes: unknown }
    }
}

/// What was observed just before a reading.
#[derive(Debug, Clone, Copy, Default)]
pub struct Observed<'a> {
    /// counted reads
    pub reads: Option<&'a FileReadCounts>,
    /// accesses of all kinds
    pub heat: Option<&'a FileHeat>,
}

/// The heat of files that were watched.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FileHeat {
    /// by the file's identity in the kernel's memory; each as it was cached then
    pub by_file: HashMap<u64, CacheHeat>,
    /// for how long they were watched
    pub watched: Duration,
    /// the CPU time of this thread that watching has used since the last heat
    pub cpu: Duration,
}

impl FileHeat {
    /// The heat of the resident bytes of a file, which may be only those of a control group. Unknown if it was not watched.
    pub(super) fn of(&self, file: u64, resident_bytes: u64) -> CacheHeat {
        self.by_file.get(&file).copied().unwrap_or_default().of_resident(resident_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heat([hot_bytes, warm_bytes, cold_bytes, unknown_bytes]: [u64; 4]) -> CacheHeat {
        CacheHeat { hot_bytes, warm_bytes, cold_bytes, unknown_bytes }
    }

    #[test]
    fn heat_is_that_of_the_resident_pages() {
        assert_eq!(heat([6, 0, 2, 0]).of_resident(4), heat([3, 0, 1, 0]));
        assert_eq!(heat([6, 0, 2, 0]).of_resident(10), heat([6, 0, 2, 2]));
        assert_eq!(heat([0, 4, 0, 4]).of_resident(4), heat([0, 2, 0, 2]));
        assert_eq!(heat([6, 0, 2, 0]).of_resident(0), heat([0; 4]));
        assert_eq!(heat([1, 0, 8, 0]).of_resident(7), heat([0, 0, 7, 0]), "rounded");
        assert_eq!(FileHeat::default().of(7, 5), heat([0, 0, 0, 5]), "not watched");
    }

    #[test]
    fn the_parts_are_all_resident_bytes() {
        let sizes = [0, 1, 3, 4096, 1_000_003, 1 << 50];
        let each = |n: usize| sizes.map(|resident| (n, resident));
        for (n, resident) in (0..6_usize.pow(4)).flat_map(each) {
            let parts = [n % 6, n / 6 % 6, n / 36 % 6, n / 216].map(|i| sizes[i]);
            let h = heat(parts).of_resident(resident);
            let sum = h.hot_bytes + h.warm_bytes + h.cold_bytes + h.unknown_bytes;
            assert_eq!(sum, resident, "{parts:?}");
            assert!(
                h.hot_bytes <= parts[0] + 2 && h.cold_bytes <= parts[2] + 2,
                "{parts:?}: {h:?}"
            );
        }
    }
}
