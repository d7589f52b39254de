//! `/proc/PID/numa_maps`: the memory policy of each mapping.

use std::collections::BTreeMap;
use std::path::Path;

use super::maps::LIMIT;
use super::{ProcError, pid_file, read_lines};

/// The policies of the mappings of `pid`, by start address. Examples: `default`, `bind:0-1`, `weighted
/// interleave:0,2`.
///
/// # Errors
/// If the file cannot be read or parsed, or is too long, or the kernel has no nodes.
pub fn policies(root: &Path, pid: i32) -> Result<BTreeMap<u64, String>, ProcError> {
    let mut found = BTreeMap::new();
    read_lines(&pid_file(root, pid, "numa_maps"), LIMIT, |line| {
        let (start, policy) = parse_line(line)?;
        found.insert(start, policy);
        Some(())
    })?;
    Ok(found)
}

/// `start policy key=value ...`. The name of one policy contains a blank.
fn parse_line(line: &str) -> Option<(u64, String)> {
    let (start, rest) = line.split_once(' ')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let policy = match rest.strip_prefix("weighted interleave") {
        Some(more) => format!("weighted interleave{}", more.split(' ').next()?),
        None => rest.split(' ').next()?.to_owned(),
    };
    Some((start, policy))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by a review: the last line of a long list was cut, and either refused or believed.
    #[test]
    fn a_long_list_is_refused_as_that_of_maps_is() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        let list = "00400000 default\n".repeat(2 << 20);
        std::fs::write(root.path().join("proc/7/numa_maps"), list).unwrap();
        let read = policies(root.path(), 7);
        assert!(matches!(read, Err(ProcError::Long { .. })), "{:?}", read.map(|all| all.len()));
    }

    #[test]
    fn policies_by_their_address() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        let write = |text| std::fs::write(root.path().join("proc/7/numa_maps"), text).unwrap();
        write(
            "00400000 default file=/bin/a\\040b mapped=3 N0=3 kernelpagesize_kB=4\n\
             0176a000 weighted interleave:0-1 heap anon=65793 N0=32897 N1=32896 kernelpagesize_kB=4\n\
             7f0000000000 bind=static:1 anon=1 N1=1\n\
             7f0000001000 prefer (many):0,2\n",
        );
        let all: Vec<_> = policies(root.path(), 7).unwrap().into_iter().collect();
        let text = |s: &str| s.to_owned();
        assert_eq!(
            all[..3],
            [
                (0x40_0000, text("default")),
                (0x176_a000, text("weighted interleave:0-1")),
                (0x7f00_0000_0000, text("bind=static:1")),
            ]
        );
        write("zz default\n");
        assert!(policies(root.path(), 7).is_err());
        assert!(policies("/".as_ref(), crate::walker::own_pid()).unwrap().len() > 5);
    }
}
