//! Where frames go: to files, of which FILE is the current one, FILE.1 the one before, and so on; or
//! to anything else that can be written.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

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

/// Files on a disk. An earlier record keeps its place until there is something better.
#[derive(Debug)]
pub struct Files {
    path: PathBuf,
    keep: u32,
    file: File,
    /// bytes in `file`
    len: u64,
    aside: Option<Aside>,
}

/// A file that waits for its place, and what is to be done then.
#[derive(Debug)]
struct Aside {
    /// removed when dropped
    file: TempPath,
    stale: Vec<PathBuf>,
    renames: Vec<(PathBuf, PathBuf)>,
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
            let old = with_suffix(path, "old");
            let stale = records(&old, MOST_FILES)?.into_iter().map(|age| part(&old, age));
            let renames = earlier.into_iter().map(|age| (part(path, age), part(&old, age)));
            let (stale, renames) = (stale.collect(), renames.collect());
            let (file, temporary) = begin_aside(path).map_err(io)?;
            (file, Some(Aside { file: temporary, stale, renames }))
        };
        Ok(Files { path: path.to_owned(), keep, file, len: 0, aside })
    }
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
            Ok(()) => self.len += frames.len() as u64,
            // a full disk: what was there before stays whole
            Err(_) => self.file.set_len(self.len)?,
        }
        written
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.settle()?;
        for age in (0..self.keep.saturating_sub(1)).rev() {
            rename_if_there(&part(&self.path, age), &part(&self.path, age + 1))?;
        }
        self.file = begin(&self.path)?;
        self.len = 0;
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
