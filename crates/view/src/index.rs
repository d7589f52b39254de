//! The index of a recording: for each target its heat over time, its axis of addresses and its ages.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    Attribution, HeatBytes, HugeAges, Mapping, Nanos, PageAges, Snapshot, TargetId, Thresholds,
};
use isotherm_record::{Event, TargetInfo};
use serde::Serialize;

use crate::axis::{Axis, AxisArea, Ranges};
use crate::cell::Rates;
use crate::moment::Moment;
use crate::pyramid::{HeatColumn, Pyramid, Retention};
use crate::series::Series;
use crate::view::View;

/// Maximum number of targets with a history. A limit, because records come from outside.
const MAX_INDEXED_TARGETS: usize = 4096;
/// Maximum number of ages, and of attributions, that are kept of a target.
const MAX_POINTS: usize = 256;
/// The share of the memory that those of all targets may use: one in so many parts.
const POINTS_SHARE: usize = 4;
/// Parts of the series: about one for each pixel of a wide window.
const PARTS: usize = 1024;
/// Maximum number of marks on the time line. Beyond it, the oldest are dropped.
const MAX_MARKS: usize = 2048;

/// Bytes of a name and of its allocation, about.
const NAME_BYTES: usize = 64;

/// How an [`Index`] is kept.
#[derive(Debug, Clone, Copy)]
pub struct IndexLimits {
    /// data to drop when memory is short
    pub retention: Retention,
    /// maximum memory of everything but whole snapshots, in bytes
    pub memory: usize,
    /// maximum memory of whole snapshots, in bytes
    pub ring: usize,
    /// Times without snapshots show what came after them: for a sample of a record.
    pub bridge: bool,
    /// limits of hot and cold
    pub thresholds: Thresholds,
}

/// The index of a recording.
#[derive(Debug)]
pub struct Index {
    limits: IndexLimits,
    first: Option<Nanos>,
    end: Nanos,
    snapshots: u64,
    regions: u64,
    targets: BTreeMap<TargetId, Target>,
    total: Series,
    rates: Rates,
    view: View,
    marks: VecDeque<SchemeMark>,
}

/// One target.
#[derive(Debug)]
struct Target {
    fact: Option<TargetInfo>,
    mappings: Arc<Vec<Mapping>>,
    axis: Axis,
    /// number of snapshots at the last change of `axis`
    axis_at: u64,
    pyramid: Pyramid,
    ages: VecDeque<(Nanos, Arc<PageAges>)>,
    /// in order of time
    attributions: VecDeque<Attribution>,
    last: HeatBytes,
    /// end of the last snapshot before it was added
    added: Nanos,
    /// end of the last snapshot with it
    seen: Nanos,
}

/// An action of a scheme at some time.
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
    /// resident bytes in its last snapshot; `None` if the recording does not contain which memory is resident
    pub resident: Option<u64>,
    /// whether it is in the last snapshot
    pub lives: bool,
}

impl Index {
    /// An index of nothing.
    #[must_use]
    pub fn new(limits: IndexLimits) -> Self {
        let mut view = View::new(limits.ring);
        view.set_thresholds(limits.thresholds);
        Index {
            limits,
            first: None,
            end: Nanos(0),
            snapshots: 0,
            regions: 0,
            targets: BTreeMap::new(),
            total: Series::new(PARTS),
            rates: Rates::default(),
            view,
            marks: VecDeque::new(),
        }
    }

    /// Adds the next event of the recording.
    pub fn push(&mut self, event: Event) {
        match &event {
            Event::Target(fact) => {
                if let Some(target) = self.target(fact.id) {
                    target.fact = Some(fact.clone());
                }
            }
            Event::Attribution(a) => {
                if let Some(target) = self.target(a.target) {
                    target.attribution(a);
                }
            }
            _ => {}
        }
        let is_snapshot = matches!(event, Event::Snapshot(_));
        self.view.push(event);
        if let Some(moment) = self.view.ring().last().filter(|_| is_snapshot).cloned() {
            self.moment(&moment);
        }
    }

    /// The target of this number, which is added if there is room.
    fn target(&mut self, id: TargetId) -> Option<&mut Target> {
        if !self.targets.contains_key(&id) {
            let is_full = self.targets.len() >= MAX_INDEXED_TARGETS;
            // Live views run for long: the target that ended first makes room.
            let may_forget = self.limits.retention == Retention::Newest;
            if is_full && !(may_forget && self.forget_first()) {
                return None;
            }
            self.targets.insert(id, Target::new(self.end));
        }
        self.targets.get_mut(&id)
    }

    /// Forgets the target that ended first. Returns whether there was one. A target that was announced after the last
    /// snapshot has not ended.
    fn forget_first(&mut self) -> bool {
        let there = |t: &Target| t.seen.max(t.added);
        let ended = self.targets.iter().filter(|(_, t)| there(t) < self.end);
        let first = ended.min_by_key(|(_, t)| there(t)).map(|(id, _)| *id);
        first.is_some_and(|id| self.targets.remove(&id).is_some())
    }

    fn moment(&mut self, moment: &Moment) {
        let s = &moment.snapshot;
        let first = *self.first.get_or_insert(s.start);
        let start = if self.limits.bridge && self.snapshots > 0 { self.end } else { s.start };
        let time = start.since(first)..s.end.since(first);
        (self.end, self.snapshots) = (s.end, self.snapshots + 1);
        self.regions += s.nr_regions() as u64;
        let max_runs = self.max_runs();
        let (mut heat, mut saved) = (HeatBytes::default(), 0);
        for (view, (_, figures)) in s.targets.iter().zip(moment.all_figures()) {
            heat += figures.heat;
            saved += figures.saved;
            if self.target(view.id).is_none() {
                continue;
            }
            let Some(target) = self.targets.get_mut(&view.id) else { continue };
            target.pyramid.push(HeatColumn::of(view, time.clone()), &self.rates, max_runs);
            target.mappings = Arc::clone(&view.mappings);
            (target.last, target.seen) = (figures.heat, s.end);
            if let Some(ages) = &view.ages {
                target.ages.push_back((s.end, Arc::clone(ages)));
                thin(&mut target.ages);
            }
        }
        self.total.add(time.start, time.end, &heat, saved);
        self.bound();
    }

    /// Adds memory of all targets that is known without a snapshot.
    pub fn total(&mut self, time: Range<Nanos>, heat: &HeatBytes, saved: u64) {
        let first = *self.first.get_or_insert(time.start);
        self.end = self.end.max(time.end);
        self.total.add(time.start.since(first), time.end.since(first), heat, saved);
    }

    /// Gives up memory that is above the limit: of the oldest heat or of the finest, and then the targets that ended.
    fn bound(&mut self) {
        let sum = |of: fn(&Target) -> usize| self.targets.values().map(of).sum::<usize>();
        let (ages, attributions) = (sum(Target::bytes_of_ages), sum(Target::bytes_of_attributions));
        if ages + attributions > self.limits.memory / POINTS_SHARE {
            for target in self.targets.values_mut() {
                match ages > attributions {
                    true => halve(&mut target.ages),
                    false => halve(&mut target.attributions),
                }
            }
        }
        let mut bytes = self.bytes();
        while bytes > self.limits.memory {
            let retention = self.limits.retention;
            self.targets.values_mut().for_each(|t| t.pyramid.shrink(retention));
            let before = std::mem::replace(&mut bytes, self.bytes());
            // The remaining heat is needed for the levels that are being made.
            if bytes == before && !self.forget_first() {
                break;
            }
        }
    }

    /// The memory that it occupies in addition to whole snapshots, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let marks = self.marks.len() * size_of::<SchemeMark>();
        self.targets.values().map(Target::bytes).sum::<usize>() + self.total.bytes() + marks
    }

    /// The recording has ended: no more events come.
    pub fn finish(&mut self) {
        let max_runs = self.max_runs();
        self.targets.values_mut().for_each(|t| t.pyramid.finish(&self.rates, max_runs));
    }

    /// Maximum number of runs in a joined column.
    fn max_runs(&self) -> usize {
        Pyramid::max_runs(self.limits.memory, self.targets.len())
    }

    /// Adds what a scheme has done.
    pub fn mark(&mut self, mark: SchemeMark) {
        if self.marks.len() == MAX_MARKS {
            self.marks.pop_front();
        }
        self.marks.push_back(mark);
    }

    /// The actions of schemes.
    pub fn marks(&self) -> impl Iterator<Item = &SchemeMark> {
        self.marks.iter()
    }

    /// The times of all snapshots; `None` without any.
    #[must_use]
    pub fn span(&self) -> Option<Range<Nanos>> {
        Some(self.first?..self.end)
    }

    /// The time on the recording's clock, from one since its start.
    #[must_use]
    pub fn at(&self, ms: f64) -> Nanos {
        self.first.unwrap_or_default() + time(ms)
    }

    /// Numbers of snapshots and regions.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.snapshots, self.regions)
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

    /// How it is kept.
    #[must_use]
    pub fn limits(&self) -> IndexLimits {
        self.limits
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
            resident: self.view.missing().resident(resident),
            lives: t.seen == self.end,
        };
        all.into_iter().take(most).map(figures).collect()
    }

    /// The facts of all targets.
    pub fn facts(&self) -> impl Iterator<Item = &TargetInfo> {
        self.targets.values().filter_map(|t| t.fact.as_ref())
    }

    /// Bytes by heat over time, of all targets.
    #[must_use]
    pub fn series(&self) -> &Series {
        &self.total
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
        let grows = self.limits.retention == Retention::Newest;
        let now = self.snapshots;
        let Some(t) = self.targets.get_mut(&target) else { return };
        let mut ranges = Ranges::default();
        t.pyramid.each_resident(|range| ranges.add(range));
        t.axis = Axis::new(&ranges, &t.mappings, grows);
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
    pub fn moment_of(&self, s: Arc<Snapshot>) -> Moment {
        let end = s.end;
        let mut moment = Moment::new(s, &self.limits.thresholds);
        moment.change_figures(|view, figures| {
            figures.saved = self.attribution(view.id, end).map_or(0, |a| a.swapped);
        });
        moment
    }
}

impl Target {
    fn new(added: Nanos) -> Self {
        Target {
            added,
            fact: None,
            mappings: Arc::default(),
            axis: Axis::default(),
            axis_at: 0,
            pyramid: Pyramid::default(),
            ages: VecDeque::new(),
            attributions: VecDeque::new(),
            last: HeatBytes::default(),
            seen: Nanos(0),
        }
    }

    fn attribution(&mut self, a: &Attribution) {
        let mut a = a.clone();
        if let Some(last) = self.attributions.back() {
            // A service repeats them with each snapshot.
            if last.at >= a.at {
                return;
            }
            // Names change rarely.
            for (text, before) in [(&mut a.comm, &last.comm), (&mut a.cgroup, &last.cgroup)] {
                if *text == *before {
                    *text = Arc::clone(before);
                }
            }
        }
        self.attributions.push_back(a);
        thin(&mut self.attributions);
    }

    /// The memory that it occupies, in bytes. Mappings count once no snapshot has them.
    fn bytes(&self) -> usize {
        let mappings = match Arc::strong_count(&self.mappings) {
            1 => self.mappings.len() * (size_of::<Mapping>() + NAME_BYTES),
            _ => 0,
        };
        size_of::<Target>()
            + self.fact.as_ref().map_or(0, |fact| fact.command.len())
            + self.axis.areas.len() * (size_of::<AxisArea>() + NAME_BYTES)
            + self.pyramid.bytes()
            + self.bytes_of_ages()
            + self.bytes_of_attributions()
            + mappings
    }

    fn bytes_of_ages(&self) -> usize {
        let of = |(_, ages): &(Nanos, Arc<PageAges>)| {
            let huge = ages.huge.as_ref().map_or(0, |_| size_of::<HugeAges>());
            size_of::<PageAges>() + huge + NAME_BYTES
        };
        self.ages.iter().map(of).sum()
    }

    fn bytes_of_attributions(&self) -> usize {
        self.attributions.len() * (size_of::<Attribution>() + NAME_BYTES)
    }
}

/// A time in ms since the start; 0 if it is none.
#[must_use]
pub fn time(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()
}

/// Drops every second point if there are too many.
fn thin<T>(points: &mut VecDeque<T>) {
    if points.len() > MAX_POINTS {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene;

    /// The index is full when two processes are announced, before a snapshot has them.
    #[test]
    fn a_new_target_does_not_take_the_place_of_another_new_one() {
        let (retention, memory) = (Retention::Newest, usize::MAX);
        let thresholds = Thresholds::default();
        let mut index =
            Index::new(IndexLimits { retention, memory, ring: 1 << 30, bridge: false, thresholds });
        let target = |id: u32| scene::target(id, vec![], vec![scene::region(0, 1 << 20, 10.0)]);
        let all = (0..MAX_INDEXED_TARGETS as u32).map(target).collect();
        index.push(Event::Snapshot(scene::snapshot(0, 1.0, all).into()));
        index.push(Event::Snapshot(scene::snapshot(1, 1.0, vec![target(0)]).into()));
        for id in [5000, 5001] {
            let command = format!("app{id}");
            index.push(Event::Target(TargetInfo { id: TargetId(id), pid: Some(id), command }));
        }
        let new = [0, 5000, 5001].map(target).to_vec();
        index.push(Event::Snapshot(scene::snapshot(2, 1.0, new).into()));
        let live = index.targets(9).into_iter().filter(|t| t.lives && t.id > 0);
        assert_eq!(live.map(|t| t.pid).collect::<Vec<_>>(), [Some(5000), Some(5001)]);
    }
}
