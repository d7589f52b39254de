//! In which group a process is, and how much memory that may still have.

use std::path::Path;

use super::{Cgroup, Limit, PROCS, mounts, read_up_to};

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
    fn at(dir: std::path::PathBuf) -> Option<Self> {
        dir.join(PROCS).is_file().then(|| Self::with_dir(dir))
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
    let with = |is_it: fn(&str) -> bool| {
        text.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            is_it(controllers).then_some(path)
        })
    };
    with(|controllers| controllers.split(',').any(|c| c == "memory"))
        .or_else(|| with(str::is_empty))
}
