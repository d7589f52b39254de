//! Dry runs: counts the effects of actions without acting.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use isotherm_core::{
    Act, Action, Applied, Budget, Nanos, OpsError, PAGE_SIZE, PageKind, RegionView, Support,
    TargetId, TargetView, Work,
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
        let looks: Vec<Work<'_>> = works.iter().map(|work| self.look(work)).collect();
        let begin = out.len();
        let done = self.act.apply(&looks, out);
        for ((seen, look), work) in out.iter_mut().skip(begin).zip(&looks).zip(works) {
            *seen = self.counted.count(work, seen, look.budget.bytes, self.now);
        }
        done
    }

    fn reclaim_cache(&mut self, _: &str, bytes: u64) -> Option<Applied> {
        let took = cost(&Action::PageOut, bytes);
        Some(Applied { tried: bytes, applied: bytes, took, ..Applied::default() })
    }
}

impl Dry<'_> {
    /// The same work, but only looking at the memory. Its budget grows by the counted bytes, because a real run would not
    /// find them.
    fn look<'a>(&self, work: &Work<'a>) -> Work<'a> {
        let counted = self.counted.of(work, self.now);
        let budget = Budget { bytes: work.budget.bytes.saturating_add(counted), ..work.budget };
        Work { action: &Action::Stat, recheck: Duration::ZERO, budget, ..work.clone() }
    }
}

/// The memory that a dry run has counted. A real run would not find it again before it is touched.
#[derive(Debug, Default)]
pub struct Counted(HashMap<(TargetId, Action), Counts>);

#[derive(Debug, Default)]
struct Counts {
    ranges: RangeMap<u64, Count>,
    /// Page filters rejected what was touched within this time.
    untouched_for: Option<Duration>,
}

/// How much of a range was counted, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Count {
    bytes: u64,
    /// Bytes that were counted and then touched, if the view of `at` is right.
    touched: u64,
    of: u64,
    at: Nanos,
}

/// Those of the `bytes` in `of` bytes that are in `len` of them, if they are spread evenly, in whole pages.
fn part(bytes: u64, len: u64, of: u64) -> u64 {
    let bytes = u128::from(len) * u128::from(bytes) / u128::from(of.max(1));
    (bytes + u128::from(PAGE_SIZE / 2)) as u64 / PAGE_SIZE * PAGE_SIZE
}

fn len(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// The part of a range that is in another one, which it overlaps.
fn overlap(range: &Range<u64>, other: &Range<u64>) -> u64 {
    range.end.min(other.end) - range.start.max(other.start)
}

impl Counts {
    /// The bytes in a range, by the bytes of each count.
    fn bytes(&self, range: &Range<u64>, bytes_of: impl Fn(&Count) -> Option<u64>) -> u64 {
        let counts = self.ranges.overlapping(range.clone());
        counts
            .filter_map(|(r, count)| Some(part(bytes_of(count)?, overlap(r, range), count.of)))
            .sum()
    }

    /// Notes that a look has found `affected` bytes in a range, and returns how many of them are new.
    ///
    /// Counted pages are not spread evenly. What was counted in a range and is not found in a part of it is in its rest, as
    /// far as there is room. Example: of 8 pages 4 were counted. If the first 4 pages have none, then the last 4 have 4. If
    /// they have 3, then the last 4 have 1, and none of the 3 is new.
    fn note(
        &mut self,
        range: Range<u64>,
        affected: u64,
        at: Nanos,
        bytes_of: impl Fn(&Count) -> Option<u64>,
    ) -> u64 {
        let (mut before, mut most, mut rests) = (0, 0, Vec::new());
        for (r, count) in self.ranges.overlapping(range.clone()) {
            let Some(bytes) = bytes_of(count) else { continue };
            let counted = part(bytes, len(r), count.of);
            let of = len(r) - overlap(r, &range);
            let bytes = counted.min(of);
            (before, most) = (before + counted, most + bytes);
            let touched = part(count.touched, of, count.of);
            rests.push((r.clone(), Count { bytes, touched, of, at: count.at }));
        }
        let rest = before.saturating_sub(affected).min(most);
        for (r, count) in rests {
            self.ranges.insert(r, Count { bytes: part(count.bytes, rest, most), ..count });
        }
        let of = len(&range);
        self.ranges.insert(range, Count { bytes: affected, touched: 0, of, at });
        (affected + rest).saturating_sub(before)
    }

    /// Notes what must have been touched since it was counted, because the region has less untouched memory: less than
    /// half, since rates vary by chance.
    fn note_touched(&mut self, region: &RegionView, at: Nanos) {
        let Some(time) = self.untouched_for else { return };
        let range = region.range.start..region.range.end;
        let untouched = region.resident_bytes() as f64 * (1.0 - region.touched_within(time));
        let bytes = untouched as u64;
        let counted = self.bytes(&range, |count| Some(count.bytes + count.touched));
        if bytes < counted / 2 {
            let of = len(&range);
            self.ranges.insert(range, Count { bytes, touched: counted - bytes, of, at });
        }
    }
}

impl Counted {
    /// Forgets memory that is not resident or was touched since, by `targets`: the last views of all targets, in order
    /// of id.
    pub fn keep(&mut self, targets: &[TargetView], now: Nanos) {
        self.0.retain(|(id, action), counts| {
            let found = targets.binary_search_by_key(id, |t| t.id);
            let Some(target) = found.ok().and_then(|i| targets.get(i)) else { return false };
            if *action == Action::WillNeed {
                return true;
            }
            let mut end = 0;
            let resident = target.regions.iter().filter(|r| r.resident_bytes() > 0);
            let resident = resident.map(|r| (r.range.start, r.range.end));
            for (from, to) in resident.chain([(u64::MAX, u64::MAX)]) {
                if end < from {
                    counts.ranges.remove(end..from);
                }
                end = to;
            }
            // A touch brings paged-out memory back. It does not undo other actions.
            if *action == Action::PageOut {
                target.regions.iter().for_each(|r| counts.note_touched(r, now));
            }
            true
        });
    }

    /// The result that `work` would have if it acted on the memory that a look has `seen` within a budget of so many bytes,
    /// without the memory that was counted.
    fn count(&mut self, work: &Work<'_>, seen: &Applied, budget: u64, now: Nanos) -> Applied {
        let is_for_absent = *work.action == Action::WillNeed;
        let (affected, skipped) = match is_for_absent {
            true => (seen.passed.min(budget), seen.applied),
            false => (seen.applied, seen.passed),
        };
        // A look may end early.
        let reached = (seen.applied + seen.passed).min(work.range.len());
        let tried = self.note(work, reached, affected, now);
        Applied {
            tried,
            applied: tried,
            passed: skipped + affected - tried,
            took: seen.took.saturating_add(cost(work.action, tried)),
            failure: None,
        }
    }

    /// What was counted in the range of `work`.
    fn of(&self, work: &Work<'_>, now: Nanos) -> u64 {
        let counts = self.0.get(&(work.target, work.action.clone()));
        let range = work.range.start..work.range.end;
        counts.map_or(0, |counts| counts.bytes(&range, |count| counted_bytes(work, now, count)))
    }

    /// Notes that the first `reached` bytes of a range have `affected` bytes, and returns how many of them are new.
    fn note(&mut self, work: &Work<'_>, reached: u64, affected: u64, now: Nanos) -> u64 {
        // A real run repeats actions that page tables do not show.
        let is_repeated = matches!(
            work.action,
            Action::Cold | Action::LruPrio | Action::LruDeprio | Action::Stat
        );
        if is_repeated || reached == 0 {
            return affected;
        }
        let counts = self.0.entry((work.target, work.action.clone())).or_default();
        counts.untouched_for = untouched_for(work);
        let range = work.range.start..work.range.start + reached;
        counts.note(range, affected, now, |count| counted_bytes(work, now, count)).min(affected)
    }
}

/// The time for which pages that pass the filters by age are untouched.
fn untouched_for(work: &Work<'_>) -> Option<Duration> {
    let times = work.filters.iter().map(|f| match f.kind {
        PageKind::Touched { within } => Some(within),
        _ => None,
    });
    times.flatten().max()
}

/// What a real run would not find again; `None` if the range was in another state when it was counted.
fn counted_bytes(work: &Work<'_>, now: Nanos, count: &Count) -> Option<u64> {
    let elapsed = now.since(count.at);
    match (untouched_for(work), work.cause) {
        // Memory that was touched a moment ago cannot pass the filter. If it does, the view was wrong. Views are late by
        // up to a second, so that half of the time decides.
        (Some(time), _) if elapsed < time / 2 => Some(count.bytes + count.touched),
        (None, Some(cause)) if cause.age < elapsed => None,
        _ => Some(count.bytes),
    }
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
        Action::LruPrio => 1_220,
        Action::Cold | Action::LruDeprio => 400,
        Action::NoHugePage => 300,
        _ => 100,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use isotherm_core::{AddrRange, Cause, PageFilter, Rate, UnknownPages};

    use super::*;

    /// Observes the pages up to the budget, and records the requests. It may end after some pages.
    struct Sees {
        is_cold: fn(u64) -> bool,
        most: usize,
        asked: Vec<Action>,
    }

    impl Act for Sees {
        fn supports(&self, _: &Action) -> Support {
            Support::Yes
        }

        fn apply(&mut self, works: &[Work<'_>], out: &mut Vec<Applied>) -> Result<(), OpsError> {
            for work in works {
                self.asked.push(work.action.clone());
                let mut seen = Applied { took: LOOK, ..Applied::default() };
                let pages = work.range.start / PAGE_SIZE..work.range.end / PAGE_SIZE;
                for page in pages.take(self.most) {
                    if !(self.is_cold)(page) {
                        seen.passed += PAGE_SIZE;
                    } else if seen.applied < work.budget.bytes {
                        seen.applied += PAGE_SIZE;
                    } else {
                        break;
                    }
                }
                seen.tried = seen.applied;
                out.push(seen);
            }
            Ok(())
        }
    }

    /// A dry run over time.
    struct Run {
        sees: Sees,
        counted: Counted,
    }

    impl Run {
        fn new(is_cold: fn(u64) -> bool) -> Self {
            let sees = Sees { is_cold, most: usize::MAX, asked: Vec::new() };
            Run { sees, counted: Counted::default() }
        }

        fn apply(&mut self, work: &Work<'_>, at: Duration) -> Applied {
            let mut out = Vec::new();
            let Run { sees: act, counted } = self;
            let now = Nanos(0) + at;
            Dry { act, counted, now }.apply(std::slice::from_ref(work), &mut out).unwrap();
            out[0]
        }

        /// The number of pages that count.
        fn pages(&mut self, work: &Work<'_>, at: u64) -> u64 {
            let applied = self.apply(work, s(at)).applied;
            assert_eq!(applied % PAGE_SIZE, 0);
            applied / PAGE_SIZE
        }
    }

    /// What a look takes.
    const LOOK: Duration = Duration::from_micros(5);

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

    fn by_page(pages: Range<u64>) -> Work<'static> {
        Work { filters: &BY_PAGE, ..work(&Action::PageOut, pages) }
    }

    #[test]
    fn nothing_but_looks_is_asked_for() {
        let mut run = Run::new(|page| page < 7);
        let done = run.apply(&work(&Action::PageOut, 0..8), s(0));
        assert_eq!(run.sees.asked, [Action::Stat]);
        assert_eq!((done.applied, done.passed), (7 * PAGE_SIZE, PAGE_SIZE));
        assert_eq!(done.took, LOOK + cost(&Action::PageOut, 7 * PAGE_SIZE));
    }

    #[test]
    fn a_dry_run_counts_absent_pages_for_willneed() {
        let mut run = Run::new(|page| page < 7);
        assert_eq!(run.pages(&work(&Action::WillNeed, 0..8), 0), 1);
        let again = run.apply(&work(&Action::WillNeed, 0..8), s(1));
        assert_eq!((again.applied, again.passed), (0, 8 * PAGE_SIZE));
    }

    /// A real run would have paged the memory out, and would only find what is cold since then.
    #[test]
    fn memory_is_counted_once() {
        let mut run = Run::new(|page| page % 2 == 0);
        assert_eq!(run.pages(&by_page(0..8), 0), 4);
        let again = run.apply(&by_page(0..8), s(1));
        assert_eq!((again.applied, again.passed), (0, 8 * PAGE_SIZE));
        assert_eq!(again.took, LOOK, "looking takes time");
        run.sees.is_cold = |page| page % 2 == 0 || page < 4;
        assert_eq!(run.pages(&by_page(0..8), 2), 2, "two more are cold");
        let other = Work { target: TargetId(2), ..by_page(0..8) };
        assert_eq!(run.pages(&other, 3), 6);
        assert_eq!(run.pages(&work(&Action::HugePage, 0..8), 4), 6);
    }

    /// The borders of regions move, and the counted pages are not spread evenly.
    #[test]
    fn moving_borders_count_nothing_again() {
        let mut run = Run::new(|page| page % 64 < 32);
        let mut all = 0;
        for look in 0..100 {
            let border = 16 + look * 37 % 96;
            all += run.pages(&by_page(0..border), look);
            all += run.pages(&by_page(border..128), look);
        }
        assert!((64..=80).contains(&all), "{all} of 64");
    }

    /// The rest of the range is looked at later.
    #[test]
    fn a_look_that_ends_early_leaves_the_rest_as_it_was() {
        let mut run = Run::new(|page| page >= 4);
        assert_eq!(run.pages(&by_page(0..8), 0), 4);
        for look in 0..3 {
            run.sees.most = 4;
            assert_eq!(run.pages(&by_page(0..8), 1 + look), 0);
            run.sees.most = usize::MAX;
            assert_eq!(run.pages(&by_page(4..8), 1 + look), 0);
        }
    }

    /// What was counted does not use up the budget.
    #[test]
    fn a_budget_reaches_further_each_time() {
        let mut run = Run::new(|_| true);
        let budget = Budget { bytes: 3 * PAGE_SIZE, time: Duration::MAX };
        let work = Work { budget, ..by_page(0..8) };
        let counted = [0, 1, 2, 3].map(|at| run.pages(&work, at));
        assert_eq!(counted.iter().sum::<u64>(), 8, "{counted:?}");
        assert!(counted.iter().all(|n| *n <= 3), "{counted:?}");
    }

    /// Memory whose region has changed since was touched: a real run would find it resident.
    #[test]
    fn memory_that_was_touched_since_is_counted_again() {
        let mut run = Run::new(|_| true);
        let aged = |age| {
            let cause = Cause { scheme: "cold", hz: 0.0, age, begins: None };
            Work { cause: Some(cause), ..work(&Action::PageOut, 0..8) }
        };
        assert_eq!(run.pages(&aged(s(20)), 100), 8);
        assert_eq!(run.pages(&aged(s(50)), 130), 0, "cold all the time");
        assert_eq!(run.pages(&aged(s(20)), 160), 8);
    }

    fn view(id: u32, regions: Vec<RegionView>) -> TargetView {
        TargetView {
            id: TargetId(id),
            ran: None,
            mappings: Arc::default(),
            left_out: 0,
            dirty: None,
            regions,
            ages: None,
        }
    }

    #[test]
    fn memory_that_is_gone_in_between_is_counted_again() {
        let mut run = Run::new(|_| true);
        assert_eq!(run.pages(&by_page(0..8), 0), 8);
        run.counted.keep(&[view(1, Vec::new())], Nanos(0));
        assert_eq!(run.pages(&by_page(0..8), 1), 8, "it was unmapped");
        run.counted.keep(&[view(2, Vec::new())], Nanos(0));
        assert_eq!(run.pages(&by_page(0..8), 2), 8, "another process");
    }

    /// Two areas that are used in turns: a real run pages out each of them once in each turn.
    #[test]
    fn memory_that_is_used_in_turns_is_counted_in_each_turn() {
        let region = |pages: Range<u64>, hz: f32, touched_bp| RegionView {
            range: AddrRange::new(pages.start * PAGE_SIZE, pages.end * PAGE_SIZE),
            accesses_bp: 0,
            age: Duration::ZERO,
            rate: Rate { hz, ..Rate::default() },
            touched_bp,
            resident_bp: 10_000,
            unknown_bp: UnknownPages::default(),
            support: None,
        };
        let mut run = Run::new(|page| page < 8);
        let used = |run: &mut Run, at, first: bool, hz, touched_bp| {
            let [a, b] =
                [first, !first].map(|is_used| if is_used { (hz, touched_bp) } else { (0.0, 0) });
            let regions = vec![region(0..8, a.0, a.1), region(8..16, b.0, b.1)];
            run.counted.keep(&[view(1, regions)], Nanos(0) + s(at));
        };
        let look =
            |run: &mut Run, at| run.pages(&by_page(0..8), at) + run.pages(&by_page(8..16), at);
        used(&mut run, 30, false, 20.0, 10_000);
        assert_eq!(look(&mut run, 30), 8);
        used(&mut run, 40, true, 20.0, 10_000);
        run.sees.is_cold = |page| page >= 8;
        assert_eq!(look(&mut run, 60), 8);
        used(&mut run, 70, false, 20.0, 10_000);
        run.sees.is_cold = |page| page < 8;
        assert_eq!(look(&mut run, 90), 8);
        // A quarter of the region is in use, or touches are rare: what was counted may still be untouched.
        for (hz, touched_bp) in [(20.0, 2500), (0.01, 10_000)] {
            used(&mut run, 90, true, hz, touched_bp);
            assert_eq!(look(&mut run, 110), 0, "{hz} {touched_bp}");
        }
        let huge = |pages| Work { filters: &BY_PAGE, ..work(&Action::HugePage, pages) };
        assert_eq!(run.pages(&huge(0..8), 110), 8);
        // It is still cold, so it was not touched.
        used(&mut run, 110, true, 20.0, 10_000);
        assert_eq!(look(&mut run, 111), 0);
        assert_eq!(run.pages(&huge(0..8), 130), 0, "huge pages stay huge");
    }

    #[test]
    fn actions_that_page_tables_do_not_show_are_repeated() {
        let mut run = Run::new(|_| true);
        let counted = [0, 1].map(|at| run.pages(&work(&Action::Cold, 0..8), at));
        assert_eq!(counted, [8; 2]);
    }
}
