//! Options of all commands that watch files.

use std::path::PathBuf;

use clap::Args;
use isotherm::page_cache::FileScope;

use super::{Targets, UsageError};

/// Options that select processes, or are about them.
pub const OF_PROCESSES: [&str; 9] = [
    "pid",
    "cgroup",
    "comm",
    "all",
    "command",
    "children",
    "except_comm",
    "except_cgroup",
    "except_pid",
];

/// The files to watch.
#[derive(Debug, Args)]
pub struct FileTargets {
    /// Watch which parts of this file are read, written or accessed through mappings, by any process; addresses
    /// are offsets in the file; repeatable
    #[arg(long, value_name = "PATH")]
    pub file: Vec<PathBuf>,
    /// Watch the cached files of this folder and below it like --file; repeatable
    #[arg(long, value_name = "DIR")]
    pub dir: Vec<PathBuf>,
    /// Watch the cached files of the file system that holds this path like --file
    #[arg(long, value_name = "DIR")]
    #[arg(conflicts_with_all = ["file", "dir", "cached"])]
    pub mount: Option<PathBuf>,
    /// Watch all cached files of the machine like --file
    #[arg(long, conflicts_with_all = ["file", "dir"])]
    pub cached: bool,
}

impl FileTargets {
    /// Whether no file is selected.
    pub fn is_empty(&self) -> bool {
        !self.cached && self.mount.is_none() && self.file.is_empty() && self.dir.is_empty()
    }

    /// The files as the library's type. If `targets` select control groups, only pages that are charged to
    /// these count.
    pub fn scope(&self, targets: &Targets) -> Result<FileScope, UsageError> {
        let processes = targets.selection(false);
        if !self.is_empty() && processes.is_empty() && (processes.excludes() || targets.children) {
            let text = "--children, --except-comm, --except-cgroup and --except-pid are about processes: leave them \
                        out, or also select processes";
            return Err(UsageError::new(text));
        }
        if let Some(path) = self.file.iter().find(|path| path.is_dir()) {
            let path = path.display();
            return Err(UsageError::new(format!("{path} is a folder: give it with --dir")));
        }
        if let Some(path) = self.dir.iter().find(|path| path.is_file()) {
            let path = path.display();
            return Err(UsageError::new(format!("{path} is a file: give it with --file")));
        }
        let paths = self.file.iter().chain(&self.dir).cloned().collect();
        Ok(FileScope { paths, mount: self.mount.clone(), cgroups: targets.cgroup.clone() })
    }
}
