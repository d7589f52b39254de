//! Control groups of version 2 and of version 1's memory controller: their processes and their memory.
//!
//! Each reader takes the root of the file system or the directory of a group, so that tests can use a tree of
//! their own.

mod ids;
mod members;
mod memory;
mod mounts;
mod namespace;
mod of_process;
mod pressure;
mod stat;

use std::io;
use std::path::{Path, PathBuf};

pub use ids::MemoryGroups;
pub use memory::{Limit, Reclaimed};
pub use of_process::{Subtree, path_of};
pub use pressure::{Averages, PressureStall, machine_pressure};
pub(crate) use pressure::{MACHINE_PRESSURE, parse as parse_pressure};
pub use stat::MemoryStat;

use crate::proc::read_up_to;

/// Why a control group cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CgroupError {
    /// no group has this name
    #[error(
        "there is no control group {path} (sought in {sought}): give its path below the mount of cgroups, e.g. system.slice/ssh.service, or the directory itself"
    )]
    None {
        /// the path that the user gave
        path: PathBuf,
        /// the mounts in which it was sought
        sought: String,
    },
    /// the group was removed
    #[error("the control group {0} has been removed")]
    Removed(PathBuf),
    /// the group contains only threads
    #[error(
        "the control group {0} is threaded, so its processes belong to a group above it: \
             give that group"
    )]
    Threaded(PathBuf),
    /// a file does not exist
    #[error("{path} is not there: {why}")]
    Absent {
        /// the file
        path: PathBuf,
        /// the requirement for the file
        why: &'static str,
    },
    /// the kernel refused it
    #[error("cannot {what} {path}: {source}")]
    Refused {
        /// read or write
        what: &'static str,
        /// the file
        path: PathBuf,
        /// the error of the system call
        source: io::Error,
    },
    /// the file has an unknown form
    #[error("{path} has content that isotherm cannot parse: {text}")]
    Parse {
        /// the file
        path: PathBuf,
        /// the text in question
        text: String,
    },
    /// a limit is exceeded
    #[error("{path} has more than {limit} {what}: give one of the groups below it")]
    TooMany {
        /// the group
        path: PathBuf,
        /// the maximum
        limit: usize,
        /// groups or processes
        what: &'static str,
    },
}

/// The interface that the kernel offers for a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// one hierarchy for each controller
    V1,
    /// one hierarchy for all controllers
    V2,
}

/// A control group, by its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    dir: PathBuf,
    version: Version,
}

const PROCS: &str = "cgroup.procs";

impl Cgroup {
    /// The group at `path`: a directory, or a path below a mount of cgroups. Mounts of version 2 come before
    /// those of version 1's memory controller. `root` is `/`, or a tree for tests.
    ///
    /// # Errors
    /// If there is no such group.
    pub fn find(root: &Path, path: &Path) -> Result<Self, CgroupError> {
        let mounts = mounts::mounts(root);
        let below = path.strip_prefix("/").unwrap_or(path);
        let given = path.is_absolute().then(|| root.join(below));
        let places = given.into_iter().chain(mounts.iter().map(|mount| mount.join(below)));
        let found = places.into_iter().find(|dir| dir.join(PROCS).is_file());
        let sought = || match &mounts[..] {
            [] => "/proc/self/mountinfo, which has no mount of cgroups".to_owned(),
            mounts => mounts.iter().map(|m| m.display().to_string()).collect::<Vec<_>>().join(", "),
        };
        let none = || CgroupError::None { path: path.to_owned(), sought: sought() };
        let dir = found.ok_or_else(none)?;
        Ok(Self::with_dir(dir))
    }

    fn with_dir(dir: PathBuf) -> Self {
        // Every group of version 2 has this file, and none of version 1 has it.
        let is_v2 = dir.join("cgroup.controllers").is_file();
        Cgroup { dir, version: if is_v2 { Version::V2 } else { Version::V1 } }
    }

    /// The directory of the group.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The interface of the group.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether the group still exists.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.dir.join(PROCS).is_file()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Reads a file of at most 64 KiB, the limit for all files except `cgroup.procs`. `why` is the
    /// requirement for the file.
    fn read(&self, name: &str, why: &'static str) -> Result<String, CgroupError> {
        read_up_to(&self.file(name), 64 << 10)
            .map_err(|source| self.failed("read", name, why, source))
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        use std::io::Write;
        // A single write, because the kernel treats each write separately, also one that a signal
        // interrupted. The file must not be created.
        let mut file = std::fs::OpenOptions::new().write(true).open(self.file(name))?;
        match file.write(text.as_bytes())? {
            n if n == text.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    fn failed(
        &self,
        what: &'static str,
        name: &str,
        why: &'static str,
        source: io::Error,
    ) -> CgroupError {
        match source.raw_os_error() {
            _ if !self.exists() => CgroupError::Removed(self.dir.clone()),
            Some(libc::ENODEV) => CgroupError::Removed(self.dir.clone()),
            Some(libc::ENOENT) => CgroupError::Absent { path: self.file(name), why },
            _ => CgroupError::Refused { what, path: self.file(name), source },
        }
    }

    fn parse_error(&self, name: &str, text: &str) -> CgroupError {
        CgroupError::Parse { path: self.file(name), text: text.chars().take(120).collect() }
    }
}

#[cfg(test)]
mod tests;
