//! The targets of a monitor.

use std::collections::BTreeSet;
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
        let ids: BTreeSet<TargetId> = ids.iter().copied().collect();
        self.targets.retain(|t| ids.contains(&t.id()));
        let added: Vec<T> = ids.into_iter().filter(|id| !self.has(*id)).map(new).collect();
        self.targets.extend(added);
        self.targets.sort_by_key(T::id);
    }

    /// Index of a target.
    pub fn position(&self, id: TargetId) -> Option<usize> {
        self.targets.binary_search_by_key(&id, T::id).ok()
    }

    pub fn has(&self, id: TargetId) -> bool {
        self.position(id).is_some()
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
        let mut gone = BTreeSet::new();
        for t in &mut self.targets {
            if update(t)? == Liveness::Gone {
                gone.insert(t.id());
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static ASKED: Cell<usize> = const { Cell::new(0) };
    }

    struct Member(TargetId);

    impl RosterMember for Member {
        fn id(&self) -> TargetId {
            ASKED.set(ASKED.get() + 1);
            self.0
        }
    }

    /// To set the targets looked at all others for each one of them.
    #[test]
    fn a_target_is_found_among_thousands_by_few_looks() {
        const N: u32 = 5000;
        let asked = |n: u32| {
            ASKED.set(0);
            let mut roster = Roster::new();
            let ids: Vec<TargetId> = (0..n).rev().chain([7]).map(TargetId).collect();
            roster.set(&ids, Member);
            roster.set(&ids[1..], Member);
            let ended = |m: &mut Member| match m.0.0 % 2 {
                0 => Liveness::Gone,
                _ => Liveness::Alive,
            };
            roster.update(|m| Ok::<_, ()>(ended(m))).unwrap();
            let left: Vec<u32> = roster.targets.iter().map(|m| m.0.0).collect();
            assert_eq!(left, (0..n - 1).filter(|n| n % 2 == 1).collect::<Vec<_>>());
            assert!(roster.has(TargetId(7)) && !roster.has(TargetId(n)));
            ASKED.get() / n as usize
        };
        let (few, many) = (asked(50), asked(N));
        assert!(many <= 4 * few, "{many} instead of {few} questions for each target");
    }
}
