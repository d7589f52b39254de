//! The targets of an operations set, by their id.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::time::Duration;

use isotherm_core::{OpsError, TargetId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::held::Held;
use crate::sys::process_cpu;

/// Processes that are held; an id is never used again.
#[derive(Debug)]
pub(crate) struct Targets<P> {
    processes: BTreeMap<TargetId, P>,
    next_id: u32,
}

impl<P> Default for Targets<P> {
    fn default() -> Self {
        Targets { processes: BTreeMap::new(), next_id: 0 }
    }
}

impl<P: Deref<Target = Held>> Targets<P> {
    pub fn add(&mut self, process: P) -> TargetId {
        let id = TargetId(self.next_id);
        self.next_id += 1;
        self.processes.insert(id, process);
        id
    }

    pub fn remove(&mut self, target: TargetId) {
        self.processes.remove(&target);
    }

    pub fn get(&mut self, target: TargetId) -> Result<&mut P, OpsError> {
        self.processes.get_mut(&target).ok_or(OpsError::NoTarget(target))
    }

    pub fn find(&self, target: TargetId) -> Option<&P> {
        self.processes.get(&target)
    }

    pub fn all(&mut self) -> impl Iterator<Item = &mut P> {
        self.processes.values_mut()
    }

    pub fn is_alive(&self, target: TargetId) -> bool {
        self.find(target).is_some_and(|p| !p.has_ended())
    }

    /// Those that have ended: asked at once, as one by one takes longer than all else where there are many.
    pub fn ended(&self) -> Vec<TargetId> {
        let all = self.processes.values();
        let mut fds: Vec<PollFd<'_>> =
            all.map(|p| PollFd::from_borrowed_fd(p.pidfd.as_fd(), PollFlags::IN)).collect();
        if poll(&mut fds, Some(&Timespec::default())).is_err() {
            // More than descriptors are allowed.
            return self.processes.keys().copied().filter(|&id| !self.is_alive(id)).collect();
        }
        let ended = self.processes.keys().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        ended.map(|(&id, _)| id).collect()
    }

    /// CPU time that a target has used since it began.
    pub fn ran(&self, target: TargetId) -> Option<Duration> {
        let process = self.find(target)?;
        process_cpu(process.pid).filter(|_| !process.has_ended())
    }
}
