//! Selects the candidates of a scheme from a snapshot, and records why other memory is skipped.

use std::time::Duration;

use rangemap::RangeSet;

use super::absent::Absent;
use super::acted::{Acted, RetryConditions};
use super::aim::Aims;
use super::definition::Scheme;
use super::filter::parts;
use super::metrics::Metrics;
use super::pattern::mean_hz;
use super::price::is_file;
use super::priority::{score, with_cost};
use super::stats::SkipReason;
use crate::act::Action;
use crate::call::TargetId;
use crate::range::{AddrRange, PAGE_SIZE, align_down, align_up};
use crate::snapshot::{RegionView, Snapshot, TargetView};
use crate::support::share;
use crate::survey::BLOCK_SIZE;
use crate::time::Nanos;

const MIN_HORIZON: Duration = Duration::from_secs(1);

/// A matching region, or a part of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub target: TargetId,
    pub range: AddrRange,
    /// the age of its region that counts for the scheme: see [`Absent::age`]
    pub age: Duration,
    pub hz: f64,
    pub score: f64,
    /// share of its bytes that the action can affect, of 10,000
    pub worth_bp: u32,
    /// a filter has allowed it, so that page filters do not apply
    pub allowed: bool,
}

impl Candidate {
    /// Bytes that the action can affect, if they are evenly distributed in the region.
    pub fn worth(&self) -> u64 {
        share(self.range.len(), self.worth_bp)
    }
}

/// The inputs of a search for candidates.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'a> {
    pub scheme: &'a Scheme,
    pub snapshot: &'a Snapshot,
    pub metrics: &'a Metrics,
    pub now: Nanos,
    /// time after which memory that was acted on is looked at again
    pub pause: Duration,
    /// Page filters select by the age of each page.
    pub by_page: bool,
    /// the chosen ages, if the scheme has an objective
    pub aims: Option<&'a Aims>,
    /// times since which memory is absent
    pub absent: &'a Absent,
    /// ranges that this scheme has acted on
    pub acted: &'a Acted,
    /// ranges that earlier schemes have acted on in this step
    pub taken: &'a Acted,
}

/// The candidates, in order of target and address, and the skipped memory.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub candidates: Vec<Candidate>,
    pub passed: Vec<(Candidate, SkipReason)>,
}

impl Field<'_> {
    pub fn find(&self) -> Found {
        let mut found = Found::default();
        for target in &self.snapshot.targets {
            for view in &target.regions {
                let age = match self.scheme.action {
                    Action::WillNeed => self.absent.age(target.id, view, self.snapshot.end),
                    _ => view.age,
                };
                let view = RegionView { age, ..*view };
                if self.scheme.pattern.matches(&view, self.snapshot.attrs.sample) {
                    self.sort(target, view, &mut found);
                }
            }
        }
        if self.scheme.action == Action::HugePage {
            found.whole_blocks();
        }
        found
    }

    /// Divides a matching region into candidates and skipped parts.
    fn sort(&self, target: &TargetView, view: RegionView, found: &mut Found) {
        let scheme = self.scheme;
        let range = AddrRange::new(
            align_up(view.range.start, PAGE_SIZE),
            align_down(view.range.end, PAGE_SIZE),
        );
        let whole = Candidate {
            target: target.id,
            range,
            age: view.age,
            hz: mean_hz(&view, self.snapshot.attrs.sample),
            score: with_cost(
                score(&scheme.action, &view, &scheme.quota.weights),
                self.cost(target, &view),
                &scheme.quota.weights,
            ),
            worth_bp: worth_bp(&scheme.action, &view),
            allowed: false,
        };
        if let Some(why) = nothing_to_do(&scheme.action, &view) {
            found.passed.push((whole, why));
            return;
        }
        if self.aims.is_some_and(|aims| aims.age(target.id).is_none()) {
            found.passed.push((whole, SkipReason::NoAge));
            return;
        }
        if scheme.filters.is_empty() {
            self.not_again(whole, &view, found);
            return;
        }
        let parts = parts(&scheme.filters, &scheme.page_filters, range, target, self.metrics);
        let through = parts.allowed.union(&parts.undecided).collect();
        found.passed.extend(without(whole, &through).map(|c| (c, SkipReason::Filtered)));
        for (set, allowed) in [(parts.allowed, true), (parts.undecided, false)] {
            for r in set {
                let range = AddrRange::new(r.start, r.end);
                self.not_again(Candidate { range, allowed, ..whole }, &view, found);
            }
        }
    }

    /// The expected cost of taking the memory away; zero for other actions, and if it has no weight. Memory that is younger
    /// than the minimum age is in use, so the horizon is that age.
    fn cost(&self, target: &TargetView, view: &RegionView) -> Duration {
        let horizon = (*self.scheme.pattern.age.start()).max(MIN_HORIZON);
        match self.scheme.action {
            Action::PageOut if self.scheme.quota.weights.cost > 0 => {
                self.metrics.prices.expected(is_file(target, view), view.age, horizon)
            }
            _ => Duration::ZERO,
        }
    }

    /// Skips the parts that were acted on earlier.
    fn not_again(&self, part: Candidate, view: &RegionView, found: &mut Found) {
        let action = &self.scheme.action;
        let (seen, now, pause) = (self.snapshot.end, self.now, self.pause);
        let again = RetryConditions { action, pause, by_page: self.by_page, view, seen, now };
        let Some(range) = part.range.non_empty() else { return };
        let taken = self.taken.all(part.target, range.clone()).map(|r| (r, SkipReason::Taken));
        let mut reasons = taken.chain(self.acted.blocked(part.target, range.clone(), again));
        // Most parts are blocked as a whole, or not at all.
        let Some((first, why)) = reasons.next() else {
            found.candidates.push(part);
            return;
        };
        if first == range {
            found.passed.push((part, why));
            return;
        }
        let mut blocked = RangeSet::new();
        for (r, why) in std::iter::once((first, why)).chain(reasons) {
            let range = AddrRange::new(r.start, r.end);
            found.passed.extend(without(Candidate { range, ..part }, &blocked).map(|c| (c, why)));
            blocked.insert(r);
        }
        found.candidates.extend(without(part, &blocked));
    }
}

impl Found {
    /// Reduces each candidate to whole blocks that can become huge pages. An action on the remainder would
    /// have no effect, but would count as done after the borders of regions change. A block that lies in two
    /// candidates belongs to the second: 0 to 3 MiB and 3 to 9 MiB become 0 to 2 MiB and 2 to 8 MiB.
    fn whole_blocks(&mut self) {
        let candidates = &mut self.candidates;
        candidates.sort_by_key(|c| (c.target, c.range.start));
        for i in 1..candidates.len() {
            let [before, c] = [candidates[i - 1], candidates[i]];
            let touch = before.target == c.target && before.range.end == c.range.start;
            if touch && before.allowed == c.allowed {
                let border = align_down(c.range.start, BLOCK_SIZE).max(before.range.start);
                candidates[i - 1].range.end = border;
                candidates[i].range.start = border;
            }
        }
        for mut c in std::mem::take(candidates) {
            let end = align_down(c.range.end, BLOCK_SIZE);
            let whole = AddrRange::new(align_up(c.range.start, BLOCK_SIZE).min(end), end);
            if whole.is_empty() {
                self.passed.push((c, SkipReason::Nothing));
            } else {
                c.range = whole;
                candidates.push(c);
            }
        }
    }
}

/// The parts of `whole` outside `holes`.
fn without(whole: Candidate, holes: &RangeSet<u64>) -> impl Iterator<Item = Candidate> + use<> {
    let gaps =
        whole.range.non_empty().map(|r| holes.gaps(&r).collect::<Vec<_>>()).unwrap_or_default();
    gaps.into_iter().map(move |r| Candidate { range: AddrRange::new(r.start, r.end), ..whole })
}

/// Share of the region that is resident and whose accesses can be observed, of 10,000.
fn visible_bp(view: &RegionView) -> u32 {
    let unknown = u32::try_from(view.unknown_bp.total()).unwrap_or(u32::MAX);
    view.resident_bp.min(10_000).saturating_sub(unknown)
}

/// Share of the region that the action can affect, of 10,000. Memory that is already paged out is not paged
/// out again. It is neither charged nor counted for the priority.
fn worth_bp(action: &Action, view: &RegionView) -> u32 {
    match action {
        Action::Stat => 10_000,
        Action::WillNeed => 10_000 - view.resident_bp.min(10_000),
        _ => visible_bp(view),
    }
}

fn nothing_to_do(action: &Action, view: &RegionView) -> Option<SkipReason> {
    if worth_bp(action, view) > 0 {
        return None;
    }
    let hidden = *action != Action::WillNeed && view.unknown_bp.total() > 0;
    Some(if hidden { SkipReason::Unknown } else { SkipReason::Nothing })
}
