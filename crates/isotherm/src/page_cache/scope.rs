//! Which files to show.

use std::path::{Path, PathBuf};

use isotherm_linux::proc::Mount;

/// The files to show; by default all that are cached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileScope {
    /// only these files, and the files in these folders and below them
    pub paths: Vec<PathBuf>,
    /// only the file system that holds this path
    pub mount: Option<PathBuf>,
    /// only pages that are charged to these control groups, or to groups below them; empty: all pages
    pub cgroups: Vec<PathBuf>,
}

/// The reasons why files cannot be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScopeError {
    /// a path does not exist, or cannot be used
    #[error("cannot use {path}: {source}")]
    Path {
        /// the path that the user gave
        path: PathBuf,
        /// the error of the system call
        source: std::io::Error,
    },
    /// a path is no file and no folder
    #[error(
        "{0} is neither a regular file nor a folder, so isotherm cannot select its pages. isotherm files without a path \
         shows the page cache of block devices"
    )]
    Kind(PathBuf),
    /// no mount holds the path
    #[error("no mount of /proc/self/mountinfo holds {0}: give a path on a mounted file system")]
    NoMount(PathBuf),
    /// no such group
    #[error(
        "there is no control group {0} with a memory controller: give its path below the mount of cgroups, \
         e.g. system.slice/ssh.service"
    )]
    NoGroup(PathBuf),
    /// without BPF, only named files can be shown
    #[error(
        "{reason}\nWithout BPF, isotherm can count only the files that you name: give a file or a folder, without \
         --cgroup and --by cgroup or process"
    )]
    NamedOnly {
        /// why BPF is not available
        reason: String,
    },
    /// the reader failed
    #[error(transparent)]
    Read(#[from] isotherm_linux::page_cache::PageCacheError),
}

/// The file system that holds a path at the start. What is mounted there later is another one.
#[derive(Debug)]
pub(super) struct ChosenMount {
    pub path: PathBuf,
    device: (u32, u32),
}

impl ChosenMount {
    /// The file system that holds `path` now.
    pub fn find(path: PathBuf, mounts: &[Mount]) -> Result<Self, ScopeError> {
        match mount_of(mounts, &path) {
            Some(mount) => Ok(ChosenMount { device: mount.device, path }),
            None => Err(ScopeError::NoMount(path)),
        }
    }

    /// Its device, while it is mounted there. The kernel may give the number to another file system later.
    pub fn device(&self, mounts: &[Mount]) -> Option<(u32, u32)> {
        mount_of(mounts, &self.path).map(|mount| mount.device).filter(|now| *now == self.device)
    }

    /// The remark if it is not mounted there.
    pub fn gone(&self) -> String {
        let path = self.path.display();
        format!(
            "The file system that was at {path} is no longer mounted there, so it has no files until it returns."
        )
    }
}

/// The mount with the longest path that holds `path`; of two at the same place, the later one hides the other.
pub(super) fn mount_of<'m>(
    mounts: impl IntoIterator<Item = &'m Mount>,
    path: &Path,
) -> Option<&'m Mount> {
    let holding = mounts.into_iter().filter(|m| path.starts_with(&m.point));
    holding.max_by_key(|m| m.point.components().count())
}

/// Whether the path is one of the folders, or below one of them. All are if there are no folders.
pub(super) fn is_within(path: &Path, folders: &[PathBuf]) -> bool {
    folders.is_empty() || folders.iter().any(|folder| path.starts_with(folder))
}

/// The mounts with files of the folders: that of each folder, and those below it.
pub(super) fn mounts_of<'m>(mounts: &'m [Mount], folders: &[PathBuf]) -> Vec<&'m Mount> {
    let own: Vec<_> = folders.iter().filter_map(|folder| mount_of(mounts, folder)).collect();
    let is_own = |m: &Mount| own.iter().any(|own| std::ptr::eq(*own, m));
    mounts.iter().filter(|m| is_own(m) || is_within(&m.point, folders)).collect()
}
