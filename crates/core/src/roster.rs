//! The targets of a monitor, which come and go, and those who are told what it does.

use std::sync::Arc;
use std::time::Duration;

use crate::call::TargetId;
use crate::monitor::Observer;
use crate::ops::Liveness;
use crate::snapshot::Snapshot;
use crate::source::EndReason;

/// What a monitor knows of a target.
pub(crate) trait RosterMember {
    fn id(&self) -> TargetId;
}

/// The targets of a monitor, its observers, and whether it has ended.
pub(crate) struct Roster<T> {
    /// those that have not ended, by their ids
    pub targets: Vec<T>,
    observers: Vec<Box<dyn Observer>>,
    /// It goes on when all targets have ended.
    outlives: bool,
    ended: Option<EndReason>,
}

impl<T: RosterMember> Roster<T> {
    pub fn new() -> Self {
        Roster { targets: Vec::new(), observers: Vec::new(), outlives: false, ended: None }
    }

    /// Changes the targets: those that stay are kept, and those that come are made by `new`.
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

    /// Has `update` bring each target up to date: those that are gone leave, and with the last one the monitor ends.
    ///
    /// # Errors
    /// The first one of `update`: then all targets stay.
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

    /// From now on it goes on when all targets have ended.
    pub fn outlive_targets(&mut self) {
        self.outlives = true;
    }

    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observers.push(observer);
    }

    pub fn after_aggregation(&mut self, snapshot: &Arc<Snapshot>) {
        self.observers.iter_mut().for_each(|o| o.after_aggregation(snapshot));
    }

    /// The targets, and the observers that are told of them.
    pub fn split(&mut self) -> (&[T], &mut [Box<dyn Observer>]) {
        (&self.targets, &mut self.observers)
    }

    pub fn stop(&mut self) {
        self.end(EndReason::Stopped);
    }

    /// Nothing more will come; only the first reason counts.
    fn end(&mut self, why: EndReason) {
        if self.ended.is_none() {
            self.ended = Some(why);
            self.observers.iter_mut().for_each(|o| o.before_end(why));
        }
    }

    pub fn ended(&self) -> Option<EndReason> {
        self.ended
    }
}

/// For how long a target has run since the last snapshot, at which it had run for so long.
pub(crate) fn ran_since(last: &mut Option<Duration>, now: Option<Duration>) -> Option<Duration> {
    let ran = now.zip(*last).map(|(now, last)| now.saturating_sub(last));
    *last = now.or(*last);
    ran
}
