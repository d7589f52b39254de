//! Which processes have a file open, or map it.

use std::collections::HashSet;

use isotherm_core::{AddrRange, PAGE_SIZE};
use libbpf_rs::ProgramMut;

use super::{PageCache, PageCacheError};
use crate::walker::written;

/// Maximal number of bytes from one program: 4 million open files.
const LIMIT: usize = 160 << 20;

/// A process and a file that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileUser {
    /// identity of the file: [`super::CachedFile::id`]
    pub file: u64,
    /// the process, in the first pid namespace
    pub pid: i32,
}

/// A mapping of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappedPart {
    /// the file, and the process that maps it
    pub holder: FileUser,
    /// addresses in the process
    pub range: AddrRange,
    /// offset of the first byte in the file
    pub offset: u64,
}

impl PageCache {
    /// All files that processes have open or map, in the pid namespace of isotherm and those below it.
    ///
    /// # Errors
    /// If the program does not run.
    pub fn holders(&mut self) -> Result<HashSet<FileUser>, PageCacheError> {
        let progs = &self.skel.progs;
        let mut all = HashSet::new();
        for program in [&progs.list_open, &progs.list_mapped] {
            all.extend(listed(program)?.iter().map(|part| part.holder));
        }
        Ok(all)
    }

    /// All mappings of files, of the same processes.
    ///
    /// # Errors
    /// If the program does not run.
    pub fn mapped(&mut self) -> Result<Vec<MappedPart>, PageCacheError> {
        listed(&self.skel.progs.list_mapped)
    }
}

/// An open file or a mapping, as the program lists it. An open file has no range.
fn listed(program: &ProgramMut<'_>) -> Result<Vec<MappedPart>, PageCacheError> {
    let bytes = written(program, 0, LIMIT)
        .map_err(|e| PageCacheError::Run(format!("the list of open files: {e}")))?;
    let words = bytes.as_chunks::<8>().0;
    Ok(words.as_chunks().0.iter().map(|words| part(words.map(u64::from_ne_bytes))).collect())
}

/// The words of `struct holder` in `cache.bpf.c`.
fn part([file, pid, start, end, page]: [u64; 5]) -> MappedPart {
    MappedPart {
        holder: FileUser { file, pid: i32::try_from(pid).unwrap_or(0) },
        range: AddrRange { start, end },
        offset: page.saturating_mul(PAGE_SIZE),
    }
}
