//! Maps a value to a file, and a struct to a directory.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximal number of bytes read from a file: the kernel shows at most a page.
const MAX_FILE_BYTES: u64 = 4096;
/// Maximal number of elements of a list.
const MAX_ELEMENTS: u64 = 100_000;
/// While a kdamond handles a command, other files return EBUSY: isotherm tries again for this long.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A file of DAMON could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SysfsError {
    /// The kernel does not have the file.
    #[error("{path} does not exist: it requires Linux {since} or later")]
    Missing {
        /// path of the file
        path: PathBuf,
        /// first kernel with this file
        since: &'static str,
    },
    /// Reading has failed.
    #[error("cannot read {path}: {source}")]
    Read {
        /// path of the file
        path: PathBuf,
        /// error of the system
        source: io::Error,
    },
    /// The kernel has refused to write.
    #[error("cannot write '{text}' to {path}: {source}")]
    Write {
        /// path of the file
        path: PathBuf,
        /// refused text
        text: String,
        /// error of the system
        source: io::Error,
    },
    /// isotherm does not understand the content.
    #[error("{path} holds '{text}', which isotherm cannot parse")]
    Parse {
        /// path of the file
        path: PathBuf,
        /// content of the file
        text: String,
    },
}

impl SysfsError {
    /// Whether the kernel has refused this word with EINVAL: then the kernel is too old for it.
    #[must_use]
    pub fn is_refused(&self, word: &str) -> bool {
        matches!(self, SysfsError::Write { text, source, .. }
            if text == word && source.kind() == io::ErrorKind::InvalidInput)
    }

    /// Whether the kernel has returned EBUSY, because of another user of DAMON.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        match self {
            SysfsError::Read { source, .. } | SysfsError::Write { source, .. } => is_busy(source),
            _ => false,
        }
    }
}

/// The path of an [`Entry`], and the first kernel that has it.
#[derive(Debug, Clone)]
pub struct Place {
    /// the file or directory
    pub path: PathBuf,
    /// first kernel with it
    pub since: &'static str,
}

impl Place {
    /// `name` in this directory; `since` if it is newer than the directory itself.
    pub(super) fn join(&self, name: &str, since: Option<&'static str>) -> Self {
        let path = if name == "." { self.path.clone() } else { self.path.join(name) };
        Place { path, since: since.unwrap_or(self.since) }
    }
}

/// The content of a file or directory.
pub trait Entry: Sized {
    /// Reads the entry.
    ///
    /// # Errors
    /// If it is missing, cannot be read, or is not understood.
    fn read(place: &Place) -> Result<Self, SysfsError>;

    /// Writes the entry.
    ///
    /// # Errors
    /// If it is missing, or the kernel refuses.
    fn write(&self, place: &Place) -> Result<(), SysfsError>;
}

/// A value that is the text of one file.
pub trait Word: Sized {
    /// Parses the text of the file, without blanks at its ends.
    fn parse(text: &str) -> Option<Self>;
    /// The text to write; an empty text is not written.
    fn text(&self) -> String;
}

impl<T: Word> Entry for T {
    fn read(place: &Place) -> Result<Self, SysfsError> {
        let text = read_text(place)?;
        let text = text.trim();
        T::parse(text).ok_or_else(|| SysfsError::Parse {
            path: place.path.clone(),
            text: text.chars().take(120).collect(),
        })
    }

    fn write(&self, place: &Place) -> Result<(), SysfsError> {
        let text = self.text();
        if text.is_empty() { Ok(()) } else { write_text(place, &text) }
    }
}

/// An entry that not every kernel has: `None` is not written.
impl<T: Entry> Entry for Option<T> {
    fn read(place: &Place) -> Result<Self, SysfsError> {
        if place.path.exists() { T::read(place).map(Some) } else { Ok(None) }
    }

    fn write(&self, place: &Place) -> Result<(), SysfsError> {
        self.as_ref().map_or(Ok(()), |value| value.write(place))
    }
}

/// A value that the kernel shows but does not accept; writing it does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unwritable<T>(pub T);

impl<T: Entry> Entry for Unwritable<T> {
    fn read(place: &Place) -> Result<Self, SysfsError> {
        T::read(place).map(Unwritable)
    }

    fn write(&self, _: &Place) -> Result<(), SysfsError> {
        Ok(())
    }
}

/// One of several directories, whose number is in a file: `nr_targets`, then `0`, `1` and so on.
pub trait Element: Entry {
    /// name of that file
    const COUNT: &'static str;
}

impl<T: Element> Entry for Vec<T> {
    fn read(place: &Place) -> Result<Self, SysfsError> {
        let count = u64::read(&place.join(T::COUNT, None))?.min(MAX_ELEMENTS);
        (0..count).map(|i| T::read(&place.join(&i.to_string(), None))).collect()
    }

    /// Writing the count replaces all directories: their previous content is lost.
    fn write(&self, place: &Place) -> Result<(), SysfsError> {
        (self.len() as u64).write(&place.join(T::COUNT, None))?;
        let mut all = self.iter().enumerate();
        all.try_for_each(|(i, e)| e.write(&place.join(&i.to_string(), None)))
    }
}

/// Numbered directories that the kernel creates, without a count, in the order of their numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NumberedDirs<T>(pub Vec<T>);

impl<T: Entry> Entry for NumberedDirs<T> {
    fn read(place: &Place) -> Result<Self, SysfsError> {
        let entries = std::fs::read_dir(&place.path)
            .map_err(|source| SysfsError::Read { path: place.path.clone(), source })?;
        let names = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u64>().ok());
        let mut names: Vec<u64> = names.collect();
        names.sort_unstable();
        let all = names.iter().map(|n| T::read(&place.join(&n.to_string(), None)));
        all.collect::<Result<_, _>>().map(NumberedDirs)
    }

    fn write(&self, _: &Place) -> Result<(), SysfsError> {
        Ok(())
    }
}

macro_rules! numbers {
    ($($number:ty)*) => { $(impl Word for $number {
        fn parse(text: &str) -> Option<Self> {
            text.parse().ok()
        }
        fn text(&self) -> String {
            self.to_string()
        }
    })* };
}
numbers!(u64 u32 i32);

impl Word for bool {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "Y" => Some(true),
            "N" => Some(false),
            _ => None,
        }
    }
    fn text(&self) -> String {
        if *self { "Y".into() } else { "N".into() }
    }
}

impl Word for String {
    fn parse(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
    fn text(&self) -> String {
        self.clone()
    }
}

fn read_text(place: &Place) -> Result<String, SysfsError> {
    let read = || {
        let mut text = String::new();
        std::fs::File::open(&place.path)?.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
        Ok(text)
    };
    patiently(read).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => missing(place),
        _ => SysfsError::Read { path: place.path.clone(), source },
    })
}

pub(super) fn write_text(place: &Place, text: &str) -> Result<(), SysfsError> {
    // One write is one value; a missing file is not created.
    let write = || {
        let mut file = std::fs::OpenOptions::new().write(true).truncate(true).open(&place.path)?;
        file.write_all(text.as_bytes())
    };
    patiently(write).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => missing(place),
        _ => SysfsError::Write { path: place.path.clone(), text: text.into(), source },
    })
}

fn missing(place: &Place) -> SysfsError {
    SysfsError::Missing { path: place.path.clone(), since: place.since }
}

fn patiently<T>(what: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let since = Instant::now();
    loop {
        match what() {
            Err(e) if is_busy(&e) && since.elapsed() < TIMEOUT => {
                std::thread::sleep(Duration::from_millis(5));
            }
            result => return result,
        }
    }
}

fn is_busy(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::ResourceBusy
}

/// The first kernel with DAMON's files in sysfs.
const FIRST_KERNEL: &str = "5.18, built with CONFIG_DAMON_SYSFS,";

/// Reads the entry at `path`.
///
/// # Errors
/// Those of [`Entry::read`].
pub fn read<T: Entry>(path: &Path) -> Result<T, SysfsError> {
    T::read(&Place { path: path.to_owned(), since: FIRST_KERNEL })
}

/// Writes the entry at `path`.
///
/// # Errors
/// Those of [`Entry::write`].
pub fn write<T: Entry>(path: &Path, value: &T) -> Result<(), SysfsError> {
    value.write(&Place { path: path.to_owned(), since: FIRST_KERNEL })
}
