//! `/proc/self/mountinfo`: the mounts of our mount namespace.

use std::path::{Path, PathBuf};

use super::{ProcError, read_limited};

/// Maximal size of the file.
const LIMIT: u64 = 16 << 20;

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// major and minor number of the file system
    pub device: (u32, u32),
    /// the directory of the file system that is mounted
    pub root: PathBuf,
    /// the directory at which it is mounted
    pub point: PathBuf,
    /// type of the file system
    pub fs_type: String,
    /// options of the file system, separated by commas
    pub options: String,
}

/// Reads all mounts, in the order of the kernel.
///
/// # Errors
/// If the file cannot be read.
pub fn mountinfo(root: &Path) -> Result<Vec<Mount>, ProcError> {
    let text = read_limited(&root.join("proc/self/mountinfo"), LIMIT)?;
    Ok(text.lines().filter_map(parse).collect())
}

/// A line is `ID PARENT DEV ROOT POINT OPTIONS [MORE..] - TYPE SOURCE SUPER-OPTIONS`.
fn parse(line: &str) -> Option<Mount> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(2);
    let (major, minor) = fields.next()?.split_once(':')?;
    let (root, point) = (unescape(fields.next()?), unescape(fields.next()?));
    let mut fields = file_system.split(' ');
    let (fs_type, options) = (fields.next()?.to_owned(), fields.nth(1)?.to_owned());
    Some(Mount {
        device: (major.parse().ok()?, minor.parse().ok()?),
        root,
        point,
        fs_type,
        options,
    })
}

/// The kernel writes blanks and some other characters in octal.
fn unescape(text: &str) -> PathBuf {
    let decoded = text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n");
    decoded.replace("\\043", "#").replace("\\134", "\\").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_optional_fields_and_blanks() {
        let line =
            "35 31 0:32 /a\\040b /mnt/x\\134y rw,relatime shared:4 - cgroup cgroup rw,memory";
        let mount = parse(line).unwrap();
        assert_eq!(mount.device, (0, 32));
        assert_eq!((mount.root, mount.point), ("/a b".into(), "/mnt/x\\y".into()));
        assert_eq!((&*mount.fs_type, &*mount.options), ("cgroup", "rw,memory"));
        assert_eq!(parse("cut"), None);
        assert!(mountinfo("/".as_ref()).unwrap().iter().any(|m| m.point == Path::new("/")));
    }
}
