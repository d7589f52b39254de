//! The page cache, in which a run may find nothing, and how much was read from the disk.

use std::fs::{self, File};
use std::path::Path;

use anyhow::Result;
use rustix::fs::{Advice, fadvise};

use crate::limited::Limited;

/// Removes the files of a folder from the cache.
pub fn drop_cache(dir: &Path) -> Result<()> {
    rustix::fs::sync();
    each_file(dir, &|file| Ok(fadvise(file, 0, None, Advice::DontNeed)?))
}

/// Reads the files of a folder into the cache.
pub fn fill_cache(dir: &Path) -> Result<()> {
    each_file(dir, &|mut file| Ok(std::io::copy(&mut file, &mut std::io::sink()).map(drop)?))
}

fn each_file(dir: &Path, with: &dyn Fn(File) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            each_file(&path, with)?;
        } else if path.is_file() {
            with(File::open(&path)?)?;
        }
    }
    Ok(())
}

/// Page cache of a group, without its shared memory, in bytes.
pub fn file_cache(group: &Limited) -> Result<u64> {
    let stat = group.group().memory_stat()?;
    Ok(stat.active_file + stat.inactive_file)
}

/// Bytes that a process has read from the disk, and those of its children that ended.
pub fn read_bytes(pid: &str) -> Option<u64> {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    io.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok())
}
