//! The history of a recording, and the questions that views ask it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Attribution, Attrs, HeatBytes, Missing, Nanos, PageAges, Snapshot, TargetId,
    Thresholds,
};
use isotherm_record::{Event, RecordingHeader, TargetInfo};
use isotherm_report::{
    Canvas, Cells, Extent, Grid, GridSize, Options, RecordFilter, each_piece, mapping_name,
    short_name,
};
use serde::Serialize;

use crate::moment::Moment;
use crate::ring::Ring;
use crate::table::{By, Column, Key, TableRow};

/// Maximum number of targets that are remembered; beyond it, those that have ended are forgotten.
const MAX_TARGETS: usize = 1 << 14;
/// Up to this number no target is forgotten.
const FEW_TARGETS: usize = 1 << 10;
/// The time over which refaults and costs are means.
const RATES_OVER: Duration = Duration::from_secs(10);

/// A recording as it comes. See the [example](crate).
#[derive(Debug)]
pub struct View {
    ring: Ring,
    facts: Option<RecordingHeader>,
    targets: BTreeMap<TargetId, TargetInfo>,
    /// number of targets above which some are forgotten
    room: usize,
    attributions: BTreeMap<TargetId, Attribution>,
    /// major faults that moments already contain
    counted_faults: BTreeMap<TargetId, u64>,
    pressure: Arc<BTreeMap<Arc<str>, f32>>,
}

/// Part of a process's memory that views show as one: mappings that are near each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Area {
    /// addresses
    pub range: AddrRange,
    /// name of the mapping with most of the resident bytes; `+ 3 more` if there are others
    pub name: String,
    /// resident bytes; `None` if the recording does not contain which memory is resident
    pub resident: Option<u64>,
    /// its share of the rows
    pub rows: usize,
}

/// A mapping and the heat of its memory.
#[derive(Debug, Clone, PartialEq)]
pub struct MappingFigures {
    /// addresses
    pub range: AddrRange,
    /// name, `anonymous` for memory without one
    pub name: String,
    /// bytes by heat
    pub heat: HeatBytes,
    /// the highest rate of its memory, in Hz
    pub hottest_hz: f32,
}

/// The cost of watching as shares of a CPU, over ten seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct MonitorCost {
    /// CPU time of the monitor
    pub looking: f64,
    /// CPU time that the processes lose
    pub lost: f64,
}

impl View {
    /// A view that has received nothing, and keeps at most `memory` bytes of snapshots.
    #[must_use]
    pub fn new(memory: usize) -> Self {
        View {
            ring: Ring::new(memory),
            facts: None,
            targets: BTreeMap::new(),
            room: FEW_TARGETS,
            attributions: BTreeMap::new(),
            counted_faults: BTreeMap::new(),
            pressure: Arc::default(),
        }
    }

    /// Adds the next event of the recording. Faults, code and traces are not used.
    pub fn push(&mut self, event: Event) {
        match event {
            Event::Header(facts) => self.facts = Some(facts),
            Event::Target(fact) => _ = self.targets.insert(fact.id, fact),
            Event::Attribution(a) => {
                self.counted_faults.entry(a.target).or_insert(a.major_faults);
                self.attributions.insert(a.target, a);
            }
            Event::Snapshot(s) => self.snapshot(s),
            _ => {}
        }
    }

    /// Sets the pressure of a control group: see [`Moment::pressure`]. It holds for the following snapshots.
    pub fn set_pressure(&mut self, groups: BTreeMap<Arc<str>, f32>) {
        self.pressure = Arc::new(groups);
    }

    fn snapshot(&mut self, s: Arc<Snapshot>) {
        let mut moment = Moment::new(s, &self.ring.thresholds());
        moment.pressure = Arc::clone(&self.pressure);
        moment.change_figures(|view, figures| {
            let Some(a) = self.attributions.get(&view.id) else { return };
            let counted = self.counted_faults.insert(view.id, a.major_faults).unwrap_or_default();
            figures.saved = a.swapped;
            figures.refaults = a.major_faults.saturating_sub(counted);
        });
        self.forget(&moment);
        self.ring.push(moment);
    }

    /// Forgets targets that no moment has, once there are as many as others; all but those of the newest moment, if
    /// there are too many.
    fn forget(&mut self, now: &Moment) {
        if self.targets.len().max(self.attributions.len()) <= self.room {
            return;
        }
        let ids = |m: &Moment| m.snapshot.targets.iter().map(|view| view.id).collect::<Vec<_>>();
        let kept = self.ring.between(&(Nanos(0)..now.snapshot.start), Duration::ZERO);
        let mut stay: BTreeSet<TargetId> = kept.into_iter().chain([now]).flat_map(ids).collect();
        if stay.len() > MAX_TARGETS {
            stay = ids(now).into_iter().collect();
        }
        self.room = (2 * stay.len()).clamp(FEW_TARGETS, MAX_TARGETS.max(stay.len()));
        // New targets may not be in a snapshot yet.
        let last = stay.last().copied();
        let stays = |id: &TargetId| stay.contains(id) || Some(*id) > last;
        self.targets.retain(|id, _| stays(id));
        self.attributions.retain(|id, _| stays(id));
        self.counted_faults.retain(|id, _| stays(id));
    }

    /// The history.
    #[must_use]
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The facts of the recording, if it has any.
    #[must_use]
    pub fn facts(&self) -> Option<&RecordingHeader> {
        self.facts.as_ref()
    }

    /// The figures that the recording does not contain.
    #[must_use]
    pub fn missing(&self) -> Missing {
        self.facts.as_ref().map(|facts| facts.missing).unwrap_or_default()
    }

    /// The facts of a part of the recording that begins at `start`.
    #[must_use]
    pub fn header_from(&self, start: Nanos, attrs: Attrs) -> RecordingHeader {
        let unknown = || RecordingHeader::new(env!("CARGO_PKG_VERSION"), attrs, start);
        let whole = self.facts.clone().unwrap_or_else(unknown);
        // A service sends new facts with each snapshot, so that the start may lie before those.
        let ms = |n: Nanos| n.0 / 1_000_000;
        let started_unix_ms = match whole.started_unix_ms {
            // It is not known, as for records of other tools.
            0 => 0,
            known => known.saturating_add(ms(start)).saturating_sub(ms(whole.started)),
        };
        RecordingHeader { started_unix_ms, started: start, attrs, ..whole }
    }

    /// The limits of hot and cold.
    #[must_use]
    pub fn thresholds(&self) -> Thresholds {
        self.ring.thresholds()
    }

    /// Applies other limits of hot and cold to the whole history.
    pub fn set_thresholds(&mut self, thresholds: Thresholds) {
        self.ring.set_thresholds(thresholds);
    }

    /// The rows of a moment, in no particular order.
    #[must_use]
    pub fn table(&self, at: &Moment, by: By) -> Vec<TableRow> {
        let (recent, seconds) = self.recent(at);
        let mut rows: BTreeMap<Key, TableRow> = BTreeMap::new();
        for (id, figures) in at.all_figures() {
            let past = recent.iter().filter_map(|m| m.figures(id));
            let (refaults, own) = past.fold((0u64, Duration::ZERO), |(refaults, own), f| {
                (refaults.saturating_add(f.refaults), own.saturating_add(f.own_cpu))
            });
            for key in self.keys(id, by) {
                let row = rows.entry(key).or_insert_with_key(|key| self.empty_row(key, at));
                row.figures += figures;
                row.refaults_per_second += refaults as f64 / seconds.max(1e-9);
                row.own_cpu += share_of_cpu(own, seconds);
                row.processes += 1;
            }
        }
        rows.into_values().collect()
    }

    /// The sum of all rows of a moment.
    #[must_use]
    pub fn total(&self, at: &Moment) -> TableRow {
        let mut total = self.empty_row(&Key::All, at);
        for row in self.table(at, By::Process) {
            total.figures += &row.figures;
            total.refaults_per_second += row.refaults_per_second;
            total.own_cpu += row.own_cpu;
            total.processes += 1;
        }
        total
    }

    /// The rows to which a target belongs.
    fn keys(&self, target: TargetId, by: By) -> Vec<Key> {
        match (by, self.attributions.get(&target)) {
            (By::Process, _) => vec![Key::Process(target)],
            (By::Cgroup, Some(a)) => a.groups().map(|path| Key::Cgroup(path.to_owned())).collect(),
            (By::Cgroup, None) => vec![Key::Cgroup(String::new())],
        }
    }

    /// Whether a target is in a row.
    fn is_in(&self, target: TargetId, key: &Key) -> bool {
        match (key, self.attributions.get(&target)) {
            (Key::All, _) => true,
            (Key::Process(id), _) => *id == target,
            (Key::Cgroup(path), Some(a)) => a.groups().any(|group| group == path),
            (Key::Cgroup(path), None) => path.is_empty(),
        }
    }

    fn empty_row(&self, key: &Key, at: &Moment) -> TableRow {
        let (name, fact, cgroup) = match key {
            Key::All => ("all".to_owned(), None, "/".to_owned()),
            Key::Cgroup(path) if path.is_empty() => ("(not known)".to_owned(), None, path.clone()),
            Key::Cgroup(path) => (path.clone(), None, path.clone()),
            Key::Process(id) => {
                let cgroup = self.attributions.get(id).map(|a| a.cgroup.to_string());
                (self.name(*id), self.targets.get(id), cgroup.unwrap_or_default())
            }
        };
        TableRow {
            key: key.clone(),
            pid: fact.and_then(|fact| fact.pid),
            name,
            command: fact.map(|fact| fact.command.clone()).unwrap_or_default(),
            pressure: at.pressure.get(&*cgroup).copied(),
            cgroup,
            processes: 0,
            figures: Default::default(),
            refaults_per_second: 0.0,
            own_cpu: 0.0,
        }
    }

    /// The facts of a target, if they are known.
    #[must_use]
    pub fn target(&self, id: TargetId) -> Option<&TargetInfo> {
        self.targets.get(&id)
    }

    /// The name of a target's program, or its command line.
    #[must_use]
    pub fn name(&self, target: TargetId) -> String {
        let comm = self.attributions.get(&target).map(|a| &*a.comm).filter(|comm| !comm.is_empty());
        let command = || {
            let command = self.targets.get(&target).map(|fact| fact.command.as_str())?;
            Some(command.split(' ').next().map_or(command, short_name))
        };
        comm.or_else(command).map_or_else(|| format!("target {}", target.0), str::to_owned)
    }

    /// The course of a column of one row, in `columns` equal parts of `span`: `None` where nothing is known.
    #[must_use]
    pub fn series(
        &self,
        key: &Key,
        column: Column,
        span: &Range<Nanos>,
        columns: usize,
    ) -> Vec<Option<f64>> {
        let mut sums = vec![(0.0, 0.0); columns];
        let width = seconds(span) / columns.max(1) as f64;
        for moment in self.ring.between(span, Duration::from_secs_f64(width)) {
            let Some(value) = self.value(moment, key, column) else { continue };
            let at = |t: Nanos| t.since(span.start).as_secs_f64() / width.max(1e-9);
            let (from, to) = (at(moment.snapshot.start), at(moment.snapshot.end));
            let parts = sums.iter_mut().enumerate().skip(from as usize);
            for (i, (sum, weight)) in parts.take_while(|(i, _)| (*i as f64) < to) {
                let part = (to.min(i as f64 + 1.0) - from.max(i as f64)).max(1e-9);
                *sum += value * part;
                *weight += part;
            }
        }
        sums.into_iter().map(|(sum, weight)| (weight > 0.0).then(|| sum / weight)).collect()
    }

    fn value(&self, moment: &Moment, key: &Key, column: Column) -> Option<f64> {
        if column == Column::Pressure {
            let group = match key {
                Key::All => "/",
                Key::Cgroup(path) => path,
                Key::Process(id) => &*self.attributions.get(id)?.cgroup,
            };
            return moment.pressure.get(group).map(|p| f64::from(*p));
        }
        if column == Column::Resident && self.missing().residency {
            return None;
        }
        let of = |f| column.of(f, moment.seconds());
        match key {
            Key::Process(id) => of(moment.figures(*id)?),
            Key::All | Key::Cgroup(_) => {
                let all = moment.all_figures().filter(|(id, _)| self.is_in(*id, key));
                all.filter_map(|(_, f)| of(f)).reduce(|a, b| match column {
                    Column::OldestCold => a.max(b),
                    _ => a + b,
                })
            }
        }
    }

    /// Rates of a target's memory: `shape` is (rows of addresses, ascending; columns of time). Each cell shows
    /// the hottest memory of its addresses, as a mean over its time.
    #[must_use]
    pub fn cells(
        &self,
        target: TargetId,
        span: &Range<Nanos>,
        range: AddrRange,
        shape: (usize, usize),
    ) -> Cells {
        let width = seconds(span) / shape.1.max(1) as f64;
        let since = |t: Nanos| t.since(span.start);
        let mut canvas = Canvas::new(range, Duration::ZERO..since(span.end), shape);
        for moment in self.ring.between(span, Duration::from_secs_f64(width)) {
            let s = &moment.snapshot;
            if let Some(view) = moment.target(target) {
                canvas.push(view, range, &(since(s.start)..since(s.end)));
            }
        }
        canvas.finish()
    }

    /// The areas of a target's memory within `range`, in descending order of address, with their shares of `rows`
    /// rows of a heat map. Each area has one row for its title. Small areas are left out.
    #[must_use]
    pub fn areas(
        &self,
        at: &Moment,
        target: TargetId,
        range: Option<AddrRange>,
        rows: usize,
    ) -> Vec<Area> {
        let filter =
            RecordFilter { addr: range, targets: Some([target].into()), ..RecordFilter::default() };
        let mut options = Options::default();
        options.filter = filter;
        (options.thresholds, options.missing) = (self.thresholds(), self.missing());
        let mut extent = Extent::new(options);
        extent.push(&at.snapshot);
        let max_panels = (rows / 8).clamp(1, 8);
        let shape = GridSize { columns: 1, rows, title_rows: 2, min_rows: 2, max_panels, step: 2 };
        let Ok(grid) = Grid::new(extent, &shape) else { return Vec::new() };
        let area = |panel: isotherm_report::Panel| Area {
            range: panel.range,
            rows: panel.cells.rows(),
            name: panel.name,
            resident: panel.resident_bytes,
        };
        grid.finish().panels.into_iter().map(area).collect()
    }

    /// The mappings of a target that have resident memory, in ascending order of address.
    #[must_use]
    pub fn mappings(&self, at: &Moment, target: TargetId) -> Vec<MappingFigures> {
        let Some(view) = at.target(target) else { return Vec::new() };
        let thresholds = self.thresholds();
        let mut rows: BTreeMap<usize, (HeatBytes, f32)> = BTreeMap::new();
        each_piece(view, AddrRange::new(0, u64::MAX), |piece, mapping| {
            if let Some(i) = mapping {
                let row = rows.entry(i).or_default();
                row.0 += piece.bytes(&thresholds);
                row.1 = row.1.max(piece.rate.hz);
            }
        });
        let figures = |(i, (heat, hottest_hz)): (usize, (HeatBytes, f32))| {
            let m = view.mappings.get(i)?;
            let name = mapping_name(m).to_owned();
            Some(MappingFigures { range: m.range, name, heat, hottest_hz })
        };
        rows.into_iter().filter_map(figures).filter(|m| m.heat.resident() > 0).collect()
    }

    /// The last idle ages of a target up to a moment; only some snapshots have them.
    #[must_use]
    pub fn ages(&self, at: &Moment, target: TargetId) -> Option<&PageAges> {
        let end = at.snapshot.end;
        let moments = self.ring.between(&(Nanos(0)..end), Duration::ZERO);
        moments.into_iter().rev().find_map(|m| m.target(target)?.ages.as_deref())
    }

    /// The cost of watching up to a moment.
    #[must_use]
    pub fn cost(&self, at: &Moment) -> MonitorCost {
        let (recent, seconds) = self.recent(at);
        let share = |of: fn(&Snapshot) -> Duration| {
            let times = recent.iter().map(|m| of(&m.snapshot));
            share_of_cpu(times.fold(Duration::ZERO, Duration::saturating_add), seconds)
        };
        MonitorCost { looking: share(|s| s.cost.cpu), lost: share(|s| s.cost.lost) }
    }

    /// The moments over which rates are means, and their duration in seconds.
    fn recent(&self, at: &Moment) -> (Vec<&Moment>, f64) {
        let end = at.snapshot.end;
        let recent = self.ring.between(&(end.before(RATES_OVER)..end), Duration::ZERO);
        let seconds = recent.iter().map(|m| m.seconds()).sum();
        (recent, seconds)
    }

    /// The events of a span, as a record of it: its targets, their attributions, and its finest snapshots; of the
    /// oldest ones only, if all have more than `max_regions` regions. Saved bytes and refaults of each snapshot are
    /// attributions before it.
    #[must_use]
    pub fn events(&self, span: &Range<Nanos>, max_regions: usize) -> Vec<Event> {
        let end = self.ring.last().map_or(span.end, |m| m.snapshot.end.max(span.end));
        let since = self.ring.between(&(span.start..end), Duration::ZERO);
        let mut room = max_regions;
        let fits = |(i, m): &(usize, &&Moment)| {
            let n = m.snapshot.nr_regions();
            let fits = *i == 0 || n <= room;
            room = room.saturating_sub(n);
            fits && m.snapshot.start < span.end
        };
        let n = since.iter().enumerate().take_while(fits).count();
        let (moments, later) = since.split_at(n);
        let targets = self.named(moments);
        let mut known = self.attributions_before(moments, later);
        let first = known.values().cloned().map(Event::Attribution).collect::<Vec<_>>();
        let mut out: Vec<Event> = targets.chain(first).collect();
        for moment in moments {
            for (id, figures) in moment.all_figures() {
                let Some(a) = known.get_mut(&id) else { continue };
                if figures.refaults > 0 || figures.saved != a.swapped {
                    a.at = moment.snapshot.end;
                    a.major_faults = a.major_faults.saturating_add(figures.refaults);
                    a.swapped = figures.saved;
                    out.push(Event::Attribution(a.clone()));
                }
            }
            out.push(Event::Snapshot(Arc::clone(&moment.snapshot)));
        }
        out
    }

    /// The newest snapshot as a record of it alone, with the attributions as they were read.
    #[must_use]
    pub fn newest(&self) -> Vec<Event> {
        let Some(last) = self.ring.last() else { return Vec::new() };
        let ids = last.snapshot.targets.iter().map(|view| view.id);
        let mut attributions: Vec<_> =
            ids.filter_map(|id| self.attributions.get(&id)).cloned().collect();
        attributions.sort_by_key(|a| a.at);
        let attributions = attributions.into_iter().map(Event::Attribution);
        let snapshot = Event::Snapshot(Arc::clone(&last.snapshot));
        self.named(&[last]).chain(attributions).chain([snapshot]).collect()
    }

    /// The facts of all targets of these moments.
    fn named(&self, moments: &[&Moment]) -> impl Iterator<Item = Event> {
        let named = |id: TargetId| {
            let unnamed = || TargetInfo { id, pid: None, command: self.name(id) };
            Event::Target(self.targets.get(&id).cloned().unwrap_or_else(unnamed))
        };
        let views = moments.iter().flat_map(|m| &m.snapshot.targets);
        let ids: BTreeSet<TargetId> = views.map(|view| view.id).collect();
        ids.into_iter().map(named)
    }

    /// The attributions of the targets of `moments` as they were before these. `later` are all moments after them,
    /// because major faults are counted back from the last reading.
    fn attributions_before(
        &self,
        moments: &[&Moment],
        later: &[&Moment],
    ) -> BTreeMap<TargetId, Attribution> {
        let start = moments.first().map_or(Nanos(0), |m| m.snapshot.start);
        let mut known: BTreeMap<TargetId, Attribution> = BTreeMap::new();
        for (id, figures) in moments.iter().flat_map(|m| m.all_figures()) {
            let Some(a) = self.attributions.get(&id) else { continue };
            known.entry(id).or_insert_with(|| {
                let major_faults = self.counted_faults.get(&id).copied().unwrap_or_default();
                Attribution { at: start, swapped: figures.saved, major_faults, ..a.clone() }
            });
        }
        for (id, figures) in moments.iter().chain(later).flat_map(|m| m.all_figures()) {
            if let Some(a) = known.get_mut(&id) {
                a.major_faults = a.major_faults.saturating_sub(figures.refaults);
            }
        }
        known
    }
}

/// CPU time as a share of a CPU, over at least one second.
fn share_of_cpu(time: Duration, seconds: f64) -> f64 {
    time.as_secs_f64() / seconds.max(1.0)
}

fn seconds(span: &Range<Nanos>) -> f64 {
    span.end.since(span.start).as_secs_f64()
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
