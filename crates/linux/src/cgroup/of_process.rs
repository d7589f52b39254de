//! The group of a process, and the headroom of a group.

use std::path::{Path, PathBuf};

use super::namespace::below_mount;
use super::{Cgroup, Limit, PROCS, Version, mounts, read_up_to};

impl Cgroup {
    /// The group of process `pid` in the hierarchy of the memory controller. `None` if the process is in the
    /// root group, in a group without the memory controller, or in one that is not visible here.
    #[must_use]
    pub fn of_process(root: &Path, pid: i32) -> Option<Self> {
        Self::of_path(root, &path_of(root, pid)?)
    }

    /// The group to which the memory of process `pid` is charged, and whose limits apply to it: its own group, or with
    /// version 2 the nearest one above it that has the memory controller. Other processes may share it. `None` for the
    /// root group, and for a group that is not visible here.
    #[must_use]
    pub fn charged_for(root: &Path, pid: i32) -> Option<Self> {
        let path = path_of(root, pid)?;
        Path::new(&path).ancestors().find_map(|path| Self::of_path(root, path.to_str()?))
    }

    /// The group with this path in the hierarchy of the memory controller, as [`path_of`] returns it. `None` for
    /// the root group, and for a group that is not visible here.
    #[must_use]
    pub fn of_path(root: &Path, path: &str) -> Option<Self> {
        let path = Path::new(path.strip_prefix('/')?);
        let outside = path.components().any(|c| c == std::path::Component::ParentDir);
        if outside || path.as_os_str().is_empty() {
            return None;
        }
        let below = mounts::mounts(root).into_iter().map(|mount| mount.join(path));
        below.filter_map(Self::at).find(Self::has_memory)
    }

    /// Bytes until the group, or a group above it, reaches a limit; `None` without limits.
    #[must_use]
    pub fn headroom(&self) -> Option<u64> {
        self.with_those_above().filter_map(|group| group.own_headroom()).min()
    }

    /// The lowest hard limit of the group and of the groups above it, in bytes; `None` without limits.
    #[must_use]
    pub fn hard_limit(&self) -> Option<u64> {
        let limits = self.with_those_above().filter_map(|group| match group.memory_max() {
            Ok(Limit::Bytes(bytes)) => Some(bytes),
            _ => None,
        });
        limits.min()
    }

    /// The number of times that the group, or a group above it, has reached a limit, in version 1. Each time
    /// reclaim scans its pages. 0 if the kernel does not count that.
    pub(crate) fn failures(&self) -> u64 {
        let count = |group: Cgroup| read_up_to(&group.dir.join("memory.failcnt"), 64).ok();
        self.with_those_above().filter_map(count).filter_map(|n| n.trim().parse::<u64>().ok()).sum()
    }

    /// Bytes until the hard limit of the group itself, beyond which the kernel kills processes. Files in the
    /// page cache count as free. `None` without a limit.
    pub(crate) fn room(&self) -> Option<u64> {
        let Ok(Limit::Bytes(max)) = self.memory_max() else { return None };
        let stat = self.memory_stat().unwrap_or_default();
        let files = stat.file.saturating_sub(stat.shmem);
        Some(max.saturating_sub(self.memory_current().ok()?.saturating_sub(files)))
    }

    /// The group and the groups above it.
    pub(crate) fn with_those_above(&self) -> impl Iterator<Item = Self> {
        let above = self.dir.ancestors().map_while(|dir| Self::at(dir.to_owned()));
        above.take_while(Self::has_memory)
    }

    /// The lowest limit of the group and of the groups above it, in bytes; `None` without limits.
    #[must_use]
    pub fn lowest_limit(&self) -> Option<u64> {
        self.with_those_above().filter_map(|group| group.own_limit()).min()
    }

    fn own_limit(&self) -> Option<u64> {
        let limits = [self.memory_max(), self.memory_high()];
        let bytes = limits.into_iter().filter_map(|limit| match limit {
            Ok(Limit::Bytes(bytes)) => Some(bytes),
            _ => None,
        });
        bytes.min()
    }

    fn own_headroom(&self) -> Option<u64> {
        Some(self.own_limit()?.saturating_sub(self.memory_current().ok()?))
    }

    fn has_memory(&self) -> bool {
        self.memory_current().is_ok()
    }

    /// The group with this directory, if it is a group.
    fn at(dir: PathBuf) -> Option<Self> {
        dir.join(PROCS).is_file().then(|| Self::with_dir(dir))
    }
}

/// A group and the groups below it, by the path in `/proc/PID/cgroup`: checking a process reads only one
/// file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subtree {
    path: PathBuf,
    version: Version,
}

impl Subtree {
    /// Whether process `pid` is in one of the groups. A process that has ended is not.
    #[must_use]
    pub fn has(&self, root: &Path, pid: i32) -> bool {
        let Ok(text) = read_up_to(&root.join(format!("proc/{pid}/cgroup")), 64 << 10) else {
            return false;
        };
        let path = shown(&text, self.version).map(|path| below_mount(root, self.version, path));
        path.as_deref()
            .and_then(|path| path.strip_prefix('/'))
            .is_some_and(|path| Path::new(path).starts_with(&self.path))
    }
}

impl Cgroup {
    /// This group and the groups below it. `None` for a group that is neither of version 2 nor of version 1's
    /// memory controller.
    #[must_use]
    pub fn subtree(&self, root: &Path) -> Option<Subtree> {
        let mounts = mounts::mounts(root);
        let path = mounts.iter().find_map(|mount| self.dir.strip_prefix(mount).ok())?;
        Some(Subtree { path: path.to_owned(), version: self.version })
    }
}

/// The path of the group of process `pid`, below its mount; `None` if the kernel reports none.
#[must_use]
pub fn path_of(root: &Path, pid: i32) -> Option<String> {
    let text = read_up_to(&root.join(format!("proc/{pid}/cgroup")), 64 << 10).ok()?;
    // That of version 1's memory controller if there is one.
    [Version::V1, Version::V2]
        .into_iter()
        .find_map(|version| Some(below_mount(root, version, shown(&text, version)?)))
}

/// The path in the text of `/proc/PID/cgroup`. Each line is `ID:CONTROLLERS:PATH`; that of version 2 has no
/// controllers.
pub(super) fn shown(text: &str, version: Version) -> Option<&str> {
    let is_it = match version {
        Version::V1 => of_memory,
        Version::V2 => str::is_empty,
    };
    text.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        is_it(controllers).then_some(path)
    })
}

fn of_memory(controllers: &str) -> bool {
    controllers.split(',').any(|c| c == "memory")
}
