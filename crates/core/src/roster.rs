//! The targets of a monitor.

use std::time::Duration;

use crate::call::TargetId;
use crate::ops::Liveness;
use crate::source::EndReason;

/// The state that a monitor keeps for a target.
pub(crate) trait RosterMember {
    fn id(&self) -> TargetId;
}

/// The targets of a monitor, and the reason for its end.
pub(crate) struct Roster<T> {
    /// targets that have not ended, sorted by id
    pub targets: Vec<T>,
    /// The monitor continues after all targets have ended.
    outlives: bool,
    ended: Option<EndReason>,
}

impl<T: RosterMember> Roster<T> {
    pub fn new() -> Self {
        Roster { targets: Vec::new(), outlives: false, ended: None }
    }

    /// Changes the targets. Present targets keep their state; `new` makes the state of added ones.
    pub fn set(&mut self, ids: &[TargetId], new: impl Fn(TargetId) -> T) {
        self.targets.retain(|t| ids.contains(&t.id()));
        for &id in ids {
            if !self.has(id) {
                self.targets.push(new(id));
            }
        }
        self.targets.sort_by_key(T::id);
    }

    pub fn has(&self, id: TargetId) -> bool {
        self.targets.iter().any(|t| t.id() == id)
    }

    /// Calls `update` for each target. A target that is gone is removed; without any target left, the monitor
    /// ends.
    ///
    /// # Errors
    /// The first error of `update`; in this case no target is removed.
    pub fn update<E>(
        &mut self,
        mut update: impl FnMut(&mut T) -> Result<Liveness, E>,
    ) -> Result<(), E> {
        let mut gone = Vec::new();
        for t in &mut self.targets {
            if update(t)? == Liveness::Gone {
                gone.push(t.id());
            }
        }
        self.targets.retain(|t| !gone.contains(&t.id()));
        if self.targets.is_empty() && !self.outlives {
            self.end(EndReason::TargetsGone);
        }
        Ok(())
    }

    /// From now on, the monitor continues after all targets have ended.
    pub fn outlive_targets(&mut self) {
        self.outlives = true;
    }

    pub fn stop(&mut self) {
        self.end(EndReason::Stopped);
    }

    /// Ends the monitor; only the first reason counts.
    fn end(&mut self, why: EndReason) {
        self.ended.get_or_insert(why);
    }

    pub fn ended(&self) -> Option<EndReason> {
        self.ended
    }
}

/// Run time of a target since the last snapshot. `last` is its run time at that snapshot, and is updated.
pub(crate) fn ran_since(last: &mut Option<Duration>, now: Option<Duration>) -> Option<Duration> {
    let ran = now.zip(*last).map(|(now, last)| now.saturating_sub(last));
    *last = now.or(*last);
    ran
}
