//! The library that samples the allocations of a program from inside, and where its probe is.
//!
//! A probe on `malloc` itself would enter the kernel at each allocation. The library counts bytes instead, and only
//! calls the probed function for a sampled allocation and its release.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use object::{Object, ObjectSegment, ObjectSymbol};
use rustix::process::{Uid, geteuid};

use crate::proc::code;
use crate::sys::open_regular;

const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libisotherm-alloc.so"));
/// A larger file is not the library.
const MAX_LIBRARY_BYTES: u64 = 1 << 20;
/// Begin of the name of the library's file, by which it is found in a process.
const NAME: &str = "libisotherm-alloc";
/// The functions that the library calls for a sampled allocation and for its release.
const ALLOCATED: &str = "isotherm_allocated";
const RELEASED: &str = "isotherm_released";

/// The variable of the environment that sets the mean number of bytes from one sampled allocation to the next.
pub const BYTES_VARIABLE: &str = "ISOTHERM_ALLOC_BYTES";

/// Allocations cannot be sampled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AllocationsError {
    /// the library cannot be written
    #[error(
        "cannot write the library that samples allocations to {path}: {source}; write it with isotherm system \
         alloc-library to an existing folder that you may write to"
    )]
    Write {
        /// the file
        path: PathBuf,
        /// error of the system
        source: io::Error,
    },
}

/// The library as a file, for `LD_PRELOAD`. Dropping it removes the file. Its folder stays: descendants of the command
/// keep the variable, and would load what another user puts in its place.
#[derive(Debug)]
pub struct PreloadLibrary {
    path: PathBuf,
}

impl PreloadLibrary {
    /// Writes the library into a folder in which no other user may create files. All users may read the library
    /// that root writes.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create() -> Result<Self, AllocationsError> {
        let user = geteuid();
        let (folder, mode) = folder_of(user);
        make_own(&folder, user, mode)
            .map_err(|source| AllocationsError::Write { path: folder.clone(), source })?;
        let path = folder.join(format!("{NAME}-{}.so", std::process::id()));
        write(&path)?;
        Ok(PreloadLibrary { path })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PreloadLibrary {
    fn drop(&mut self) {
        // A file that remains does no harm.
        let _ = fs::remove_file(&self.path);
    }
}

/// The folder for the libraries of a user, and its mode.
fn folder_of(user: Uid) -> (PathBuf, u32) {
    if user.is_root() {
        // Some distributions permit no program in /run.
        return ("/var/lib/isotherm-alloc".into(), 0o755);
    }
    let folder = match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => Path::new(&dir).join("isotherm-alloc"),
        None => std::env::temp_dir().join(format!("isotherm-alloc-{}", user.as_raw())),
    };
    (folder, 0o700)
}

/// Creates a folder unless it exists, and gives it its mode.
fn make_own(folder: &Path, user: Uid, mode: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(mode).create(folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != user.as_raw() {
        return Err(io::Error::other("it exists, and is no folder of this user"));
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(mode))
}

/// Writes the library into a folder, and returns its path.
///
/// # Errors
/// If it cannot be written.
pub fn write_library(folder: &Path) -> Result<PathBuf, AllocationsError> {
    let path = folder.join(format!("{NAME}.so"));
    write(&path).map(|()| path)
}

/// Writes to a temporary name and renames, so that an earlier library stays complete for the programs that use it.
fn write(path: &Path) -> Result<(), AllocationsError> {
    let aside = path.with_extension(format!("{}.new", std::process::id()));
    let written = || {
        // Another user's file or link of that name must not be followed.
        let mut file = OpenOptions::new().write(true).create_new(true).open(&aside)?;
        file.write_all(LIBRARY)?;
        // regardless of the umask: the command may run as another user
        file.set_permissions(fs::Permissions::from_mode(0o755))?;
        fs::rename(&aside, path)
    };
    written().map_err(|source| {
        // It may not be there, and a file that remains does no harm.
        let _ = fs::remove_file(&aside);
        AllocationsError::Write { path: path.to_owned(), source }
    })
}

/// Where the events for sampled allocations go.
#[derive(Debug)]
pub struct Probe {
    /// The library. A watched process may put another file in its place later, in which the offsets would be those
    /// of other code.
    pub(crate) file: File,
    /// its path, for messages
    pub(crate) path: PathBuf,
    /// offsets of the two functions in the file
    pub(crate) allocated: u64,
    pub(crate) released: u64,
}

impl Probe {
    /// The probe of a library file; `None` if it is no such library, or cannot be read.
    #[must_use]
    pub fn of(file: &Path) -> Option<Self> {
        let path = file.to_owned();
        let file = open_regular(file).ok()?;
        let found = file.metadata().ok().filter(|m| m.len() <= MAX_LIBRARY_BYTES)?;
        let mut bytes = vec![0; usize::try_from(found.len()).ok()?];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let elf = object::File::parse(&*bytes).ok()?;
        let offset = |name| {
            let address = elf.dynamic_symbols().find(|s| s.name() == Ok(name))?.address();
            // The part of a segment that is in the file: the kernel refuses a probe beyond it.
            let offset_in = |(segment, (begin, len)): (u64, (u64, u64))| {
                let offset = address.checked_sub(segment).filter(|&offset| offset < len)?;
                offset.checked_add(begin).filter(|&offset| offset < found.len())
            };
            elf.segments().map(|s| (s.address(), s.file_range())).find_map(offset_in)
        };
        let (allocated, released) = (offset(ALLOCATED)?, offset(RELEASED)?);
        Some(Probe { file, path, allocated, released })
    }

    /// The probe of the library that a process has loaded, if it has.
    #[must_use]
    pub fn in_process(root: &Path, pid: i32) -> Option<Self> {
        let of_pid = root.join(format!("proc/{pid}"));
        let is_library = |path: &str| path.rsplit('/').next().is_some_and(|n| n.starts_with(NAME));
        let library = code(root, pid).ok()?.into_iter().find(|file| is_library(&file.path))?;
        Probe::of(&of_pid.join("root").join(library.path.trim_start_matches('/')))
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use object::ObjectSection;

    use super::*;

    /// Descendants of a command of root loaded what `nobody` had put in the place of the removed library.
    #[test]
    fn the_library_has_its_probe_and_nobody_else_can_put_another_in_its_place() {
        let library = PreloadLibrary::create().unwrap();
        let path = library.path().to_owned();
        let probe = Probe::of(&path).unwrap();
        assert!(probe.allocated > 0 && probe.released > 0 && probe.allocated != probe.released);
        assert_eq!(fs::read(&path).unwrap(), LIBRARY);
        assert!(Probe::of(Path::new("/bin/sh")).is_none());
        assert!(Probe::of(Path::new("/dev/zero")).is_none(), "no file");
        drop(library);
        assert!(!path.exists(), "removed");
        let folder = path.parent().unwrap();
        let others_may_write = |dir: &Path| fs::metadata(dir).unwrap().mode() & 0o022 != 0;
        assert_eq!(fs::metadata(folder).unwrap().uid(), geteuid().as_raw());
        assert!(!others_may_write(folder), "{}", folder.display());
        // A user's folder may be in /tmp, where the sticky bit keeps others from replacing it.
        assert!(!geteuid().is_root() || !folder.ancestors().any(others_may_write));
    }

    #[test]
    fn a_folder_of_another_user_takes_no_library() {
        let dir = tempfile::tempdir().unwrap();
        let (own, link) = (dir.path().join("own"), dir.path().join("link"));
        make_own(&own, geteuid(), 0o700).unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).unwrap();
        make_own(&own, geteuid(), 0o755).unwrap();
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o755);
        assert!(make_own(&own, Uid::from_raw(geteuid().as_raw() + 1), 0o755).is_err());
        std::os::unix::fs::symlink(&own, &link).unwrap();
        assert!(make_own(&link, geteuid(), 0o755).is_err());
    }

    /// After a burst, samples were reported with another mean than that of their interval, and a rare sample never led
    /// back to the wanted one. A block that could not grow, or that `sdallocx` freed, had the wrong end.
    #[test]
    fn the_library_reports_blocks_until_their_end_and_the_mean_of_their_interval() {
        let dir = tempfile::tempdir().unwrap();
        let (library, program) = (write_library(dir.path()).unwrap(), dir.path().join("program"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/allocations/preload_test.c");
        let options = ["-std=gnu17", "-Wall", "-O1", "-fno-builtin", "-pthread", "-rdynamic", "-o"];
        let mut built = Command::new("clang");
        assert!(built.args(options).arg(&program).arg(source).status().unwrap().success());
        let mut checked = Command::new(program);
        checked.env("LD_PRELOAD", library).env(BYTES_VARIABLE, "1024");
        let done = checked.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Found by a review: the kernel refuses a probe there, and the recording of all processes ended.
    #[test]
    fn a_function_beyond_its_file_has_no_probe() {
        let elf = object::File::parse(LIBRARY).unwrap();
        let function = elf.dynamic_symbols().find(|s| s.name() == Ok(ALLOCATED)).unwrap().index();
        let symbols = elf.section_by_name(".dynsym").unwrap().file_range().unwrap().0;
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut library = LIBRARY.to_owned();
        let mut has_probe_with = |at: usize, value: u64| {
            library[at..at + 8].copy_from_slice(&value.to_le_bytes());
            fs::write(file.path(), &library).unwrap();
            Probe::of(file.path()).is_some()
        };
        // The first segment begins at address 0. Its size in memory, and then the one in the file.
        assert!(has_probe_with(64 + 40, 1 << 40));
        assert!(!has_probe_with(symbols as usize + 24 * function.0 + 8, 1 << 30));
        assert!(!has_probe_with(64 + 32, 1 << 40));
    }

    #[test]
    fn a_process_without_the_library_has_no_probe() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert!(Probe::in_process(Path::new("/"), pid).is_none());
    }
}
