//! Errors of reading the page cache.

use std::io;
use std::path::PathBuf;

use crate::proc::ProcError;

/// Why the page cache cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageCacheError {
    /// the kernel does not load the program
    #[error("the kernel rejects the BPF program that reads the page cache: {reason}. {help}")]
    Load {
        /// message of libbpf or the kernel
        reason: String,
        /// possible remedy
        help: String,
    },
    /// the program does not run
    #[error("the BPF program that reads the page cache does not run: {0}")]
    Run(String),
    /// the program found another result than the kernel reports
    #[error(
        "reading the page cache by BPF gives wrong results on this kernel, so isotherm does not use it: \
         {0}"
    )]
    Proof(String),
    /// a file system changes too fast
    #[error(
        "the list of files of {0} has changed during each of {1} attempts to read it: try again when \
         fewer files are created and removed, or name a folder of another file system"
    )]
    Restless(String, u32),
    /// a file or folder cannot be used
    #[error("cannot {what} {path}: {source}")]
    Path {
        /// the attempted operation
        what: &'static str,
        /// the file or folder
        path: PathBuf,
        /// the error of the system call
        source: io::Error,
    },
    /// a file of the kernel cannot be read
    #[error(transparent)]
    Proc(#[from] ProcError),
}

impl PageCacheError {
    /// An error of a system call about a path.
    pub(crate) fn path(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| PageCacheError::Path { what, path, source }
    }
}
