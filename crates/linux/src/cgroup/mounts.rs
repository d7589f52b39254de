//! The mounts of cgroups, from `/proc/self/mountinfo`.

use std::path::{Path, PathBuf};

use super::read_up_to;

/// The mounts of version 2, then those of version 1's memory controller. Machines with both usually have the
/// same groups in both.
pub(super) fn mounts(root: &Path) -> Vec<PathBuf> {
    let text = read_up_to(&root.join("proc/self/mountinfo"), 4 << 20).unwrap_or_default();
    let mut found: Vec<(bool, PathBuf)> = text.lines().filter_map(parse).collect();
    found.sort_by_key(|&(is_v1, _)| is_v1);
    found.into_iter().map(|(_, at)| root.join(at.strip_prefix("/").unwrap_or(&at))).collect()
}

/// Whether the mount is of version 1, and its directory; `None` for other mounts. A line is `ID PARENT DEV
/// ROOT POINT OPTIONS [MORE..] - TYPE SOURCE SUPER-OPTIONS`.
fn parse(line: &str) -> Option<(bool, PathBuf)> {
    let (mount, file_system) = line.split_once(" - ")?;
    let point = unescape(mount.split(' ').nth(4)?);
    let mut fields = file_system.split(' ');
    match (fields.next()?, fields.nth(1)?) {
        ("cgroup2", _) => Some((false, point)),
        ("cgroup", options) if options.split(',').any(|o| o == "memory") => Some((true, point)),
        _ => None,
    }
}

/// The kernel writes blanks and some other characters in octal.
fn unescape(text: &str) -> PathBuf {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_both_versions() {
        let v2 = "26 23 0:24 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(parse(v2), Some((false, "/sys/fs/cgroup".into())));
        let v1 = "35 31 0:32 / /sys/fs/cgroup/my\\040memory rw,relatime - cgroup cgroup rw,memory";
        assert_eq!(parse(v1), Some((true, "/sys/fs/cgroup/my memory".into())));
        assert_eq!(parse("32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu"), None);
        assert_eq!(
            parse("31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755"),
            None
        );
        assert_eq!(parse("cut"), None);
    }
}
