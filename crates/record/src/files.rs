//! Where frames go: to files, of which FILE is the current one, FILE.1 the one before, and so on; or
//! to anything else that can be written.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempPath;

use crate::frame::MAGIC;
use crate::limits::MOST_FILES;
use crate::outcome::WriteError;

/// Where frames go.
pub trait Sink {
    /// Appends whole frames. When it returns, they outlive the process.
    ///
    /// # Errors
    /// If they cannot be written.
    fn append(&mut self, frames: &[u8]) -> io::Result<()>;

    /// Ends the file and begins the next one.
    ///
    /// # Errors
    /// If there cannot be another file.
    fn rotate(&mut self) -> io::Result<()>;

    /// What was appended is worth keeping: it may take the place of what was there before.
    ///
    /// # Errors
    /// If it cannot have its place.
    fn settle(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Whether it has its place. What has none is gone when the sink is dropped.
    fn is_settled(&self) -> bool {
        true
    }
}

/// Anything to write to, without rotation.
impl<W: Write> Sink for W {
    fn append(&mut self, frames: &[u8]) -> io::Result<()> {
        self.write_all(frames)?;
        self.flush()
    }

    fn rotate(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The file `age` rotations old of the record at `path`.
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
enum State {
    Missing,
    Empty,
    Record,
    Foreign,
}

fn state(path: &Path) -> io::Result<State> {
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(State::Missing),
        // a device or a pipe: reading it could block
        Ok(meta) if !meta.is_file() => return Ok(State::Foreign),
        other => other?,
    };
    let mut begin = Vec::new();
    File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut begin)?;
    Ok(match begin.as_slice() {
        [] => State::Empty,
        begin if begin == MAGIC => State::Record,
        _ => State::Foreign,
    })
}

/// Files on a disk, locked as long as they are written. An earlier record keeps its place until there is
/// something better.
#[derive(Debug)]
pub struct Files {
    path: PathBuf,
    keep: u32,
    file: File,
    /// bytes in `file`; none if what it ends with cannot be taken back
    len: Option<u64>,
    aside: Option<Aside>,
}

/// A file that waits for its place, and what is to be done then.
#[derive(Debug)]
struct Aside {
    /// removed when dropped
    file: TempPath,
    stale: Vec<PathBuf>,
    renames: Vec<(PathBuf, PathBuf)>,
    /// the earlier record, locked so that nobody else takes its place meanwhile
    _earlier: Vec<File>,
}

impl Files {
    /// Begins a record at `path` that keeps at most `keep` files. An earlier record there is moved
    /// to FILE.old when this one settles, whatever else is there stays and is an error.
    pub(crate) fn create(path: &Path, keep: u32) -> Result<Self, WriteError> {
        let io = |source| WriteError::Io { path: path.to_owned(), source };
        let earlier = records(path, keep)?;
        let (file, aside) = if earlier.is_empty() {
            (begin(path).map_err(io)?, None)
        } else {
            let _earlier = lock_all(path, &earlier)?;
            let old = with_suffix(path, "old");
            let stale = records(&old, MOST_FILES)?;
            lock_all(&old, &stale)?;
            let stale = stale.into_iter().map(|age| part(&old, age));
            let renames = earlier.into_iter().map(|age| (part(path, age), part(&old, age)));
            let (stale, renames) = (stale.collect(), renames.collect());
            let (file, temporary) = begin_aside(path).map_err(io)?;
            (file, Some(Aside { file: temporary, stale, renames, _earlier }))
        };
        lock(&file, path)?;
        // Whoever came first has written it meanwhile.
        if aside.is_none() && file.metadata().map_err(io)?.len() > 0 {
            return Err(WriteError::Busy { path: path.to_owned() });
        }
        Ok(Files { path: path.to_owned(), keep, file, len: Some(0), aside })
    }

    /// Standard output, which is not closed at the end, and has no second file.
    #[cfg(unix)]
    pub(crate) fn stdout(name: &Path) -> Result<Self, WriteError> {
        use std::os::fd::AsFd;
        let file = io::stdout().as_fd().try_clone_to_owned();
        let file = file.map_err(|source| WriteError::Io { path: name.to_owned(), source })?;
        Ok(Files { path: name.to_owned(), keep: 1, file: file.into(), len: None, aside: None })
    }
}

/// Tries to lock a file so often, and waits so long in between: who reads a record asks for a moment
/// whether it is locked.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);

/// Locks a file that is being written, until it is closed. Where files cannot be locked, nothing
/// keeps two recordings apart.
fn lock(file: &File, path: &Path) -> Result<(), WriteError> {
    for _ in 0..TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(()),
        }
    }
    Err(WriteError::Busy { path: path.to_owned() })
}

/// Locks the files of these ages of the record at `path`, unless somebody writes one.
fn lock_all(path: &Path, ages: &[u32]) -> Result<Vec<File>, WriteError> {
    let mut files = Vec::new();
    for &age in ages {
        let path = part(path, age);
        match File::open(&path) {
            Ok(file) => {
                lock(&file, &path)?;
                // Another recording may have taken its place just before.
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

/// Whether `file` is the one at `path` now.
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

/// Whether somebody writes the file at `path`.
pub(crate) fn is_written(path: &Path) -> bool {
    let locked = |file: File| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    File::open(path).is_ok_and(locked)
}

/// Addresses and command lines are nobody else's business.
fn begin(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// In the same directory, so that it can be renamed; of a name of its own, so that two recordings
/// of one name do not meet. Readable by its owner alone as well.
fn begin_aside(path: &Path) -> io::Result<(File, TempPath)> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(".".as_ref());
    let mut prefix = OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    prefix.push(".");
    let file = tempfile::Builder::new().prefix(&prefix).append(true).tempfile_in(dir)?;
    Ok(file.into_parts())
}

/// Ages of the files at `path` that are records. Anything else in the place of one that will be
/// needed is an error.
fn records(path: &Path, needed: u32) -> Result<Vec<u32>, WriteError> {
    let mut found = Vec::new();
    for age in 0..MOST_FILES {
        let path = part(path, age);
        match state(&path) {
            Ok(State::Record) => found.push(age),
            Ok(State::Foreign) if age < needed => return Err(WriteError::Foreign { path }),
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

impl Sink for Files {
    fn append(&mut self, frames: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(frames);
        match written {
            Ok(()) => self.len = self.len.map(|len| len + frames.len() as u64),
            // a full disk: what was there before stays whole
            Err(_) => self.len.map_or(Ok(()), |len| self.file.set_len(len))?,
        }
        written
    }

    fn rotate(&mut self) -> io::Result<()> {
        if self.len.is_none() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.settle()?;
        for age in (0..self.keep.saturating_sub(1)).rev() {
            rename_if_there(&part(&self.path, age), &part(&self.path, age + 1))?;
        }
        // The file before stays locked until this one is.
        let next = begin(&self.path)?;
        lock(&next, &self.path).map_err(io::Error::other)?;
        self.file = next;
        self.len = Some(0);
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
