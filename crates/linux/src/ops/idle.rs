//! Idle page tracking: the kernel asks all who map a page, by its frame.

use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::{
    Ask, Cost, Liveness, Look, Mapping, OpsError, PAGE_SIZE, Seen, Space, TargetId, Unknown,
};

use super::held::AttachError;
use super::plain::Plain;
use super::processes::Hold;
use super::targets::Targets;
use crate::proc::{IdleBitmap, Pagemap, ProcError};
use crate::sys::{CpuLaps, OwnPages, monotonic};
use crate::walker::own_pid;

/// Why idle page tracking cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdleError {
    /// no bitmap
    #[error(
        "idle page tracking is not to be had: {0}. It takes a kernel built with CONFIG_IDLE_PAGE_TRACKING, and root"
    )]
    NoBitmap(#[from] ProcError),
    /// frames are hidden
    #[error("page frames are hidden from this process: that takes CAP_SYS_ADMIN")]
    NoFrames,
}

/// The operations set for processes on kernels with idle page tracking. Memory mapped more than once
/// is seen, over all who map it.
pub struct Idle {
    bitmap: IdleBitmap,
    root: PathBuf,
    targets: Targets<Plain>,
    cpu: CpuLaps,
}

impl Idle {
    /// An operations set without targets.
    ///
    /// # Errors
    /// If the kernel has no such bitmap, or we may not use it.
    pub fn new(root: &Path) -> Result<Self, IdleError> {
        let bitmap = IdleBitmap::open(root)?;
        let failed = |source| ProcError::Read { path: "memory of our own".into(), source };
        let mut own = OwnPages::map(1).map_err(failed)?;
        own.write(0, 1);
        let entry = Pagemap::open(root, own_pid())?.read(own.range(0, 1)).next();
        if entry.is_none_or(|e| e.frame() == 0) {
            return Err(IdleError::NoFrames);
        }
        let root = root.to_owned();
        Ok(Idle { bitmap, root, targets: Targets::default(), cpu: CpuLaps::begin() })
    }

    fn look_at(&mut self, ask: &Ask) -> Result<Seen, OpsError> {
        let process = self.targets.get(ask.target)?;
        let Some(unknown) = process.mapping_at(ask.range.start).map(|m| m.unknown) else {
            return Ok(Seen::default());
        };
        let entries: Vec<_> = process.pagemap.read(ask.range).collect();
        let frames: Vec<u64> =
            entries.iter().filter(|e| e.is_present()).map(|e| e.frame()).collect();
        let pages = u32::try_from(ask.range.len() / PAGE_SIZE).unwrap_or(u32::MAX);
        let present = u32::try_from(frames.len()).unwrap_or(u32::MAX);
        if entries.len() as u64 != ask.range.len() / PAGE_SIZE {
            return Ok(Seen::default());
        }
        let failed = |e: std::io::Error| OpsError::Failed(format!("the idle page bitmap: {e}"));
        let read_at = monotonic();
        let mut seen = Seen { pages, read_at, cleared_at: read_at, ..Seen::default() };
        // What is locked can be seen by frame.
        if let Some(why) = unknown.filter(|&why| why != Unknown::Mlocked) {
            seen.unknown.0[why.index()] = present;
            return Ok(seen);
        }
        let tracked = self.bitmap.are_tracked(&frames).map_err(failed)?;
        let frames: Vec<u64> =
            frames.iter().zip(&tracked).filter(|(_, tracked)| **tracked).map(|(f, _)| *f).collect();
        let seen_pages = u32::try_from(frames.len()).unwrap_or(u32::MAX);
        seen.unknown.0[Unknown::Unseen.index()] = present - seen_pages;
        let idle = self.bitmap.are_idle(&frames).map_err(failed)?;
        let young: Vec<u64> =
            frames.iter().zip(&idle).filter(|(_, idle)| !**idle).map(|(f, _)| *f).collect();
        seen.present = seen_pages;
        seen.young = u32::try_from(young.len()).unwrap_or(u32::MAX);
        if ask.clear {
            self.bitmap.mark(&young).map_err(failed)?;
            seen.cleared_at = monotonic();
        }
        Ok(seen)
    }
}

impl Hold for Idle {
    fn attach(&mut self, pid: i32) -> Result<TargetId, AttachError> {
        let process = Plain::attach(&self.root, pid)?;
        Ok(self.targets.add(process))
    }

    fn is_alive(&self, target: TargetId) -> bool {
        self.targets.is_alive(target)
    }

    fn detach(&mut self, target: TargetId) {
        self.targets.remove(target);
    }
}

impl Look for Idle {
    fn look(&mut self, asks: &[Ask], out: &mut Vec<Seen>) -> Result<Cost, OpsError> {
        let mut cost = Cost::default();
        for ask in asks {
            out.push(self.look_at(ask)?);
            cost.pages += ask.range.len() / PAGE_SIZE;
        }
        cost.cpu = self.cpu.lap();
        Ok(cost)
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
