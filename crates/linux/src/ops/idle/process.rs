//! Processes on kernels with idle page tracking, observed by the frames of their pages.

use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::{
    Ask, Cost, Liveness, Look, Mapping, OpsError, PAGE_SIZE, Seen, Space, TargetId, Unknown,
};

use super::tracking::{Tracking, Window};
use crate::ops::held::AttachError;
use crate::ops::processes::{Hold, hold_by_targets};
use crate::ops::procfs_process::ProcfsProcess;
use crate::ops::targets::ProcessTable;
use crate::proc::{Pagemap, ProcError};
use crate::sys::{CpuLaps, OwnPages, monotonic};
use crate::walker::own_pid;

/// Why idle page tracking cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdleError {
    /// The kernel has no readable idle page bitmap.
    #[error(
        "idle page tracking is not available: {0}. It requires a kernel built with \
         CONFIG_IDLE_PAGE_TRACKING, and root"
    )]
    NoBitmap(#[from] ProcError),
    /// The kernel hides frame numbers from isotherm.
    #[error("the kernel hides page frames from this process: reading them requires CAP_SYS_ADMIN")]
    NoFrames,
}

/// The operations set for processes on kernels with idle page tracking. It also observes memory that is mapped
/// more than once: such a page counts as accessed if any process that maps it has accessed it.
pub struct Idle {
    tracking: Tracking,
    root: PathBuf,
    targets: ProcessTable<ProcfsProcess>,
    cpu: CpuLaps,
}

impl Idle {
    /// An operations set without targets.
    ///
    /// # Errors
    /// If the kernel has no idle page bitmap, or isotherm may not use it.
    pub fn new(root: &Path) -> Result<Self, IdleError> {
        let tracking = Tracking::open(root)?;
        let failed = |source| ProcError::Read { path: "memory of our own".into(), source };
        let mut own = OwnPages::map(1).map_err(failed)?;
        own.write(0, 1);
        let entry = Pagemap::open(root, own_pid())?.read(own.range(0, 1)).next();
        if entry.is_none_or(|e| e.frame() == 0) {
            return Err(IdleError::NoFrames);
        }
        let root = root.to_owned();
        Ok(Idle { tracking, root, targets: ProcessTable::default(), cpu: CpuLaps::begin() })
    }
}

/// Reads a window of `process`.
fn read(tracking: &Tracking, process: &mut ProcfsProcess, ask: &Ask) -> Result<Window, OpsError> {
    let dropped = || Ok(Window::known(Seen::default()));
    let Some(unknown) = process.mapping_at(ask.range.start).map(|m| m.unknown) else {
        return dropped();
    };
    let entries: Vec<_> = process.pagemap.read(ask.range).collect();
    if entries.len() as u64 != ask.range.len() / PAGE_SIZE {
        return dropped();
    }
    let frames: Vec<u64> = entries.iter().filter(|e| e.is_present()).map(|e| e.frame()).collect();
    let pages = u32::try_from(entries.len()).unwrap_or(u32::MAX);
    // Idle page tracking can observe locked memory, because it works by frame.
    if let Some(why) = unknown.filter(|&why| why != Unknown::Mlocked) {
        let read_at = monotonic();
        let mut seen = Seen { pages, read_at, cleared_at: read_at, ..Seen::default() };
        seen.unknown.0[why.index()] = u32::try_from(frames.len()).unwrap_or(u32::MAX);
        return Ok(Window::known(seen));
    }
    tracking.read(pages, &frames)
}

impl Hold for Idle {
    fn attach(&mut self, pid: i32) -> Result<TargetId, AttachError> {
        let process = ProcfsProcess::attach(&self.root, pid)?;
        Ok(self.targets.add(process))
    }

    hold_by_targets!(targets);
}

impl Look for Idle {
    fn look(&mut self, asks: &[Ask], out: &mut Vec<Seen>) -> Result<Cost, OpsError> {
        let Idle { tracking, targets, cpu, .. } = self;
        let cost = tracking
            .look(asks, out, |tracking, ask| read(tracking, targets.get(ask.target)?, ask))?;
        Ok(Cost { cpu: cpu.lap(), ..cost })
    }
}

impl Space for Idle {
    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<Liveness, OpsError> {
        let process = self.targets.get(target)?;
        process.mappings_into(out)
    }

    fn ran(&mut self, target: TargetId) -> Option<Duration> {
        self.targets.ran(target)
    }
}
