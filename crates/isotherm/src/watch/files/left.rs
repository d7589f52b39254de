//! Files that have left the list of watched files, and may return.

use std::collections::BTreeMap;
use std::time::Duration;

use isotherm_core::{Nanos, TargetId};
use isotherm_linux::page_cache::FileKey;

use super::MAX_WATCHED_FILES;
use super::watched::WatchedFile;

/// Time for which a file is kept.
const LEFT_FILE_LIFETIME: Duration = Duration::from_secs(3600);

/// Files that are not watched at present: they are no longer cached, or other files have more cached pages. One that
/// returns is the same target, with its rates and ages.
#[derive(Default)]
pub struct LeftFiles {
    files: BTreeMap<FileKey, LeftFile>,
}

struct LeftFile {
    file: WatchedFile,
    since: Nanos,
    /// It was not cached at the time of some listing since.
    was_absent: bool,
}

impl LeftFiles {
    /// Removes a file that has returned.
    pub fn take(&mut self, key: &FileKey) -> Option<WatchedFile> {
        let LeftFile { mut file, was_absent, .. } = self.files.remove(key)?;
        file.resume(was_absent);
        Some(file)
    }

    /// All of them.
    pub fn files(&mut self) -> impl Iterator<Item = &mut WatchedFile> {
        self.files.values_mut().map(|left| &mut left.file)
    }

    /// Adds files that have left, and forgets those that left long ago, or before many others. Returns the targets of
    /// the latter.
    pub fn add(
        &mut self,
        left: BTreeMap<FileKey, WatchedFile>,
        is_cached: impl Fn(&FileKey) -> bool,
        now: Nanos,
    ) -> Vec<TargetId> {
        for (key, file) in left {
            self.files.insert(key, LeftFile { file, since: now, was_absent: false });
        }
        for (key, left) in &mut self.files {
            left.was_absent |= !is_cached(key);
        }
        let mut oldest: Vec<_> = self.files.iter().map(|(key, left)| (left.since, *key)).collect();
        oldest.sort_unstable();
        let old = oldest.partition_point(|(since, _)| now.since(*since) >= LEFT_FILE_LIFETIME);
        let surplus = oldest.len().saturating_sub(MAX_WATCHED_FILES);
        let gone =
            oldest.iter().take(old.max(surplus)).filter_map(|(_, key)| self.files.remove(key));
        gone.flat_map(|left| left.file.targets().collect::<Vec<_>>()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(numbers: std::ops::Range<u64>) -> BTreeMap<FileKey, WatchedFile> {
        numbers.map(|n| ((0, n, 0), WatchedFile::default())).collect()
    }

    fn target(number: u32) -> BTreeMap<FileKey, WatchedFile> {
        BTreeMap::from([((0, number.into(), 0), WatchedFile::of_target(TargetId(number)))])
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_file_that_returns_within_an_hour_is_known() {
        let mut left = LeftFiles::default();
        left.add(files(0..2), |key| key.1 == 0, Nanos(SECOND));
        left.add(files(2..3), |_| true, Nanos(1800 * SECOND));
        let was_absent = |file: Option<WatchedFile>| file.map(|file| file.was_absent);
        assert_eq!(was_absent(left.take(&(0, 0, 0))), Some(Some(false)));
        assert_eq!(was_absent(left.take(&(0, 1, 0))), Some(Some(true)));
        assert_eq!(was_absent(left.take(&(0, 1, 0))), None, "it has returned");
        left.add(BTreeMap::new(), |_| true, Nanos(5401 * SECOND));
        assert!(left.take(&(0, 2, 0)).is_none(), "an hour ago");
    }

    #[test]
    fn the_targets_of_forgotten_files_are_known() {
        let (mut left, is_cached) = (LeftFiles::default(), |_: &FileKey| true);
        assert_eq!(left.add(target(1), is_cached, Nanos(SECOND)), []);
        assert_eq!(left.add(target(2), is_cached, Nanos(3601 * SECOND)), [TargetId(1)]);
        let many = files(10..10 + MAX_WATCHED_FILES as u64);
        assert_eq!(left.add(many, is_cached, Nanos(3602 * SECOND)), [TargetId(2)]);
    }

    #[test]
    fn the_number_of_files_is_bounded() {
        let (mut left, max) = (LeftFiles::default(), MAX_WATCHED_FILES as u64);
        left.add(files(0..1), |_| true, Nanos(1));
        left.add(files(1..max), |_| true, Nanos(2));
        left.add(files(max..max + 1), |_| true, Nanos(3));
        assert!(left.files.len() == MAX_WATCHED_FILES && left.take(&(0, 0, 0)).is_none());
        assert!(left.take(&(0, max, 0)).is_some(), "the last one to leave");
    }
}
