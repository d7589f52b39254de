//! A scheme with its state between steps.

use std::borrow::Cow;
use std::iter;
use std::time::Duration;

use super::absent::Absent;
use super::acted::{Acted, ActionResult, PAUSE};
use super::aim::Aims;
use super::aim_step::AimStep;
use super::candidates::{Candidate, Field};
use super::definition::Scheme;
use super::metrics::Metrics;
use super::queue::{Place, Queue};
use super::quota::Charge;
use super::stats::{ActionEvent, Outcome, SkipReason, Stats};
use super::watermarks::Gate;
use crate::act::{Act, Action, Applied, Budget, Cause, Failure, PageFilter, PageKind, Work};
use crate::call::{OpsError, TargetId};
use crate::heat::Heat;
use crate::range::{AddrRange, PAGE_SIZE, align_down};
use crate::snapshot::Snapshot;
use crate::support::share;
use crate::time::Nanos;

/// Maximum number of batches per turn: after each, time or bytes may remain, because the action may have
/// failed on some bytes; and each may wait for a second look.
const MAX_BATCHES: usize = 16;

/// Time of looks from which their speed is known well.
const LONG_LOOKS: Duration = Duration::from_millis(100);

/// The inputs of a step.
pub(super) struct Step<'a> {
    pub now: Nanos,
    pub snapshot: &'a Snapshot,
    pub metrics: &'a Metrics,
    /// times since which memory is absent
    pub absent: &'a Absent,
    /// whether skipped memory also produces events
    pub log_passed: bool,
}

/// A running scheme.
#[derive(Debug, Clone)]
pub(super) struct Running {
    pub scheme: Scheme,
    pub stats: Stats,
    /// earliest time of the next turn
    due: Option<Nanos>,
    charge: Charge,
    gate: Gate,
    acted: Acted,
    /// the acts of this turn
    acts: Vec<(TargetId, AddrRange, ActionResult)>,
    /// position where the last turn stopped
    place: Option<Place>,
    /// bytes that were only looked at lately, and the time that this took
    looked: (u64, Duration),
    aims: Aims,
    /// choices that were not taken yet
    pub aim_steps: Vec<AimStep>,
}

impl Running {
    pub fn new(scheme: Scheme) -> Self {
        Running {
            scheme,
            stats: Stats::default(),
            due: None,
            charge: Charge::default(),
            gate: Gate::default(),
            acted: Acted::default(),
            acts: Vec::new(),
            place: None,
            looked: (0, Duration::ZERO),
            aims: Aims::default(),
            aim_steps: Vec::new(),
        }
    }

    /// Applies a changed scheme. If the action changes, the record of earlier actions is dropped.
    pub fn change(&mut self, scheme: Scheme) {
        if scheme.action != self.scheme.action {
            self.acted = Acted::default();
            self.place = None;
        }
        if scheme.quota != self.scheme.quota || scheme.aim != self.scheme.aim {
            self.charge.change(&scheme.quota, scheme.unit());
        }
        if scheme.watermarks != self.scheme.watermarks {
            self.gate = Gate::default();
        }
        if scheme.aim != self.scheme.aim {
            self.aims = Aims::default();
        }
        self.due = None;
        self.scheme = scheme;
    }

    /// The age of pages by which page filters select, the shortest of all targets.
    fn page_age(&self) -> Option<Duration> {
        self.scheme.aim.map_or_else(|| self.scheme.page_age(), |_| self.aims.shortest())
    }

    /// The time of the next step even without a new snapshot. A step is due at the start, at the scheme's
    /// interval, at the next window if the last one was not sufficient, and at the next check of closed
    /// watermarks.
    pub fn next(&self) -> Option<Nanos> {
        let Some(due) = self.due else { return Some(Nanos(0)) };
        let marks = self.scheme.watermarks.as_ref();
        if let Some(closed) = marks.and_then(|marks| self.gate.closed_until(marks)) {
            return Some(due.max(closed));
        }
        match self.place {
            Some(_) => Some(due.max(self.charge.next(&self.scheme.quota, self.scheme.unit()))),
            None => (!self.scheme.apply_interval.is_zero()).then_some(due),
        }
    }

    /// Runs a turn if one is due. Adds the memory that it acts on to `taken`.
    pub fn step(
        &mut self,
        step: &Step<'_>,
        taken: &mut Acted,
        act: &mut dyn Act,
        log: &mut Vec<ActionEvent>,
    ) -> Result<(), OpsError> {
        if self.scheme.aim.is_some() {
            self.aims.observe(step.snapshot, step.metrics);
        }
        if self.due.is_some_and(|due| step.now < due) {
            return Ok(());
        }
        let open = |marks| self.gate.is_open(marks, step.now, step.metrics);
        let is_open = self.scheme.watermarks.as_ref().is_none_or(open);
        // A check of closed watermarks is no application.
        let pause = if is_open { self.scheme.apply_interval } else { Duration::ZERO };
        self.due = Some(step.now + pause);
        if let Some(aim) = self.scheme.aim {
            let name = &self.scheme.name;
            let observed = (step.snapshot, step.metrics);
            self.aims.update((name, aim), observed, step.now, is_open, &mut self.aim_steps);
        }
        if !is_open {
            self.stats.inactive += u64::from(self.gate.was_checked(step.now));
            return Ok(());
        }
        let unit = self.scheme.unit();
        let most = match self.scheme.aim {
            Some(_) => self.aims.grant(self.scheme.quota.reset, step.now),
            None => u64::MAX,
        };
        self.charge.begin(&self.scheme.quota, unit, step.now, step.metrics, most);
        self.reclaim_caches(act);
        self.acted.keep(step.snapshot);
        let aims = self.scheme.aim.map(|_| &self.aims);
        let Step { snapshot, metrics, absent, now, .. } = *step;
        let (scheme, acted) = (&self.scheme, &self.acted);
        let page_age = self.page_age();
        let pause = scheme.pause(page_age, self.time_for_look(resident_bytes(snapshot)));
        let by_page = page_age.is_some();
        let field =
            Field { scheme, snapshot, metrics, now, pause, by_page, aims, absent, acted, taken };
        let found = field.find();
        found.passed.iter().for_each(|(c, why)| self.pass(step, c, *why, log));
        let mut queue = Queue::new(found.candidates, self.place, unit);
        let done = self.turn(step, &mut queue, act, log);
        self.acts.sort_unstable_by_key(|(target, range, _)| (*target, range.start));
        self.acted.note(step.now, &self.acts);
        self.acts.retain(|(.., came)| *came == ActionResult::Succeeded);
        taken.note(step.now, &self.acts);
        self.acts.clear();
        self.place = queue.place();
        queue.rest().for_each(|c| self.pass(step, &c, SkipReason::Quota, log));
        self.stats.exceeded = self.charge.exceeded;
        self.stats.effective = self.charge.bound();
        done
    }

    /// Asks the kernel for the page cache that an objective allows, within the quota.
    fn reclaim_caches(&mut self, act: &mut dyn Act) {
        for _ in 0..MAX_BATCHES {
            let left = self.charge.left(&self.scheme.quota, self.scheme.unit()).bytes;
            let Some((group, bytes)) = self.aims.take_cache(left) else { break };
            let done = act.reclaim_cache(&group, bytes).unwrap_or_default();
            self.charge.add(done.applied, done.tried, done.took);
            self.stats.took = self.stats.took.saturating_add(done.took);
            self.stats.tried.add(done.tried);
            self.stats.applied.add(done.applied);
        }
    }

    /// The time that a look at `bytes` takes; zero if that is not known.
    fn time_for_look(&self, bytes: u64) -> Duration {
        let (looked, time) = self.looked;
        let ns = time.as_nanos() * u128::from(bytes) / u128::from(looked.max(1));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// Acts in batches until the quota is used up or no candidate remains.
    fn turn(
        &mut self,
        step: &Step<'_>,
        queue: &mut Queue,
        act: &mut dyn Act,
        log: &mut Vec<ActionEvent>,
    ) -> Result<(), OpsError> {
        let unit = self.scheme.unit();
        for _ in 0..MAX_BATCHES {
            let mut rooms = self.scheme.aim.map(|_| self.aims.rooms());
            let batch = queue
                .batch(self.charge.left(&self.scheme.quota, unit), |target, wanted| {
                    rooms.as_mut().map_or(wanted, |rooms| rooms.take(target, wanted))
                });
            if batch.is_empty() {
                break;
            }
            let (done, ended) = self.apply(step, &batch, act);
            let (made, rest) = batch.split_at(done.len().min(batch.len()));
            rest.iter().rev().for_each(|(c, _)| queue.back(*c, c.range.start));
            for ((c, budget), done) in made.iter().zip(&done).rev() {
                queue.back(*c, come_to(c, budget, done));
            }
            for ((c, budget), done) in made.iter().zip(&done) {
                let range = AddrRange::new(c.range.start, come_to(c, budget, done));
                self.account(step, &Candidate { range, ..*c }, done, log);
            }
            match (ended, rest.first()) {
                // The target ended after the snapshot was made.
                (Err(OpsError::NoTarget(_)), Some((c, _))) => {
                    queue.without(c.target);
                    self.fail(step, c, log);
                }
                (ended, _) => ended?,
            }
            let in_vain = |d: &Applied| d.applied == 0 && d.failure == Some(Failure::NoRoom);
            if done.iter().any(in_vain) {
                // An immediate retry would only add log entries, without any room to succeed.
                self.due = Some(step.now + PAUSE.max(self.scheme.apply_interval));
                break;
            }
        }
        Ok(())
    }

    fn apply(
        &self,
        step: &Step<'_>,
        batch: &[(Candidate, Budget)],
        act: &mut dyn Act,
    ) -> (Vec<Applied>, Result<(), OpsError>) {
        let action = &self.scheme.action;
        let recheck = match action.prefers() {
            Some(Heat::Cold) => self.scheme.recheck.unwrap_or(step.snapshot.attrs.sample),
            _ => Duration::ZERO,
        };
        let filters: Vec<_> = batch.iter().map(|(c, _)| self.filters(c)).collect();
        let work = |((c, budget), filters): (&(Candidate, Budget), _)| Work {
            action,
            target: c.target,
            range: c.range,
            budget: *budget,
            filters,
            recheck,
            cause: Some(Cause { scheme: &self.scheme.name, hz: c.hz, age: c.age, begins: None }),
        };
        let filters = filters.iter().map(|filters| &filters[..]);
        let works: Vec<Work<'_>> = batch.iter().zip(filters).map(work).collect();
        let mut done = Vec::with_capacity(works.len());
        let ended = act.apply(&works, &mut done);
        (done, ended)
    }

    /// The page filters for a candidate.
    fn filters(&self, c: &Candidate) -> Cow<'_, [PageFilter]> {
        let touched = |within| PageKind::Touched { within };
        let aimed = self.scheme.aim.and_then(|_| self.aims.age(c.target)).map(touched);
        let aimed = aimed.map(|kind| PageFilter { kind, matching: true, allow: false });
        let of_scheme = if c.allowed { &[][..] } else { &self.scheme.page_filters };
        match aimed {
            None => Cow::Borrowed(of_scheme),
            Some(aimed) => Cow::Owned(iter::once(aimed).chain(of_scheme.iter().copied()).collect()),
        }
    }

    /// Records the result for the processed part of a candidate.
    fn account(
        &mut self,
        step: &Step<'_>,
        c: &Candidate,
        done: &Applied,
        log: &mut Vec<ActionEvent>,
    ) {
        let counts_only = self.scheme.action == Action::Stat;
        let charged = if counts_only { done.tried } else { done.applied };
        // Skipped memory also costs time, as in the kernel. Without it, a scheme that finds all memory in use
        // would appear slow, and would get no time for the rest.
        self.charge.add(charged, done.tried + done.passed, done.took);
        self.aims.charge(c.target, charged);
        if done.tried == 0 {
            // Older looks count ever less.
            if self.looked.1 > LONG_LOOKS {
                self.looked = (self.looked.0 / 2, self.looked.1 / 2);
            }
            self.looked.0 += done.passed;
            self.looked.1 += done.took;
        }
        self.stats.took = self.stats.took.saturating_add(done.took);
        self.stats.tried.add(done.tried);
        self.stats.applied.add(done.applied);
        self.stats.passed[SkipReason::WhileActing.index()].add(done.passed);
        if !counts_only {
            self.stats.failed.add(done.tried.saturating_sub(done.applied));
            let came = match (done.applied, done.tried) {
                (0, 0) if self.page_age().is_some() => ActionResult::Skipped,
                (0, _) => ActionResult::NoEffect,
                _ => ActionResult::Succeeded,
            };
            self.acts.push((c.target, c.range, came));
        }
        log.push(self.event(step, c, Outcome::Acted(*done)));
    }

    /// Records that the target of a candidate is gone.
    fn fail(&mut self, step: &Step<'_>, c: &Candidate, log: &mut Vec<ActionEvent>) {
        let tried = c.range.len();
        self.stats.tried.add(tried);
        self.stats.failed.add(tried);
        let gone = Applied { tried, failure: Some(Failure::Gone), ..Applied::default() };
        log.push(self.event(step, c, Outcome::Acted(gone)));
    }

    fn pass(
        &mut self,
        step: &Step<'_>,
        c: &Candidate,
        why: SkipReason,
        log: &mut Vec<ActionEvent>,
    ) {
        self.stats.passed[why.index()].add(c.range.len());
        if step.log_passed {
            log.push(self.event(step, c, Outcome::Passed(why)));
        }
    }

    fn event(&self, step: &Step<'_>, c: &Candidate, outcome: Outcome) -> ActionEvent {
        ActionEvent {
            at: step.now,
            window: self.charge.windows,
            scheme: self.scheme.name.clone(),
            action: self.scheme.action.clone(),
            target: c.target,
            range: c.range,
            hz: c.hz,
            age: c.age,
            score: c.score,
            outcome,
        }
    }
}

fn resident_bytes(snapshot: &Snapshot) -> u64 {
    let regions = snapshot.targets.iter().flat_map(|t| &t.regions);
    regions.map(|r| share(r.range.len(), r.resident_bp)).sum()
}

/// The address up to which a candidate was processed: its end, unless the budget ended earlier.
fn come_to(c: &Candidate, budget: &Budget, done: &Applied) -> u64 {
    let over = align_down(done.tried.saturating_add(done.passed), PAGE_SIZE);
    if over == 0 && done.took < budget.time {
        return c.range.end;
    }
    c.range.start.saturating_add(over).min(c.range.end)
}
