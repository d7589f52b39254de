//! `/proc/PID/status`: what is in swap, and other fields.

use std::path::Path;

use super::{ProcError, pid_file, read_limited};

/// Groups of the process make it long: 65,536 of 11 bytes at most.
const LIMIT: u64 = 1 << 20;

/// The effective capabilities of a process, as a bit mask; 0 where the kernel has none.
///
/// # Errors
/// If there is no such process.
pub fn effective_capabilities(root: &Path, pid: i32) -> Result<u64, ProcError> {
    let mask = status_field(root, pid, "CapEff:")?;
    Ok(mask.and_then(|mask| u64::from_str_radix(&mask, 16).ok()).unwrap_or(0))
}

/// The value of a field of `pid`, whose name ends in a colon; `None` where the process or the kernel has no such
/// field.
///
/// # Errors
/// If there is no such process.
pub(crate) fn status_field(root: &Path, pid: i32, name: &str) -> Result<Option<String>, ProcError> {
    let text = read_limited(&pid_file(root, pid, "status"), LIMIT)?;
    Ok(text.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned()))
}

/// Bytes in a field of `pid`; 0 where the process or the kernel has no such field.
///
/// # Errors
/// If there is no such process, or the field is not a size.
fn bytes(root: &Path, pid: i32, name: &str) -> Result<u64, ProcError> {
    let Some(value) = status_field(root, pid, name)? else { return Ok(0) };
    let kib = value.strip_suffix(" kB").and_then(|kib| kib.parse::<u64>().ok());
    let line = || ProcError::parse(&pid_file(root, pid, "status"), &format!("{name} {value}"));
    kib.map(|kib| kib.saturating_mul(1024)).ok_or_else(line)
}

/// Bytes of anonymous memory of `pid` that are in swap; 0 where the process or the kernel has none.
///
/// # Errors
/// If there is no such process.
pub fn swapped(root: &Path, pid: i32) -> Result<u64, ProcError> {
    bytes(root, pid, "VmSwap:")
}

/// Bytes of memory that `pid` has locked: the whole length of locked ranges, resident or not.
///
/// # Errors
/// If there is no such process.
pub fn locked(root: &Path, pid: i32) -> Result<u64, ProcError> {
    bytes(root, pid, "VmLck:")
}
