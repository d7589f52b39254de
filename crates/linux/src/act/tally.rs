//! What a work has done so far, and whether it may go on.

use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::{Action, AddrRange, Applied, Budget, Failure, PAGE_SIZE, Work};

use crate::sys::Stopwatch;

/// Who hardly gets a CPU stops after that, whatever there is time for: others wait for us.
pub(super) const LONGEST: Duration = Duration::from_secs(2);

/// However little time is left, a step is this part of a whole one: each has its price.
const LEAST: u64 = 8;
/// Of fewer pages nothing is learnt.
const TELLING: u32 = 8;

/// What a page took lately, all in all, by the name of what was done to it.
#[derive(Debug, Default)]
pub(crate) struct Paces(HashMap<&'static str, Duration>);

impl Paces {
    pub(super) fn of(&self, action: &Action) -> Option<Duration> {
        self.0.get(action.name()).copied()
    }

    /// Takes in what a work has come to, and its time.
    pub(super) fn note(&mut self, action: &Action, applied: &Applied, took: Duration) {
        if let Some(pace) = pace(took, applied.tried) {
            self.0.insert(action.name(), pace);
        }
    }
}

/// What a page took of `tried` bytes.
fn pace(took: Duration, tried: u64) -> Option<Duration> {
    let pages = u32::try_from(tried / PAGE_SIZE).unwrap_or(u32::MAX);
    (pages >= TELLING).then(|| took / pages)
}

/// What has come of one step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// pages that it was done to
    pub pages: u64,
    /// pages that it was not done to, and why
    pub failed: Vec<(Failure, u64)>,
}

impl Done {
    /// Done to `pages`, and to `left` not.
    pub fn of(pages: u64, left: u64, why: Failure) -> Self {
        Done { pages, failed: if left > 0 { vec![(why, left)] } else { Vec::new() } }
    }

    /// So many more were not done.
    pub fn fail(&mut self, why: Failure, pages: u64) {
        match self.failed.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, sum)) => *sum += pages,
            None => self.failed.push((why, pages)),
        }
    }
}

/// Counts a work within its budget.
#[derive(Debug)]
pub(super) struct Tally {
    range: AddrRange,
    budget: Budget,
    /// what had been spent before it began
    before: Duration,
    /// what a page took of the works before
    pace: Option<Duration>,
    began: Stopwatch,
    /// how far it has got
    reached: u64,
    applied: Applied,
    sum: Done,
    stopped: bool,
}

impl Tally {
    pub fn new(work: &Work<'_>, before: Duration, pace: Option<Duration>) -> Self {
        Tally {
            range: work.range,
            budget: work.budget,
            before,
            pace,
            began: Stopwatch::start(),
            reached: work.range.start,
            applied: Applied::default(),
            sum: Done::default(),
            stopped: false,
        }
    }

    fn spent(&self) -> Duration {
        self.before + self.began.elapsed()
    }

    /// Pages that it may still be tried on.
    pub fn pages_left(&self) -> u64 {
        self.budget.bytes.saturating_sub(self.applied.tried) / PAGE_SIZE
    }

    /// Of `most` pages, how many are to be the next step: as many as there is time for, as far as is known.
    ///
    /// E.g. where .2 ms are left, and a page took 10 us, 20 of 64.
    pub fn step(&self, most: u64) -> u64 {
        let took = self.began.elapsed();
        let Some(pace) = pace(took, self.applied.tried).or(self.pace) else { return most };
        let left = self.budget.time.saturating_sub(self.before + took);
        let fitting = left.as_nanos() / pace.as_nanos().max(1);
        u64::try_from(fitting).unwrap_or(most).clamp(most / LEAST, most)
    }

    /// Whether nothing more may be done. Where looking alone takes all of the time, it still gets a step
    /// further: or else it never would.
    pub fn is_over(&self) -> bool {
        let begun = self.reached > self.range.start || self.applied.tried > 0;
        let late = || self.spent() >= self.budget.time || self.began.wall() >= LONGEST;
        self.stopped || self.pages_left() == 0 || begun && late()
    }

    /// Nothing more is to be done, whatever is left.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// All before `address` is done with.
    pub fn reach(&mut self, address: u64) {
        self.reached = self.reached.max(address.min(self.range.end));
    }

    /// Why something was not done.
    pub fn note(&mut self, why: Failure, pages: u64) {
        self.sum.fail(why, pages);
    }

    /// A step on so many pages. Where there is no room for some there is none for more.
    pub fn count(&mut self, tried: u64, done: &Done) {
        self.applied.tried += tried * PAGE_SIZE;
        self.applied.applied += done.pages.min(tried) * PAGE_SIZE;
        for (why, pages) in &done.failed {
            self.note(*why, *pages);
            self.stopped |= *why == Failure::NoRoom;
        }
    }

    /// Whether there was room for all that it was tried on.
    pub fn had_room(&self) -> bool {
        self.sum.failed.iter().all(|(why, _)| *why != Failure::NoRoom)
    }

    /// What has come of it.
    pub fn end(self) -> Applied {
        let most = self.sum.failed.iter().max_by_key(|(_, pages)| *pages);
        Applied {
            passed: (self.reached - self.range.start).saturating_sub(self.applied.tried),
            took: self.spent(),
            failure: most.map(|(why, _)| *why),
            ..self.applied
        }
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::TargetId;

    use super::*;

    fn tally(pages: u64) -> Tally {
        let budget = Budget { bytes: pages * PAGE_SIZE, time: Duration::from_secs(3600) };
        let range = AddrRange::new(100 * PAGE_SIZE, 200 * PAGE_SIZE);
        let (action, target, recheck) = (&Action::Cold, TargetId(0), Duration::ZERO);
        let work = Work { action, target, range, budget, filters: &[], recheck, cause: None };
        Tally::new(&work, Duration::from_millis(5), None)
    }

    #[test]
    fn what_is_neither_tried_nor_ahead_was_passed() {
        let mut t = tally(50);
        t.reach(130 * PAGE_SIZE);
        t.count(10, &Done::of(8, 2, Failure::Busy));
        assert!(!t.is_over());
        assert_eq!(t.pages_left(), 40);
        t.reach(900 * PAGE_SIZE);
        t.reach(110 * PAGE_SIZE);
        let a = t.end();
        let pages = |bytes: u64| bytes / PAGE_SIZE;
        assert_eq!((pages(a.tried), pages(a.applied), pages(a.passed)), (10, 8, 90));
        assert_eq!(a.failure, Some(Failure::Busy));
        assert!(a.took >= Duration::from_millis(5));
    }

    #[test]
    fn a_step_is_as_long_as_there_is_time_for() {
        let us = Duration::from_micros;
        let of = |time, pace| {
            let budget = Budget { time, bytes: u64::MAX };
            Tally { budget, before: Duration::ZERO, pace, ..tally(1) }.step(64)
        };
        assert_eq!(of(Duration::from_secs(1), None), 64);
        assert_eq!(of(Duration::from_secs(1), Some(us(10))), 64);
        assert_eq!(of(Duration::ZERO, Some(us(10))), 8);
        assert_eq!(
            of(Duration::from_secs(1000), Some(Duration::from_secs(50))),
            19,
            "some has gone"
        );
        let (mut paces, tried) =
            (Paces::default(), |pages| Applied { tried: pages * PAGE_SIZE, ..Applied::default() });
        paces.note(&Action::Cold, &tried(7), us(150));
        assert_eq!(paces.of(&Action::Cold), None, "too few");
        paces.note(&Action::Cold, &tried(100), us(1000));
        assert_eq!((paces.of(&Action::Cold), paces.of(&Action::PageOut)), (Some(us(10)), None));
    }

    #[test]
    fn it_ends_with_its_bytes_its_time_and_for_want_of_room() {
        let mut t = tally(10);
        t.count(10, &Done::of(10, 0, Failure::Busy));
        assert!(t.is_over() && t.had_room());
        assert_eq!(t.end().failure, None);
        let mut t = tally(10);
        t.count(4, &Done { pages: 1, failed: vec![(Failure::Busy, 2), (Failure::NoRoom, 1)] });
        assert!(t.is_over() && !t.had_room());
        assert_eq!(t.end().failure, Some(Failure::Busy), "most of it");
        assert!(tally(0).is_over());
        let mut late = Tally { before: Duration::from_secs(3600), ..tally(10) };
        assert!(!late.is_over(), "a step is for it, too");
        late.reach(101 * PAGE_SIZE);
        assert!(late.is_over());
    }
}
