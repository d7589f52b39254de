//! The record of a scheme's actions. The kernel resets the age of a region after an action. Here the monitor
//! owns the regions and continues to count their ages, so schemes keep a record of their own.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::stats::SkipReason;
use crate::act::Action;
use crate::call::TargetId;
use crate::range::AddrRange;
use crate::snapshot::{RegionView, Snapshot};
use crate::time::Nanos;

/// Failed actions are not retried for this time, and actions that were undone are not repeated for this time.
pub(super) const PAUSE: Duration = Duration::from_secs(10);
/// Number of remembered ranges per target from which the next turn drops the record of the target. Earlier actions are
/// then tried again, without effect.
const MAX_RANGES: usize = 1 << 16;

/// The result of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ActionResult {
    /// it succeeded
    Succeeded,
    /// it succeeded on no byte
    NoEffect,
    /// All pages were rejected by page filters or a second look; they may reach the requested age later.
    Skipped,
}

/// The time and the result of an action on a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Act {
    at: Nanos,
    came: ActionResult,
}

/// A range and the last act on it.
type ActedRange = (Range<u64>, Act);

/// Ranges that were acted on, by target: disjoint, in order of address. Turns act on most of them again and again, so all
/// acts of a turn are noted at once.
#[derive(Debug, Clone, Default)]
pub(super) struct Acted(BTreeMap<TargetId, Vec<ActedRange>>);

/// Inputs for the decision whether to act again on memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct RetryConditions<'a> {
    pub action: &'a Action,
    /// time after which an action that may be undone is checked again
    pub pause: Duration,
    /// Page filters select by the age of each page: that of the region does not matter.
    pub by_page: bool,
    pub view: &'a RegionView,
    /// time of the snapshot that contains `view`
    pub seen: Nanos,
    pub now: Nanos,
}

impl Acted {
    /// Notes acts on disjoint ranges, in order of target and address.
    pub fn note(&mut self, at: Nanos, acts: &[(TargetId, AddrRange, ActionResult)]) {
        for acts in acts.chunk_by(|a, b| a.0 == b.0) {
            let Some((target, ..)) = acts.first() else { continue };
            let ranges = self.0.entry(*target).or_default();
            if ranges.len() >= MAX_RANGES {
                ranges.clear();
            }
            let new = acts
                .iter()
                .filter_map(|(_, range, came)| Some((range.non_empty()?, Act { at, came: *came })));
            *ranges = overwritten(std::mem::take(ranges), new);
        }
    }

    /// Drops the record of targets that are not in `snapshot`: they have ended.
    pub fn keep(&mut self, snapshot: &Snapshot) {
        let there = |id: &TargetId| snapshot.targets.binary_search_by_key(id, |t| t.id).is_ok();
        self.0.retain(|id, _| there(id));
    }

    /// The parts of `range` that must not be acted on now, with the reason.
    pub fn blocked<'a>(
        &'a self,
        target: TargetId,
        range: Range<u64>,
        again: RetryConditions<'a>,
    ) -> impl Iterator<Item = (Range<u64>, SkipReason)> + 'a {
        self.within(target, range).filter_map(move |(r, act)| again.blocks(act).map(|why| (r, why)))
    }

    /// The parts of `range` that were acted on.
    pub fn all(
        &self,
        target: TargetId,
        range: Range<u64>,
    ) -> impl Iterator<Item = Range<u64>> + '_ {
        self.within(target, range).map(|(r, _)| r)
    }

    fn within(
        &self,
        target: TargetId,
        range: Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, &Act)> + '_ {
        let all = self.0.get(&target).map(Vec::as_slice).unwrap_or_default();
        let from = all.partition_point(|(r, _)| r.end <= range.start);
        let cut = move |r: &Range<u64>| r.start.max(range.start)..r.end.min(range.end);
        let here = all.iter().skip(from).take_while(move |(r, _)| r.start < range.end);
        here.map(move |(r, act)| (cut(r), act))
    }
}

/// The ranges of `old` and `new`, both disjoint and in order; where they overlap, those of `new`.
fn overwritten(old: Vec<ActedRange>, new: impl Iterator<Item = ActedRange>) -> Vec<ActedRange> {
    let mut all: Vec<ActedRange> = Vec::with_capacity(old.len());
    let mut push = |range: Range<u64>, act: Act| match all.last_mut() {
        _ if range.is_empty() => {}
        Some((last, same)) if last.end == range.start && *same == act => last.end = range.end,
        _ => all.push((range, act)),
    };
    let mut old = old.into_iter();
    let mut next = old.next();
    for (range, act) in new {
        while let Some((before, was)) = next.take_if(|(before, _)| before.start < range.end) {
            push(before.start..before.end.min(range.start), was);
            let is_longer = before.end > range.end;
            next = if is_longer { Some((range.end..before.end, was)) } else { old.next() };
        }
        push(range, act);
    }
    next.into_iter().chain(old).for_each(|(range, act)| push(range, act));
    all
}

impl RetryConditions<'_> {
    fn blocks(&self, act: &Act) -> Option<SkipReason> {
        let since = self.now.since(act.at);
        if act.came == ActionResult::NoEffect {
            return (since < PAUSE).then_some(SkipReason::InVain);
        }
        // A region older than the act has kept its heat since the act.
        let changed = !self.by_page && self.view.age < self.seen.since(act.at);
        let changed = changed && (since >= self.pause || !leaves_no_trace(self.action));
        let again = match act.came {
            ActionResult::Skipped => since >= self.pause,
            _ if self.by_page && !leaves_no_trace(self.action) => since >= self.pause,
            _ => self.is_undone(since),
        };
        (!changed && !again).then_some(SkipReason::Done)
    }

    /// Whether the action may have been undone. Memory that was paged out or read in may be back in its old state,
    /// which the next snapshot shows. A touch activates deactivated memory. In this case the time since the action
    /// counts as its age, as in the kernel. Reclaim deactivates memory that was moved up.
    fn is_undone(&self, since: Duration) -> bool {
        let may_be = match self.action {
            Action::PageOut | Action::WillNeed => true,
            Action::Cold | Action::LruDeprio | Action::LruPrio => self.view.accesses_bp > 0,
            _ => false,
        };
        may_be && since >= self.pause
    }
}

/// Whether the effect of the action is invisible to a later look: page tables do not show the lists of reclaim,
/// and memory that was read ahead may be evicted at once. Without a pause, memory whose age stays near zero would
/// be acted on with each snapshot.
pub(super) fn leaves_no_trace(action: &Action) -> bool {
    match action {
        Action::WillNeed | Action::Cold | Action::LruDeprio | Action::LruPrio => true,
        Action::PageOut
        | Action::HugePage
        | Action::NoHugePage
        | Action::MigrateHot(_)
        | Action::MigrateCold(_)
        | Action::Stat => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{pages, snapshot, target, view};
    use super::*;

    const T: TargetId = TargetId(1);

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn at(seconds: u64) -> Nanos {
        Nanos(0) + s(seconds)
    }

    /// Whether an action at 100 s blocks another one at `now`, if its region has been at `hz` for `age`
    /// seconds, with a pause of 30 s.
    fn blocked(
        action: &Action,
        came: ActionResult,
        now: u64,
        hz: f64,
        age: u64,
    ) -> Option<SkipReason> {
        blocked_by(false, action, came, now, hz, age)
    }

    /// The same, with or without page filters that select by age.
    fn blocked_by(
        by_page: bool,
        action: &Action,
        came: ActionResult,
        now: u64,
        hz: f64,
        age: u64,
    ) -> Option<SkipReason> {
        let mut acted = Acted::default();
        acted.note(at(100), &[(T, pages(0, 8), came)]);
        let view = view(0, 8, hz, s(age));
        let (seen, now) = (at(now), at(now));
        let again = RetryConditions { action, pause: s(30), by_page, view: &view, seen, now };
        acted.blocked(T, 0..8 * 4096, again).next().map(|b| b.1)
    }

    #[test]
    fn applied_regions_stay_applied_until_heat_changes() {
        for action in [Action::Cold, Action::HugePage, Action::LruPrio] {
            assert_eq!(
                blocked(&action, ActionResult::Succeeded, 101, 0.0, 60),
                Some(SkipReason::Done)
            );
            assert_eq!(
                blocked(&action, ActionResult::Succeeded, 5000, 0.0, 4960),
                Some(SkipReason::Done)
            );
            assert_eq!(
                blocked(&action, ActionResult::Succeeded, 5000, 0.0, 40),
                None,
                "it was touched in between"
            );
        }
        assert_eq!(
            blocked(&Action::HugePage, ActionResult::Succeeded, 5000, 50.0, 4960),
            Some(SkipReason::Done)
        );
    }

    #[test]
    fn undone_regions_are_applied_again_after_their_pause() {
        assert_eq!(
            blocked(&Action::Cold, ActionResult::Succeeded, 129, 0.1, 400),
            Some(SkipReason::Done)
        );
        assert_eq!(blocked(&Action::Cold, ActionResult::Succeeded, 130, 0.1, 400), None);
        assert_eq!(
            blocked(&Action::PageOut, ActionResult::Succeeded, 129, 0.0, 400),
            Some(SkipReason::Done)
        );
        assert_eq!(blocked(&Action::PageOut, ActionResult::Succeeded, 130, 0.0, 400), None);
    }

    /// Its age is near zero in each snapshot: it changes all the time, or has none.
    #[test]
    fn actions_without_trace_have_a_pause() {
        for action in [Action::WillNeed, Action::Cold, Action::LruDeprio, Action::LruPrio] {
            for now in 101..130 {
                assert_eq!(
                    blocked(&action, ActionResult::Succeeded, now, 20.0, 0),
                    Some(SkipReason::Done),
                    "{now}"
                );
            }
            assert_eq!(blocked(&action, ActionResult::Succeeded, 130, 20.0, 0), None);
        }
    }

    #[test]
    fn pages_with_ages_of_their_own_are_looked_at_after_each_pause() {
        for action in [Action::PageOut, Action::NoHugePage] {
            let blocked =
                |now, age| blocked_by(true, &action, ActionResult::Succeeded, now, 50.0, age);
            assert_eq!(
                blocked(110, 5),
                Some(SkipReason::Done),
                "the age of the region does not matter"
            );
            assert_eq!(blocked(129, 1), Some(SkipReason::Done));
            assert_eq!([blocked(130, 1), blocked(130, 500)], [None; 2]);
        }
    }

    #[test]
    fn skipped_regions_are_tried_again() {
        for action in [Action::Cold, Action::NoHugePage, Action::PageOut] {
            let blocked = |now| blocked_by(true, &action, ActionResult::Skipped, now, 0.0, now);
            assert_eq!(blocked(129), Some(SkipReason::Done));
            assert_eq!(blocked(130), None);
        }
    }

    #[test]
    fn failed_regions_have_a_pause() {
        assert_eq!(
            blocked(&Action::PageOut, ActionResult::NoEffect, 109, 0.0, 60),
            Some(SkipReason::InVain)
        );
        assert_eq!(blocked(&Action::PageOut, ActionResult::NoEffect, 110, 0.0, 60), None);
    }

    #[test]
    fn only_applied_memory_is_skipped() {
        let mut acted = Acted::default();
        acted.note(at(100), &[(T, pages(2, 2), ActionResult::Succeeded)]);
        acted.note(at(100), &[(T, pages(6, 10), ActionResult::NoEffect)]);
        let view = view(0, 8, 0.0, s(500));
        let (seen, now, action) = (at(101), at(101), &Action::Cold);
        let again =
            RetryConditions { action, pause: PAUSE, by_page: false, view: &view, seen, now };
        let page = |r: Range<u64>| r.start / 4096..r.end / 4096;
        let found: Vec<_> =
            acted.blocked(T, 0..8 * 4096, again).map(|(r, why)| (page(r), why)).collect();
        assert_eq!(found, [(2..4, SkipReason::Done), (6..8, SkipReason::InVain)]);
        assert_eq!(acted.blocked(TargetId(2), 0..8 * 4096, again).count(), 0);
        acted.keep(&snapshot(0, vec![target(1, &[])]));
        assert_eq!(acted.blocked(T, 0..8 * 4096, again).count(), 2);
        acted.keep(&snapshot(0, vec![target(2, &[])]));
        assert_eq!(acted.blocked(T, 0..8 * 4096, again).count(), 0);
    }

    proptest! {
        /// Each page has the last act on it, and neighbours with the same act are one range.
        #[test]
        fn the_last_act_on_a_page_counts(
            turns in prop::collection::vec(prop::collection::vec((0u64..6, 0u64..6, any::<bool>()), 0..6), 0..6),
        ) {
            let mut acted = Acted::default();
            let mut pages: Vec<Option<Act>> = vec![None; 80];
            for (turn, acts) in (0..).zip(turns) {
                let mut start = 0;
                let acts = acts.into_iter().map(|(gap, len, succeeded)| {
                    let came =
                        if succeeded { ActionResult::Succeeded } else { ActionResult::Skipped };
                    let range = AddrRange::new(start + gap, start + gap + len);
                    start = range.end;
                    (T, range, came)
                });
                let acts: Vec<_> = acts.collect();
                acted.note(at(turn), &acts);
                for (_, range, came) in acts {
                    let noted = range.start as usize..range.end as usize;
                    pages[noted].fill(Some(Act { at: at(turn), came }));
                }
            }
            for (page, act) in (0..).zip(&pages) {
                let found = acted.within(T, page..page + 1).map(|(_, act)| *act).next();
                prop_assert_eq!(found, *act);
            }
            let all: Vec<_> = acted.within(T, 0..80).collect();
            let are_apart = |a: &(Range<u64>, &Act), b: &(Range<u64>, &Act)| {
                a.0.end < b.0.start || a.0.end == b.0.start && a.1 != b.1
            };
            prop_assert!(all.windows(2).all(|pair| are_apart(&pair[0], &pair[1])), "{:?}", all);
        }
    }
}
