//! The log of actions.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use serde::Serialize;
use tracing::warn;

use super::ServiceError;
use crate::words::chain;

/// Folders in which only the kernel and root make links. Links there lead to open files: `/dev/stdout`, or the pipe of
/// a shell's `>(COMMAND)`.
const FOLDERS_OF_OPEN_FILES: [&str; 3] = ["/dev", "/dev/fd", "/proc/self/fd"];

/// A file to which JSON lines are appended.
pub struct Log {
    path: PathBuf,
    file: BufWriter<File>,
    /// device and number of a regular file
    inode: Option<(u64, u64)>,
    /// whether it cannot be opened where it was
    is_lost: bool,
}

impl Log {
    /// Opens the file to append. A new file is readable by its owner only.
    pub fn open(path: &Path) -> Result<Self, ServiceError> {
        let failed = |source| ServiceError::OpenLog { path: path.to_owned(), source };
        let mut file = open(path).map_err(failed)?;
        // Where the disk was full, an earlier service has written a part of a line.
        let is_file = file.metadata().is_ok_and(|m| m.is_file() && m.len() > 0);
        if is_file && last_byte(&file).is_ok_and(|last| last != b'\n') {
            file.write_all(b"\n").map_err(failed)?;
        }
        let found = file.metadata().ok().filter(Metadata::is_file);
        let inode = found.map(|found| (found.dev(), found.ino()));
        Ok(Log { path: path.to_owned(), file: BufWriter::new(file), inode, is_lost: false })
    }

    /// Opens the file again if another one is in its place, or none: after a rotation. If that fails, goes on with the
    /// one that is open.
    fn follow(&mut self) {
        let is_there = match std::fs::metadata(&self.path) {
            Ok(found) => Some((found.dev(), found.ino())) == self.inode,
            // In a folder that isotherm may no longer search, it sees no rotation.
            Err(e) => e.kind() != io::ErrorKind::NotFound,
        };
        if self.is_lost || self.inode.is_none() || is_there {
            return;
        }
        match Log::open(&self.path) {
            Ok(new) => *self = new,
            Err(e) => {
                warn!("{e}; isotherm continues to write to the file that was there");
                self.is_lost = true;
            }
        }
    }

    /// Appends lines and passes them to the kernel at once. An error ends the run, because no action may remain
    /// unlogged.
    pub fn write(&mut self, lines: &[impl Serialize]) -> Result<(), ServiceError> {
        self.try_write(lines)
            .map_err(|e| ServiceError::Log { path: self.path.clone(), why: chain(&e) })
    }

    fn try_write(&mut self, lines: &[impl Serialize]) -> io::Result<()> {
        self.follow();
        for line in lines {
            serde_json::to_writer(&mut self.file, line)?;
            self.file.write_all(b"\n")?;
        }
        self.file.flush()
    }
}

/// Opens the file without following a link, because the owner of its folder could choose the file that root writes to.
/// Opening a pipe would wait for its reader.
fn open(path: &Path) -> io::Result<File> {
    let wrong = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
    let no_file = || wrong("it is neither a regular file nor a device");
    let folder = path.parent().unwrap_or(path);
    let may_follow = FOLDERS_OF_OPEN_FILES.iter().any(|of_system| folder == Path::new(of_system));
    let mut flags = OFlags::NONBLOCK;
    flags.set(OFlags::NOFOLLOW, !may_follow);
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(flags.bits().cast_signed());
    let file = options.open(path).map_err(|e| match Errno::from_io_error(&e) {
        Some(Errno::LOOP) => {
            wrong("it is a link, and isotherm follows none there: name the file itself")
        }
        Some(Errno::AGAIN) => wrong("another process holds a lease on it"),
        // a pipe without a reader, or a socket
        Some(Errno::NXIO) => no_file(),
        _ => e,
    })?;
    let kind = file.metadata()?.file_type();
    if !(may_follow || kind.is_file() || kind.is_char_device()) {
        return Err(no_file());
    }
    // Writing may wait for the reader.
    fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file)
}

fn last_byte(file: &File) -> io::Result<u8> {
    let mut file = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last[0])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, fcntl_getfl, mknodat};

    use super::*;

    /// Found by a review: after a rotation the lines went to a file that no longer had a name.
    #[test]
    fn a_log_that_was_moved_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let [path, old] = ["log", "log.1"].map(|name| dir.path().join(name));
        let mut log = Log::open(&path).unwrap();
        log.write(&["one"]).unwrap();
        std::fs::rename(&path, &old).unwrap();
        log.write(&["two"]).unwrap();
        let read = |path| std::fs::read_to_string(path).unwrap();
        assert_eq!((read(&old), read(&path)), ("\"one\"\n".into(), "\"two\"\n".into()));
        // Nothing is lost where it cannot be opened again.
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        log.write(&["three"]).unwrap();
    }

    fn why_not(path: &Path) -> String {
        match Log::open(path) {
            Ok(_) => String::new(),
            Err(e) => chain(&e),
        }
    }

    /// The owner of the folder could make root append to any file.
    #[test]
    fn a_link_does_not_choose_the_file_of_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let [link, place] = ["link", "place"].map(|name| dir.path().join(name));
        symlink(&place, &link).unwrap();
        assert!(why_not(&link).contains("it is a link"), "{}", why_not(&link));
        assert!(!place.exists());
        std::fs::write(&place, "old").unwrap();
        assert!(why_not(&link).contains("it is a link"), "{}", why_not(&link));
        assert_eq!(std::fs::read_to_string(&place).unwrap(), "old");
    }

    /// The service waited for a reader.
    #[test]
    fn a_pipe_in_the_place_of_the_log_hangs_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let reader = File::options().read(true).write(true).open(&path).unwrap();
        assert!(why_not(&path).contains("neither a regular file"), "{}", why_not(&path));
        drop(reader);
        assert!(why_not(&path).contains("neither a regular file"), "{}", why_not(&path));
    }

    /// As `/dev/stdout` and `>(COMMAND)` of a shell.
    #[test]
    fn an_open_pipe_may_be_the_log() {
        let (reader, writer) = io::pipe().unwrap();
        let path = format!("/dev/fd/{}", writer.as_raw_fd());
        let mut log = Log::open(path.as_ref()).unwrap();
        assert!(!fcntl_getfl(log.file.get_ref()).unwrap().contains(OFlags::NONBLOCK));
        log.write(&[1]).unwrap();
        drop((log, writer));
        assert_eq!(io::read_to_string(reader).unwrap(), "1\n");
    }

    /// Found by an audit: the next line continued it, and was lost with it.
    #[test]
    fn a_line_that_was_cut_ends_before_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        for (before, after) in [("", "1\n"), ("{\"a", "{\"a\n1\n"), ("0\n", "0\n1\n")] {
            std::fs::write(&path, before).unwrap();
            Log::open(&path).unwrap().write(&[1]).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
        }
    }
}
