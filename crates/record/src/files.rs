//! Destinations of frames: files, of which FILE is the current one, FILE.1 the previous one, and so on; or any
//! other writer.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempPath;

use crate::frame::MAGIC;
use crate::limits::MAX_ROTATED_FILES;
use crate::outcome::WriteError;

/// A destination of frames.
pub trait Sink {
    /// Appends whole frames. After it returns, they survive the end of the process.
    ///
    /// # Errors
    /// If they cannot be written.
    fn append(&mut self, frames: &[u8]) -> io::Result<()>;

    /// Ends the file and begins the next one.
    ///
    /// # Errors
    /// If there cannot be another file.
    fn rotate(&mut self) -> io::Result<()>;

    /// Makes the appended frames permanent: they may replace an earlier record.
    ///
    /// # Errors
    /// If the record cannot be moved to its place.
    fn settle(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Whether the record is at its final place. If not, it is deleted when the sink is dropped.
    fn is_settled(&self) -> bool {
        true
    }

    /// The record has snapshots, and its end.
    ///
    /// # Errors
    /// If the record cannot be moved to its place.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Any writer, without rotation.
impl<W: Write> Sink for W {
    fn append(&mut self, frames: &[u8]) -> io::Result<()> {
        self.write_all(frames)?;
        self.flush()
    }

    fn rotate(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The path of the file that is `age` rotations old, of the record at `path`.
pub(crate) fn part(path: &Path, age: u32) -> PathBuf {
    if age == 0 { path.to_owned() } else { with_suffix(path, &age.to_string()) }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".");
    name.push(suffix);
    name.into()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathState {
    Missing,
    Empty,
    Record,
    Foreign,
}

fn state(path: &Path) -> io::Result<PathState> {
    match fs::metadata(path) {
        // A link to nothing: the user who made it chose the place of the record.
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let is_link = path.symlink_metadata().is_ok();
            return Ok(if is_link { PathState::Foreign } else { PathState::Missing });
        }
        // a device or a pipe: reading it could block
        Ok(meta) if !meta.is_file() => return Ok(PathState::Foreign),
        other => other?,
    };
    let mut begin = Vec::new();
    File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut begin)?;
    Ok(match begin.as_slice() {
        [] => PathState::Empty,
        begin if begin == MAGIC => PathState::Record,
        _ => PathState::Foreign,
    })
}

/// Files on a disk, locked while they are written. An earlier record keeps its place until the new one has
/// content.
#[derive(Debug)]
pub struct RecordFiles {
    path: PathBuf,
    keep: u32,
    file: File,
    /// bytes in `file`; none if a partial write cannot be undone
    len: Option<u64>,
    aside: Option<PendingFile>,
    /// `file` continues the recording that FILE.1 contains.
    continues: bool,
}

/// A file that waits for its final place, with the operations that are due then.
#[derive(Debug)]
struct PendingFile {
    /// removed when dropped
    file: TempPath,
    stale: Vec<PathBuf>,
    renames: Vec<(PathBuf, PathBuf)>,
    /// the earlier record, or the empty file, locked so that no other recording replaces it in the meantime
    _earlier: Vec<File>,
}

impl RecordFiles {
    /// Begins a record at `path` that keeps at most `keep` files. When this record settles, an earlier one at
    /// `path` is moved to FILE.old. An empty file is replaced, because it may be readable by others. Any other
    /// file there stays, and is an error.
    pub(crate) fn create(path: &Path, keep: u32) -> Result<Self, WriteError> {
        RecordFiles::new(path, keep, false)
    }

    /// `aside`: it also waits for its place if there is no earlier record.
    fn new(path: &Path, keep: u32, aside: bool) -> Result<Self, WriteError> {
        let io = |source| WriteError::Io { path: path.to_owned(), source };
        let earlier = records(path, keep)?;
        let empty = state(path).map_err(io)? == PathState::Empty && !is_unnamed(fs::metadata(path));
        let empty = empty.then_some(0);
        let there: Vec<u32> = empty.into_iter().chain(earlier.iter().copied()).collect();
        let (file, aside) = if there.is_empty() && !aside {
            (begin(path).map_err(io)?, None)
        } else {
            let _earlier = lock_all(path, &there)?;
            let old = with_suffix(path, "old");
            // Without an earlier record, FILE.old stays.
            let stale =
                if earlier.is_empty() { Vec::new() } else { records(&old, MAX_ROTATED_FILES)? };
            lock_all(&old, &stale)?;
            let stale = stale.into_iter().map(|age| part(&old, age));
            let renames = earlier.into_iter().map(|age| (part(path, age), part(&old, age)));
            let (stale, renames) = (stale.collect(), renames.collect());
            let (file, temporary) = begin_aside(path).map_err(io)?;
            (file, Some(PendingFile { file: temporary, stale, renames, _earlier }))
        };
        lock(&file, path)?;
        // Another recording has created and written the file in the meantime.
        if aside.is_none() && file.metadata().map_err(io)?.len() > 0 {
            return Err(WriteError::Busy { path: path.to_owned() });
        }
        let path = path.to_owned();
        Ok(RecordFiles { path, keep, file, len: Some(0), aside, continues: false })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Standard output, which is not closed at the end, and cannot be rotated.
    #[cfg(unix)]
    pub(crate) fn stdout(name: &Path) -> Result<Self, WriteError> {
        use std::os::fd::AsFd;
        let file = io::stdout().as_fd().try_clone_to_owned();
        let file = file.map_err(|source| WriteError::Io { path: name.to_owned(), source })?;
        Ok(RecordFiles {
            path: name.to_owned(),
            keep: 1,
            file: file.into(),
            len: None,
            aside: None,
            continues: false,
        })
    }
}

/// A recording that could not write anything leaves no file, and one that could not continue leaves its earlier files,
/// where readers expect them.
impl Drop for RecordFiles {
    fn drop(&mut self) {
        if self.len == Some(0) && self.aside.is_none() && is_at(&self.file, &self.path) {
            // The reason of the failure matters more.
            let _ = fs::remove_file(&self.path);
            let older = if self.continues { 1..self.keep } else { 0..0 };
            let _ = older
                .map(|age| (part(&self.path, age), part(&self.path, age - 1)))
                .try_for_each(|(from, to)| rename_if_there(&from, &to));
        }
    }
}

/// The number of attempts to lock a file, and the pause between them: a reader of a record locks it for a
/// moment to check whether it is locked.
const MAX_TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);

/// Locks a file while it is written, until it is closed. On file systems without locks, two recordings of the
/// same file are not detected.
fn lock(file: &File, path: &Path) -> Result<(), WriteError> {
    for _ in 0..MAX_TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(()),
        }
    }
    Err(WriteError::Busy { path: path.to_owned() })
}

/// Locks the files of these ages of the record at `path`; fails if another process writes one of them.
fn lock_all(path: &Path, ages: &[u32]) -> Result<Vec<File>, WriteError> {
    let mut files = Vec::new();
    for &age in ages {
        let path = part(path, age);
        match File::open(&path) {
            Ok(file) => {
                lock(&file, &path)?;
                // Another recording may have replaced it just before.
                if !is_at(&file, &path) {
                    return Err(WriteError::Busy { path });
                }
                files.push(file);
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(WriteError::Io { path, source }),
        }
    }
    Ok(files)
}

/// Whether `file` is still the file at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let inode = |m: io::Result<fs::Metadata>| m.ok().map(|m| (m.dev(), m.ino()));
        inode(file.metadata()) == inode(fs::metadata(path))
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        path.exists()
    }
}

/// Whether a process writes the file at `path`.
pub(crate) fn is_written(path: &Path) -> bool {
    let locked = |file: File| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    File::open(path).is_ok_and(locked)
}

/// Whether a file has no name, such as one in memory at `/proc/self/fd/N`: no other user can have put it there.
fn is_unnamed(file: io::Result<fs::Metadata>) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        file.is_ok_and(|file| file.is_file() && file.nlink() == 0)
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        false
    }
}

/// Creates a file that only its owner may read, because it contains addresses and command lines. It never
/// continues an existing file that has a name, nor follows a link to one: in a directory of another user, that user could choose it.
fn begin(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    if is_unnamed(fs::metadata(path)) {
        let file = options.open(path)?;
        let same = is_unnamed(file.metadata());
        return if same { Ok(file) } else { Err(io::ErrorKind::AlreadyExists.into()) };
    }
    options.create_new(true).open(path)
}

/// Creates a temporary file. It is in the same directory, so that it can be renamed. It has a unique name, so
/// that two recordings of the same name do not collide. Only its owner may read it.
fn begin_aside(path: &Path) -> io::Result<(File, TempPath)> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(".".as_ref());
    let mut prefix = OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    prefix.push(".");
    // Of `tempfile_in`, an error would have the path of the temporary file.
    let create = |path: &Path| {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(path)
    };
    let file = tempfile::Builder::new().prefix(&prefix).make_in(dir, create)?;
    Ok(file.into_parts())
}

/// The ages of the files at `path` that are records. Another file in a place that will be `needed` is an error.
fn records(path: &Path, needed: u32) -> Result<Vec<u32>, WriteError> {
    let mut found = Vec::new();
    for age in 0..MAX_ROTATED_FILES {
        let path = part(path, age);
        match state(&path) {
            Ok(PathState::Record) => found.push(age),
            Ok(PathState::Foreign) if age < needed => return Err(WriteError::Foreign { path }),
            Ok(_) => {}
            Err(source) => return Err(WriteError::Io { path, source }),
        }
    }
    Ok(found)
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    unless_missing(fs::rename(from, to))
}

fn unless_missing(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
}

impl Sink for RecordFiles {
    fn append(&mut self, frames: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(frames);
        match written {
            Ok(()) => self.len = self.len.map(|len| len + frames.len() as u64),
            // a full disk: remove the partial write
            Err(_) => self.len.map_or(Ok(()), |len| self.file.set_len(len))?,
        }
        written
    }

    fn rotate(&mut self) -> io::Result<()> {
        if self.len.is_none() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.settle()?;
        // If it cannot be created, the present files stay where they are.
        let (next, temporary) = begin_aside(&self.path)?;
        // The previous file stays locked until the new one is locked.
        lock(&next, &self.path).map_err(io::Error::other)?;
        for age in (0..self.keep.saturating_sub(1)).rev() {
            rename_if_there(&part(&self.path, age), &part(&self.path, age + 1))?;
        }
        temporary.persist(&self.path).map_err(|e| e.error)?;
        self.file = next;
        (self.len, self.continues) = (Some(0), true);
        Ok(())
    }

    fn settle(&mut self) -> io::Result<()> {
        let Some(aside) = self.aside.take() else { return Ok(()) };
        aside.stale.iter().try_for_each(|stale| unless_missing(fs::remove_file(stale)))?;
        aside.renames.iter().try_for_each(|(from, to)| rename_if_there(from, to))?;
        aside.file.persist(&self.path).map_err(|e| e.error)
    }

    fn is_settled(&self) -> bool {
        self.aside.is_none()
    }
}

/// Files whose record takes its place with its end only. If it is dropped before, nothing has changed.
#[derive(Debug)]
pub struct AtomicFiles(RecordFiles);

impl AtomicFiles {
    pub(crate) fn create(path: &Path) -> Result<Self, WriteError> {
        RecordFiles::new(path, 1, true).map(AtomicFiles)
    }
}

impl Sink for AtomicFiles {
    fn append(&mut self, frames: &[u8]) -> io::Result<()> {
        self.0.append(frames)
    }

    fn rotate(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn is_settled(&self) -> bool {
        self.0.is_settled()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.0.settle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by a trial: a full disk left an empty file, which is no record.
    #[test]
    fn a_recording_without_content_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let [none, some] = ["none", "some"].map(|name| dir.path().join(name));
        drop(RecordFiles::create(&none, 1).unwrap());
        assert!(!none.exists());
        RecordFiles::create(&some, 1).unwrap().append(&MAGIC).unwrap();
        drop(RecordFiles::create(&some, 1).unwrap());
        assert_eq!(fs::read(&some).unwrap(), MAGIC, "an earlier record stays");
    }

    /// Found by a review: on a full disk, FILE was missing, and FILE.1 had all data.
    #[test]
    fn a_rotation_that_fails_leaves_the_record_at_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r");
        let mut files = RecordFiles::create(&path, 3).unwrap();
        for n in 0..4 {
            files.append(&[n]).unwrap();
            files.rotate().unwrap();
        }
        // The next file gets no content.
        drop(files);
        let content = |age| fs::read(part(&path, age)).ok();
        assert_eq!([0, 1, 2].map(content), [Some(vec![3]), Some(vec![2]), None]);
        // The temporary name is longer than FILE.1 and than the system permits.
        let path = dir.path().join("x".repeat(250));
        let mut files = RecordFiles::create(&path, 3).unwrap();
        files.append(&[7]).unwrap();
        assert!(files.rotate().is_err());
        drop(files);
        assert_eq!(fs::read(&path).unwrap(), [7]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}
