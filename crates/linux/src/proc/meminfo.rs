//! `/proc/meminfo`: how much memory the machine has, and may still give away.

use std::path::Path;

use super::{ProcError, read_limited};

/// What isotherm wants of it, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemInfo {
    /// all that the kernel manages
    pub total: u64,
    /// in use for nothing
    pub free: u64,
    /// what may be allocated without swapping, as the kernel estimates
    pub available: u64,
}

/// Reads `/proc/meminfo`.
///
/// # Errors
/// If there is none, or it lacks what kernels tell since 3.14.
pub fn meminfo(root: &Path) -> Result<MemInfo, ProcError> {
    let path = root.join("proc/meminfo");
    let text = read_limited(&path, 64 << 10)?;
    parse(&text).ok_or_else(|| ProcError::parse(&path, &text))
}

fn parse(text: &str) -> Option<MemInfo> {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(MemInfo {
        total: bytes("MemTotal")?,
        free: bytes("MemFree")?,
        available: bytes("MemAvailable")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_lines_of_it() {
        let text = "MemTotal:       24626992 kB\nMemFree:        21187812 kB\nMemAvailable:   23101616 kB\n";
        let want = MemInfo {
            total: 24_626_992 << 10,
            free: 21_187_812 << 10,
            available: 23_101_616 << 10,
        };
        assert_eq!(parse(text), Some(want));
        assert_eq!(parse("MemTotal: 5 kB\n"), None, "it tells no more");
        let machine = meminfo("/".as_ref()).unwrap();
        assert!(machine.available <= machine.total && machine.free <= machine.total);
    }
}
