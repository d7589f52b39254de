//! Targets that change while a kdamond runs.

use std::time::Duration;

use isotherm_core::{Nanos, TargetId};

use super::Kdamond;
use crate::damon::error::DamonError;
use crate::damon::members::Member;
use crate::damon::sysfs::Operations;
use crate::sys::monotonic;

/// Targets change at most once in this many aggregation intervals: a change ends the current interval, so that
/// with many short-lived children there would never be a result.
const CHANGE_INTERVALS: u32 = 4;
/// Before Linux 6.15, the kernel answers to a change after one aggregation interval, and nothing interrupts
/// that wait. If the interval is longer than this, isotherm restarts the kdamond instead.
const MAX_COMMIT_WAIT: Duration = Duration::from_secs(1);

impl Kdamond {
    /// Sets the processes to watch. The knowledge about processes that stay is kept if none has ended or is
    /// removed. Otherwise the kdamond is restarted, because DAMON identifies targets by their position. A
    /// process that has ended is skipped. New processes in quick succession wait for a few aggregation
    /// intervals.
    ///
    /// # Errors
    /// If a process is new and the kdamond does not watch whole address spaces, or if the kernel refuses.
    pub fn set_targets(&mut self, targets: &[(TargetId, i32)]) -> Result<(), DamonError> {
        let wanted = |m: &Member| targets.iter().any(|&(id, _)| id == m.id);
        self.members.iter_mut().for_each(|m| m.dropped |= !wanted(m));
        self.waiting = Some(targets.to_vec());
        self.take_waiting(monotonic())
    }

    /// Adds the waiting targets if that is due.
    pub(super) fn take_waiting(&mut self, now: Nanos) -> Result<(), DamonError> {
        // If no target remains, there is no knowledge to keep.
        let due = now >= self.next_change || self.members.iter().all(Member::is_over);
        let Some(targets) = self.waiting.take_if(|_| due) else {
            return Ok(());
        };
        let is_new = |id: &TargetId| !self.members.iter().any(|m| m.id == *id);
        let mut added = Vec::new();
        for &(id, pid) in targets.iter().filter(|(id, _)| is_new(id)) {
            if self.operations != Operations::Vaddr {
                return Err(DamonError::FixedTargets);
            }
            added.extend(Member::process(&self.root, id, pid)?);
        }
        if added.is_empty() {
            return Ok(());
        }
        self.next_change = now + self.clock.pace() * CHANGE_INTERVALS;
        let whole = !self.members.is_empty()
            && !self.members.iter().any(Member::is_over)
            && self.attrs.interval() <= MAX_COMMIT_WAIT;
        self.members.extend(added);
        self.next_update = Nanos(0);
        if whole {
            self.own_kdamond.set_up(&self.context())?;
            // The kernel refuses, and may stop, if a target has ended in the meantime.
            if self.own_kdamond.commit().is_ok() && self.own_kdamond.is_running() {
                self.committed = true;
                return Ok(());
            }
        }
        self.restart()
    }

    pub(super) fn restart(&mut self) -> Result<(), DamonError> {
        self.own_kdamond.stop()?;
        self.reader.forget()?;
        self.begin()
    }
}
