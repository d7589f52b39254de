//! `/proc/PID/clear_refs`: clears the accessed bits of a whole process at once, also of shared memory,
//! without a TLB flush.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::{ProcError, pid_file};

/// The memory whose accessed bits are cleared. Other bits and the mappings do not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refs {
    /// all memory
    All,
    /// memory of files and shared memory
    Files,
}

/// The file, open for writing. It refers to the process, also after an `exec`.
#[derive(Debug)]
pub struct ClearRefs(File);

impl ClearRefs {
    /// Opens the file of `pid`.
    ///
    /// # Errors
    /// If there is no such process, or it belongs to another user and `CAP_DAC_OVERRIDE` is missing.
    pub fn open(root: &Path, pid: i32) -> Result<Self, ProcError> {
        let path = pid_file(root, pid, "clear_refs");
        let file = OpenOptions::new().write(true).open(&path);
        Ok(ClearRefs(file.map_err(|e| ProcError::read(&path, e))?))
    }

    /// Clears the bits. This takes about 13 ms per GiB. During this time the process can neither map memory nor
    /// fault.
    ///
    /// # Errors
    /// ESRCH if the process has ended.
    pub fn clear(&mut self, which: Refs) -> io::Result<()> {
        self.0.write_all(match which {
            Refs::All => b"1",
            Refs::Files => b"3",
        })
    }

    /// Flushes the TLBs of the process. The kernel command is the one that clears soft-dirty bits. So use it
    /// only on kernels without them ([`has_soft_dirty`](super::has_soft_dirty)), where it only flushes.
    ///
    /// # Errors
    /// ESRCH if the process has ended.
    pub fn flush(&mut self) -> io::Result<()> {
        self.0.write_all(b"4")
    }
}
