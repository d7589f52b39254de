//! The mounts of cgroups, from `/proc/self/mountinfo`.

use std::path::{Path, PathBuf};

use crate::proc::{Mount, mountinfo};

/// The mounts of version 2, then those of version 1's memory controller. Machines with both usually have the
/// same groups in both.
pub(super) fn mounts(root: &Path) -> Vec<PathBuf> {
    let all = mountinfo(root).unwrap_or_default();
    let mut found: Vec<(bool, PathBuf)> =
        all.into_iter().filter_map(|m| Some((is_v1(&m)?, m.point))).collect();
    found.sort_by_key(|&(is_v1, _)| is_v1);
    found.into_iter().map(|(_, at)| root.join(at.strip_prefix("/").unwrap_or(&at))).collect()
}

/// Whether the mount is of version 1; `None` for mounts without groups of memory.
pub(super) fn is_v1(mount: &Mount) -> Option<bool> {
    match &*mount.fs_type {
        "cgroup2" => Some(false),
        "cgroup" if mount.options.split(',').any(|o| o == "memory") => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_both_versions() {
        let mount = |fs_type: &str, options: &str| Mount {
            device: (0, 1),
            root: "/".into(),
            point: "/x".into(),
            fs_type: fs_type.into(),
            options: options.into(),
        };
        assert_eq!(is_v1(&mount("cgroup2", "rw,nsdelegate")), Some(false));
        assert_eq!(is_v1(&mount("cgroup", "rw,memory")), Some(true));
        assert_eq!(is_v1(&mount("cgroup", "rw,cpu")), None);
        assert_eq!(is_v1(&mount("tmpfs", "rw,mode=755")), None);
    }
}
