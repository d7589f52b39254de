//! Dry runs: counts the effects of actions without acting.

use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::{
    Act, Action, Applied, Budget, Nanos, OpsError, PAGE_SIZE, PageKind, Snapshot, Support,
    TargetId, Work,
};
use rangemap::RangeMap;

/// Counts the memory that it is asked to act on. It reads the same pages and applies the same filters as a real
/// run. It does not know which memory would be touched during an action, and which the kernel would refuse.
pub struct Dry<'a> {
    pub act: &'a mut dyn Act,
    pub counted: &'a mut Counted,
    pub now: Nanos,
}

impl Act for Dry<'_> {
    fn supports(&self, action: &Action) -> Support {
        self.act.supports(action)
    }

    fn apply(&mut self, works: &[Work<'_>], out: &mut Vec<Applied>) -> Result<(), OpsError> {
        let counted: Vec<u64> = works.iter().map(|w| self.counted.of(w, self.now)).collect();
        let looks: Vec<Work<'_>> = works.iter().zip(&counted).map(looking).collect();
        let begin = out.len();
        let done = self.act.apply(&looks, out);
        for ((seen, work), &before) in out.iter_mut().skip(begin).zip(works).zip(&counted) {
            let affected = affected(work, seen, before);
            self.counted.note(work, affected, self.now);
            *seen = as_if(work, seen, affected, before);
        }
        done
    }

    fn reclaim_cache(&mut self, _: &str, bytes: u64) -> Option<Applied> {
        let took = cost(&Action::PageOut, bytes);
        Some(Applied { tried: bytes, applied: bytes, took, ..Applied::default() })
    }
}

/// The memory that a dry run has counted. A real run would not find it again before it is touched.
#[derive(Debug, Default)]
pub struct Counted(HashMap<(TargetId, Action), RangeMap<u64, Count>>);

/// How much of a range was counted, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Count {
    bytes: u64,
    of: u64,
    at: Nanos,
}

impl Counted {
    /// Forgets targets that are not in `snapshot`: they have ended.
    pub fn keep(&mut self, snapshot: &Snapshot) {
        let is_there = |id: &TargetId| snapshot.targets.binary_search_by_key(id, |t| t.id).is_ok();
        self.0.retain(|(id, _), _| is_there(id));
    }

    /// The bytes in the range of `work` that were counted, if pages are spread evenly.
    fn of(&self, work: &Work<'_>, now: Nanos) -> u64 {
        let Some(ranges) = self.0.get(&(work.target, work.action.clone())) else { return 0 };
        let range = work.range.start..work.range.end;
        let here = ranges.overlapping(&range).filter(|(_, count)| !has_changed(work, now, count));
        here.map(|(r, count)| {
            let bytes = r.end.min(range.end) - r.start.max(range.start);
            (u128::from(bytes) * u128::from(count.bytes) / u128::from(count.of)) as u64
        })
        .sum()
    }

    fn note(&mut self, work: &Work<'_>, bytes: u64, at: Nanos) {
        // A real run repeats actions that page tables do not show.
        let is_visible = !matches!(
            work.action,
            Action::Cold | Action::LruPrio | Action::LruDeprio | Action::Stat
        );
        if let Some(range) = work.range.non_empty().filter(|_| is_visible) {
            let ranges = self.0.entry((work.target, work.action.clone())).or_default();
            ranges.insert(range, Count { bytes, of: work.range.len(), at });
        }
    }
}

/// Whether the range was in another state when it was counted. Filters by the age of each page show that themselves.
fn has_changed(work: &Work<'_>, now: Nanos, count: &Count) -> bool {
    let by_page = work.filters.iter().any(|f| matches!(f.kind, PageKind::Touched { .. }));
    !by_page && work.cause.is_some_and(|cause| cause.age < now.since(count.at))
}

/// The same work, but only looking at the memory, and as far as a real run would get, which does not find the bytes
/// that were `counted`.
fn looking<'a>((work, counted): (&Work<'a>, &u64)) -> Work<'a> {
    let budget = Budget { bytes: work.budget.bytes.saturating_add(*counted), ..work.budget };
    Work { action: &Action::Stat, recheck: Duration::ZERO, budget, ..work.clone() }
}

/// The bytes of resident, observable memory in `seen` on which `work` would act, with those that were `counted`.
fn affected(work: &Work<'_>, seen: &Applied, counted: u64) -> u64 {
    match work.action {
        // This action is for memory that is not resident.
        Action::WillNeed => seen.passed.min(work.budget.bytes.saturating_add(counted)),
        _ => seen.applied,
    }
}

/// The result that `work` would have if it acted on those of the `affected` bytes that were not `counted`.
fn as_if(work: &Work<'_>, seen: &Applied, affected: u64, counted: u64) -> Applied {
    let tried = affected.saturating_sub(counted);
    let passed = match work.action {
        Action::WillNeed => seen.applied,
        _ => seen.passed + affected - tried,
    };
    Applied { tried, applied: tried, passed, took: cost(work.action, tried), failure: None }
}

/// Estimated time for acting on `bytes` bytes.
pub fn cost(action: &Action, bytes: u64) -> Duration {
    let page = Duration::from_nanos(page_cost(action));
    page.saturating_mul(u32::try_from(bytes / PAGE_SIZE).unwrap_or(u32::MAX))
}

/// Nanoseconds per page of 4 KiB, from the table in `docs/concepts/acting.md`. No figure exists for migration,
/// which is assumed to cost as much as paging out.
fn page_cost(action: &Action) -> u64 {
    match action {
        Action::PageOut | Action::MigrateHot(_) | Action::MigrateCold(_) => 4_220,
        Action::WillNeed => 3_900,
        Action::HugePage => 1_370,
        Action::NoHugePage => 4_160,
        Action::LruPrio => 1_220,
        Action::Cold | Action::LruDeprio => 400,
        _ => 100,
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use isotherm_core::{AddrRange, Cause, PageFilter};

    use super::*;

    /// Observes all pages up to the budget except the last `touched` bytes, and records the requests.
    #[derive(Default)]
    struct Sees {
        touched: u64,
        asked: Vec<Action>,
    }

    impl Act for Sees {
        fn supports(&self, _: &Action) -> Support {
            Support::Yes
        }

        fn apply(&mut self, works: &[Work<'_>], out: &mut Vec<Applied>) -> Result<(), OpsError> {
            for work in works {
                self.asked.push(work.action.clone());
                let seen = (work.range.len() - self.touched).min(work.budget.bytes);
                let passed = self.touched;
                out.push(Applied { tried: seen, applied: seen, passed, ..Applied::default() });
            }
            Ok(())
        }
    }

    /// A dry run over time: `touched` pages of the range are touched at the end.
    #[derive(Default)]
    struct Run {
        sees: Sees,
        counted: Counted,
    }

    impl Run {
        fn apply(&mut self, work: &Work<'_>, touched: u64, at: Duration) -> Applied {
            self.sees.touched = touched * PAGE_SIZE;
            let mut out = Vec::new();
            let Run { sees: act, counted } = self;
            Dry { act, counted, now: Nanos(0) + at }
                .apply(std::slice::from_ref(work), &mut out)
                .unwrap();
            out[0]
        }
    }

    fn work(action: &Action, pages: Range<u64>) -> Work<'_> {
        let budget = Budget { bytes: u64::MAX, time: Duration::MAX };
        let range = AddrRange::new(pages.start * PAGE_SIZE, pages.end * PAGE_SIZE);
        let recheck = s(1);
        Work { action, target: TargetId(1), range, budget, filters: &[], recheck, cause: None }
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Rejects pages by their own age.
    const BY_PAGE: [PageFilter; 1] = [PageFilter {
        kind: PageKind::Touched { within: Duration::from_secs(20) },
        matching: true,
        allow: false,
    }];

    #[test]
    fn nothing_but_looks_is_asked_for() {
        let mut run = Run::default();
        let done = run.apply(&work(&Action::PageOut, 0..8), 1, s(0));
        assert_eq!(run.sees.asked, [Action::Stat]);
        assert_eq!((done.applied, done.passed), (7 * PAGE_SIZE, PAGE_SIZE));
        assert_eq!(done.took, cost(&Action::PageOut, 7 * PAGE_SIZE));
        assert!(!done.took.is_zero());
    }

    #[test]
    fn a_dry_run_counts_absent_pages_for_willneed() {
        assert_eq!(
            Run::default().apply(&work(&Action::WillNeed, 0..8), 1, s(0)).applied,
            PAGE_SIZE
        );
    }

    /// A real run would have paged the memory out, and would only find what is cold since then.
    #[test]
    fn memory_is_counted_once() {
        let mut run = Run::default();
        let by_page = |pages| Work { filters: &BY_PAGE, ..work(&Action::PageOut, pages) };
        assert_eq!(run.apply(&by_page(0..8), 4, s(0)).applied, 4 * PAGE_SIZE);
        let again = run.apply(&by_page(0..8), 4, s(1));
        assert_eq!((again.applied, again.passed), (0, 8 * PAGE_SIZE));
        assert_eq!(run.apply(&by_page(0..8), 2, s(2)).applied, 2 * PAGE_SIZE, "two more are cold");
        assert_eq!(run.apply(&by_page(4..12), 0, s(3)).applied, 5 * PAGE_SIZE, "3 of 4 were");
        let other = Work { target: TargetId(2), ..by_page(0..8) };
        assert_eq!(run.apply(&other, 0, s(4)).applied, 8 * PAGE_SIZE);
        assert_eq!(run.apply(&work(&Action::HugePage, 0..8), 0, s(5)).applied, 8 * PAGE_SIZE);
    }

    /// What was counted does not use up the budget.
    #[test]
    fn a_budget_reaches_further_each_time() {
        let mut run = Run::default();
        let budget = Budget { bytes: 3 * PAGE_SIZE, time: Duration::MAX };
        let work = Work { budget, filters: &BY_PAGE, ..work(&Action::PageOut, 0..8) };
        let applied = [0, 1, 2, 3].map(|at| run.apply(&work, 0, s(at)).applied / PAGE_SIZE);
        assert_eq!(applied, [3, 3, 2, 0]);
    }

    /// Memory whose region has changed since was touched: a real run would find it resident.
    #[test]
    fn memory_that_was_touched_since_is_counted_again() {
        let mut run = Run::default();
        let aged = |age| {
            let cause = Cause { scheme: "cold", hz: 0.0, age, begins: None };
            Work { cause: Some(cause), ..work(&Action::PageOut, 0..8) }
        };
        assert_eq!(run.apply(&aged(s(20)), 0, s(100)).applied, 8 * PAGE_SIZE);
        assert_eq!(run.apply(&aged(s(50)), 0, s(130)).applied, 0, "cold all the time");
        assert_eq!(run.apply(&aged(s(20)), 0, s(160)).applied, 8 * PAGE_SIZE);
    }

    #[test]
    fn actions_that_page_tables_do_not_show_are_repeated() {
        let mut run = Run::default();
        let applied = [0, 1].map(|at| run.apply(&work(&Action::Cold, 0..8), 0, s(at)).applied);
        assert_eq!(applied, [8 * PAGE_SIZE; 2]);
    }
}
