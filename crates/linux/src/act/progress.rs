//! The progress of a work: counts, time and budget.

use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::{Action, AddrRange, Applied, Budget, Failure, PAGE_SIZE, Work};

use super::pieces::{Piece, pages_of};
use crate::sys::Stopwatch;

/// A work stops after this wall-clock time, regardless of its budget. Otherwise the other works would wait where
/// isotherm hardly gets a CPU.
pub(super) const MAX_WORK: Duration = Duration::from_secs(2);

/// However little time remains, a step has at least one page in so many of a full one: each step has a fixed
/// cost.
const MIN_STEP_DIVISOR: u64 = 8;
/// The time of fewer pages is no estimate.
const MIN_PAGES_FOR_PACE: u32 = 8;

/// The time per page of the last work of each action, by the name of the action.
#[derive(Debug, Default)]
pub(crate) struct PageTimes(HashMap<&'static str, Duration>);

impl PageTimes {
    pub(super) fn of(&self, action: &Action) -> Option<Duration> {
        self.0.get(action.name()).copied()
    }

    /// Notes the time of a work.
    pub(super) fn note(&mut self, action: &Action, applied: &Applied, took: Duration) {
        if let Some(pace) = pace(took, applied.tried) {
            self.0.insert(action.name(), pace);
        }
    }
}

/// The time per page of `tried` bytes; none for too few pages.
fn pace(took: Duration, tried: u64) -> Option<Duration> {
    let pages = u32::try_from(tried / PAGE_SIZE).unwrap_or(u32::MAX);
    (pages >= MIN_PAGES_FOR_PACE).then(|| took / pages)
}

/// The kernel's reply to one step.
pub(super) enum Reply {
    /// The kernel counted the pages, or isotherm made no call.
    Counted(StepResult),
    /// The kernel took the advice except on these ranges. It does not report single pages.
    Advised(Vec<(AddrRange, Failure)>),
}

/// The result of one step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StepResult {
    /// pages on which the action worked
    pub pages: u64,
    /// pages on which it failed
    pub failures: Failures,
}

impl StepResult {
    /// `pages` worked, and `failed` did not.
    pub fn of(pages: u64, failed: u64, why: Failure) -> Self {
        let mut failures = Failures::default();
        failures.add(why, failed);
        StepResult { pages, failures }
    }
}

/// Failed pages, by reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Failures(pub Vec<(Failure, u64)>);

impl Failures {
    /// Counts `pages` more.
    pub fn add(&mut self, why: Failure, pages: u64) {
        match self.0.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, sum)) => *sum += pages,
            None if pages > 0 => self.0.push((why, pages)),
            None => {}
        }
    }
}

/// Counts the pages of a work, and keeps it within its budget.
#[derive(Debug)]
pub(super) struct WorkProgress {
    range: AddrRange,
    budget: Budget,
    /// time spent before it began
    before: Duration,
    /// time per page of the last work of this action
    pace: Option<Duration>,
    began: Stopwatch,
    /// address up to which the work has been done
    reached: u64,
    applied: Applied,
    /// of pages tried and not tried
    pub failures: Failures,
    stopped: bool,
}

impl WorkProgress {
    pub fn new(work: &Work<'_>, before: Duration, pace: Option<Duration>) -> Self {
        WorkProgress {
            range: work.range,
            budget: work.budget,
            before,
            pace,
            began: Stopwatch::start(),
            reached: work.range.start,
            applied: Applied::default(),
            failures: Failures::default(),
            stopped: false,
        }
    }

    fn spent(&self) -> Duration {
        self.before + self.began.elapsed()
    }

    /// The next step of `pieces`, at most `most` pages, and the remaining pieces. None if no pieces remain or
    /// the budget is used. A step never divides a folio.
    pub fn next_step<'a>(
        &mut self,
        pieces: &'a [Piece],
        most: u64,
    ) -> Option<(&'a [Piece], &'a [Piece])> {
        self.reach(pieces.first()?.start);
        let (step, rest) = pieces.split_at(fitting(pieces, self.step(most), self.pages_left()));
        self.stopped |= step.is_empty() || self.is_over();
        (!self.stopped).then_some((step, rest))
    }

    /// Pages that the budget still allows.
    fn pages_left(&self) -> u64 {
        self.budget.bytes.saturating_sub(self.applied.tried) / PAGE_SIZE
    }

    /// The length of the next step: as many of `most` pages as the remaining time is estimated to suffice for.
    ///
    /// Example: if 0.2 ms remain and a page took 10 us, it is 20 of 64 pages.
    fn step(&self, most: u64) -> u64 {
        let took = self.began.elapsed();
        let Some(pace) = pace(took, self.applied.tried).or(self.pace) else { return most };
        let left = self.budget.time.saturating_sub(self.before + took);
        let fitting = left.as_nanos() / pace.as_nanos().max(1);
        u64::try_from(fitting).unwrap_or(most).clamp(most / MIN_STEP_DIVISOR, most)
    }

    /// Whether the work has to stop. Each work completes at least one step, even if reading alone used all of
    /// the time: otherwise it would never advance.
    pub fn is_over(&self) -> bool {
        let begun = self.reached > self.range.start || self.applied.tried > 0;
        let late = || self.spent() >= self.budget.time || self.began.wall() >= MAX_WORK;
        self.stopped || self.pages_left() == 0 || begun && late()
    }

    /// Notes that the work has covered its range up to `address`.
    pub fn reach(&mut self, address: u64) {
        self.reached = self.reached.max(address.min(self.range.end));
    }

    /// Counts a step on `pieces`. The work ends with the first page for which there is no room.
    pub fn count(&mut self, pieces: &[Piece], result: &StepResult) {
        let tried = pages_of(pieces);
        self.applied.tried += tried * PAGE_SIZE;
        self.applied.applied += result.pages.min(tried) * PAGE_SIZE;
        for (why, pages) in &result.failures.0 {
            self.failures.add(*why, *pages);
            self.stopped |= *why == Failure::NoRoom;
        }
        self.reach(pieces.last().map_or(0, |p| p.range().end));
    }

    /// The result of the work.
    pub fn end(self) -> Applied {
        let most = self.failures.0.iter().max_by_key(|(_, pages)| *pages);
        Applied {
            passed: (self.reached - self.range.start).saturating_sub(self.applied.tried),
            took: self.spent(),
            failure: most.map(|(why, _)| *why),
            ..self.applied
        }
    }
}

/// How many of `pieces`, from the first on, make a step of `step` pages, but of no more than `most`. A single
/// folio may be longer than a step.
fn fitting(pieces: &[Piece], step: u64, most: u64) -> usize {
    let mut sum = 0;
    let mut fits = |(i, piece): (usize, &Piece)| {
        sum += u64::from(piece.pages);
        sum <= most && (i == 0 || sum <= step)
    };
    pieces.iter().enumerate().take_while(|p| fits(*p)).count()
}

#[cfg(test)]
mod tests {
    use isotherm_core::TargetId;

    use super::*;

    fn piece(pages: u32) -> Piece {
        Piece { start: 0, pages, young: false, swaps: true, area: 0 }
    }

    fn progress(pages: u64) -> WorkProgress {
        let budget = Budget { bytes: pages * PAGE_SIZE, time: Duration::from_secs(3600) };
        let range = AddrRange::new(100 * PAGE_SIZE, 200 * PAGE_SIZE);
        let (action, target, recheck) = (&Action::Cold, TargetId(0), Duration::ZERO);
        let work = Work { action, target, range, budget, filters: &[], recheck, cause: None };
        WorkProgress::new(&work, Duration::from_millis(5), None)
    }

    #[test]
    fn covered_bytes_that_were_not_tried_were_passed() {
        let mut t = progress(50);
        t.reach(130 * PAGE_SIZE);
        t.count(&[piece(10)], &StepResult::of(8, 2, Failure::Busy));
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
            WorkProgress { budget, before: Duration::ZERO, pace, ..progress(1) }.step(64)
        };
        assert_eq!(of(Duration::from_secs(1), None), 64);
        assert_eq!(of(Duration::from_secs(1), Some(us(10))), 64);
        assert_eq!(of(Duration::ZERO, Some(us(10))), 8);
        assert_eq!(
            of(Duration::from_secs(1000), Some(Duration::from_secs(50))),
            19,
            "some has gone"
        );
        let (mut paces, tried) = (PageTimes::default(), |pages| Applied {
            tried: pages * PAGE_SIZE,
            ..Applied::default()
        });
        paces.note(&Action::Cold, &tried(7), us(150));
        assert_eq!(paces.of(&Action::Cold), None, "too few");
        paces.note(&Action::Cold, &tried(100), us(1000));
        assert_eq!((paces.of(&Action::Cold), paces.of(&Action::PageOut)), (Some(us(10)), None));
    }

    #[test]
    fn a_work_ends_by_bytes_time_or_missing_room() {
        let mut t = progress(10);
        t.count(&[piece(10)], &StepResult::of(10, 0, Failure::Busy));
        assert!(t.is_over());
        assert_eq!(t.end().failure, None);
        let mut t = progress(10);
        t.count(
            &[piece(4)],
            &StepResult {
                pages: 1,
                failures: Failures(vec![(Failure::Busy, 2), (Failure::NoRoom, 1)]),
            },
        );
        assert!(t.is_over());
        assert_eq!(t.end().failure, Some(Failure::Busy), "most of it");
        assert!(progress(0).is_over());
        let mut late = WorkProgress { before: Duration::from_secs(3600), ..progress(10) };
        assert!(!late.is_over(), "a step is for it, too");
        late.reach(101 * PAGE_SIZE);
        assert!(late.is_over());
    }

    #[test]
    fn steps_are_short_and_part_no_folio() {
        let pages = vec![piece(1); 1000];
        assert_eq!(fitting(&pages, 64, 10_000), 64);
        assert_eq!(fitting(&pages, 64, 3), 3);
        assert_eq!(fitting(&pages, 64, 0), 0);
        let folios = [piece(512), piece(16), piece(1)];
        assert_eq!(fitting(&folios, 64, 10_000), 1, "one is longer than a step");
        assert_eq!(fitting(&folios, 64, 511), 0);
        assert_eq!(fitting(&folios[1..], 64, 16), 1);
        assert_eq!(fitting(&[piece(50), piece(16)], 64, 300), 1);
    }
}
