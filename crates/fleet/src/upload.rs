//! Puts the hours of a lake into object storage.
//!
//! The directory of the lake is the buffer. An object is put whole, which is atomic: a reader never sees part of one.
//! An hour that is finished is removed from the directory once it has been put.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::bucket::{Bucket, BucketError};
use crate::decode::{decode_object, read};
use crate::file::LakeFileError;
use crate::lake::{Lake, LakeError, StoredHour, lost_with};

/// Number of finished hours that are put in one turn, so that rows do not wait for long.
const HOURS_AT_ONCE: usize = 6;

/// Failures of uploading.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UploadError {
    /// the storage cannot be used
    #[error("{0}")]
    Bucket(#[from] BucketError),
    /// a file of the directory cannot be read
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// the file
        path: PathBuf,
        /// the error of the operating system
        source: io::Error,
    },
    /// the directory cannot be used
    #[error("{0}")]
    Lake(#[from] LakeError),
}

/// Uploads the hours of a lake.
#[derive(Debug)]
pub struct Uploader {
    bucket: Bucket,
    /// maximum size of the finished hours that wait, in bytes
    most_bytes: u64,
    every: Duration,
    /// when the last upload began and when the next one is due, in ms since 1970
    due: Option<(i64, i64)>,
    /// minutes of each hour that this process has put
    put: BTreeMap<i64, usize>,
    /// finished hours that were put, and could not be removed yet
    sent: Vec<StoredHour>,
    /// finished hours that the storage has refused
    refused: BTreeSet<i64>,
}

impl Uploader {
    /// Uploads to `bucket` every `every`. While hours wait that are together larger than `most_bytes`, the oldest are
    /// dropped.
    #[must_use]
    pub fn new(bucket: Bucket, every: Duration, most_bytes: u64) -> Self {
        Uploader {
            bucket,
            most_bytes,
            every,
            due: None,
            put: BTreeMap::new(),
            sent: Vec::new(),
            refused: BTreeSet::new(),
        }
    }

    /// Puts hours that are finished, and the running one, if that is due at `now`, in ms since 1970. Drops the
    /// oldest hours if too much waits.
    ///
    /// # Errors
    /// If the storage cannot be reached, or a file cannot be read. The hours stay, and are put in a later turn.
    pub fn turn(&mut self, lake: &mut Lake, now: i64) -> Result<(), UploadError> {
        // A clock that was set back must not delay uploads.
        if self.due.is_some_and(|(last, due)| (last..due).contains(&now)) {
            return Ok(());
        }
        let every = i64::try_from(self.every.as_millis()).unwrap_or(i64::MAX);
        self.due = Some((now, now.saturating_add(every)));
        let put = self.put_all(lake);
        self.drop_oldest(lake)?;
        put
    }

    /// Puts hours once more, at the end.
    ///
    /// # Errors
    /// If the storage cannot be reached. The hours stay in the directory.
    pub fn finish(&mut self, lake: &mut Lake) -> Result<(), UploadError> {
        self.put_all(lake)
    }

    /// Puts the finished hours and the running one. A file that cannot be read, changed or removed does not keep the
    /// others from the storage. If the storage refuses an hour, it may be down, so this turn tries no other finished hour,
    /// and later turns try this one last.
    fn put_all(&mut self, lake: &mut Lake) -> Result<(), UploadError> {
        // A full disk may have cost hours. If the clock returns to one, its object must be read.
        let stored = lake.stored()?;
        self.put.retain(|start, _| stored.iter().any(|hour| hour.start == *start));
        let (mut count, mut remain, mut failed) = (0, false, Ok(()));
        let mut finished = lake.finished()?;
        self.sent.retain(|hour| finished.contains(hour));
        self.refused.retain(|start| finished.iter().any(|hour| hour.start == *start));
        finished.sort_by_key(|hour| self.refused.contains(&hour.start));
        for hour in finished {
            if count == HOURS_AT_ONCE {
                remain = true;
                break;
            }
            if !self.sent.contains(&hour) {
                match read(&hour.path) {
                    Ok(_) => {}
                    Err(LakeFileError::Io(source)) => {
                        failed = failed.and(Err(UploadError::Read { path: hour.path, source }));
                        continue;
                    }
                    Err(_) => {
                        let put = self.put.get(&hour.start).copied().unwrap_or(0);
                        failed = failed.and(lake.set_aside(&hour.path, put).map_err(Into::into));
                        continue;
                    }
                }
                let sent = self.send(lake, hour.start, &hour.path);
                let is_refused = matches!(sent, Err(UploadError::Bucket(_)));
                let is_sent = sent.is_ok();
                failed = failed.and(sent);
                if is_refused {
                    self.refused.insert(hour.start);
                    break;
                }
                if !is_sent {
                    continue;
                }
                self.put.remove(&hour.start);
                // The file has changed if it was completed.
                let is_same = |now: &StoredHour| now.start == hour.start;
                self.sent.extend(lake.finished()?.into_iter().find(is_same));
                count += 1;
            }
            failed = failed.and(lake.remove(&hour, 0).map_err(Into::into));
        }
        if let Some((start, path, minutes)) = lake.running()
            && self.put.get(&start) != Some(&minutes)
        {
            let sent = self.send(lake, start, &path);
            if sent.is_ok() {
                self.put.insert(start, lake.running().map_or(minutes, |(_, _, minutes)| minutes));
            }
            failed = failed.and(sent);
        }
        if remain {
            // Upload them in the next turn, without a pause.
            self.due = None;
        }
        failed
    }

    fn send(&self, lake: &mut Lake, start: i64, path: &Path) -> Result<(), UploadError> {
        self.complete(lake, start, path)?;
        self.put(lake, path)
    }

    /// Adds the minutes that the object of an hour has and its file does not: they would be lost when the file
    /// replaces the object. The file lacks them if the clock was set back after the hour was put and removed, or if
    /// the directory was lost.
    fn complete(&self, lake: &mut Lake, start: i64, path: &Path) -> Result<(), UploadError> {
        if self.put.contains_key(&start) {
            return Ok(());
        }
        match self.bucket.get(&lake.name(path)) {
            // What is no file of rows, or may not be read, cannot be kept.
            Ok(there) => match there.map(decode_object) {
                Some(Ok(rows)) => Ok(lake.merge(start, rows)?),
                _ => Ok(()),
            },
            Err(e) if e.is_forbidden() => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn put(&self, lake: &Lake, path: &Path) -> Result<(), UploadError> {
        let bytes =
            fs::read(path).map_err(|source| UploadError::Read { path: path.to_owned(), source })?;
        Ok(self.bucket.put(&lake.name(path), bytes)?)
    }

    /// Drops the oldest finished hours while all of them are larger than the limit.
    fn drop_oldest(&mut self, lake: &mut Lake) -> Result<(), UploadError> {
        let finished = lake.finished()?;
        let mut bytes: u64 = finished.iter().map(|hour| hour.bytes).sum();
        let mut dropped = Ok(());
        for hour in &finished {
            if bytes <= self.most_bytes {
                break;
            }
            let put = self.put.get(&hour.start).copied().unwrap_or(0);
            let lost = if self.sent.contains(hour) { 0 } else { lost_with(&hour.path, put) };
            let done = lake.remove(hour, lost);
            if done.is_ok() {
                self.put.remove(&hour.start);
                bytes = bytes.saturating_sub(hour.bytes);
            }
            dropped = dropped.and(done);
        }
        Ok(dropped?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::ObjectStore;
    use object_store::memory::InMemory;
    use rustix::fs::{IFlags, ioctl_setflags};
    use tempfile::TempDir;

    use super::*;
    use crate::file::{Effort, Writer};
    use crate::lake::{DiskLimits, HOUR_MS, MINUTE_MS};
    use crate::row::{Group, LakeRow, Rows};

    const BEGIN: i64 = 1_795_564_800_000;
    const EVERY: Duration = Duration::from_secs(300);
    /// When the next upload is due, if none is.
    const NEVER: Option<(i64, i64)> = Some((BEGIN, i64::MAX));

    fn uploader(store: &Arc<InMemory>) -> Uploader {
        let store = Arc::clone(store) as Arc<dyn ObjectStore>;
        Uploader::new(Bucket::new(store, "/p/").unwrap(), EVERY, 1 << 20)
    }

    /// Writes these minutes, and uploads when it is due.
    fn pass(lake: &mut Lake, uploader: &mut Uploader, minutes: std::ops::Range<i64>) {
        for n in minutes {
            let minute = BEGIN + n * MINUTE_MS;
            let group = Group { host: "h".into(), cgroup: "/g".into(), ..Group::default() };
            let row = LakeRow { minute, resident_bytes: n, ..LakeRow::default() };
            lake.append(minute, Rows { groups: vec![group], rows: vec![row] }).unwrap();
            uploader.turn(lake, minute + MINUTE_MS).unwrap();
        }
    }

    /// A directory with so many minutes that wait for an upload, and the files of its finished hours.
    fn spooled(minutes: i64) -> (TempDir, Lake, Uploader, Vec<PathBuf>) {
        let (dir, store) = (tempfile::tempdir().unwrap(), Arc::default());
        let mut lake = Lake::open(dir.path(), "h", DiskLimits::default()).unwrap();
        let mut upload = uploader(&store);
        upload.due = NEVER;
        pass(&mut lake, &mut upload, 0..minutes);
        let files = lake.finished().unwrap().into_iter().map(|hour| hour.path).collect();
        (dir, lake, upload, files)
    }

    /// The minutes of an hour in the bucket. The rows of the running hour have no order.
    fn minutes(uploader: &Uploader, hour: i64) -> Vec<i64> {
        let name = format!("date=2026-11-25/hour={hour:02}/host=h/rows.parquet");
        let rows =
            uploader.bucket.get(&name).unwrap().map(|bytes| decode_object(bytes).unwrap().rows);
        let rows = rows.unwrap_or_default().into_iter();
        let mut minutes: Vec<i64> = rows.map(|r| (r.minute - BEGIN) / MINUTE_MS).collect();
        minutes.sort_unstable();
        minutes
    }

    #[test]
    fn an_hour_in_the_bucket_survives_a_clock_that_is_set_back() {
        let (dir, store) = (tempfile::tempdir().unwrap(), Arc::default());
        let mut lake = Lake::open(dir.path(), "h", DiskLimits::default()).unwrap();
        let mut upload = uploader(&store);
        pass(&mut lake, &mut upload, 0..50);
        pass(&mut lake, &mut upload, 55..66);
        let first: Vec<i64> = (0..50).chain(55..60).collect();
        assert_eq!(minutes(&upload, 0), first);
        assert_eq!(lake.finished().unwrap(), []);
        // Minutes that are there already, and one that is not.
        pass(&mut lake, &mut upload, 48..51);
        pass(&mut lake, &mut upload, 66..76);
        upload.finish(&mut lake).unwrap();
        let all: Vec<i64> = (0..51).chain(55..60).collect();
        assert_eq!(minutes(&upload, 0), all);
        assert_eq!(minutes(&upload, 1), (60..76).collect::<Vec<_>>());
    }

    /// Found by an audit: no later hour was uploaded until the spool was full.
    #[test]
    fn a_file_that_cannot_be_read_does_not_hold_up_the_others() {
        let (_dir, mut lake, mut upload, files) = spooled(200);
        // The first is damaged, and its object exists. The second cannot be read: as root, permissions do not matter.
        upload.put(&lake, &files[0]).unwrap();
        fs::write(&files[0], "PAR1 no more").unwrap();
        fs::remove_file(&files[1]).unwrap();
        fs::create_dir(&files[1]).unwrap();
        upload.due = None;
        assert!(matches!(upload.turn(&mut lake, BEGIN), Err(UploadError::Read { .. })));
        assert_eq!(minutes(&upload, 0), (0..60).collect::<Vec<_>>());
        assert_eq!(minutes(&upload, 2), (120..180).collect::<Vec<_>>());
        assert_eq!(minutes(&upload, 3), (180..200).collect::<Vec<_>>());
        assert_eq!((files[0].exists(), files[1].exists(), files[2].exists()), (false, true, false));
        upload.due = NEVER;
        pass(&mut lake, &mut upload, 200..201);
        let (_, path, _) = lake.running().unwrap();
        let dropped = read(&path).unwrap().rows.iter().map(|r| r.dropped_minutes).sum::<i64>();
        assert_eq!(dropped, 60);
    }

    /// Found by a review: six hours were uploaded in each `--upload-every`.
    #[test]
    fn a_backlog_is_uploaded_without_a_pause_also_beside_files_that_cannot_be_used() {
        let (_dir, mut lake, mut upload, files) = spooled(10 * 60);
        // The first is damaged and cannot be set aside. The second cannot be read.
        fs::write(&files[0], "PAR1 no more").unwrap();
        fs::create_dir(files[0].with_file_name(".rows.parquet.bad")).unwrap();
        fs::remove_file(&files[1]).unwrap();
        fs::create_dir(&files[1]).unwrap();
        upload.due = None;
        assert!(matches!(upload.turn(&mut lake, BEGIN), Err(UploadError::Lake(_))));
        assert_eq!((upload.due, lake.finished().unwrap().len()), (None, 3));
        assert!(upload.turn(&mut lake, BEGIN).is_err());
        assert!(upload.due.is_some());
        assert_eq!(minutes(&upload, 8), (480..540).collect::<Vec<_>>());
        assert_eq!(minutes(&upload, 9), (540..600).collect::<Vec<_>>());
    }

    /// A file that could not be removed after it was put was put again in each turn, and counted as lost when the spool
    /// was full.
    #[test]
    fn an_hour_that_cannot_be_removed_is_put_once() {
        let (_dir, mut lake, mut upload, files) = spooled(70);
        if !is_immutable(&files[0], true) {
            assert!(std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none(), "this takes root");
            return;
        }
        upload.due = None;
        assert!(matches!(upload.turn(&mut lake, BEGIN), Err(UploadError::Lake(_))));
        assert_eq!(minutes(&upload, 0), (0..60).collect::<Vec<_>>());
        upload.bucket.put(&lake.name(&files[0]), b"of this turn".to_vec()).unwrap();
        upload.due = None;
        assert!(matches!(upload.turn(&mut lake, BEGIN), Err(UploadError::Lake(_))));
        let object = upload.bucket.get(&lake.name(&files[0])).unwrap().unwrap();
        assert_eq!(&*object, b"of this turn");
        assert!(is_immutable(&files[0], false));
        upload.most_bytes = 0;
        upload.drop_oldest(&mut lake).unwrap();
        assert!(!files[0].exists());
        upload.due = NEVER;
        pass(&mut lake, &mut upload, 70..71);
        let (_, path, _) = lake.running().unwrap();
        let rows = read(&path).unwrap().rows;
        assert_eq!(rows.iter().map(|row| row.dropped_minutes).sum::<i64>(), 0);
    }

    /// Sets or clears the flag by which nobody can remove a file. False without root, or if the file system has no flags.
    fn is_immutable(path: &Path, set: bool) -> bool {
        let file = fs::File::open(path).unwrap();
        let flags = if set { IFlags::IMMUTABLE } else { IFlags::empty() };
        ioctl_setflags(&file, flags).is_ok()
    }

    /// An object that could not be read kept all later hours from the storage.
    #[test]
    fn an_hour_that_the_storage_refuses_does_not_hold_up_the_others() {
        let (_dir, mut lake, mut upload, files) = spooled(200);
        let too_large = usize::try_from(crate::decode::MAX_BYTES + 1).unwrap();
        upload.bucket.put(&lake.name(&files[0]), vec![0; too_large]).unwrap();
        for _ in 0..2 {
            upload.due = None;
            assert!(matches!(upload.turn(&mut lake, BEGIN), Err(UploadError::Bucket(_))));
            assert!(upload.due.is_some(), "no turn without a pause");
            assert_eq!(minutes(&upload, 3), (180..200).collect::<Vec<_>>());
        }
        assert_eq!(minutes(&upload, 1), (60..120).collect::<Vec<_>>());
        assert_eq!(minutes(&upload, 2), (120..180).collect::<Vec<_>>());
        let left: Vec<_> = lake.finished().unwrap().into_iter().map(|hour| hour.path).collect();
        assert_eq!(left, files[..1]);
    }

    /// A file that could not be completed from its object kept all later hours from the storage.
    #[test]
    fn an_hour_that_cannot_be_completed_does_not_hold_up_the_others() {
        let (_dir, mut lake, mut upload, files) = spooled(200);
        // An object with a minute that the file lacks.
        let row = LakeRow { minute: BEGIN + MINUTE_MS / 2, ..LakeRow::default() };
        let mut writer = Writer::new(Vec::new(), Effort::Fast).unwrap();
        writer.write(&[Group::default()], &[row]).unwrap();
        upload.bucket.put(&lake.name(&files[0]), writer.finish().unwrap()).unwrap();
        fs::create_dir(files[0].with_file_name(".rows.parquet.new")).unwrap();
        upload.due = None;
        assert!(matches!(upload.turn(&mut lake, BEGIN), Err(UploadError::Lake(_))));
        assert_eq!(minutes(&upload, 2), (120..180).collect::<Vec<_>>());
        assert_eq!(minutes(&upload, 3), (180..200).collect::<Vec<_>>());
        assert!(files[0].exists() && !files[1].exists());
    }

    /// Found by a review: the first file that could not be removed kept all later ones.
    #[test]
    fn a_full_spool_drops_hours_after_one_that_cannot_be_removed() {
        let (_dir, mut lake, mut upload, files) = spooled(200);
        fs::remove_file(&files[0]).unwrap();
        fs::create_dir(&files[0]).unwrap();
        upload.most_bytes = 0;
        assert!(upload.drop_oldest(&mut lake).is_err());
        assert_eq!((files[0].exists(), files[1].exists(), files[2].exists()), (true, false, false));
    }

    /// Found by a review: the new rows replaced those of the object.
    #[test]
    fn an_object_survives_a_full_disk_and_a_clock_that_is_set_back() {
        let (dir, store) = (tempfile::tempdir().unwrap(), Arc::default());
        let mut lake = Lake::open(dir.path(), "h", DiskLimits::default()).unwrap();
        let mut upload = uploader(&store);
        pass(&mut lake, &mut upload, 0..50);
        upload.finish(&mut lake).unwrap();
        let due = upload.due.replace((BEGIN, i64::MAX));
        pass(&mut lake, &mut upload, 60..61);
        // As if the disk had been full.
        let hour = lake.finished().unwrap().remove(0);
        lake.remove(&hour, 50).unwrap();
        upload.due = due;
        pass(&mut lake, &mut upload, 61..62);
        pass(&mut lake, &mut upload, 50..52);
        upload.finish(&mut lake).unwrap();
        assert_eq!(minutes(&upload, 0), (0..52).collect::<Vec<_>>());
    }

    #[test]
    fn the_running_hour_survives_the_loss_of_the_directory() {
        let store = Arc::default();
        for minutes in [0..20, 20..30] {
            let dir = tempfile::tempdir().unwrap();
            let mut lake = Lake::open(dir.path(), "h", DiskLimits::default()).unwrap();
            let mut upload = uploader(&store);
            pass(&mut lake, &mut upload, minutes);
            upload.finish(&mut lake).unwrap();
        }
        assert_eq!(minutes(&uploader(&store), 0), (0..30).collect::<Vec<_>>());
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_delay_uploads() {
        let (dir, store) = (tempfile::tempdir().unwrap(), Arc::default());
        let mut lake = Lake::open(dir.path(), "h", DiskLimits::default()).unwrap();
        let mut upload = uploader(&store);
        let hours = HOUR_MS / MINUTE_MS;
        pass(&mut lake, &mut upload, 9 * hours..9 * hours + 2);
        pass(&mut lake, &mut upload, 0..6);
        assert_eq!(minutes(&upload, 0), (0..6).collect::<Vec<_>>());
    }
}
