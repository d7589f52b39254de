//! What is known of a recording: for each target its heat over time, its axis of addresses and its ages.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    Attribution, HeatBytes, Mapping, Nanos, PageAges, Snapshot, TargetId, Thresholds,
};
use isotherm_record::{Event, TargetFact};
use isotherm_view::{Moment, View};
use serde::Serialize;

use crate::axis::{Axis, Ranges};
use crate::cell::Rates;
use crate::pyramid::{Column, Keep, Pyramid};
use crate::series::Series;

/// Maximum number of targets with a history. A limit, because records come from outside.
const MOST_TARGETS: usize = 4096;
/// Maximum number of ages, and of attributions, that are kept of a target, and of all.
const MOST_POINTS: usize = 256;
const MOST_ALL_POINTS: usize = 1 << 16;
/// Parts of the series of all targets, and of one.
const PARTS: usize = 2048;
const TARGET_PARTS: usize = 512;
/// Maximum number of marks on the time line. Beyond it, the oldest are dropped.
const MOST_MARKS: usize = 2048;

/// How an [`Index`] is kept.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// what to give up when memory is short
    pub keep: Keep,
    /// maximum number of runs in memory, of 8 bytes each
    pub runs: usize,
    /// maximum bytes of whole snapshots in memory
    pub ring: usize,
    /// Times without snapshots show what came after them: for a sample of a record.
    pub bridge: bool,
    /// limits of hot and cold
    pub thresholds: Thresholds,
}

/// What is known of a recording.
#[derive(Debug)]
pub struct Index {
    limits: Limits,
    begin: Option<Nanos>,
    end: Nanos,
    snapshots: u64,
    regions: u64,
    targets: BTreeMap<TargetId, Target>,
    /// targets without a history, because there were too many
    left_out: u64,
    total: Series,
    rates: Rates,
    view: View,
    marks: VecDeque<SchemeMark>,
    points: usize,
}

/// One target.
#[derive(Debug)]
struct Target {
    fact: Option<TargetFact>,
    mappings: Arc<Vec<Mapping>>,
    axis: Axis,
    /// number of snapshots at the last change of `axis`
    axis_at: u64,
    pyramid: Pyramid,
    series: Series,
    ages: VecDeque<(Nanos, Arc<PageAges>)>,
    /// in order of time
    attributions: VecDeque<Attribution>,
    last: HeatBytes,
    seen: Nanos,
}

/// What a scheme has done at some time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SchemeMark {
    /// when, since the start of the recording
    pub ms: f64,
    /// name of the scheme
    pub scheme: String,
    /// its action
    pub action: String,
    /// bytes it was applied to
    pub bytes: u64,
}

/// A target for the page.
#[derive(Debug, Serialize)]
pub struct TargetFigures {
    /// its number
    pub id: u32,
    /// pid of a process
    pub pid: Option<u32>,
    /// name of its program
    pub name: String,
    /// command line
    pub command: String,
    /// resident bytes in its last snapshot
    pub resident: u64,
    /// whether it is in the last snapshot
    pub lives: bool,
}

impl Index {
    /// An index of nothing.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let mut view = View::new(limits.ring);
        view.set_thresholds(limits.thresholds);
        Index {
            limits,
            begin: None,
            end: Nanos(0),
            snapshots: 0,
            regions: 0,
            targets: BTreeMap::new(),
            left_out: 0,
            total: Series::new(PARTS),
            rates: Rates::default(),
            view,
            marks: VecDeque::new(),
            points: 0,
        }
    }

    /// Adds the next event of the recording.
    pub fn push(&mut self, event: Event) {
        match &event {
            Event::Snapshot(s) => {
                self.snapshot(s);
                if self.limits.ring == 0 {
                    return;
                }
            }
            Event::Target(fact) => {
                if let Some(target) = self.target(fact.id) {
                    target.fact = Some(fact.clone());
                }
            }
            Event::Attribution(a) => {
                let target = self.target(a.target);
                // A service repeats them with each snapshot.
                let is_new =
                    |t: &&mut Target| t.attributions.back().is_none_or(|last| last.at < a.at);
                if let Some(target) = target.filter(is_new) {
                    target.attributions.push_back(a.clone());
                    thin(&mut target.attributions);
                }
            }
            _ => {}
        }
        self.view.push(event);
    }

    /// The target of this number, which is added if there is room.
    fn target(&mut self, id: TargetId) -> Option<&mut Target> {
        if !self.targets.contains_key(&id) {
            if self.targets.len() >= MOST_TARGETS {
                // Live views run for long: the target that ended first makes room.
                let end = self.end;
                let gone =
                    self.targets.iter().filter(|(_, t)| t.seen < end).min_by_key(|(_, t)| t.seen);
                let gone = gone.map(|(id, _)| *id);
                self.left_out += 1;
                match gone.filter(|_| self.limits.keep == Keep::Newest) {
                    Some(gone) => _ = self.targets.remove(&gone),
                    None => return None,
                }
            }
            self.targets.insert(id, Target::new());
        }
        self.targets.get_mut(&id)
    }

    fn snapshot(&mut self, s: &Arc<Snapshot>) {
        let begin = *self.begin.get_or_insert(s.start);
        let start = if self.limits.bridge && self.snapshots > 0 { self.end } else { s.start };
        let time = start.since(begin)..s.end.since(begin);
        (self.end, self.snapshots) = (s.end, self.snapshots + 1);
        self.regions += s.nr_regions() as u64;
        let (mut heat, mut saved) = (HeatBytes::default(), 0);
        let thresholds = self.limits.thresholds;
        for view in &s.targets {
            let bytes = view.bytes(&thresholds);
            heat += bytes;
            if self.target(view.id).is_none() {
                continue;
            }
            let Some(target) = self.targets.get_mut(&view.id) else { continue };
            let swapped = target.attributions.back().map_or(0, |a| a.swapped);
            saved += swapped;
            target.series.add(time.start, time.end, &bytes, swapped);
            target.pyramid.push(Column::of(view, time.clone()), &self.rates);
            target.mappings = Arc::clone(&view.mappings);
            (target.last, target.seen) = (bytes, s.end);
            if let Some(ages) = &view.ages {
                let before = target.ages.len();
                target.ages.push_back((s.end, Arc::clone(ages)));
                thin(&mut target.ages);
                self.points = self.points + target.ages.len() - before.min(self.points);
            }
        }
        self.total.add(time.start, time.end, &heat, saved);
        if self.points > MOST_ALL_POINTS {
            self.targets.values_mut().for_each(|t| halve(&mut t.ages));
            self.points = self.targets.values().map(|t| t.ages.len()).sum();
        }
        self.bound();
    }

    /// Adds memory of all targets that is known without a snapshot.
    pub fn total(&mut self, time: Range<Nanos>, heat: &HeatBytes, saved: u64) {
        let begin = *self.begin.get_or_insert(time.start);
        self.end = self.end.max(time.end);
        self.total.add(time.start.since(begin), time.end.since(begin), heat, saved);
    }

    /// Gives up memory that is above the limit.
    fn bound(&mut self) {
        if self.snapshots.is_multiple_of(8) || self.regions < 1 << 16 {
            for _ in 0..16 {
                if self.runs() <= self.limits.runs {
                    break;
                }
                self.targets.values_mut().for_each(|t| t.pyramid.shrink(self.limits.keep));
            }
        }
    }

    /// The recording has ended: no more events come.
    pub fn finish(&mut self) {
        self.targets.values_mut().for_each(|t| t.pyramid.finish(&self.rates));
    }

    /// Adds what a scheme has done.
    pub fn mark(&mut self, mark: SchemeMark) {
        if self.marks.len() == MOST_MARKS {
            self.marks.pop_front();
        }
        self.marks.push_back(mark);
    }

    /// What schemes have done.
    pub fn marks(&self) -> impl Iterator<Item = &SchemeMark> {
        self.marks.iter()
    }

    /// The times of all snapshots; `None` without any.
    #[must_use]
    pub fn span(&self) -> Option<Range<Nanos>> {
        Some(self.begin?..self.end)
    }

    /// The time on the recording's clock, from one since its start.
    #[must_use]
    pub fn at(&self, ms: f64) -> Nanos {
        self.begin.unwrap_or_default() + time(ms)
    }

    /// Numbers of snapshots and regions.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.snapshots, self.regions)
    }

    /// Number of runs in memory.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.targets.values().map(|t| t.pyramid.runs()).sum()
    }

    /// The history of whole snapshots, names and groups.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The rates of levels.
    #[must_use]
    pub fn rates(&self) -> &Rates {
        &self.rates
    }

    /// The limits of hot and cold.
    #[must_use]
    pub fn thresholds(&self) -> Thresholds {
        self.limits.thresholds
    }

    /// All targets that had memory, those with most first; at most `most`.
    #[must_use]
    pub fn targets(&self, most: usize) -> Vec<TargetFigures> {
        let had = self.targets.iter().filter(|(_, t)| t.seen > Nanos(0));
        let mut all: Vec<_> = had.map(|(id, t)| (*id, t, t.last.resident())).collect();
        all.sort_by_key(|(_, t, resident)| std::cmp::Reverse((t.seen == self.end, *resident)));
        let figures = |(id, t, resident): (TargetId, &Target, u64)| TargetFigures {
            id: id.0,
            pid: t.fact.as_ref().and_then(|fact| fact.pid),
            name: self.view.name(id),
            command: t.fact.as_ref().map(|fact| fact.command.clone()).unwrap_or_default(),
            resident,
            lives: t.seen == self.end,
        };
        all.into_iter().take(most).map(figures).collect()
    }

    /// The facts of all targets.
    pub fn facts(&self) -> impl Iterator<Item = &TargetFact> {
        self.targets.values().filter_map(|t| t.fact.as_ref())
    }

    /// Bytes by heat over time, of one target or of all.
    #[must_use]
    pub fn series(&self, target: Option<TargetId>) -> Option<&Series> {
        match target {
            None => Some(&self.total),
            Some(id) => self.targets.get(&id).map(|t| &t.series),
        }
    }

    /// The heat of a target over time.
    #[must_use]
    pub fn pyramid(&self, target: TargetId) -> Option<&Pyramid> {
        self.targets.get(&target).map(|t| &t.pyramid)
    }

    /// The axis of addresses of a target, as of the last [`Index::renew_axis`].
    #[must_use]
    pub fn axis(&self, target: TargetId) -> Option<&Axis> {
        self.targets.get(&target).map(|t| &t.axis)
    }

    /// Whether the axis of a target may have changed since it was computed.
    #[must_use]
    pub fn axis_is_old(&self, target: TargetId) -> bool {
        self.targets.get(&target).is_some_and(|t| t.axis_at != self.snapshots)
    }

    /// Computes the axis of a target.
    pub fn renew_axis(&mut self, target: TargetId) {
        let grows = self.limits.keep == Keep::Newest;
        let now = self.snapshots;
        let Some(t) = self.targets.get_mut(&target) else { return };
        let mut ranges = Ranges::default();
        t.pyramid.each_resident(|range| ranges.add(range));
        t.axis = Axis::new(&ranges, &t.mappings, &t.axis, grows);
        t.axis_at = now;
    }

    /// The last ages of a target up to a time.
    #[must_use]
    pub fn ages(&self, target: TargetId, at: Nanos) -> Option<(Nanos, &PageAges)> {
        let ages = &self.targets.get(&target)?.ages;
        let after = ages.partition_point(|(end, _)| *end <= at);
        let (end, ages) = ages.get(after.saturating_sub(1))?;
        Some((*end, ages))
    }

    /// The last attribution of a target up to a time, or its first one.
    #[must_use]
    pub fn attribution(&self, target: TargetId, at: Nanos) -> Option<&Attribution> {
        let all = &self.targets.get(&target)?.attributions;
        all.get(all.partition_point(|a| a.at <= at).saturating_sub(1))
    }

    /// A snapshot with the figures of its targets, as they were then.
    #[must_use]
    pub fn moment(&self, s: Arc<Snapshot>) -> Moment {
        let end = s.end;
        let mut moment = Moment::new(s, &self.limits.thresholds);
        for (id, figures) in &mut moment.figures {
            figures.saved = self.attribution(*id, end).map_or(0, |a| a.swapped);
        }
        moment
    }
}

impl Target {
    fn new() -> Self {
        Target {
            fact: None,
            mappings: Arc::default(),
            axis: Axis::default(),
            axis_at: 0,
            pyramid: Pyramid::default(),
            series: Series::new(TARGET_PARTS),
            ages: VecDeque::new(),
            attributions: VecDeque::new(),
            last: HeatBytes::default(),
            seen: Nanos(0),
        }
    }
}

/// A time in ms since the start; 0 if it is none.
#[must_use]
pub fn time(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()
}

/// Drops every second point if there are too many.
fn thin<T>(points: &mut VecDeque<T>) {
    if points.len() > MOST_POINTS {
        halve(points);
    }
}

/// Drops every second point; the last one stays.
fn halve<T>(points: &mut VecDeque<T>) {
    let mut n = points.len();
    points.retain(|_| {
        n -= 1;
        n.is_multiple_of(2)
    });
}
