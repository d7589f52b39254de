//! The straightforward way to see what a process accesses: `clear_refs`, then `smaps`.

use std::fs::{read_to_string, write};

use anyhow::{Context, Result};

/// Clears the accessed bits of all pages of process `pid`.
pub fn clear(pid: i32) -> Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    write(&path, "1").with_context(|| format!("cannot write {path}"))
}

/// Bytes of process `pid` that were accessed since they were cleared.
pub fn referenced(pid: i32) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps");
    let text = read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    Ok(sum(&text))
}

fn sum(smaps: &str) -> u64 {
    let lines = smaps.lines().filter_map(|l| l.strip_prefix("Referenced:"));
    let kib = lines.filter_map(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    kib.sum::<u64>() << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_mappings_count() {
        let text = "1000-3000 rw-p 0 0:0 0\nReferenced:          8 kB\nAnonymous: 4 kB\n\
                    5000-9000 rw-p 0 0:0 0 [heap]\nReferenced:         16 kB\n";
        assert_eq!(sum(text), 24 << 10);
    }

    #[test]
    fn what_is_touched_is_referenced() {
        let me = i32::try_from(std::process::id()).unwrap();
        assert!(referenced(me).unwrap() > 0);
    }
}
