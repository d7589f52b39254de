//! Which processes have a file open, or map it.

use std::collections::HashSet;

use super::{PageCache, PageCacheError};
use crate::walker::written;

/// Size of `struct holder` in `cache.bpf.c`.
const SIZE: usize = 16;
/// Maximal number of bytes from one program: 4 million open files.
const LIMIT: usize = 64 << 20;

/// A process and a file that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Holder {
    /// identity of the file: [`super::CachedFile::id`]
    pub file: u64,
    /// the process, in the first pid namespace
    pub pid: i32,
}

impl PageCache {
    /// All files that processes have open or map, in the pid namespace of isotherm and those below it.
    ///
    /// # Errors
    /// If the program does not run.
    pub fn holders(&mut self) -> Result<HashSet<Holder>, PageCacheError> {
        let progs = &self.skel.progs;
        let mut all = HashSet::new();
        for program in [&progs.list_open, &progs.list_mapped] {
            let bytes = written(program, 0, LIMIT)
                .map_err(|e| PageCacheError::Run(format!("the list of open files: {e}")))?;
            all.extend(bytes.as_chunks::<SIZE>().0.iter().filter_map(holder));
        }
        Ok(all)
    }
}

fn holder(bytes: &[u8; SIZE]) -> Option<Holder> {
    let (file, rest) = bytes.split_first_chunk::<8>()?;
    let pid = i32::from_ne_bytes(*rest.first_chunk()?);
    Some(Holder { file: u64::from_ne_bytes(*file), pid })
}
