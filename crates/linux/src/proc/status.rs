//! `/proc/PID/status`: what is in swap.

use std::path::Path;

use super::{ProcError, pid_file, read_limited};

/// Groups of the process make it long: 65,536 of 11 bytes at most.
const LIMIT: u64 = 1 << 20;

/// Bytes of anonymous memory of `pid` that are in swap; 0 where the process or the kernel has none.
///
/// # Errors
/// If there is no such process.
pub fn swapped(root: &Path, pid: i32) -> Result<u64, ProcError> {
    let path = pid_file(root, pid, "status");
    let text = read_limited(&path, LIMIT)?;
    let Some(line) = text.lines().find_map(|line| line.strip_prefix("VmSwap:")) else {
        return Ok(0);
    };
    let kib = line.trim().strip_suffix(" kB").and_then(|kib| kib.parse::<u64>().ok());
    kib.map(|kib| kib.saturating_mul(1024)).ok_or_else(|| ProcError::parse(&path, line))
}
