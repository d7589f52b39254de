//! Dry runs: counts the effects of actions without acting.

use std::time::Duration;

use isotherm_core::{Act, Action, Applied, OpsError, PAGE_SIZE, Support, Work};

/// Counts the memory that it is asked to act on. It reads the same pages and applies the same filters as a real
/// run. It does not know which memory would be touched during an action, and which the kernel would refuse.
pub struct Dry<'a>(pub &'a mut dyn Act);

impl Act for Dry<'_> {
    fn supports(&self, action: &Action) -> Support {
        self.0.supports(action)
    }

    fn apply(&mut self, works: &[Work<'_>], out: &mut Vec<Applied>) -> Result<(), OpsError> {
        let looks: Vec<Work<'_>> = works.iter().map(looking).collect();
        let begin = out.len();
        let done = self.0.apply(&looks, out);
        for (done, work) in out.iter_mut().skip(begin).zip(works) {
            *done = as_if(work, done);
        }
        done
    }

    fn reclaim_cache(&mut self, _: &str, bytes: u64) -> Option<Applied> {
        let took = cost(&Action::PageOut, bytes);
        Some(Applied { tried: bytes, applied: bytes, took, ..Applied::default() })
    }
}

/// The same work, but only looking at the memory.
fn looking<'a>(work: &Work<'a>) -> Work<'a> {
    Work { action: &Action::Stat, recheck: Duration::ZERO, ..work.clone() }
}

/// The result that `work` would have if it acted on the resident, observable memory in `seen` that passes the
/// filters.
fn as_if(work: &Work<'_>, seen: &Applied) -> Applied {
    // This action is for memory that is not resident.
    let (tried, passed) = match work.action {
        Action::WillNeed => (seen.passed.min(work.budget.bytes), seen.applied),
        _ => (seen.applied, seen.passed),
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
    use isotherm_core::{AddrRange, Budget, TargetId};

    use super::*;

    /// Observes all pages except the last, and records the requests.
    #[derive(Default)]
    struct Sees(Vec<Action>);

    impl Act for Sees {
        fn supports(&self, _: &Action) -> Support {
            Support::Yes
        }

        fn apply(&mut self, works: &[Work<'_>], out: &mut Vec<Applied>) -> Result<(), OpsError> {
            for work in works {
                self.0.push(work.action.clone());
                let seen = work.range.len() - PAGE_SIZE;
                out.push(Applied {
                    tried: seen,
                    applied: seen,
                    passed: PAGE_SIZE,
                    ..Applied::default()
                });
            }
            Ok(())
        }
    }

    fn applied(action: &Action) -> (Applied, Sees) {
        let budget = Budget { bytes: u64::MAX, time: Duration::MAX };
        let range = AddrRange::new(0, 8 * PAGE_SIZE);
        let recheck = Duration::from_secs(1);
        let work =
            Work { action, target: TargetId(1), range, budget, filters: &[], recheck, cause: None };
        let (mut sees, mut out) = (Sees::default(), Vec::new());
        Dry(&mut sees).apply(&[work], &mut out).unwrap();
        (out[0], sees)
    }

    #[test]
    fn nothing_but_looks_is_asked_for() {
        let (done, sees) = applied(&Action::PageOut);
        assert_eq!(sees.0, [Action::Stat]);
        assert_eq!((done.applied, done.passed), (7 * PAGE_SIZE, PAGE_SIZE));
        assert_eq!(done.took, cost(&Action::PageOut, 7 * PAGE_SIZE));
        assert!(!done.took.is_zero());
    }

    #[test]
    fn a_dry_run_counts_absent_pages_for_willneed() {
        assert_eq!(applied(&Action::WillNeed).0.applied, PAGE_SIZE);
    }
}
