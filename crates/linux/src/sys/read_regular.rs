//! Files that others have written.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

/// Opens a regular file to read it, and does not wait for the holder of a lease. Another kind is not opened: opening a
/// pipe would wait for its writer, and a device may act.
///
/// # Errors
/// If it cannot be read, or is another kind of file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    reopen(&find_regular(path, OFlags::empty())?, OFlags::CLOEXEC | OFlags::NONBLOCK)
}

/// Like [`open_regular`], but does not follow a link in the place of the file, and leaves the time of the last access
/// unchanged where the kernel permits that.
///
/// # Errors
/// If it cannot be read, or is a link or another kind of file.
pub fn open_regular_itself(path: &Path) -> io::Result<File> {
    let found = find_regular(path, OFlags::NOFOLLOW)?;
    let flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
    reopen(&found, flags | OFlags::NOATIME).or_else(|_| reopen(&found, flags))
}

/// A regular file, which is not open yet.
fn find_regular(path: &Path, flags: OFlags) -> io::Result<File> {
    let found = File::from(open(path, OFlags::PATH | OFlags::CLOEXEC | flags, Mode::empty())?);
    match found.metadata()?.is_file() {
        true => Ok(found),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

fn reopen(found: &File, flags: OFlags) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    Ok(open(path, OFlags::RDONLY | flags, Mode::empty())?.into())
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

    /// Whoever may replace a watched file must not choose another one for root to open.
    #[test]
    fn a_link_in_the_place_of_a_file_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| dir.path().join(name));
        std::fs::write(&file, "text").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(open_regular_itself(&file).unwrap().metadata().unwrap().len(), 4);
        assert!(open_regular(&link).is_ok() && open_regular_itself(&link).is_err());
    }

    /// The owner of a file let root wait for 45 s.
    #[test]
    fn no_holder_of_a_lease_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "text").unwrap();
        let holder = File::options().read(true).write(true).open(&path).unwrap();
        // SAFETY: these calls access no memory. The signal says that the lease is to be given back.
        let held = unsafe {
            libc::signal(libc::SIGIO, libc::SIG_IGN);
            libc::fcntl(holder.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK)
        };
        assert_eq!(held, 0, "{}", io::Error::last_os_error());
        for open in [open_regular, open_regular_itself] {
            assert_eq!(open(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        drop(holder);
        assert!(open_regular(&path).is_ok());
    }

    #[test]
    fn only_regular_files_are_opened() {
        with_other_kinds(|path| assert!(open_regular(path).is_err(), "{}", path.display()));
        with_other_kinds(|path| assert!(open_regular_itself(path).is_err(), "{}", path.display()));
        assert!(open_regular("/".as_ref()).is_err());
        assert_eq!(read_regular("/proc/self/comm".as_ref(), 1).unwrap().len(), 1);
    }
}
