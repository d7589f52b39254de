//! A recording that a page shows, and the answers to its questions.

use std::collections::BTreeMap;
use std::io::Seek;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use isotherm_core::{Attribution, Nanos, RegionView, Snapshot, TargetId, TargetView, Unknown};
use isotherm_record::{
    FileEndReason, Limits as RecordLimits, ReadError, Reader, WriteError, Writer,
};
use isotherm_report::{
    Extent, FilterError, Grid, GridSize, Options, Picture, RecordFilter, RenderError,
    heatmap_picture,
};
use isotherm_view::axis::{Axis, label};
use isotherm_view::index::{TargetFigures, time};
use isotherm_view::pyramid::{HeatColumn, draw};
use isotherm_view::series::SeriesFigures;
use isotherm_view::{By, Index, Key, Moment};
use serde::Serialize;

use crate::seeker::Seeker;

/// A tile of cells that are finer than the index is read from the record, if it lies in so few parts of it.
const MAX_PARTS: usize = 12;
/// Maximum width and height of a tile.
pub const MAX_CELLS: usize = 512;
/// Maximum number of targets in a list.
const MAX_LISTED: usize = 512;

/// The kind of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SourceKind {
    /// processes that are watched now
    Live,
    /// a service, by its control socket
    Service,
    /// a file
    Record,
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// there is no such target, snapshot or age
    #[error("there is nothing to show: {0}")]
    NotFound(&'static str),
    /// the tile or the point is for an earlier axis
    #[error("the areas of memory have changed: read the axis again")]
    Changed,
    /// the record is being read
    #[error("the record is still being read: try again in a moment")]
    NotReady,
    /// the question has no meaning
    #[error("invalid request: {0}")]
    Invalid(&'static str),
    /// the record cannot be read
    #[error(transparent)]
    Read(#[from] ReadError),
    /// the span cannot be written as a record
    #[error(transparent)]
    Write(#[from] WriteError),
    /// nothing is in the span
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// the picture cannot be drawn
    #[error(transparent)]
    Render(#[from] RenderError),
    /// a temporary file cannot be made
    #[error("cannot make a temporary file: {0}")]
    Temporary(#[from] std::io::Error),
}

/// A recording that a page shows.
pub struct PageSource {
    kind: SourceKind,
    name: String,
    record: Option<(PathBuf, bool)>,
    index: RwLock<Index>,
    /// how often another recording has taken the place of the one that was shown
    generation: AtomicU64,
    seeker: Seeker,
    complete: AtomicBool,
    /// why it has ended, or could not be read to its end
    note: RwLock<String>,
    /// rows of a service, which come from its status
    rows: RwLock<Option<serde_json::Value>>,
}

/// The state of a source.
#[derive(Debug, Serialize)]
pub struct SourceState {
    kind: SourceKind,
    name: String,
    generation: u64,
    span_ms: f64,
    snapshots: u64,
    regions: u64,
    index_bytes: u64,
    complete: bool,
    note: String,
    hot_hz: f64,
    cold_ms: f64,
}

/// Which tile.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TileQuery {
    target: u32,
    axis: u64,
    from_ms: f64,
    pixel_ms: f64,
    from_byte: u64,
    row_bytes: u64,
    width: usize,
    height: usize,
}

/// Which point of the heat map.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointQuery {
    target: u32,
    axis: Option<u64>,
    ms: f64,
    byte: u64,
}

/// Which part of the time, and of which target.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpanQuery {
    target: Option<u32>,
    from_ms: f64,
    to_ms: f64,
    #[serde(default)]
    format: String,
}

impl SpanQuery {
    /// Whether an SVG is asked for, or a PNG.
    ///
    /// # Errors
    /// If it is neither.
    pub fn is_svg(&self) -> Result<bool, SourceError> {
        match self.format.as_str() {
            "svg" => Ok(true),
            "png" | "" => Ok(false),
            _ => Err(SourceError::Invalid("format is png or svg")),
        }
    }
}

/// The memory at a point.
#[derive(Debug, Serialize)]
pub struct HeatPoint {
    from_ms: f64,
    to_ms: f64,
    address: String,
    mapping: Option<String>,
    mapping_path: Option<String>,
    region: Option<PointRegion>,
}

/// A region at a point.
#[derive(Debug, Serialize)]
struct PointRegion {
    start: String,
    end: String,
    bytes: u64,
    heat: &'static str,
    hz: f32,
    low_hz: f32,
    /// null if it has no upper bound
    high_hz: Option<f32>,
    /// null if the record does not have ages
    age_ms: Option<f64>,
    /// the age, or its lower bound
    age_low_ms: f64,
    touched: f64,
    resident: Option<f64>,
    unknown: f64,
    unknown_by: Vec<&'static str>,
    measured: Option<f64>,
    extended: Option<f64>,
}

/// A row of the table.
#[derive(Debug, Serialize)]
pub struct RowFigures {
    target: Option<u32>,
    pid: Option<u32>,
    name: String,
    command: String,
    cgroup: String,
    processes: usize,
    /// null if the recording does not contain which memory is resident
    resident: Option<u64>,
    hot: u64,
    warm: u64,
    cold: u64,
    unknown: u64,
    saved: u64,
    /// pages that were read back, a second; null for a record, of which only snapshots are at hand
    refaults: Option<f64>,
}

/// Idle ages of a target.
#[derive(Debug, Serialize)]
pub struct AgesFigures {
    ms: f64,
    lowest_ms: Vec<u64>,
    idle: Vec<u32>,
    swapped: Vec<u32>,
    unknown: u32,
    untouched: u32,
}

impl PageSource {
    /// A source without data. A record has a path, and skips damage if it should.
    #[must_use]
    pub fn new(
        kind: SourceKind,
        name: String,
        record: Option<(PathBuf, bool)>,
        index: Index,
    ) -> Self {
        PageSource {
            kind,
            name,
            record,
            index: RwLock::new(index),
            generation: AtomicU64::new(0),
            seeker: Seeker::default(),
            complete: AtomicBool::new(false),
            note: RwLock::default(),
            rows: RwLock::default(),
        }
    }

    /// The index, to read it.
    pub fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The index, to change it.
    pub fn change(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets all that was seen: numbers of targets stand for other processes from now on.
    pub fn restart(&self) {
        self.set_rows(None);
        let mut index = self.change();
        *index = Index::new(index.limits());
        // The lock orders it: no reader sees it with the earlier index.
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether it is a file.
    pub fn is_record(&self) -> bool {
        self.record.is_some()
    }

    /// The marks of the record.
    pub fn seeker(&self) -> &Seeker {
        &self.seeker
    }

    /// Opens the record.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(&self) -> Result<Reader, ReadError> {
        let (path, skips) = self.record.as_ref().map_or((Path::new(""), false), |(p, s)| (p, *s));
        let reader = Reader::open(path)?;
        Ok(if skips { reader.skip_damaged() } else { reader })
    }

    /// Notes that nothing more comes, and why.
    pub fn end(&self, note: &str) {
        self.complete.store(true, Ordering::Release);
        self.note(note);
    }

    /// Sets the note that the page shows.
    pub fn note(&self, note: &str) {
        note.clone_into(&mut self.note.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Size of the record in bytes; 0 if it is none.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.record.as_ref().and_then(|(path, _)| path.metadata().ok()).map_or(0, |m| m.len())
    }

    /// Sets the rows of a service without snapshots; `None` if they come from snapshots.
    pub fn set_rows(&self, rows: Option<serde_json::Value>) {
        *self.rows.write().unwrap_or_else(PoisonError::into_inner) = rows;
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> SourceState {
        let index = self.index();
        let (snapshots, regions) = index.counts();
        let thresholds = index.thresholds();
        SourceState {
            kind: self.kind,
            name: self.name.clone(),
            generation: self.generation.load(Ordering::Relaxed),
            span_ms: index.span().map_or(0.0, |span| ms(span.end.since(span.start))),
            snapshots,
            regions,
            index_bytes: index.bytes() as u64,
            complete: self.complete.load(Ordering::Acquire),
            note: self.note.read().unwrap_or_else(PoisonError::into_inner).clone(),
            hot_hz: thresholds.hot_hz,
            cold_ms: ms(thresholds.cold_age),
        }
    }

    /// Bytes by heat over time, of all targets.
    #[must_use]
    pub fn series(&self) -> SeriesFigures {
        self.index().series().figures()
    }

    /// The targets, those with most memory first.
    #[must_use]
    pub fn targets(&self) -> Vec<TargetFigures> {
        self.index().targets(MAX_LISTED)
    }

    /// The axis of a target, as of the last snapshot.
    ///
    /// # Errors
    /// If there is no such target.
    pub fn axis(&self, target: u32) -> Result<Axis, SourceError> {
        let id = TargetId(target);
        if self.index().axis_is_old(id) {
            self.change().renew_axis(id);
        }
        self.index().axis(id).cloned().ok_or(SourceError::NotFound("no such target"))
    }

    /// The cells of a tile, a byte each, in columns from left to right, each from the lowest address up.
    ///
    /// # Errors
    /// If there is no such target, or its axis has changed.
    pub fn tile(&self, q: &TileQuery) -> Result<Vec<u8>, SourceError> {
        let cells = 1..=MAX_CELLS;
        let sizes = cells.contains(&q.width) && cells.contains(&q.height) && q.row_bytes > 0;
        let times = q.pixel_ms > 0.0 && q.pixel_ms < 1e12 && q.from_ms >= 0.0;
        if !(sizes && times) {
            return Err(SourceError::Invalid("the sizes of a tile are out of range"));
        }
        let id = TargetId(q.target);
        let index = self.index();
        let axis = index.axis(id).ok_or(SourceError::NotFound("no such target"))?;
        if axis.version != q.axis {
            return Err(SourceError::Changed);
        }
        let segments = axis.segments(q.from_byte, q.row_bytes, q.height);
        let span = time(q.from_ms)..time(q.from_ms + q.pixel_ms * q.width as f64);
        let size = (q.width, q.height);
        let pyramid = index.pyramid(id).ok_or(SourceError::NotFound("no such target"))?;
        let columns = pyramid.columns(&span, time(q.pixel_ms));
        let start = index.span().map(|span| span.start).unwrap_or_default();
        let widest = columns.iter().map(|c| c.time.end.saturating_sub(c.time.start)).max();
        let exact = start + span.start..start + span.end;
        let is_coarse = widest.is_some_and(|widest| widest > time(q.pixel_ms));
        let is_ready = self.record.is_some() && self.complete.load(Ordering::Acquire);
        if !(is_coarse && is_ready && self.seeker.parts(&exact) <= MAX_PARTS) {
            return Ok(draw(columns, &span, &segments, size, index.rates()));
        }
        drop(index);
        let mut columns = Vec::new();
        self.each(&exact, |s| {
            let view = s.targets.iter().find(|view| view.id == id);
            let time = s.start.since(start)..s.end.since(start);
            columns.extend(view.map(|view| HeatColumn::of(view, time)));
            true
        })?;
        Ok(draw(&columns, &span, &segments, size, self.index().rates()))
    }

    /// Calls `each` for the whole snapshots of a time that are still known, until it returns false.
    fn each(
        &self,
        time: &Range<Nanos>,
        mut each: impl FnMut(&Arc<Snapshot>) -> bool,
    ) -> Result<(), SourceError> {
        if self.record.is_some() {
            if !self.complete.load(Ordering::Acquire) {
                return Err(SourceError::NotReady);
            }
            return Ok(self.seeker.each(time, || self.open(), each)?);
        }
        let index = self.index();
        let moments = index.view().ring().between(time, Duration::ZERO);
        let all: Vec<_> = moments.into_iter().map(|m| Arc::clone(&m.snapshot)).collect();
        drop(index);
        all.iter().all(&mut each);
        Ok(())
    }

    /// The snapshot at a time, with the figures of its targets.
    fn moment(&self, at: Nanos) -> Result<Moment, SourceError> {
        let none = SourceError::NotFound("there is no snapshot at this time");
        if self.record.is_none() {
            return self.index().view().ring().at(at).cloned().ok_or(none);
        }
        if !self.complete.load(Ordering::Acquire) {
            return Err(SourceError::NotReady);
        }
        let snapshot = self.seeker.at(at, || self.open())?.ok_or(none)?;
        Ok(self.index().moment_of(snapshot))
    }

    /// The time that is asked for, within the recording.
    fn within(&self, ms: f64) -> Nanos {
        let index = self.index();
        let last = index.span().map_or(Nanos(0), |span| Nanos(span.end.0.saturating_sub(1)));
        index.at(ms).min(last)
    }

    /// The address of a byte of the axis of this version, or of the one that [`PageSource::axis`] returned last.
    fn address(&self, q: &PointQuery) -> Result<u64, SourceError> {
        let index = self.index();
        let axis = index.axis(TargetId(q.target)).ok_or(SourceError::NotFound("no such target"))?;
        if q.axis.is_some_and(|version| version != axis.version) {
            return Err(SourceError::Changed);
        }
        let outside = SourceError::NotFound("this is above the areas");
        axis.segments(q.byte, 1, 1).first().map(|s| s.range.start).ok_or(outside)
    }

    /// The memory at a point: range, mapping, rate with its interval, age.
    ///
    /// # Errors
    /// If there is no such target, its axis has changed, or the record cannot be read.
    pub fn point(&self, q: &PointQuery) -> Result<HeatPoint, SourceError> {
        let id = TargetId(q.target);
        let address = self.address(q)?;
        let s = self.moment(self.within(q.ms))?.snapshot;
        let index = self.index();
        let start = index.span().map(|span| span.start).unwrap_or_default();
        let view = s.targets.iter().find(|view| view.id == id);
        let mapping = view.and_then(|v| v.mappings.iter().find(|m| m.range.contains(address)));
        let region = |v: &TargetView| v.regions.iter().find(|r| r.range.contains(address)).copied();
        Ok(HeatPoint {
            from_ms: ms(s.start.since(start)),
            to_ms: ms(s.end.since(start)),
            address: format!("{address:#x}"),
            mapping: mapping.map(|m| label(m).to_owned()),
            mapping_path: mapping.map(|m| m.name.to_string()),
            region: view.and_then(region).map(|r| PointRegion::of(&r, &index)),
        })
    }

    /// The rows of processes or groups at a time.
    ///
    /// # Errors
    /// If there is no snapshot, or the record cannot be read.
    pub fn table(&self, at_ms: f64, by: By) -> Result<serde_json::Value, SourceError> {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(rows) = &*rows {
            let by = if by == By::Cgroup { "cgroup" } else { "process" };
            return Ok(rows[by].clone());
        }
        let moment = self.moment(self.within(at_ms))?;
        let index = self.index();
        let mut rows = index.view().table(&moment, by);
        isotherm_view::sort(&mut rows, isotherm_view::Column::Resident, true);
        let row = |row: isotherm_view::TableRow| RowFigures {
            target: match row.key {
                Key::Process(id) => Some(id.0),
                Key::All | Key::Cgroup(_) => None,
            },
            pid: row.pid,
            name: row.name,
            command: row.command,
            cgroup: row.cgroup,
            processes: row.processes,
            resident: index.view().missing().resident(row.figures.heat.resident()),
            hot: row.figures.heat.hot,
            warm: row.figures.heat.warm,
            cold: row.figures.heat.cold,
            unknown: row.figures.heat.unknown,
            saved: row.figures.saved,
            refaults: self.record.is_none().then_some(row.refaults_per_second),
        };
        let rows: Vec<RowFigures> = rows.into_iter().take(MAX_LISTED).map(row).collect();
        Ok(serde_json::to_value(rows).unwrap_or_default())
    }

    /// The idle ages of a target at a time.
    ///
    /// # Errors
    /// If none are known.
    pub fn ages(&self, target: u32, at_ms: f64) -> Result<AgesFigures, SourceError> {
        use isotherm_core::AgeHistogram;
        let index = self.index();
        let found = index.ages(TargetId(target), index.at(at_ms));
        let (end, ages) = found.ok_or(SourceError::NotFound("no idle ages are known yet"))?;
        let start = index.span().map(|span| span.start).unwrap_or_default();
        Ok(AgesFigures {
            ms: ms(end.since(start)),
            lowest_ms: (0..).map_while(AgeHistogram::lowest_ms).collect(),
            idle: ages.idle.0.to_vec(),
            swapped: ages.swapped.0.to_vec(),
            unknown: ages.unknown,
            untouched: ages.untouched,
        })
    }

    /// A heat map of a part of the time, as `isotherm report heatmap` draws it.
    ///
    /// # Errors
    /// If there is nothing in it, or the record cannot be read.
    pub fn picture(&self, q: &SpanQuery) -> Result<Picture, SourceError> {
        let (span, start) = self.span(q)?;
        let (name, thresholds, labels, missing, look) = {
            let index = self.index();
            let (missing, facts) = (index.view().missing(), index.view().facts());
            let look = facts.map(|facts| facts.look.clone()).unwrap_or_default();
            let labels = index.targets(MAX_LISTED).into_iter();
            let labels = labels.map(|t| match t.pid {
                Some(pid) => (TargetId(t.id), format!("{} (pid {pid})", t.name)),
                None => (TargetId(t.id), t.name),
            });
            (self.name.clone(), index.thresholds(), labels.collect(), missing, look)
        };
        let time = span.start.since(start)..span.end.since(start);
        let targets = q.target.map(|id| [TargetId(id)].into());
        let filter = RecordFilter { time: Some(time), addr: None, targets };
        let mut options = Options::titled(name);
        options.filter = filter;
        options.thresholds = thresholds;
        options.labels = labels;
        (options.missing, options.look) = (missing, look);
        let mut extent = Extent::new(options);
        // The time of a report counts from the first snapshot that it receives.
        let mut first = None;
        self.each(&span, |s| {
            let (start, end, targets) = (start, start, Vec::new());
            extent.push(first.get_or_insert_with(|| Snapshot {
                start,
                end,
                targets,
                ..Snapshot::clone(s)
            }));
            extent.push(s);
            true
        })?;
        let Some(first) = first else { return Err(FilterError::Empty.into()) };
        let mut grid = Grid::new(extent, &GridSize::picture())?;
        grid.push(&first);
        self.each(&span, |s| {
            grid.push(s);
            true
        })?;
        Ok(heatmap_picture(&grid.finish())?)
    }

    /// The selected part of the time, and the start of the recording.
    fn span(&self, q: &SpanQuery) -> Result<(Range<Nanos>, Nanos), SourceError> {
        let index = self.index();
        let all = index.span().ok_or(SourceError::NotFound("there is no snapshot yet"))?;
        let span = index.at(q.from_ms).max(all.start)..index.at(q.to_ms).min(all.end);
        if span.is_empty() {
            return Err(SourceError::Invalid("the end must be after the start"));
        }
        Ok((span, all.start))
    }

    /// A part of the time as a record, in a temporary file.
    ///
    /// # Errors
    /// If there is nothing in it, or it cannot be written.
    pub fn cut(&self, q: &SpanQuery) -> Result<std::fs::File, SourceError> {
        let (span, _) = self.span(q)?;
        let mut file = tempfile::tempfile()?;
        let wanted = |id: TargetId| q.target.is_none_or(|target| target == id.0);
        let mut writer: Option<Writer<&std::fs::File>> = None;
        let (mut seq, mut failed) = (0, None);
        let mut known = BTreeMap::new();
        self.each(&span, |s| {
            let mut part = Snapshot { seq, ..Snapshot::clone(s) };
            part.targets.retain(|view| wanted(view.id));
            seq += 1;
            let started = writer.take().map_or_else(|| self.start_record(&file, &part, wanted), Ok);
            let written = started.and_then(|mut started| {
                self.attributions(&part, &mut known, &mut started)?;
                let _ = started.snapshot(&part)?;
                Ok(started)
            });
            match written {
                Ok(started) => writer = Some(started),
                Err(e) => failed = Some(e),
            }
            failed.is_none()
        })?;
        if let Some(e) = failed {
            return Err(e.into());
        }
        let writer = writer.ok_or(FilterError::Empty)?;
        writer.finish(FileEndReason::Played, "a part of a recording, from the browser")?;
        file.rewind()?;
        Ok(file)
    }

    /// A record in `file`, with the targets, that begins with the snapshot `first`.
    fn start_record<'a>(
        &self,
        file: &'a std::fs::File,
        first: &Snapshot,
        wanted: impl Fn(TargetId) -> bool,
    ) -> Result<Writer<&'a std::fs::File>, WriteError> {
        let path = Path::new("in a temporary file");
        let index = self.index();
        let facts = index.view().header_from(first.start, first.attrs);
        let mut writer = Writer::to(file, path, &facts, RecordLimits::default())?;
        for fact in index.facts().filter(|fact| wanted(fact.id)) {
            let _ = writer.target(fact.clone())?;
        }
        Ok(writer)
    }

    /// Writes the attributions of the targets of a snapshot, unless they are those in `known`. The first one of a
    /// target may be of an earlier time.
    fn attributions(
        &self,
        s: &Snapshot,
        known: &mut BTreeMap<TargetId, Nanos>,
        writer: &mut Writer<&std::fs::File>,
    ) -> Result<(), WriteError> {
        let index = self.index();
        // One at the end is of the next snapshot.
        let until = Nanos(s.end.0.saturating_sub(1));
        let all = s.targets.iter().filter_map(|view| index.attribution(view.id, until));
        let new = all.filter(|a| known.insert(a.target, a.at) != Some(a.at));
        let within = |a: &Attribution| Attribution { at: a.at.clamp(s.start, s.end), ..a.clone() };
        let mut new: Vec<_> = new.map(within).collect();
        // A record has them in order of time.
        new.sort_by_key(|a| a.at);
        new.into_iter().try_for_each(|a| writer.attribution(a).map(drop))
    }
}

impl PointRegion {
    fn of(r: &RegionView, index: &Index) -> Self {
        let share = |bp: u32| f64::from(bp.min(10_000)) / 1e4;
        let unknown = r.unknown_bp.total().min(10_000) as u32;
        let reasons = Unknown::ALL.into_iter().filter(|why| r.unknown_bp.0[why.index()] > 0);
        let missing = index.view().missing();
        let is_unknown = unknown * 2 >= r.resident_bp && r.resident_bp > 0;
        PointRegion {
            start: format!("{:#x}", r.range.start),
            end: format!("{:#x}", r.range.end),
            bytes: r.range.len(),
            heat: match r.heat(&index.thresholds()) {
                _ if r.resident_bp == 0 => "absent",
                _ if is_unknown => "unknown",
                isotherm_core::Heat::Hot => "hot",
                isotherm_core::Heat::Warm => "warm",
                isotherm_core::Heat::Cold => "cold",
            },
            hz: r.rate.hz,
            low_hz: r.rate.low,
            high_hz: Some(r.rate.high).filter(|hz| hz.is_finite()),
            age_ms: missing.age(ms(r.age)),
            age_low_ms: ms(r.age),
            touched: share(r.touched_bp),
            resident: missing.resident(share(r.resident_bp)),
            unknown: share(unknown),
            unknown_by: reasons.map(Unknown::name).collect(),
            measured: r.support.map(|s| share(s.measured_bp)),
            extended: r.support.map(|s| share(s.extended_bp)),
        }
    }
}

/// Milliseconds with their fraction.
pub fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}
