//! A lake on disk: a file for each host and hour, `DIR/date=YYYY-MM-DD/hour=HH/host=NAME/rows.parquet`.
//!
//! Every minute, the file of the running hour is written under another name and moved into place. So a reader never
//! sees part of a file, and a crash loses only the minute that was not written yet.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;

use crate::decode::read;
use crate::file::{Effort, LakeFileError, Writer};
use crate::row::Rows;

/// Milliseconds of a minute.
pub const MINUTE_MS: i64 = 60_000;
/// Milliseconds of an hour.
pub const HOUR_MS: i64 = 60 * MINUTE_MS;
/// Minutes that count as lost if a file cannot be read: it may have had all minutes of its hour.
const MINUTES_OF_HOUR: usize = 60;
/// Maximum number of rows to keep in memory while they cannot be written.
const MAX_ROWS: usize = if cfg!(test) { 640 } else { 64 << 10 };
/// The file of an hour, and the name under which it is written.
const NAME: &str = "rows.parquet";
const ASIDE: &str = ".rows.parquet.new";
/// The name of a file that cannot be read.
const BAD: &str = ".rows.parquet.bad";

/// Failures of a lake.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LakeError {
    /// a directory or file cannot be used
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// the failed operation
        what: &'static str,
        /// the directory or file
        path: PathBuf,
        /// the error of the operating system
        source: io::Error,
    },
    /// rows cannot be written or read
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// the failed operation
        what: &'static str,
        /// the file
        path: PathBuf,
        /// the reason
        source: LakeFileError,
    },
    /// two agents would replace each other's files
    #[error(
        "another isotherm writes the rows of {host} to {}: end it, or name another directory",
        dir.display()
    )]
    Locked {
        /// name of the host
        host: String,
        /// the lake
        dir: PathBuf,
    },
    /// a copy would replace the days of the lake itself
    #[error(
        "{} is the lake itself, and the copy would replace its files: name another folder",
        .0.display()
    )]
    Same(PathBuf),
    /// a folder within the other would be read as a part of it
    #[error(
        "one of {} and {} is within the other, so its rows would count twice: name a folder beside the lake",
        lake.display(),
        copy.display()
    )]
    Nested {
        /// the lake
        lake: PathBuf,
        /// the copy
        copy: PathBuf,
    },
    /// a copy would be replaced by one that has less
    #[error(
        "the copy of {date} has {before} rows and the lake only {now}, because agents have removed hours since then: \
         to replace the copy, delete its folder first"
    )]
    Fewer {
        /// the day
        date: String,
        /// rows of the copy
        before: usize,
        /// rows of the lake
        now: usize,
    },
    /// two copies would mix their files
    #[error("another isotherm fleet compact writes to {}: wait until it ends", .0.display())]
    Compacting(PathBuf),
    /// the object storage cannot be used
    #[cfg(feature = "upload")]
    #[error("{0}")]
    Bucket(#[from] crate::bucket::BucketError),
    /// a time outside of what a date can express
    #[error("the minute {0} ms since 1970 is not in the years 1970 to 9999: check the clock")]
    Time(i64),
}

impl LakeError {
    /// Whether the disk, or the quota of the user, has no room.
    fn is_full(&self) -> bool {
        let mut causes = std::iter::successors(std::error::Error::source(self), |e| e.source());
        causes.any(|e| {
            let kind = e.downcast_ref().map(io::Error::kind);
            matches!(kind, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
        })
    }
}

/// The limits of the rows on disk. The oldest hours of this host are removed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskLimits {
    /// maximum age of an hour
    pub age: Option<Duration>,
    /// maximum size of all hours together, in bytes
    pub bytes: Option<u64>,
}

/// An hour on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredHour {
    /// its start in ms since 1970, UTC
    pub start: i64,
    /// its file
    pub path: PathBuf,
    /// size of the file
    pub bytes: u64,
    /// last change of the file
    pub modified: SystemTime,
}

/// An hour that may change, or could not be written.
#[derive(Debug, Default)]
struct Hour {
    start: i64,
    rows: Rows,
    /// the minutes of `rows`
    minutes: BTreeSet<i64>,
    /// number of these minutes that are on disk
    stored: usize,
}

/// The rows of one host in a lake.
#[derive(Debug)]
pub struct Lake {
    dir: PathBuf,
    host: String,
    keep: DiskLimits,
    /// The running hour is the last one.
    hours: Vec<Hour>,
    /// minutes that were lost and are in no row yet
    lost: usize,
    /// a running hour, and the bytes that old hours freed during it, because the disk was full
    freed: (i64, u64),
    /// Held for as long as this exists.
    _lock: File,
}

impl Lake {
    /// Opens the lake in `dir` for `host`, creates it if necessary, and reads the last hour back.
    ///
    /// # Errors
    /// If another process has it open for this host, or it cannot be used.
    pub fn open(dir: &Path, host: &str, keep: DiskLimits) -> Result<Self, LakeError> {
        let host = directory_name(host);
        fs::create_dir_all(dir).map_err(|e| io_error("create", dir, e))?;
        let path = dir.join(format!(".isotherm.{host}.lock"));
        let lock = lock(&path)?;
        let dir = dir.to_owned();
        let lock =
            lock.ok_or_else(|| LakeError::Locked { host: host.clone(), dir: dir.clone() })?;
        let (hours, lost, freed) = (Vec::new(), 0, (0, 0));
        let mut lake = Lake { dir, host, keep, hours, lost, freed, _lock: lock };
        if let Some(last) = lake.stored()?.pop() {
            lake.load(last.start)?;
        }
        Ok(lake)
    }

    /// The last minute that the last hour has.
    #[must_use]
    pub fn last_minute(&self) -> Option<i64> {
        self.hours.last()?.minutes.last().copied()
    }

    /// Adds the rows of one minute and writes its hour. Rows of a minute that the lake already has are left out.
    /// Earlier hours are written a last time, sorted. If the disk is full, the oldest hours make room, and their
    /// minutes are lost.
    ///
    /// # Errors
    /// If a file cannot be written. The rows stay in memory, within a limit, and are written with a later minute.
    pub fn append(&mut self, minute: i64, rows: Rows) -> Result<(), LakeError> {
        let start = minute.div_euclid(HOUR_MS) * HOUR_MS;
        hour_dir(start)?;
        if self.hours.last().is_none_or(|hour| hour.start != start) {
            // Its file, which may have earlier minutes, must not be replaced.
            self.load(start).inspect_err(|_| self.lost += usize::from(!rows.rows.is_empty()))?;
        }
        let Some(hour) = self.hours.last_mut() else { return Ok(()) };
        if !rows.rows.is_empty() && hour.minutes.insert(minute) {
            hour.rows.append(rows);
        }
        let written = self.write_on_full_disk();
        self.forget_oldest();
        written
    }

    /// Adds the minutes of an hour that were stored elsewhere and are not here, and writes its file.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn merge(&mut self, start: i64, mut more: Rows) -> Result<(), LakeError> {
        let is_new = |minutes: &BTreeSet<i64>, minute: i64| {
            (start..start + HOUR_MS).contains(&minute) && !minutes.contains(&minute)
        };
        if let Some(hour) = self.hours.iter_mut().find(|hour| hour.start == start) {
            more.rows.retain(|row| is_new(&hour.minutes, row.minute));
            hour.minutes.extend(more.rows.iter().map(|row| row.minute));
            hour.rows.append(more);
            return self.write_on_full_disk();
        }
        let path = self.path(start);
        let failed = |source| LakeError::File { what: "read", path: path.clone(), source };
        let mut rows = read(&path).map_err(failed)?;
        let minutes = rows.rows.iter().map(|row| row.minute).collect();
        more.rows.retain(|row| is_new(&minutes, row.minute));
        if more.rows.is_empty() {
            return Ok(());
        }
        rows.append(more);
        rows.sort();
        write_aside(&path, &rows, Effort::Small)
    }

    /// Counts minutes that were lost before they came here. The next row reports them.
    pub fn lose(&mut self, minutes: usize) {
        self.lost += minutes;
    }

    /// The hours of this host on disk, the oldest first.
    ///
    /// # Errors
    /// If a directory cannot be read.
    pub fn stored(&self) -> Result<Vec<StoredHour>, LakeError> {
        stored(&self.dir, &self.host)
    }

    /// The hours that will not change again: all but the running one, and those that could not be written yet.
    ///
    /// # Errors
    /// If a directory cannot be read.
    pub fn finished(&self) -> Result<Vec<StoredHour>, LakeError> {
        let mut all = self.stored()?;
        all.retain(|stored| self.hours.iter().all(|hour| hour.start != stored.start));
        Ok(all)
    }

    /// The running hour, if it is on disk, and its number of minutes there.
    #[must_use]
    pub fn running(&self) -> Option<(i64, PathBuf, usize)> {
        let hour = self.hours.last().filter(|hour| hour.stored > 0)?;
        Some((hour.start, self.path(hour.start), hour.stored))
    }

    /// Removes a finished hour; `lost`: number of its minutes that have no other copy. The next row reports them.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(&mut self, hour: &StoredHour, lost: usize) -> Result<(), LakeError> {
        fs::remove_file(&hour.path).map_err(|e| io_error("remove", &hour.path, e))?;
        self.lost += lost;
        // Directories that others use are not empty.
        for dir in hour.path.ancestors().skip(1).take_while(|dir| **dir != self.dir) {
            if fs::remove_dir(dir).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Renames a file that is damaged, so that it is no longer part of the lake. The next row reports its minutes but
    /// the first `kept`, which have another copy.
    ///
    /// # Errors
    /// If it cannot be renamed.
    pub fn set_aside(&mut self, path: &Path, kept: usize) -> Result<(), LakeError> {
        let aside = path.with_file_name(BAD);
        fs::rename(path, aside).map_err(|e| io_error("set aside", path, e))?;
        self.lost += MINUTES_OF_HOUR.saturating_sub(kept);
        Ok(())
    }

    /// Path of a stored hour relative to the lake, with `/`.
    #[must_use]
    pub fn name(&self, hour: &Path) -> String {
        hour.strip_prefix(&self.dir).unwrap_or(hour).to_string_lossy().into_owned()
    }

    fn path(&self, start: i64) -> PathBuf {
        let dir = hour_dir(start).unwrap_or_default();
        self.dir.join(dir).join(format!("host={}", self.host)).join(NAME)
    }

    /// Makes this the running hour, with the rows that are on disk.
    fn load(&mut self, start: i64) -> Result<(), LakeError> {
        if let Some(at) = self.hours.iter().position(|hour| hour.start == start) {
            let hour = self.hours.remove(at);
            self.hours.push(hour);
            return Ok(());
        }
        let path = self.path(start);
        let rows = match read(&path) {
            Ok(rows) => rows,
            Err(LakeFileError::Io(e)) if e.kind() == io::ErrorKind::NotFound => Rows::default(),
            Err(source @ LakeFileError::Io(_)) => {
                return Err(LakeError::File { what: "read", path, source });
            }
            // The file is damaged. None of it can be used, but monitoring must continue.
            Err(_) => {
                self.set_aside(&path, 0)?;
                Rows::default()
            }
        };
        let minutes: BTreeSet<i64> = rows.rows.iter().map(|row| row.minute).collect();
        let stored = minutes.len();
        self.hours.push(Hour { start, rows, minutes, stored });
        Ok(())
    }

    /// Writes all hours in memory. Without room for them, it removes old hours, but in an hour no more than that hour
    /// can need: otherwise others fill the disk, and would soon use the room of all hours.
    fn write_on_full_disk(&mut self) -> Result<(), LakeError> {
        let mut written = self.write();
        let is_full = |written: &Result<(), _>| written.as_ref().is_err_and(LakeError::is_full);
        if !is_full(&written) {
            return written;
        }
        let running = self.hours.last().map_or(0, |hour| hour.start);
        if self.freed.0 != running {
            self.freed = (running, 0);
        }
        // The file, its next version beside it, and the last version of the previous hour.
        let enough = 3 * self.stored()?.iter().map(|hour| hour.bytes).max().unwrap_or(0);
        let mut removed = Ok(());
        for hour in self.finished()? {
            if self.freed.1 >= enough || !is_full(&written) {
                break;
            }
            let done = self.remove(&hour, lost_with(&hour.path, 0));
            if done.is_ok() {
                self.freed.1 += hour.bytes;
                written = self.write();
            }
            removed = removed.and(done);
        }
        written.and(removed)
    }

    /// Writes all hours in memory, and forgets all but the running one.
    fn write(&mut self) -> Result<(), LakeError> {
        let ended = self.hours.len() > 1;
        // First, so that a full disk does not keep old hours from being removed.
        let thinned = if ended { self.thin() } else { Ok(()) };
        while self.hours.len() > 1 {
            let path = self.path(self.hours[0].start);
            self.hours[0].rows.sort();
            write_aside(&path, &self.hours[0].rows, Effort::Small)?;
            self.hours.remove(0);
        }
        let Some(path) = self.hours.last().map(|hour| self.path(hour.start)) else { return Ok(()) };
        let Some(hour) = self.hours.last_mut().filter(|hour| hour.stored < hour.minutes.len())
        else {
            return thinned;
        };
        // Not when the rows came: hours that made room for this minute since then count too.
        let minute = hour.rows.rows.last().map(|row| row.minute);
        if let Some(first) = hour.rows.rows.iter_mut().find(|row| Some(row.minute) == minute) {
            let lost = i64::try_from(std::mem::take(&mut self.lost)).unwrap_or(i64::MAX);
            first.dropped_minutes = first.dropped_minutes.saturating_add(lost);
        }
        write_aside(&path, &hour.rows, Effort::Fast)?;
        hour.stored = hour.minutes.len();
        thinned
    }

    /// Removes the oldest hours on disk, as [`DiskLimits`] says.
    fn thin(&mut self) -> Result<(), LakeError> {
        let Some(now) = self.hours.last().map(|hour| hour.start) else { return Ok(()) };
        let ms = |age: Duration| i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        let from = self.keep.age.map_or(i64::MIN, |age| now.saturating_sub(ms(age)));
        // The hour that has just ended counts too. It is removed at the earliest when it has been written.
        let ended = self.stored()?.into_iter().filter(|hour| hour.start != now);
        let mut bytes: u64 = ended.map(|hour| hour.bytes).sum();
        let mut removed = Ok(());
        for hour in self.finished()? {
            if hour.start < from || self.keep.bytes.is_some_and(|most| bytes > most) {
                let done = self.remove(&hour, 0);
                if done.is_ok() {
                    bytes = bytes.saturating_sub(hour.bytes);
                }
                removed = removed.and(done);
            }
        }
        removed
    }

    /// Forgets the oldest hours that could not be written, if they use too much memory.
    fn forget_oldest(&mut self) {
        let rows = |hours: &[Hour]| hours.iter().map(|hour| hour.rows.rows.len()).sum::<usize>();
        while self.hours.len() > 1 && rows(&self.hours) > MAX_ROWS {
            let hour = self.hours.remove(0);
            self.lost += hour.rows.lost_after(hour.stored);
        }
    }
}

/// Number of minutes that are lost with the file of an hour, of which the first `kept` have another copy.
pub(crate) fn lost_with(path: &Path, kept: usize) -> usize {
    read(path).map_or(MINUTES_OF_HOUR.saturating_sub(kept), |rows| rows.lost_after(kept))
}

/// Hours of a host in the lake `dir`, the oldest first.
fn stored(dir: &Path, host: &str) -> Result<Vec<StoredHour>, LakeError> {
    let mut all = Vec::new();
    for (date, day) in parts(dir, "date=")? {
        for (hour, dir) in parts(&day, "hour=")? {
            let path = dir.join(format!("host={host}")).join(NAME);
            let Ok(is) = fs::metadata(&path) else { continue };
            let start = humantime::parse_rfc3339(&format!("{date}T{hour}:00:00Z")).ok();
            let start = start.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            if let Some(start) = start.and_then(|at| i64::try_from(at.as_millis()).ok()) {
                let modified = is.modified().unwrap_or(UNIX_EPOCH);
                all.push(StoredHour { start, path, bytes: is.len(), modified });
            }
        }
    }
    all.sort_by_key(|hour| hour.start);
    Ok(all)
}

/// The directories below `dir` whose names begin with `prefix`, with the rest of their names.
pub(crate) fn parts(dir: &Path, prefix: &str) -> Result<Vec<(String, PathBuf)>, LakeError> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|e| io_error("read", dir, e))?,
    };
    let mut all = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| io_error("read", dir, e))?;
        let name = entry.file_name();
        if let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(prefix)) {
            all.push((rest.to_owned(), entry.path()));
        }
    }
    all.sort();
    Ok(all)
}

/// `date=YYYY-MM-DD/hour=HH` of an hour.
fn hour_dir(start: i64) -> Result<PathBuf, LakeError> {
    let text = rfc3339(start)?;
    let hour = text.get(11..13).ok_or(LakeError::Time(start))?;
    Ok(Path::new(&format!("date={}", date_of(start)?)).join(format!("hour={hour}")))
}

/// The day of a time, as YYYY-MM-DD.
pub(crate) fn date_of(ms: i64) -> Result<String, LakeError> {
    Ok(rfc3339(ms)?.get(..10).ok_or(LakeError::Time(ms))?.to_owned())
}

/// A day as YYYY-MM-DD, if the text is one.
///
/// # Errors
/// If it is none.
pub fn day(text: &str) -> Result<String, String> {
    match humantime::parse_rfc3339(&format!("{text}T00:00:00Z")) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(format!("{text:?} is not a day: write it as 2026-11-30")),
    }
}

/// YYYY-MM-DDTHH:MM:SSZ
fn rfc3339(ms: i64) -> Result<String, LakeError> {
    /// the end of the year 9999
    const END: u64 = 253_402_300_800_000;
    let time = u64::try_from(ms).ok().filter(|ms| *ms < END).ok_or(LakeError::Time(ms))?;
    Ok(humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(time)).to_string())
}

/// A valid directory name for a host of any name.
fn directory_name(host: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '_' };
    let name: String = host.chars().map(safe).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// Locks the file `path`, and creates it if necessary; `None` if another process has locked it. On file systems without
/// locks, other processes are not detected.
pub(crate) fn lock(path: &Path) -> Result<Option<File>, LakeError> {
    // The directory may be one in which others make links.
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = File::options();
    // Who may read a file may lock it.
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let file = options.open(path).map_err(|e| io_error("create", path, e))?;
    match file.try_lock() {
        Ok(()) | Err(TryLockError::Error(_)) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
    }
}

/// Writes a file next to its path, makes sure that it is on disk, and moves it into place.
pub(crate) fn write_aside(path: &Path, rows: &Rows, effort: Effort) -> Result<(), LakeError> {
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir).map_err(|e| io_error("create", dir, e))?;
    let aside = path.with_file_name(ASIDE);
    let written = (|| {
        // A link that another user has put there must not be followed.
        let _ = fs::remove_file(&aside);
        let file = File::create_new(&aside)?;
        let mut writer = Writer::new(io::BufWriter::new(file), effort)?;
        writer.write(&rows.groups, &rows.rows)?;
        let file = writer.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        fs::rename(&aside, path)?;
        File::open(dir)?.sync_all()?;
        Ok(())
    })();
    written.map_err(|source| {
        // On a full disk, the part that was written would keep others from writing.
        let _ = fs::remove_file(&aside);
        LakeError::File { what: "write", path: path.to_owned(), source }
    })
}

pub(crate) fn io_error(what: &'static str, path: &Path, source: io::Error) -> LakeError {
    LakeError::Io { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{Group, LakeRow};

    /// Midnight of a day.
    const DAY: i64 = 1_795_564_800_000;

    /// Any user could lock the file of an agent that was started by hand, and so keep it from writing.
    #[test]
    fn others_may_not_lock_a_file() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let _held = lock(&path).unwrap().unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(lock(&path).unwrap().is_none());
    }

    fn rows(minute: i64, groups: u32) -> Rows {
        let group = |i| Group { cgroup: format!("/g{i}"), host: "h".into(), ..Group::default() };
        let row = |group| LakeRow { group, minute, resident_bytes: minute, ..LakeRow::default() };
        Rows {
            groups: (0..groups).rev().map(group).collect(),
            rows: (0..groups).map(row).collect(),
        }
    }

    fn lake_path(dir: &Path, hour: i64) -> PathBuf {
        dir.join(hour_dir(DAY + hour * HOUR_MS).unwrap()).join("host=h").join(NAME)
    }

    fn append(lake: &mut Lake, minutes: std::ops::Range<i64>) {
        for n in minutes {
            lake.append(DAY + n * MINUTE_MS, rows(DAY + n * MINUTE_MS, 2)).unwrap();
        }
    }

    /// The minutes of all rows of a lake.
    fn minutes(dir: &Path) -> Vec<i64> {
        let all = stored(dir, "h").unwrap();
        let all = all.iter().flat_map(|hour| read(&hour.path).unwrap().rows);
        let mut all: Vec<i64> = all.map(|r| (r.minute - DAY) / MINUTE_MS).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn an_hour_is_a_file_that_is_sorted_when_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let mut lake = Lake::open(dir.path(), "h", DiskLimits::default()).unwrap();
        append(&mut lake, 0..61);
        let first = dir.path().join("date=2026-11-25/hour=00/host=h/rows.parquet");
        let first = read(&first).unwrap();
        let order: Vec<_> =
            first.rows.iter().map(|r| &first.groups[r.group as usize].cgroup).collect();
        assert_eq!((order.len(), order[59].as_str(), order[60].as_str()), (120, "/g0", "/g1"));
        assert_eq!(read(&lake_path(dir.path(), 1)).unwrap().rows.len(), 2);
        assert_eq!(lake.finished().unwrap().len(), 1);
        let files = fs::read_dir(lake_path(dir.path(), 0).parent().unwrap()).unwrap();
        assert_eq!(files.count(), 1, "nothing else remains of an hour");
    }

    #[test]
    fn a_later_lake_goes_on_without_a_minute_twice() {
        let dir = tempfile::tempdir().unwrap();
        let mut lake = Lake::open(dir.path(), "h", DiskLimits::default()).unwrap();
        append(&mut lake, 0..70);
        drop(lake);
        let mut lake = Lake::open(dir.path(), "h", DiskLimits::default()).unwrap();
        assert_eq!(lake.last_minute(), Some(DAY + 69 * MINUTE_MS));
        append(&mut lake, 68..75);
        // The clock was set back.
        append(&mut lake, 58..62);
        let twice: Vec<i64> = (0..75).flat_map(|n| [n, n]).collect();
        assert_eq!(minutes(dir.path()), twice);
    }

    #[test]
    fn two_agents_do_not_share_a_host() {
        let dir = tempfile::tempdir().unwrap();
        let _lake = Lake::open(dir.path(), "h", DiskLimits::default()).unwrap();
        let second = Lake::open(dir.path(), "h", DiskLimits::default());
        assert!(matches!(second, Err(LakeError::Locked { .. })));
        assert!(Lake::open(dir.path(), "h2", DiskLimits::default()).is_ok());
    }

    #[test]
    fn the_oldest_hours_go_first() {
        let dir = tempfile::tempdir().unwrap();
        let hours = |keep| {
            let mut lake = Lake::open(dir.path(), "h", keep).unwrap();
            let from = lake.last_minute().map_or(0, |m| (m - DAY) / MINUTE_MS + 1);
            append(&mut lake, from..from + 180);
            let stored = lake.stored().unwrap();
            (stored.len(), stored[0].start, stored.iter().map(|h| h.bytes).sum::<u64>())
        };
        let (all, first, bytes) = hours(DiskLimits::default());
        assert_eq!((all, first), (3, DAY));
        let age = Some(Duration::from_secs(7200));
        assert_eq!(hours(DiskLimits { age, bytes: None }).0, 3);
        let (n, _, now) = hours(DiskLimits { age: None, bytes: Some(bytes / 2) });
        assert!(n < 3 && now < bytes, "{n} hours of {now} bytes");
        assert!(!dir.path().join("date=2026-11-25/hour=00").exists());
    }

    /// Found by an audit: a full disk remained full, because old hours were removed only after a write.
    #[test]
    fn old_hours_are_removed_before_later_ones_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let keep = DiskLimits { age: Some(Duration::from_secs(3600)), bytes: None };
        let mut lake = Lake::open(dir.path(), "h", keep).unwrap();
        append(&mut lake, 0..180);
        assert!(!lake_path(dir.path(), 0).exists() && lake_path(dir.path(), 1).exists());
        fs::create_dir(lake_path(dir.path(), 2).with_file_name(ASIDE)).unwrap();
        assert!(lake.append(DAY + 180 * MINUTE_MS, rows(DAY + 180 * MINUTE_MS, 2)).is_err());
        assert!(!lake_path(dir.path(), 1).exists());
    }

    /// Found by a review: it kept all later hours.
    #[test]
    fn an_hour_that_cannot_be_removed_does_not_keep_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let mut lake = Lake::open(dir.path(), "h", DiskLimits::default()).unwrap();
        append(&mut lake, 0..180);
        // As root, permissions do not matter.
        fs::remove_file(lake_path(dir.path(), 0)).unwrap();
        fs::create_dir(lake_path(dir.path(), 0)).unwrap();
        lake.keep = DiskLimits { age: None, bytes: Some(0) };
        assert!(lake.append(DAY + 180 * MINUTE_MS, rows(DAY + 180 * MINUTE_MS, 2)).is_err());
        let hours = |lake: &Lake| {
            let all = lake.stored().unwrap().into_iter();
            all.map(|hour| (hour.start - DAY) / HOUR_MS).collect::<Vec<_>>()
        };
        assert_eq!(hours(&lake), [0, 2, 3]);
    }

    #[test]
    fn what_cannot_be_written_stays_and_is_counted_if_it_goes() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("lake");
        let mut lake = Lake::open(&place, "h", DiskLimits::default()).unwrap();
        append(&mut lake, 0..3);
        // A directory where a file must be: as root, permissions do not matter.
        let aside = |n| lake_path(&place, n).with_file_name(ASIDE);
        (0..3).for_each(|n| fs::create_dir_all(aside(n)).unwrap());
        let mut fails = 0;
        for n in 3..130 {
            let minute = DAY + n * MINUTE_MS;
            fails += usize::from(lake.append(minute, rows(minute, 7)).is_err());
        }
        assert_eq!(fails, 127);
        (0..3).for_each(|n| fs::remove_dir(aside(n)).unwrap());
        append(&mut lake, 130..131);
        let there: BTreeSet<i64> = minutes(&place).into_iter().collect();
        let lost = 60 - 3;
        assert_eq!(there, (0..3).chain(60..131).collect());
        let dropped = |hour: &StoredHour| {
            read(&hour.path).unwrap().rows.iter().map(|r| r.dropped_minutes).sum::<i64>()
        };
        assert_eq!(lake.stored().unwrap().iter().map(dropped).sum::<i64>(), lost);
    }

    #[test]
    fn a_damaged_file_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let mut lake = Lake::open(dir.path(), "h", DiskLimits::default()).unwrap();
        append(&mut lake, 0..3);
        let path = lake.stored().unwrap()[0].path.clone();
        drop(lake);
        fs::write(&path, "PAR1 no more").unwrap();
        let mut lake = Lake::open(dir.path(), "h", DiskLimits::default()).unwrap();
        append(&mut lake, 3..4);
        assert_eq!(minutes(dir.path()), [3, 3]);
        assert!(path.with_file_name(BAD).exists());
        let dropped = read(&path).unwrap().rows.iter().map(|r| r.dropped_minutes).sum::<i64>();
        assert_eq!(dropped, 60, "it may have had all minutes of the hour");
    }

    #[test]
    fn no_host_or_time_leaves_the_lake() {
        assert_eq!(directory_name("../a/b"), ".._a_b");
        assert_eq!(directory_name(""), "unknown");
        assert!(hour_dir(i64::MAX).is_err() && hour_dir(-1).is_err());
    }
}
