//! The targets of an operations set, by their id.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use isotherm_core::{OpsError, TargetId};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::held::{HeldProcess, Postponed};
use crate::sys::process_cpu;

/// Held processes; an id is never used again.
#[derive(Debug)]
pub(crate) struct ProcessTable<P> {
    processes: BTreeMap<TargetId, P>,
    next_id: u32,
    /// epoll instance with the pidfds of all targets; `None` if it could not be set up
    ends: Option<OwnedFd>,
    /// of targets that were removed
    postponed: Postponed,
}

impl<P> Default for ProcessTable<P> {
    fn default() -> Self {
        let ends = epoll::create(CreateFlags::CLOEXEC).ok();
        ProcessTable {
            processes: BTreeMap::new(),
            next_id: 0,
            ends,
            postponed: Postponed::default(),
        }
    }
}

impl<P: Deref<Target = HeldProcess>> ProcessTable<P> {
    pub fn add(&mut self, process: P) -> TargetId {
        let id = TargetId(self.next_id);
        self.next_id += 1;
        let is_added = self.ends.as_ref().is_some_and(|ends| {
            let data = EventData::new_u64(id.0.into());
            epoll::add(ends, &process.pidfd, data, EventFlags::IN).is_ok()
        });
        if !is_added {
            // From now on, each target is checked separately.
            self.ends = None;
        }
        self.processes.insert(id, process);
        id
    }

    /// Removes a target. Closing its pidfd also removes it from `ends`.
    pub fn remove(&mut self, target: TargetId) {
        if let Some(removed) = self.processes.remove(&target) {
            self.postponed += &removed.postponed();
        }
    }

    /// Readings that failed for a temporary reason, of all current and former targets.
    pub fn postponed(&self) -> Postponed {
        let mut all = self.postponed.clone();
        self.processes.values().for_each(|p| all += &p.postponed());
        all
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

    /// The targets that have ended, sorted. Checking thousands of targets one by one would take longer than all
    /// other work.
    pub fn ended(&self) -> Vec<TargetId> {
        let mut events = Vec::with_capacity(self.processes.len().max(1));
        let at_once = Some(&Timespec { tv_sec: 0, tv_nsec: 0 });
        let waited = |ends| epoll::wait(ends, spare_capacity(&mut events), at_once).ok();
        if self.ends.as_ref().and_then(waited).is_none() {
            return self.processes.keys().copied().filter(|&id| !self.is_alive(id)).collect();
        }
        let id = |e: &epoll::Event| u32::try_from(e.data.u64()).ok().map(TargetId);
        let is_held = |id: &TargetId| self.processes.contains_key(id);
        let mut ended: Vec<TargetId> = events.iter().filter_map(id).filter(is_held).collect();
        ended.sort_unstable();
        ended
    }

    /// A descriptor that is readable while an ended target is held; `None` if the caller has to check each
    /// target.
    pub fn ends(&self) -> Option<BorrowedFd<'_>> {
        self.ends.as_ref().map(AsFd::as_fd)
    }

    /// CPU time that a target has used since it started; `None` if it has ended.
    pub fn ran(&self, target: TargetId) -> Option<Duration> {
        let process = self.find(target)?;
        process_cpu(process.pid).filter(|_| !process.has_ended())
    }
}
