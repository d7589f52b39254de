//! Copies the many small files of a lake to a few large ones, a day at a time.
//!
//! The lake of many hosts has a file for each host and hour, which is more than engines open quickly. The large files
//! are a copy: they can be written again at any time.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::file::{Effort, Writer, read};
use crate::lake::{LakeError, date_of, parts};
use crate::row::Rows;

/// Number of rows after which a new file begins.
const ROWS_OF_FILE: usize = 8 << 20;

/// The result for one day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactedDay {
    /// the day, as YYYY-MM-DD
    pub date: String,
    /// number of hosts
    pub hosts: usize,
    /// number of rows
    pub rows: usize,
    /// number of files that were written
    pub files: usize,
    /// files that were left out because they cannot be read, and the reasons
    pub left_out: Vec<(PathBuf, String)>,
}

/// Copies the days of the lake `from` to `to/date=D/part-NNNN.parquet`, sorted by host, control group and minute.
/// Without `date`, these are the days that ended before `now`, in ms since 1970, and that `to` does not have. Calls
/// `done` after each day.
///
/// # Errors
/// If a directory cannot be read or a file cannot be written.
pub fn compact(
    from: &Path,
    to: &Path,
    date: Option<&str>,
    now: i64,
    mut done: impl FnMut(&CompactedDay),
) -> Result<(), LakeError> {
    let today = date_of(now)?;
    let is_same = |a: PathBuf| fs::canonicalize(to).is_ok_and(|b| a == b);
    if fs::canonicalize(from).is_ok_and(is_same) {
        return Err(LakeError::Same(to.to_owned()));
    }
    for (day, dir) in parts(from, "date=")? {
        let wanted = match date {
            Some(date) => day == date,
            None => day < today && !to.join(format!("date={day}")).exists(),
        };
        if wanted {
            done(&compact_day(&dir, to, day)?);
        }
    }
    Ok(())
}

fn compact_day(dir: &Path, to: &Path, date: String) -> Result<CompactedDay, LakeError> {
    let mut hosts: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for (_, hour) in parts(dir, "hour=")? {
        for (host, dir) in parts(&hour, "host=")? {
            hosts.entry(host).or_default().push(dir.join("rows.parquet"));
        }
    }
    let (aside, place) = (to.join(format!(".date={date}.new")), to.join(format!("date={date}")));
    remove_all(&aside)?;
    fs::create_dir_all(&aside).map_err(|e| error("create", &aside, e))?;
    let mut out =
        CompactedDay { date, hosts: hosts.len(), rows: 0, files: 0, left_out: Vec::new() };
    let mut part: Option<Part> = None;
    for files in hosts.into_values() {
        let mut rows = Rows::default();
        for path in files {
            match read(&path) {
                Ok(hour) => rows.append(hour),
                Err(e) => out.left_out.push((path, e.to_string())),
            }
        }
        rows.sort();
        out.rows += rows.rows.len();
        let open = match part.take() {
            Some(open) => open,
            None => {
                out.files += 1;
                Part::create(aside.join(format!("part-{:04}.parquet", out.files)))?
            }
        };
        part = open.write(&rows)?;
    }
    part.map_or(Ok(()), Part::finish)?;
    // The exchange is atomic: a reader sees all of the previous copy, or all of this one.
    if place.exists() {
        renameat_with(CWD, &aside, CWD, &place, RenameFlags::EXCHANGE)
            .map_err(|e| error("replace", &place, e.into()))?;
        remove_all(&aside)?;
    } else {
        fs::rename(&aside, &place).map_err(|e| error("create", &place, e))?;
    }
    Ok(out)
}

/// A file that is being written.
struct Part {
    path: PathBuf,
    writer: Writer<io::BufWriter<File>>,
    rows: usize,
}

impl Part {
    fn create(path: PathBuf) -> Result<Self, LakeError> {
        let file = File::create(&path).map_err(|e| error("create", &path, e))?;
        let writer = Writer::new(io::BufWriter::new(file), Effort::Fast)
            .map_err(|source| LakeError::File { what: "write", path: path.clone(), source })?;
        Ok(Part { path, writer, rows: 0 })
    }

    /// Writes the rows of a host; `None` if the file is large enough then.
    fn write(mut self, rows: &Rows) -> Result<Option<Self>, LakeError> {
        self.rows += rows.rows.len();
        if let Err(source) = self.writer.write(&rows.groups, &rows.rows) {
            return Err(LakeError::File { what: "write", path: self.path, source });
        }
        if self.rows < ROWS_OF_FILE {
            return Ok(Some(self));
        }
        self.finish().map(|()| None)
    }

    fn finish(self) -> Result<(), LakeError> {
        let Part { path, writer, .. } = self;
        let file = match writer.finish() {
            Ok(out) => out.into_inner().map_err(io::IntoInnerError::into_error),
            Err(source) => return Err(LakeError::File { what: "write", path, source }),
        };
        file.and_then(|file| file.sync_all()).map_err(|e| error("write", &path, e))
    }
}

fn remove_all(dir: &Path) -> Result<(), LakeError> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(error("remove", dir, e)),
        _ => Ok(()),
    }
}

fn error(what: &'static str, path: &Path, source: io::Error) -> LakeError {
    LakeError::Io { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lake::{HOUR_MS, Keep, Lake, MINUTE_MS};
    use crate::row::{Group, Row};

    const DAY: i64 = 1_795_564_800_000;

    fn write(lake: &Path, host: &str, hours: i64) {
        let mut lake = Lake::open(lake, host, Keep::default()).unwrap();
        for n in 0..4 * hours {
            let minute = DAY + n * 15 * MINUTE_MS;
            let group =
                |name: &str| Group { host: host.into(), cgroup: name.into(), ..Group::default() };
            let row = |group| Row { group, minute, resident_bytes: n, ..Row::default() };
            let rows = Rows { groups: vec![group("/b"), group("/a")], rows: vec![row(0), row(1)] };
            lake.append(minute, rows).unwrap();
        }
    }

    fn days(from: &Path, to: &Path, date: Option<&str>, now: i64) -> Vec<CompactedDay> {
        let mut all = Vec::new();
        compact(from, to, date, now, |day| all.push(day.clone())).unwrap();
        all
    }

    #[test]
    fn a_day_becomes_a_sorted_file_and_doing_it_again_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (raw, big) = (dir.path().join("raw"), dir.path().join("big"));
        write(&raw, "h2", 25);
        write(&raw, "h1", 3);
        let now = DAY + 26 * HOUR_MS;
        let done = days(&raw, &big, None, now);
        let [day] = &done[..] else { panic!("{done:?}") };
        assert_eq!(
            (&*day.date, day.hosts, day.rows, day.files),
            ("2026-11-25", 2, 2 * (96 + 12), 1)
        );
        let path = big.join("date=2026-11-25/part-0001.parquet");
        let rows = read(&path).unwrap();
        let keys = rows.rows.iter().map(|r| (&rows.groups[r.group as usize], r.minute));
        assert!(keys.is_sorted_by(|a, b| a < b));
        let bytes = fs::read(&path).unwrap();
        assert_eq!(days(&raw, &big, None, now), []);
        assert_eq!(days(&raw, &big, Some("2026-11-25"), now), done);
        assert_eq!(fs::read(&path).unwrap(), bytes);
        assert_eq!(fs::read_dir(&big).unwrap().count(), 1);
    }

    #[test]
    fn a_lake_is_no_copy_of_itself() {
        let dir = tempfile::TempDir::new().unwrap();
        write(dir.path(), "one", 2);
        let files = fs::read_dir(dir.path()).unwrap().count();
        let same = dir.path().join(".");
        let refused = compact(dir.path(), &same, None, i64::from(u32::MAX) * 1000, |_| {});
        assert!(matches!(refused, Err(LakeError::Same(_))), "{refused:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), files);
        assert!(crate::day("2026-02-28").is_ok());
        assert!(
            ["", "tomorrow", "2026-02-30", "2026-2-28"].map(crate::day).iter().all(Result::is_err)
        );
    }

    #[test]
    fn a_day_that_has_not_ended_waits_and_a_damaged_file_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let (raw, big) = (dir.path().join("raw"), dir.path().join("big"));
        write(&raw, "h", 2);
        assert_eq!(days(&raw, &big, None, DAY + 23 * HOUR_MS), []);
        let bad = raw.join("date=2026-11-25/hour=00/host=h/rows.parquet");
        fs::write(&bad, "no").unwrap();
        let done = days(&raw, &big, None, DAY + 24 * HOUR_MS);
        assert_eq!((done[0].rows, &done[0].left_out[0].0), (8, &bad));
    }
}
