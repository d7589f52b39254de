//! The groups to which memory is charged, by the number that the kernel has for them.

use std::collections::HashMap;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::mounts;

/// Maximal number of groups.
const MAX_GROUPS: usize = 200_000;

/// The groups of the memory controller.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryGroups {
    mount: PathBuf,
    /// path below the mount by number, which is the inode number of the directory
    paths: HashMap<u64, PathBuf>,
}

impl MemoryGroups {
    /// Reads all groups; there are none if no mount of the controller is visible.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        // With version 1, memory is charged to its groups only.
        let Some(mount) = mounts::mounts(root).pop() else { return Self::default() };
        let mut paths = HashMap::new();
        let number = std::fs::metadata(&mount).map_or(0, |m| m.ino());
        let mut rest = vec![(number, PathBuf::from("/"))];
        while let Some((number, path)) = rest.pop() {
            let below = mount.join(path.strip_prefix("/").unwrap_or(&path));
            for entry in std::fs::read_dir(below).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|t| t.is_dir()) {
                    rest.push((entry.ino(), path.join(entry.file_name())));
                }
            }
            paths.insert(number, path);
            if paths.len() >= MAX_GROUPS {
                break;
            }
        }
        MemoryGroups { mount, paths }
    }

    /// The path of a group below the mount; that of the root is `/`. `None` if it has been removed, or is not visible.
    #[must_use]
    pub fn path(&self, number: u64) -> Option<&Path> {
        self.paths.get(&number).map(PathBuf::as_path)
    }

    /// The numbers of a group and of those below it. `path` is a directory, or a path below the mount.
    pub fn below(&self, path: &Path) -> impl Iterator<Item = u64> {
        let path = path.strip_prefix(&self.mount).unwrap_or(path);
        let path = Path::new("/").join(path);
        self.paths.iter().filter(move |(_, at)| at.starts_with(&path)).map(|(number, _)| *number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{put, tree};

    #[test]
    fn each_directory_is_a_group() {
        let at = "26 23 0:24 / /cg rw - cgroup2 cgroup2 rw\n";
        let root = tree([("proc/self/mountinfo", at), ("cg/a/b/cgroup.procs", "")]);
        put(root.path(), "cg/cgroup.procs", "");
        let groups = MemoryGroups::read(root.path());
        let number = |path: &str| std::fs::metadata(root.path().join(path)).unwrap().ino();
        for (place, path) in [("cg", "/"), ("cg/a", "/a"), ("cg/a/b", "/a/b")] {
            assert_eq!(groups.path(number(place)), Some(Path::new(path)));
        }
        let count = |path: &Path| groups.below(path).count();
        assert_eq!([count("/".as_ref()), count("a".as_ref()), count("x".as_ref())], [3, 2, 0]);
        assert_eq!(count(&root.path().join("cg/a/b")), 1);
        assert_eq!(
            MemoryGroups::read(tempfile::tempdir().unwrap().path()),
            MemoryGroups::default()
        );
    }
}
