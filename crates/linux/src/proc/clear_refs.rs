//! `/proc/PID/clear_refs`: clears the accessed bits of a whole process at once, of shared memory too,
//! without flushing the TLBs.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::{ProcError, pid_file};

/// Of which memory the accessed bits are cleared. Other bits and what is mapped stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refs {
    /// all
    All,
    /// what has a file or is shared
    Files,
}

/// The file, opened for writing. It stays with the process, also after an `exec`.
#[derive(Debug)]
pub struct ClearRefs(File);

impl ClearRefs {
    /// Opens that of `pid`.
    ///
    /// # Errors
    /// If there is no such process, or it is another user's and `CAP_DAC_OVERRIDE` is missing.
    pub fn open(root: &Path, pid: i32) -> Result<Self, ProcError> {
        let path = pid_file(root, pid, "clear_refs");
        let file = OpenOptions::new().write(true).open(&path);
        Ok(ClearRefs(file.map_err(|e| ProcError::read(&path, e))?))
    }

    /// Clears. Takes about 13 ms for 1 GiB, for which the process can neither map nor fault.
    ///
    /// # Errors
    /// ESRCH if the process is gone.
    pub fn clear(&mut self, which: Refs) -> io::Result<()> {
        self.0.write_all(match which {
            Refs::All => b"1",
            Refs::Files => b"3",
        })
    }

    /// Has the kernel flush the TLBs of the process. This is the command that clears soft-dirty bits:
    /// only for kernels that have none ([`has_soft_dirty`](super::has_soft_dirty)), where nothing is
    /// left of it but the flush.
    ///
    /// # Errors
    /// ESRCH if the process is gone.
    pub fn flush(&mut self) -> io::Result<()> {
        self.0.write_all(b"4")
    }
}
