//! In which group a process is, and how much memory that may still have.

use std::path::{Path, PathBuf};

use super::{Cgroup, Limit, PROCS, Version, mounts, read_up_to};

impl Cgroup {
    /// The group whose memory controller process `pid` is under; `None` if there is none: it is in
    /// the root of all groups, or outside of those that can be seen here.
    #[must_use]
    pub fn of_process(root: &Path, pid: i32) -> Option<Self> {
        let path = path_of(root, pid)?;
        let path = Path::new(path.strip_prefix('/')?);
        let outside = path.components().any(|c| c == std::path::Component::ParentDir);
        if outside || path.as_os_str().is_empty() {
            return None;
        }
        let below = mounts::mounts(root).into_iter().map(|mount| mount.join(path));
        below.filter_map(Self::at).find(Self::has_memory)
    }

    /// Bytes that it may still have until it, or one of those above it, reaches a limit; `None` without
    /// limits.
    #[must_use]
    pub fn headroom(&self) -> Option<u64> {
        self.with_those_above().filter_map(|group| group.own_headroom()).min()
    }

    /// How often it, or one of those above it, has reached a limit, in version 1: reclaim looks at its pages
    /// each time. 0 where that is not counted.
    pub(crate) fn failures(&self) -> u64 {
        let count = |group: Cgroup| read_up_to(&group.dir.join("memory.failcnt"), 64).ok();
        self.with_those_above().filter_map(count).filter_map(|n| n.trim().parse::<u64>().ok()).sum()
    }

    /// It and those above it.
    pub(crate) fn and_above(&self) -> impl Iterator<Item = Self> {
        self.with_those_above()
    }

    /// Bytes that it may still have until its own limit, beyond which processes are killed, if files of the
    /// page cache make room; `None` without one.
    pub(crate) fn room(&self) -> Option<u64> {
        let Ok(Limit::Bytes(max)) = self.memory_max() else { return None };
        let stat = self.memory_stat().unwrap_or_default();
        let files = stat.file.saturating_sub(stat.shmem);
        Some(max.saturating_sub(self.memory_current().ok()?.saturating_sub(files)))
    }

    fn with_those_above(&self) -> impl Iterator<Item = Self> {
        let above = self.dir.ancestors().map_while(|dir| Self::at(dir.to_owned()));
        above.take_while(Self::has_memory)
    }

    fn own_headroom(&self) -> Option<u64> {
        let limits = [self.memory_max(), self.memory_high()];
        let bytes = limits.into_iter().filter_map(|limit| match limit {
            Ok(Limit::Bytes(bytes)) => Some(bytes),
            _ => None,
        });
        Some(bytes.min()?.saturating_sub(self.memory_current().ok()?))
    }

    fn has_memory(&self) -> bool {
        self.memory_current().is_ok()
    }

    /// The one whose directory this is, if it is one.
    fn at(dir: PathBuf) -> Option<Self> {
        dir.join(PROCS).is_file().then(|| Self::with_dir(dir))
    }
}

/// A group, and those below it, as `/proc/PID/cgroup` names them: asking of a process takes one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subtree {
    path: PathBuf,
    version: Version,
}

impl Subtree {
    /// Whether process `pid` is in one of the groups. One that is gone is not.
    #[must_use]
    pub fn has(&self, root: &Path, pid: i32) -> bool {
        let Ok(text) = read_up_to(&root.join(format!("proc/{pid}/cgroup")), 64 << 10) else {
            return false;
        };
        let path = match self.version {
            Version::V2 => path_with(&text, str::is_empty),
            Version::V1 => path_with(&text, of_memory),
        };
        path.and_then(|path| path.strip_prefix('/'))
            .is_some_and(|path| Path::new(path).starts_with(&self.path))
    }
}

impl Cgroup {
    /// The groups from this one on down. `None` for a group that is neither of version 2 nor of version 1's
    /// memory controller.
    #[must_use]
    pub fn subtree(&self, root: &Path) -> Option<Subtree> {
        let mounts = mounts::mounts(root);
        let path = mounts.iter().find_map(|mount| self.dir.strip_prefix(mount).ok())?;
        Some(Subtree { path: path.to_owned(), version: self.version })
    }
}

/// The path below the mount of the group of process `pid`, as the kernel tells it; `None` if it tells none.
#[must_use]
pub fn path_of(root: &Path, pid: i32) -> Option<String> {
    let text = read_up_to(&root.join(format!("proc/{pid}/cgroup")), 64 << 10).ok()?;
    memory_path(&text).map(str::to_owned)
}

/// In `/proc/PID/cgroup`: of version 1 if that has the memory controller, else of version 2. Each line
/// is `ID:CONTROLLERS:PATH`.
fn memory_path(text: &str) -> Option<&str> {
    path_with(text, of_memory).or_else(|| path_with(text, str::is_empty))
}

/// Of the line whose controllers are these.
fn path_with(text: &str, is_it: fn(&str) -> bool) -> Option<&str> {
    text.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        is_it(controllers).then_some(path)
    })
}

fn of_memory(controllers: &str) -> bool {
    controllers.split(',').any(|c| c == "memory")
}
