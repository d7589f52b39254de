//! Advice from a record: which ranges of a program to lock, to back with huge pages, or to page out, and which
//! memory limits to set.

mod history;
mod idle;
mod layout;
mod ranges;
mod rows;
mod sizing;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use isotherm_core::{AgeCurve, Snapshot, TargetId, TargetView};

use crate::access::TargetName;
use crate::basis::ms;
use crate::distribution::Distribution;
use crate::filter::{FilterError, Gate};
use history::{Block, BlockSums};
use idle::{Ladder, RegionBlockState};
use layout::Layout;
use ranges::{ranges, stretches};
use sizing::{Moment, SIZES, SizingTally, Window, by_ages};

pub use layout::AdviceScope;
pub use rows::{ActionRow, Advice, AdvisedAction, IdleRow, RangeRow, Sizing};

/// Idle times that are always reported, in seconds.
const ADVICE_IDLE_TIMES_S: [u64; 9] = [5, 10, 30, 60, 120, 300, 600, 1800, 3600];

/// Thresholds of the advice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdviceThresholds {
    /// maximum total size of locked memory, in bytes: `RLIMIT_MEMLOCK`
    pub lock_limit: u64,
    /// minimum idle time at the end of the record for memory to be paged out
    pub min_age: Duration,
    /// The working set is the memory touched within this time, or within half of the record if that is shorter.
    pub window: Duration,
    /// margin added to the working set for a limit
    pub headroom_percent: f64,
}

impl Default for AdviceThresholds {
    /// 8 MiB, the usual limit; 30 s; 60 s; 10 %.
    fn default() -> Self {
        AdviceThresholds {
            lock_limit: 8 << 20,
            min_age: Duration::from_secs(30),
            window: Duration::from_secs(60),
            headroom_percent: 10.0,
        }
    }
}

/// Makes [`Advice`] in a second pass over the snapshots, which must be pushed in order of time.
#[derive(Debug)]
pub struct AdviceBuilder {
    scope: AdviceScope,
    time: Range<Duration>,
    gate: Gate,
    wishes: AdviceThresholds,
    window: Window,
    ladder: Ladder,
    layout: Layout,
    blocks: Vec<Block>,
    /// touches of all memory, in the unit of blocks
    touches: f64,
    all: SizingTally,
    targets: BTreeMap<TargetId, SizingTally>,
    /// targets whose idle ages count in the limit of all together
    counted: BTreeSet<TargetId>,
    /// resident memory of all other targets over time
    rest: Distribution,
}

impl AdviceBuilder {
    /// Starts the second pass over the memory that the first pass has found.
    ///
    /// # Errors
    /// If there is nothing in the selected time or at the selected addresses.
    pub fn new(scope: AdviceScope, wishes: AdviceThresholds) -> Result<Self, FilterError> {
        let time = scope.time()?;
        let half = (time.end - time.start) / 2;
        let hot_hz = scope.options.thresholds.hot_hz;
        let window = Window { length: wishes.window.min(half), hot_hz };
        let steps = ADVICE_IDLE_TIMES_S.map(Duration::from_secs).into_iter();
        let ladder = Ladder::new(steps.chain([window.length]).collect(), wishes.min_age);
        let layout = scope.layout();
        let sizing = |begin| SizingTally::new(begin, &ladder);
        Ok(AdviceBuilder {
            gate: Gate::new(scope.options.filter.clone()),
            blocks: vec![Block::default(); layout.blocks],
            all: sizing(time.start),
            targets: scope
                .targets
                .iter()
                .map(|(id, last)| (*id, sizing(last.time.start)))
                .collect(),
            touches: 0.0,
            counted: scope.counted(window.length),
            rest: Distribution::new(SIZES),
            scope,
            time,
            wishes,
            window,
            ladder,
            layout,
        })
    }

    /// Adds a snapshot, if it is in the selected time.
    pub fn push(&mut self, s: &Snapshot) {
        let Some(time) = self.gate.admit(s) else { return };
        let mut all = Moment::new(&self.ladder);
        let mut rest = 0;
        let filter = self.scope.options.filter.clone();
        for view in filter.views(s) {
            let now = self.target(view, &time, s.attrs.sample);
            all.add(&now);
            if !self.counted.contains(&view.id) {
                rest += now.resident();
            }
            if let Some(tally) = self.targets.get_mut(&view.id) {
                tally.push(&time, &now, &self.window, &self.ladder);
            }
        }
        self.all.push(&time, &all, &self.window, &self.ladder);
        if time.end.saturating_sub(self.time.start) > self.window.length {
            self.rest.push(rest, (time.end - time.start).as_secs_f64());
        }
    }

    fn target(&mut self, view: &TargetView, time: &Range<Duration>, sample: Duration) -> Moment {
        let seconds = (time.end - time.start).as_secs_f64();
        let mut moment = Moment::new(&self.ladder);
        let mut open: Option<(usize, BlockSums)> = None;
        let (blocks, ladder) = (&mut self.blocks, &self.ladder);
        let mut close = |open: Option<(usize, BlockSums)>, moment: &mut Moment| {
            let Some((i, now)) = open else { return };
            let back = blocks.get_mut(i).and_then(|b| b.push(&now, seconds, time.end, ladder));
            if let Some(back) = back {
                moment.returned(&back);
            }
        };
        for r in self.scope.options.filter.clipped(view) {
            let fact = RegionBlockState::new(&r, sample, self.window.hot_hz, &self.ladder);
            let length = r.range.len();
            moment.region(self.window.bytes(&r), &fact, length);
            self.touches += fact.hz * fact.seen * length as f64 * seconds;
            for place in self.layout.within(view.id, r.range) {
                for (i, part) in self.layout.blocks(place, r.range) {
                    if open.as_ref().is_none_or(|o| o.0 != i) {
                        close(open.replace((i, BlockSums::new())), &mut moment);
                    }
                    if let Some((_, now)) = &mut open {
                        now.add(&fact, part);
                    }
                }
            }
        }
        close(open, &mut moment);
        moment
    }

    /// The figures.
    #[must_use]
    pub fn finish(self) -> Advice {
        let options = &self.scope.options;
        let there = |target: TargetId| {
            let time = self.scope.targets.get(&target).map_or(&self.time, |t| &t.time);
            (time.end - time.start).as_secs_f64()
        };
        let all = stretches(&self.layout, &self.blocks, |place| there(place.target));
        let lock = (self.wishes.lock_limit, self.window.hot_hz);
        let of = |action| ranges(&all, action, lock, self.touches);
        let known = |bytes: Option<u64>| bytes.and_then(|n| options.missing.resident(n));
        let known_row = |r: RangeRow| RangeRow { resident_bytes: known(r.resident_bytes), ..r };
        let rows: Vec<RangeRow> =
            AdvisedAction::ALL.into_iter().flat_map(of).map(known_row).collect();
        let actions = AdvisedAction::ALL.map(|action| self.action(action, &rows)).into();
        let name = |(id, last): (&TargetId, &layout::Last)| TargetName {
            target: id.0,
            label: options.label(*id),
            left_out_bytes: last.view(*id).map_or(0, |v| v.left_out),
        };
        let targets: Vec<TargetName> = self.scope.targets.iter().map(name).collect();
        let several = self.targets.len() > 1;
        let sizing = |tally: SizingTally, name| {
            tally.sizing(name, &self.window, self.wishes.headroom_percent, &self.ladder)
        };
        let all = sizing(self.all, (None, "all together".to_owned()));
        let counted = self.counted.iter().filter_map(|id| self.scope.ages.get(id));
        let mut sizings = vec![by_ages(all, &counted.collect::<Vec<_>>(), self.rest)];
        if several {
            let each = self.targets.into_iter();
            let each = each.map(|(id, t)| {
                let curve: Vec<&AgeCurve> = self.scope.ages.get(&id).into_iter().collect();
                let none = Distribution::new(SIZES);
                by_ages(sizing(t, (Some(id.0), options.label(id))), &curve, none)
            });
            sizings.extend(each);
        }
        sizings.iter_mut().for_each(|s| s.resident_bytes = known(s.resident_bytes));
        Advice {
            schema_version: 1,
            title: options.title.clone(),
            basis: self.scope.tally.basis(options, &self.time),
            min_age_ms: ms(self.wishes.min_age),
            lock_limit_bytes: self.wishes.lock_limit,
            block_bytes: 1 << self.layout.shift,
            unknown_bytes_at_end: sizings.first().map_or(0, |s| s.unknown_bytes),
            left_out_bytes: self.layout.left_out,
            targets_left_out: self.scope.beyond,
            targets,
            actions,
            ranges: rows,
            sizing: sizings,
        }
    }

    fn action(&self, action: AdvisedAction, all: &[RangeRow]) -> ActionRow {
        let own = || all.iter().filter(|r| r.action == action);
        let missing = self.scope.options.missing;
        ActionRow {
            action,
            ranges: own().count() as u64,
            size_bytes: own().map(|r| r.size_bytes).sum(),
            resident_bytes: missing.resident(own().filter_map(|r| r.resident_bytes).sum()),
            access_percent: own().map(|r| r.access_percent).sum(),
            returns: own().map(|r| r.returns).sum(),
            scheme: self.scheme(action),
        }
    }

    /// For a scheme, memory with few touched pages is cold too: the scheme looks again and skips touched pages.
    fn scheme(&self, action: AdvisedAction) -> Option<String> {
        let age = self.wishes.min_age.max(Duration::from_millis(1)).as_secs_f64();
        let hot = self.window.hot_hz;
        let cold = |word: &str| format!("4K null  null 0.1Hz  {age}s null  {word}");
        match action {
            AdvisedAction::Lock => None,
            AdvisedAction::Hugepage => Some(format!("2M null  {hot}Hz null  null null  hugepage")),
            AdvisedAction::Pageout => Some(cold("pageout")),
            AdvisedAction::Cold => Some(cold("cold")),
        }
    }
}

#[cfg(test)]
mod tests;
