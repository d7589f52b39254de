//! The exposure monitor: it clears an accessed bit once and reads it many times.
//!
//! Reading accessed bits is cheap, and clearing them is expensive. Therefore the monitor clears a little
//! memory at a time, in long runs, and reads all memory at growing delays. The delay after which a page
//! becomes young shows how often the page is touched; a page that stays idle was not touched.
//! `docs/concepts/how-it-sees.md` explains the method in full.

mod age_counter;
mod budget;
mod coarse;
mod counts;
mod groups;
mod piece;
mod plan;
mod published;
mod rest;
mod restrain;
mod spending;
mod stretches;
mod summary;
mod target;
mod timing;
mod view;
mod window;
mod windows;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use self::coarse::{bridge_samples, cut_at_borders, nr_blocks};
use self::plan::{QUIET_AFTER, StretchState, is_restless, plan};
use self::rest::{FullRead, ROUNDS_AT_REST, SnapshotQualitySums};
use self::restrain::Restrain;
use self::spending::{Extent, Spending};
use self::target::{CalmRead, ExposureTarget};
use self::timing::{CALM_INTERVAL, EARLY_READS, ExposureTerms, Moment};
use self::view::ViewBasis;
use crate::ages::KeptAges;
use crate::attrs::{Attrs, AttrsError};
use crate::call::{Cost, OpsError, TargetId};
use crate::monitor::Monitor;
use crate::ops::{Activity, Ask, Liveness, Look, Seen, Space};
use crate::range::{AddrRange, PAGE_SIZE};
use crate::region::below;
use crate::roster::{Roster, ran_since};
use crate::snapshot::{Quality, Snapshot, TargetView};
use crate::source::{Source, Step};
use crate::survey::Block;
use crate::time::{MAX_CLOCK_MS, Nanos};

/// Interval at which the monitor counts the resident pages of unobservable mappings.
const UNOBSERVABLE_EVERY: Duration = Duration::from_secs(5);
/// Maximum number of blocks per round and target whose absent pages are looked up in swap.
const MAX_SWAP_LOOKUPS: usize = 32;
/// The snapshot follows the early reads with delays up to this one.
const PUBLISHED_AFTER: Duration = Duration::from_millis(110);
/// The last snapshot is prolonged before a round if it ended this long ago or longer.
const PROLONGED_AFTER: Duration = Duration::from_millis(200);

/// An event that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DueEvent {
    /// read all memory, and clear the planned runs
    Round,
    /// read the memory cleared in this round, for the n-th time
    Early(usize),
    Publish,
}

/// The work of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RoundKind {
    /// It read all memory, and found nothing new.
    OnlyReads,
    /// It also cleared memory, and a snapshot follows.
    Complete,
}

/// The monitor that clears once and reads many times, within a budget.
///
/// Time is divided into rounds. In each round the monitor reads all memory, chooses runs and clears them, reads
/// these at growing delays, and publishes a snapshot. Four rounds are an interval. The length of a round follows
/// from the cost of reading and the budget for it. With a thousand targets and 1 % of a CPU, a round lasts half a
/// minute or longer.
pub struct Exposure<O> {
    ops: O,
    attrs: Attrs,
    roster: Roster<ExposureTarget>,
    rng: Xoshiro256PlusPlus,
    events: VecDeque<(Nanos, DueEvent)>,
    began: Option<Nanos>,
    /// ages that an earlier monitor knew, until the first step
    resumed: Vec<(TargetId, KeptAges)>,
    /// time of the last snapshot with new regions
    published: Nanos,
    /// this snapshot, if memory changes: the next round may prolong it
    last: Option<Arc<Snapshot>>,
    /// time until which snapshots have described the targets
    described: Nanos,
    next_update: Nanos,
    /// time of the last change of any target
    changed: Nanos,
    /// visible resident pages of all targets at the last snapshot
    resident: u64,
    /// The previous call of `step` returned a snapshot.
    handed_over: bool,
    /// There was no target when the CPU time of this thread was last read.
    has_none: bool,
    /// ranges cleared in this round, by target
    armed: Vec<(TargetId, Vec<AddrRange>)>,
    /// time of the last clear of this round, or of its begin
    cleared_at: Nanos,
    /// buffer of the last read, kept for reuse
    blocks: Vec<Block>,
    /// index of the target that clears first; grows by one each round
    turn: usize,
    /// selects the samples of a calm round; grows by one each round
    nr_samples: u32,
    seq: u64,
    spending: Spending,
    restrain: Restrain,
}

impl<O: Space + Look> Exposure<O> {
    /// Creates a monitor. It looks at no memory before the first [`Source::step`].
    ///
    /// # Errors
    /// If `attrs` are invalid, or `ops` cannot survey all memory.
    pub fn new(
        mut ops: O,
        attrs: Attrs,
        targets: &[TargetId],
        seed: u64,
    ) -> Result<Self, AttrsError> {
        if ops.survey().is_none() {
            return Err(AttrsError::NoSurvey(attrs.monitor.name()));
        }
        let attrs = attrs.checked()?;
        let mut monitor = Exposure {
            ops,
            attrs,
            roster: Roster::new(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            events: VecDeque::new(),
            began: None,
            resumed: Vec::new(),
            published: Nanos(0),
            last: None,
            described: Nanos(0),
            next_update: Nanos(0),
            changed: Nanos(0),
            resident: 0,
            handed_over: false,
            has_none: false,
            armed: Vec::new(),
            cleared_at: Nanos(0),
            blocks: Vec::new(),
            turn: 0,
            nr_samples: 0,
            seq: 0,
            spending: Spending::new(&attrs),
            restrain: Restrain::default(),
        };
        Monitor::set_targets(&mut monitor, targets);
        Ok(monitor)
    }

    fn ms(&self, at: Nanos) -> u32 {
        let ms = at.since(self.began.unwrap_or_default()).as_millis();
        u32::try_from(ms).unwrap_or(u32::MAX)
    }

    /// Starts the ms clock, early enough for the ages that an earlier monitor knew.
    fn begin(&mut self, now: Nanos) {
        let resumed = std::mem::take(&mut self.resumed);
        let earliest = now.0.saturating_sub(u64::from(MAX_CLOCK_MS / 4 * 3) * 1_000_000);
        let begun = resumed.iter().map(|(_, kept)| kept.begun.0.max(earliest)).min();
        self.began = Some(Nanos(begun.map_or(now.0, |begun| begun.saturating_sub(1_000_000))));
        for (id, kept) in resumed {
            let (at, begun) = (self.ms(kept.at), self.ms(kept.begun));
            let now = (now, self.ms(now));
            if let Some(i) = self.roster.position(id) {
                self.roster.targets[i].ages.resume(kept, (at, begun), now);
            }
        }
    }

    /// Moves the origin of the ms clock forward if it is due.
    fn rebase(&mut self, now: Nanos) {
        if let Some(ms) = self.began.as_mut().and_then(|began| began.move_origin(now)) {
            self.roster.targets.iter_mut().for_each(|w| w.rebase(ms));
        }
    }

    fn terms(&self, w: &ExposureTarget) -> ExposureTerms {
        let recent = u32::try_from(self.spending.round.as_millis() * 2).unwrap_or(u32::MAX);
        let long = self.spending.round.as_secs_f64() * 8.0;
        ExposureTerms { share: w.running.share(), recent, long }
    }

    fn extent(&self) -> Extent {
        let targets = &self.roster.targets;
        Extent {
            targets: targets.len(),
            pages: self.resident,
            is_large: targets.iter().any(ExposureTarget::is_large),
            is_restless: targets.iter().any(|w| is_restless(w.turned, self.published)),
        }
    }

    /// Whether this round may end after its reads, which found no change. This requires that no memory has changed
    /// for a while, that the pending clears were affordable, and that the snapshot can wait. Windows are all
    /// measured as often as possible.
    fn may_wait(&self, now: Nanos) -> bool {
        !self.attrs.windows
            && now.since(self.changed) >= QUIET_AFTER
            && self.spending.is_plentiful()
            && now.since(self.published) + self.spending.round < CALM_INTERVAL
    }

    /// The length of the next round, without jitter.
    fn next_round(&self, now: Nanos) -> Duration {
        let may_be_long = self.spending.is_automatic()
            && now.since(self.changed) >= QUIET_AFTER
            && self.roster.targets.iter().all(|w| w.rest.lasts());
        self.spending.round * if may_be_long { ROUNDS_AT_REST } else { 1 }
    }

    /// Reads the mappings of all targets again.
    fn update(&mut self, now: Nanos) -> Result<(), OpsError> {
        self.next_update = now + self.attrs.update.max(self.spending.round);
        let ms = self.ms(now);
        let ops = &mut self.ops;
        self.roster.update(|w| {
            if w.rests_with_its_mappings(ops.activity(w.id), now) {
                return Ok(Liveness::Alive);
            }
            let mut mappings = Vec::new();
            let liveness = ops.mappings(w.id, &mut mappings)?;
            if liveness == Liveness::Replaced {
                w.forget();
            }
            w.map(mappings, now, ms);
            Ok(liveness)
        })?;
        self.restrain.retain(|id| self.roster.has(id));
        Ok(())
    }

    /// Reads all memory, clears the planned runs, and schedules the remaining events of the round.
    fn begin_round(&mut self, now: Nanos) -> Result<(), OpsError> {
        self.pay_for_others()?;
        self.spending.settle(now, self.extent());
        self.rebase(now);
        if now >= self.next_update {
            self.update(now)?;
        }
        if self.roster.ended().is_some() {
            return Ok(());
        }
        let mut targets = std::mem::take(&mut self.roster.targets);
        let result = self.look_at(&mut targets, now);
        self.roster.targets = targets;
        let only_reads = result? == RoundKind::OnlyReads;
        let delays =
            EARLY_READS.iter().enumerate().filter(|(_, d)| **d < self.spending.round.mul_f64(0.7));
        let armed = self.armed.iter().any(|(_, runs)| !runs.is_empty());
        let (mut early, mut late) = (Vec::new(), Vec::new());
        for (i, &delay) in delays.filter(|_| armed) {
            // Reading and clearing all targets takes time too.
            let event = (self.cleared_at + delay, DueEvent::Early(i));
            if delay <= PUBLISHED_AFTER { early.push(event) } else { late.push(event) }
        }
        let published = early.last().map_or(now, |(at, _)| *at);
        let last = late.last().map_or(published, |(at, _)| *at);
        // The jitter prevents periodic accesses from always meeting the same phase of a round.
        let next =
            self.next_round(now).mul_f64(0.9 + below(&mut self.rng, 1 << 20) as f64 / 5_242_880.0);
        self.events.extend(early);
        if !only_reads {
            self.events.push_back((published, DueEvent::Publish));
        }
        self.events.extend(late);
        self.events.push_back(((now + next).max(last), DueEvent::Round));
        self.pay_for_reckoning()
    }

    /// The CPU time that this thread has used since the last call.
    fn reckoned(&mut self) -> Result<Cost, OpsError> {
        let had_none = std::mem::replace(&mut self.has_none, self.roster.targets.is_empty());
        let cost = match (self.roster.targets.first().map(|w| w.id), self.ops.survey()) {
            (Some(id), Some(survey)) => survey.survey(id, &[], &mut Vec::new())?,
            _ => Cost::default(),
        };
        // A new target does not pay for CPU time that was used while there was no target.
        Ok(if had_none { Cost::default() } else { cost })
    }

    /// Ends the current round earlier if it is longer than the present costs require.
    fn hasten(&mut self) {
        let by = self.published + self.spending.length(self.extent()).mul_f64(1.1);
        if let Some((at, DueEvent::Round)) = self.events.back_mut() {
            *at = by.min(*at);
        }
    }

    fn pay_for_reckoning(&mut self) -> Result<(), OpsError> {
        let cost = self.reckoned()?;
        self.spending.pay_for_rest(cost);
        Ok(())
    }

    /// Pays for the CPU time that other code used in this thread while no event was due.
    fn pay_for_others(&mut self) -> Result<(), OpsError> {
        let cost = self.reckoned()?;
        self.spending.pay_for_others(cost);
        Ok(())
    }

    /// Reads all memory of all targets, and clears the planned runs if it is time for that.
    fn look_at(
        &mut self,
        targets: &mut [ExposureTarget],
        now: Nanos,
    ) -> Result<RoundKind, OpsError> {
        self.armed.clear();
        self.cleared_at = now;
        let mut blocks = std::mem::take(&mut self.blocks);
        let mut reactivated = Vec::with_capacity(targets.len());
        // A rest continues only with a snapshot.
        let mut rest_ended = false;
        let may_wait = self.may_wait(now);
        self.nr_samples = self.nr_samples.wrapping_add(1);
        let mut resident = self.resident;
        for w in targets.iter_mut() {
            let (moment, activity) = self.moment_and_activity(w, now);
            let goes_on = w.rest.goes_on(activity, &moment, self.spending.round);
            if goes_on || may_wait && w.rest.still_lasts(activity) {
                w.running.update(now, moment.ran);
                reactivated.push(Vec::new());
                continue;
            }
            let seemed_to_rest = w.rest.is_unbroken(activity);
            w.rest.note_rested(false);
            rest_ended |= seemed_to_rest;
            let terms = self.terms(w);
            w.end_rest(&terms);
            let may_probe =
                may_wait && !seemed_to_rest && self.spending.part >= 1.0 && !w.is_large();
            let found = if may_probe { self.probe(w, &moment)? } else { Some(Vec::new()) };
            let Some(mut starts) = found else {
                reactivated.push(Vec::new());
                continue;
            };
            let Some(survey) = self.ops.survey() else { break };
            blocks.clear();
            let (ranges, within) = w.next_part(self.spending.part);
            // The time used until now is not part of the price of reading.
            let reckoned = survey.survey(w.id, &[], &mut blocks)?;
            self.spending.pay_for_rest(reckoned);
            let cost = survey.survey(w.id, &ranges, &mut blocks)?;
            let ended_early = survey.ended_early();
            self.spending.pay_for_reading(cost);
            if ended_early {
                // The blocks that were not read would seem to have left.
                w.read_again(within.start);
                w.rest.note_whole(None);
                reactivated.push(starts);
                continue;
            }
            let at = blocks.last().map_or(now, |b| b.read_at).max(now);
            let moment = Moment { at, ms: self.ms(at), ..moment };
            starts.extend(self.apply_read(w, &blocks, within, &moment, &mut resident)?);
            starts.sort_unstable();
            reactivated.push(starts);
            let has_rested = w.rest.has_rested(activity, at) && !w.was_touched;
            w.rest.note_rested(seemed_to_rest && has_rested);
            if seemed_to_rest && w.was_touched {
                w.rest.distrust(at);
            }
            let all = self.spending.part >= 1.0;
            let whole = activity.filter(|_| all).map(|activity| FullRead { activity, at: moment });
            w.rest.note_whole(whole);
            self.see_swapped(w)?;
            self.see_hidden(w, at, has_rested)?;
        }
        self.blocks = blocks;
        let changed = targets.iter_mut().map(|w| std::mem::take(&mut w.has_changed));
        let changed = changed.fold(false, |any, changed| any | changed);
        if changed || reactivated.iter().any(|starts| !starts.is_empty()) {
            self.changed = now;
        }
        if !rest_ended && self.may_wait(now) {
            return Ok(RoundKind::OnlyReads);
        }
        self.clear_planned(targets, reactivated, now)?;
        Ok(RoundKind::Complete)
    }

    /// Applies a read of blocks of a target to its pieces and ages, and adds a new target's pages to `resident`. Returns
    /// the starts of the pieces that were touched after a long idle time.
    fn apply_read(
        &mut self,
        w: &mut ExposureTarget,
        blocks: &[Block],
        within: AddrRange,
        moment: &Moment,
        resident: &mut u64,
    ) -> Result<Vec<u64>, OpsError> {
        w.running.update(moment.at, moment.ran);
        let pieces = &w.pieces;
        // A round may read a part only, and at first there are no pieces.
        let pages = || {
            let read: u64 = blocks.iter().map(|b| u64::from(b.resident.count())).sum();
            read.max(pieces.iter().map(|p| u64::from(p.nr_resident())).sum())
        };
        let nr_blocks = nr_blocks(blocks, |b| b.start).max(w.nr_blocks);
        if w.ages.is_new() {
            *resident += pages();
        }
        if w.ages.begin((moment.at, moment.ms), nr_blocks, pages, *resident) {
            w.recount(moment.ms);
        }
        let terms = self.terms(w);
        let mut starts = w.read_all(blocks, within, moment, &terms, self.attrs.window);
        if w.is_large() {
            // Each round looks at other samples.
            w.has_changed = true;
            starts.extend(self.read_sentinels(w, moment)?);
            if w.is_new || self.spending.is_in_credit() {
                cut_at_borders(&mut w.pieces, &terms);
            }
        }
        Ok(starts)
    }

    /// Clears the planned runs of all targets; `reactivated` has the starts of touched pieces for each target.
    fn clear_planned(
        &mut self,
        targets: &mut [ExposureTarget],
        reactivated: Vec<Vec<u64>>,
        now: Nanos,
    ) -> Result<(), OpsError> {
        let nr_targets = targets.len().max(1);
        // Each round a different target clears first. The allowance that it does not use goes to the next
        // target.
        self.turn = self.turn.wrapping_add(1);
        let mut order: Vec<(&mut ExposureTarget, Vec<u64>)> =
            targets.iter_mut().zip(reactivated).collect();
        let first = self.turn % order.len().max(1);
        order.rotate_left(first);
        for (done, (w, reactivated)) in order.into_iter().enumerate() {
            if w.rest.may_skip_clear(now) {
                continue;
            }
            let restraint = self.restrain.of(&mut self.ops, w, now);
            let allowance = self.spending.allowance(nr_targets - done, w, restraint);
            let terms = self.terms(w);
            let stretches = StretchState {
                reactivated: &w.reactivated,
                borders: &w.borders,
                turned: w.turned,
                terms,
                ages: w.ages.sampling,
                is_large: w.is_large(),
            };
            let prices = &self.spending.prices;
            let runs =
                plan(&w.pieces, &w.regions, &stretches, &reactivated, &allowance, prices, now);
            if !runs.is_empty() {
                w.rest.note_clear(now);
            }
            self.clear(w, &runs, now)?;
        }
        self.spending.end_clears();
        Ok(())
    }

    /// Reads the memory of a target that may have changed, and only a sample of quiet memory. Returns `None` if
    /// it found nothing new. Otherwise all memory is to be read, and these pieces were touched after a long
    /// idle time.
    fn probe(
        &mut self,
        w: &mut ExposureTarget,
        now: &Moment,
    ) -> Result<Option<Vec<u64>>, OpsError> {
        let CalmRead { sampled, whole } = w.calm_read();
        let Some(survey) = self.ops.survey() else { return Ok(None) };
        let (is_young, mut cost) = survey.probe(w.id, &sampled, self.nr_samples)?;
        if is_young {
            self.spending.pay_for_rest(cost);
            return Ok(Some(Vec::new()));
        }
        let mut blocks = Vec::new();
        cost += survey.survey(w.id, &whole, &mut blocks)?;
        self.spending.pay_for_rest(cost);
        let at = blocks.last().map_or(now.at, |b| b.read_at).max(now.at);
        let moment = Moment { at, ms: self.ms(at), ..*now };
        w.running.update(at, moment.ran);
        let terms = self.terms(w);
        let starts = w.read_some((&whole, &blocks), None, &moment, &terms);
        Ok((!starts.is_empty() || w.has_changed).then_some(starts))
    }

    /// Reads untouched samples of a large target. Returns the addresses of pieces touched after a long idle
    /// time.
    fn read_sentinels(
        &mut self,
        w: &mut ExposureTarget,
        now: &Moment,
    ) -> Result<Vec<u64>, OpsError> {
        let mut ranges = w.sentinels.next(&w.pieces, self.spending.sentinels());
        let whole =
            w.pieces.iter().filter(|p| !p.is_coarse() && w.ages.sampling.has_block(p.block()));
        ranges.extend(whole.map(|p| p.range));
        ranges.sort_unstable_by_key(|r| r.start);
        let terms = self.terms(w);
        let Some(survey) = self.ops.survey().filter(|_| !ranges.is_empty()) else {
            return Ok(Vec::new());
        };
        let mut blocks = Vec::new();
        let reckoned = survey.survey(w.id, &[], &mut blocks)?;
        self.spending.pay_for_rest(reckoned);
        let mut cost = survey.survey(w.id, &ranges, &mut blocks)?;
        let at = blocks.last().map_or(now.at, |b| b.read_at).max(now.at);
        let moment = Moment { at, ms: self.ms(at), ..*now };
        let reactivated = w.read_some((&ranges, &blocks), None, &moment, &terms);
        // Processing the samples costs more than reading them.
        if let Some(survey) = self.ops.survey() {
            cost += survey.survey(w.id, &[], &mut Vec::new())?;
        }
        self.spending.pay_for_sentinels(cost, ranges.len());
        Ok(reactivated)
    }

    /// Reads the clock and the activity of a target in one query.
    fn moment_and_activity(&mut self, w: &ExposureTarget, at: Nanos) -> (Moment, Option<Activity>) {
        let activity = self.ops.activity(w.id);
        let ran = activity.map(|a| a.ran).or_else(|| self.ops.ran(w.id));
        (Moment { at, ms: self.ms(at), ran }, activity)
    }

    fn moment(&mut self, w: &ExposureTarget, at: Nanos) -> Moment {
        Moment { at, ms: self.ms(at), ran: self.ops.ran(w.id) }
    }

    fn clear(
        &mut self,
        w: &mut ExposureTarget,
        runs: &[plan::ClearRun],
        now: Nanos,
    ) -> Result<(), OpsError> {
        let pages: u64 = runs.iter().map(|r| r.pages).sum();
        if w.is_large() {
            for run in runs.iter().filter(|r| r.sample.is_some()) {
                let piece = &mut w.pieces[run.pieces.start];
                if !w.ages.sampling.has_block(piece.block()) {
                    piece.coarsen(self.ms(now));
                }
            }
        }
        let range = |r: &plan::ClearRun| match r.sample {
            Some(sample) => vec![sample],
            None => w.joined(r.pieces.clone()),
        };
        let ranges: Vec<AddrRange> = runs.iter().flat_map(range).collect();
        if !ranges.is_empty() {
            let ran = self.moment(w, now);
            let mut done = Vec::new();
            let Some(survey) = self.ops.survey() else { return Ok(()) };
            // The time used since the last read is not part of the price of clearing.
            let reckoned = survey.survey(w.id, &[], &mut Vec::new())?;
            self.spending.pay_for_rest(reckoned);
            let cost = survey.clear(w.id, &ranges, &mut done)?;
            self.spending.pay_for_clearing(cost, pages, first_pages(w, runs), w.is_new);
            self.cleared_at = done.iter().map(|c| c.cleared_at).fold(self.cleared_at, Nanos::max);
            let terms = self.terms(w);
            w.clear(&done, &ran, &terms, self.began.unwrap_or_default());
            if w.is_new {
                w.is_new = w.pieces.iter().any(|p| !p.was_cleared());
            }
        }
        self.armed.push((w.id, ranges));
        Ok(())
    }

    /// Reads the memory that this round has cleared, for the early read of index `class`.
    fn read_early(&mut self, class: usize, now: Nanos) -> Result<(), OpsError> {
        self.pay_for_others()?;
        let armed = std::mem::take(&mut self.armed);
        let mut blocks = std::mem::take(&mut self.blocks);
        let mut all_spent = true;
        // The read before the snapshot completes the exposures.
        let may_skip = !matches!(self.events.front(), Some((_, DueEvent::Publish)));
        for (id, ranges) in armed.iter().filter(|(_, ranges)| !ranges.is_empty()) {
            let Some(at) = self.roster.position(*id) else { continue };
            // A target at rest has touched nothing.
            let rest = &self.roster.targets[at].rest;
            if may_skip && rest.still_lasts(self.ops.activity(*id)) {
                continue;
            }
            let Some(survey) = self.ops.survey() else { break };
            let are_spent: Vec<bool> = self.roster.targets[at].are_spent(ranges).collect();
            let mut are_spent = are_spent.into_iter();
            let is_spent = |_: &AddrRange| are_spent.next() == Some(true);
            let (spent, ranges): (Vec<AddrRange>, Vec<AddrRange>) =
                ranges.iter().copied().partition(is_spent);
            blocks.clear();
            if !ranges.is_empty() {
                let cost = survey.survey(*id, &ranges, &mut blocks)?;
                self.spending.pay_for_early(cost);
            }
            let at_ns = blocks.last().map_or(now, |b| b.read_at).max(now);
            let (ms, ran) = (self.ms(at_ns), self.ops.ran(*id));
            let terms = self.terms(&self.roster.targets[at]);
            let moment = Moment { at: at_ns, ms, ran };
            let w = &mut self.roster.targets[at];
            w.stay_spent(&spent, class, &moment, &terms);
            w.read_some((&ranges, &blocks), Some(class), &moment, &terms);
            all_spent &= w.are_spent(&ranges).all(|is_spent| is_spent);
        }
        (self.armed, self.blocks) = (armed, blocks);
        let reckoned = self.reckoned()?;
        self.spending.pay_for_early(reckoned);
        let asks = |w: &ExposureTarget| w.hides_much() && !w.rest.rested();
        if self.spending.may_ask() && self.roster.targets.iter().any(asks) {
            // The list of asks is empty: a way to look that works in epochs has work to do soon after each
            // epoch begins.
            let cost = self.ops.look(&[], &mut Vec::new())?;
            self.spending.pay_for_asking(cost);
        } else if all_spent {
            self.end_early_reads();
        }
        Ok(())
    }

    /// Removes the remaining early reads, which would find nothing new. The one before the snapshot stays: it needs
    /// no wakeup of its own, and completes the exposures.
    fn end_early_reads(&mut self) {
        let published = self.events.iter().find(|(_, event)| *event == DueEvent::Publish);
        let published = published.map(|(at, _)| *at);
        let is_early = |event| matches!(event, DueEvent::Early(_));
        self.events.retain(|(at, event)| !is_early(*event) || Some(*at) == published);
    }

    /// Asks which pages that are no longer resident are in swap, or were evicted; the others were freed, and have no
    /// age.
    fn see_swapped(&mut self, w: &mut ExposureTarget) -> Result<(), OpsError> {
        for start in w.ages.take_left(MAX_SWAP_LOOKUPS) {
            let Some(survey) = self.ops.survey() else { break };
            let Some(swapped) = survey.swapped(w.id, start)? else {
                w.ages.leave(start);
                continue;
            };
            let kept = w.resident_in_block(start).or(&swapped).or(&w.pages_of_files(start));
            w.ages.keep_only(start, &kept);
        }
        Ok(())
    }

    /// Looks at hidden memory in other ways: counts resident pages of unobservable mappings, and asks about
    /// pages whose accessed bits carry no information. If the target `has_rested`, it touched none of them.
    fn see_hidden(
        &mut self,
        w: &mut ExposureTarget,
        now: Nanos,
        has_rested: bool,
    ) -> Result<(), OpsError> {
        if now >= w.next_unobservable {
            w.next_unobservable = now + UNOBSERVABLE_EVERY.max(self.spending.round);
            let ranges = w.unobservable.ranges();
            let (mut blocks, mut ended_early) = (Vec::new(), false);
            if let Some(survey) = self.ops.survey().filter(|_| !ranges.is_empty()) {
                let cost = survey.survey(w.id, &ranges, &mut blocks)?;
                ended_early = survey.ended_early();
                self.spending.pay_for_rest(cost);
            }
            if ended_early {
                w.next_unobservable = now;
            } else {
                w.unobservable.see(&blocks, &w.mappings);
            }
        }
        w.hides_little = false;
        let hides_much = w.hides_much();
        w.hides_little = w.is_large() && !hides_much;
        // An early read asks about it too.
        w.has_changed |= hides_much && !has_rested;
        if hides_much && !w.rest.rested() && self.spending.may_ask() {
            let asks: Vec<Ask> = w.ask_hidden(&mut self.rng, self.attrs.window);
            let mut seen: Vec<Seen> = Vec::new();
            let cost = self.ops.look(&asks, &mut seen)?;
            w.take_answers(&asks, &seen, self.ms(now));
            self.spending.pay_for_asking(cost);
        }
        Ok(())
    }

    fn publish(&mut self, now: Nanos) -> Arc<Snapshot> {
        let mut targets = std::mem::take(&mut self.roster.targets);
        let quality = self.quality(&mut targets, now);
        let views = targets.iter_mut().map(|w| self.target_view(w, now)).collect();
        self.roster.targets = targets;
        for w in &mut self.roster.targets {
            w.externally_cleared = 0;
        }
        let snapshot = self.snapshot(now, quality, views);
        self.published = now;
        self.last = self.extent().is_restless.then(|| Arc::clone(&snapshot));
        snapshot
    }

    fn snapshot(
        &mut self,
        now: Nanos,
        quality: Quality,
        targets: Vec<TargetView>,
    ) -> Arc<Snapshot> {
        let (start, seq) = (std::mem::replace(&mut self.described, now), self.seq);
        self.seq += 1;
        self.handed_over = true;
        let most_regions = match self.attrs.windows {
            true => 0,
            false => self.attrs.most_regions(self.resident * PAGE_SIZE),
        };
        let attrs = Attrs {
            aggr: now.since(start).max(self.attrs.sample * 2),
            max_regions: self.attrs.max_regions.max(most_regions),
            ..self.attrs
        };
        let (cost, quality) = (self.spending.take_cost(), Some(quality));
        Arc::new(Snapshot { seq, start, end: now, attrs, cost, quality, targets })
    }

    /// While memory changes: the regions of the last snapshot once more, for the time since then. Otherwise the next
    /// snapshot, whose samples are cleared in the round that begins now, would describe this time as well.
    ///
    /// Example: samples are cleared each 500 ms, and a snapshot follows after 100 ms. If memory becomes hot 50 ms before
    /// a clear, the snapshot would show it as hot for 350 ms in which it was not.
    fn prolonged(&mut self, now: Nanos) -> Option<Arc<Snapshot>> {
        let last = self.last.take().filter(|s| now.since(s.end) >= PROLONGED_AFTER)?;
        let quality = Quality { externally_cleared: 0, ..last.quality? };
        let mut views = Vec::with_capacity(last.targets.len());
        for v in &last.targets {
            // Targets that have ended are not in it.
            let Some(i) = self.roster.position(v.id) else { continue };
            views.push(TargetView {
                id: v.id,
                ran: ran_since(&mut self.roster.targets[i].ran, self.ops.ran(v.id)),
                mappings: Arc::clone(&v.mappings),
                left_out: v.left_out,
                dirty: None,
                regions: v.regions.clone(),
                ages: None,
            });
        }
        Some(self.snapshot(now, quality, views))
    }

    /// Makes the regions of all targets, and returns coverage, error and restraint of the snapshot.
    fn quality(&mut self, targets: &mut [ExposureTarget], now: Nanos) -> Quality {
        let resident: Vec<u64> = targets.iter().map(ExposureTarget::resident_pages).collect();
        self.resident = resident.iter().sum();
        let most = self.attrs.most_regions(self.resident * PAGE_SIZE);
        let mut all = SnapshotQualitySums::default();
        for (w, resident) in targets.iter_mut().zip(resident) {
            if let Some(worth) = w.rest.worth() {
                all.add(worth);
                continue;
            }
            let terms = self.terms(w);
            w.extend(now, &terms);
            w.doubt(self.published, &terms);
            if w.is_large() {
                bridge_samples(&mut w.pieces);
            }
            let own = self.attrs.regions_of_target(most, resident, self.resident, w.areas());
            let moment = self.moment(w, now);
            let basis = ViewBasis {
                terms: self.terms(w),
                now: moment,
                round: self.spending.round,
                sample: self.attrs.sample,
                externally_cleared_share: (w.externally_cleared as f64 / resident.max(1) as f64)
                    .max(self.restrain.cleared_by_reclaim(w.id)),
            };
            let mut worth = SnapshotQualitySums::default();
            for v in w.make_regions(&basis, own, self.attrs.windows) {
                worth.count(&v);
            }
            w.may_rest(worth);
            all.add(worth);
        }
        Quality {
            coverage_bp: all.coverage_bp(),
            error_log2: all.error_log2(),
            externally_cleared: targets.iter().map(|w| w.externally_cleared).sum(),
            restraint: self.restrain.most(),
        }
    }

    fn target_view(&mut self, w: &mut ExposureTarget, now: Nanos) -> TargetView {
        let moment = Moment { at: now, ms: self.ms(now), ran: None };
        let rested = w.rest.views();
        let ran_now = match &rested {
            Some((ran, _)) => Some(*ran),
            None => self.ops.ran(w.id),
        };
        TargetView {
            id: w.id,
            ran: ran_since(&mut w.ran, ran_now),
            mappings: Arc::clone(&w.mappings),
            left_out: w.left_out,
            dirty: None,
            regions: rested.map_or_else(|| std::mem::take(&mut w.views), |(_, regions)| regions),
            ages: w.take_ages(&moment).map(Arc::new),
        }
    }
}

/// Young pages of the runs in `runs` whose first piece was never cleared.
fn first_pages(w: &ExposureTarget, runs: &[plan::ClearRun]) -> u64 {
    let first =
        |r: &&plan::ClearRun| w.pieces.get(r.pieces.start).is_some_and(|p| !p.was_cleared());
    runs.iter().filter(first).map(|r| r.pages).sum()
}

impl<O: Space + Look> Source for Exposure<O> {
    fn step(&mut self, now: Nanos) -> Result<Step, OpsError> {
        if self.began.is_none() {
            self.begin(now);
            (self.published, self.described) = (now, now);
            self.next_update = now;
            self.spending.begin(now);
            self.events.push_back((now, DueEvent::Round));
        }
        if std::mem::take(&mut self.handed_over) {
            // The caller has processed a snapshot in the meantime: pay for that.
            self.pay_for_reckoning()?;
        }
        loop {
            if let Some(why) = self.roster.ended() {
                return Ok(Step::End(why));
            }
            let Some(&(at, event)) = self.events.front() else {
                self.events.push_back((now, DueEvent::Round));
                continue;
            };
            if now < at {
                return Ok(Step::Wait(at));
            }
            if event == DueEvent::Round
                && let Some(snapshot) = self.prolonged(now)
            {
                return Ok(Step::Snapshot(snapshot));
            }
            self.events.pop_front();
            match event {
                DueEvent::Round => self.begin_round(now)?,
                // An early read that is late is merged into the next one, which is due too.
                DueEvent::Early(_)
                    if self.events.front().is_some_and(|(next, e)| {
                        *next <= now && matches!(e, DueEvent::Early(_))
                    }) => {}
                DueEvent::Early(class) => self.read_early(class, now)?,
                // At the first step without memory to clear, no time has passed since the start: publish
                // nothing.
                DueEvent::Publish if now <= self.described => {}
                DueEvent::Publish => return Ok(Step::Snapshot(self.publish(now))),
            }
        }
    }
}

impl<O: Space + Look> Monitor for Exposure<O> {
    type Ops = O;

    fn ops(&mut self) -> &mut O {
        &mut self.ops
    }

    fn attrs(&self) -> Attrs {
        self.attrs
    }

    fn set_attrs(&mut self, attrs: Attrs) -> Result<(), AttrsError> {
        let new = Attrs { monitor: self.attrs.monitor, ..attrs.checked()? };
        if new.window != self.attrs.window {
            for w in &mut self.roster.targets {
                w.pieces.clear();
                w.rest.forget();
            }
        }
        self.roster.targets.iter_mut().for_each(|w| w.rest.disturb());
        self.attrs = new;
        self.changed = self.published;
        self.spending.set_attrs(&new);
        self.hasten();
        Ok(())
    }

    fn set_targets(&mut self, ids: &[TargetId]) {
        // Targets that are added later are swept within the budget: many may be added one after the other.
        let is_new = self.began.is_none();
        self.roster.set(ids, |id| ExposureTarget::new(id, is_new));
        self.restrain.retain(|id| self.roster.has(id));
        self.next_update = Nanos(0);
        self.changed = self.published;
        self.hasten();
    }

    fn kept_ages(&self) -> Vec<(TargetId, KeptAges)> {
        let (now, ms) = (self.published, self.ms(self.published));
        let kept = |w: &ExposureTarget| Some((w.id, w.ages.kept(now, ms)?));
        self.roster.targets.iter().filter_map(kept).collect()
    }

    fn resume_ages(&mut self, kept: Vec<(TargetId, KeptAges)>) {
        self.resumed = kept;
    }

    fn outlive_targets(&mut self) {
        self.roster.outlive_targets();
    }

    fn stop(&mut self) {
        self.roster.stop();
    }
}
