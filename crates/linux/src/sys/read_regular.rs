//! Files that others have written.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

/// Opens a regular file to read it. Another kind is not opened: opening a pipe would wait for its writer, and a device
/// may act.
///
/// # Errors
/// If it cannot be read, or is another kind of file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let found = File::from(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
    if !found.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

/// The first `limit` bytes of a regular file.
///
/// # Errors
/// If it cannot be read, or is another kind of file.
pub fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Calls `read` for a pipe, and for links to it and to a device. Fails if that waits for the writer of the pipe.
#[cfg(test)]
pub(crate) fn with_other_kinds(read: impl Fn(&Path) + Send + 'static) {
    use rustix::fs::{CWD, FileType, mknodat, symlink};
    let dir = tempfile::tempdir().unwrap();
    let paths = ["pipe", "link", "device"].map(|name| dir.path().join(name));
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, &paths[0], FileType::Fifo, mode, 0).unwrap();
    symlink(&paths[0], &paths[1]).unwrap();
    symlink("/dev/zero", &paths[2]).unwrap();
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        paths.iter().for_each(|path| read(path));
        done.send(()).unwrap();
    });
    ended.recv_timeout(std::time::Duration::from_secs(60)).expect("it waits for a writer");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        with_other_kinds(|path| assert!(open_regular(path).is_err(), "{}", path.display()));
        assert!(open_regular("/".as_ref()).is_err());
        assert_eq!(read_regular("/proc/self/comm".as_ref(), 1).unwrap().len(), 1);
    }
}
