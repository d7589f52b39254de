//! The paths of groups in a cgroup namespace, as a container has it.
//!
//! There the kernel shows paths from the group of the namespace: `/` is that group, and `/..` the one above it. If the
//! groups of the whole machine are mounted too, the place of the namespace gives the paths below that mount.

use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use super::{PROCS, Version, mounts, read_up_to};
use crate::proc::mountinfo;

/// The path below the mount of the path `shown` in `/proc/PID/cgroup`, with `/` before it. It is `shown` itself without
/// a namespace, and if the place of the namespace cannot be found.
pub(super) fn below_mount(root: &Path, version: Version, shown: &str) -> String {
    // A process stays in its namespace. Trees of tests are not remembered.
    static OF_V1: OnceLock<Option<PathBuf>> = OnceLock::new();
    static OF_V2: OnceLock<Option<PathBuf>> = OnceLock::new();
    let known = match version {
        Version::V1 => &OF_V1,
        Version::V2 => &OF_V2,
    };
    let place = if root == Path::new("/") {
        known.get_or_init(|| place(root, version)).clone()
    } else {
        place(root, version)
    };
    place.map_or_else(|| shown.to_owned(), |place| from(&place, shown))
}

/// The path `shown` from the place of the namespace.
fn from(place: &Path, shown: &str) -> String {
    let mut path = Path::new("/").join(place);
    for component in Path::new(shown).components() {
        match component {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path.to_string_lossy().into_owned()
}

/// The group of our namespace, as a path below the mount. `None` if no group above it is mounted.
fn place(root: &Path, version: Version) -> Option<PathBuf> {
    let all = mountinfo(root).ok()?;
    let is_of = |fs: Option<bool>| fs == Some(version == Version::V1);
    let outside = |path: &Path| path.components().filter(|c| *c == Component::ParentDir).count();
    let mount = all.iter().find(|m| is_of(mounts::is_v1(m)) && outside(&m.root) > 0)?;

    let own = std::fs::read_link(root.join("proc/self")).ok()?;
    let text = read_up_to(&root.join("proc/self/cgroup"), 64 << 10).ok()?;
    let shown = super::of_process::shown(&text, version)?;
    let below = Path::new(shown).components().filter(|c| matches!(c, Component::Normal(_))).count();
    let point = root.join(mount.point.strip_prefix("/").unwrap_or(&mount.point));
    let group = with_process(&point, outside(&mount.root) + below, own.to_str()?)?;
    let place = group.ancestors().nth(below)?;
    place.strip_prefix(&point).ok().map(Path::to_owned)
}

/// The group `depth` levels below `dir` that has process `pid`.
fn with_process(dir: &Path, depth: usize, pid: &str) -> Option<PathBuf> {
    let Some(above) = depth.checked_sub(1) else {
        let pids = read_up_to(&dir.join(PROCS), 1 << 20).ok()?;
        return pids.lines().any(|line| line == pid).then(|| dir.to_owned());
    };
    super::members::below(dir).find_map(|dir| with_process(&dir, above, pid))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::super::{Cgroup, path_of};
    use super::*;
    use crate::testing::{put, tree};

    const OWN: &str = "cg/pods/pod/a.scope/cgroup.procs";

    /// A machine on which process 7 is in a container, and sees the groups of the machine if `mounted` is above its
    /// own.
    fn machine(mounted: &str) -> TempDir {
        let root = tree([
            ("proc/7/mountinfo", &*format!("26 23 0:24 {mounted} /cg ro - cgroup2 cgroup2 rw\n")),
            ("proc/7/cgroup", "0::/\n"),
            ("proc/8/cgroup", "0::/../../../system.slice/ssh.service\n"),
            ("proc/9/cgroup", "0::/../b.scope/inner\n"),
            ("cg/cgroup.procs", "1\n"),
            ("cg/system.slice/ssh.service/cgroup.procs", "8\n"),
            ("cg/pods/pod/cgroup.procs", ""),
            ("cg/pods/pod/cgroup.controllers", "memory\n"),
            (OWN, "77\n7\n"),
            ("cg/pods/pod/b.scope/inner/cgroup.procs", "9\n"),
        ]);
        std::os::unix::fs::symlink("7", root.path().join("proc/self")).unwrap();
        root
    }

    fn paths(root: &TempDir) -> Vec<String> {
        [7, 8, 9].iter().map(|&pid| path_of(root.path(), pid).unwrap()).collect()
    }

    #[test]
    fn paths_are_those_below_the_mount() {
        let root = machine("/../../..");
        let others = ["/system.slice/ssh.service", "/pods/pod/b.scope/inner"];
        assert_eq!(paths(&root), ["/pods/pod/a.scope", others[0], others[1]]);
        // We may be in a group below that of the namespace.
        put(root.path(), "proc/7/cgroup", "0::/init\n");
        fs::remove_file(root.path().join(OWN)).unwrap();
        put(root.path(), "cg/pods/pod/a.scope/init/cgroup.procs", "7\n");
        assert_eq!(paths(&root), ["/pods/pod/a.scope/init", others[0], others[1]]);
    }

    #[test]
    fn paths_stay_without_a_mount_of_the_machine() {
        let shown = ["/", "/../../../system.slice/ssh.service", "/../b.scope/inner"];
        for mounted in ["/", "/system.slice"] {
            assert_eq!(paths(&machine(mounted)), shown);
        }
        let root = machine("/../../..");
        put(root.path(), OWN, "77\n");
        assert_eq!(paths(&root), shown, "the kernel does not show us in any group");
    }

    #[test]
    fn a_subtree_has_processes_by_their_paths_below_the_mount() {
        let root = machine("/../../..");
        let pods = Cgroup::find(root.path(), Path::new("pods/pod")).unwrap();
        let pods = pods.subtree(root.path()).unwrap();
        assert_eq!([7, 8, 9].map(|pid| pods.has(root.path(), pid)), [true, false, true]);
    }
}
