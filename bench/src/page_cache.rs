//! The page cache, in which a run may find nothing.

use std::fs::{self, File};
use std::path::Path;

use anyhow::Result;
use rustix::fs::{Advice, fadvise};

/// Removes the files of a folder from the cache.
pub fn drop_cache(dir: &Path) -> Result<()> {
    rustix::fs::sync();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            drop_cache(&path)?;
        } else if path.is_file() {
            fadvise(File::open(&path)?, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}
