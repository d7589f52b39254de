//! A record as tables: its regions, its snapshots, and its targets with their control groups.
//!
//! `docs/abi/testing/interchange.md` describes the columns and their units.

use std::collections::{HashMap, VecDeque};
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::builder::{
    ArrayBuilder, Float32Builder, StringBuilder, TimestampMicrosecondBuilder, UInt16Builder,
    UInt32Builder, UInt64Builder,
};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchIterator, RecordBatchReader};
use arrow_schema::ArrowError;
use isotherm_core::{Attribution, Attrs, Nanos, TargetId, Thresholds};

use super::ExportError;
use crate::event::{Event, ReadError};
use crate::header::{RecordingHeader, TargetInfo, cut};
use crate::reader::Reader;

/// Approximate number of rows in a record batch.
pub(super) const BATCH_ROWS: usize = 64 << 10;
/// Maximum number of control groups that wait for their snapshot. Beyond it, the oldest is dropped.
const MAX_LATER: usize = 64 << 10;

/// A table of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Table {
    /// a row for each region of each snapshot
    Regions,
    /// a row for each target of each snapshot
    Snapshots,
    /// A row for each time at which the control group and other facts of a target were read. A target of which they
    /// never were has one row.
    Targets,
}

impl Table {
    /// Reads this table of a record, batch by batch. A missing end of the record is no error.
    ///
    /// # Errors
    /// If the columns cannot be made. The errors of reading are those of the batches.
    pub fn read(
        self,
        reader: Reader,
        thresholds: &Thresholds,
    ) -> Result<Box<dyn RecordBatchReader + Send>, ExportError> {
        match self {
            Table::Regions => batches::<Regions>(reader, thresholds),
            Table::Snapshots => batches::<Snapshots>(reader, thresholds),
            Table::Targets => batches::<Attributions>(reader, thresholds),
        }
    }
}

fn batches<C: Columns + Send + 'static>(
    mut reader: Reader,
    thresholds: &Thresholds,
) -> Result<Box<dyn RecordBatchReader + Send>, ExportError> {
    let mut columns = C::default();
    let schema = columns.take()?.schema();
    let mut context = Context::new(thresholds);
    let (mut begun, mut ended) = (false, false);
    let next = move || {
        for event in reader.by_ref() {
            match event {
                Ok(Event::Header(_)) if begun => {
                    return Some(Err(ArrowError::from_external_error(ExportError::Mixed.into())));
                }
                Ok(event) => {
                    begun |= matches!(event, Event::Header(_));
                    context.note(&event);
                    columns.push(&event, &context);
                }
                Err(ReadError::Torn { .. }) => {}
                Err(e) => return Some(Err(ArrowError::from_external_error(e.into()))),
            }
            if columns.rows() >= BATCH_ROWS {
                break;
            }
        }
        if columns.rows() < BATCH_ROWS && !ended {
            ended = true;
            columns.end(&context);
        }
        (columns.rows() > 0).then(|| columns.take())
    };
    Ok(Box::new(RecordBatchIterator::new(iter::from_fn(next), schema)))
}

/// What the rows of all tables require from earlier events.
pub(super) struct Context {
    thresholds: Thresholds,
    facts: RecordingHeader,
    targets: HashMap<TargetId, TargetInfo>,
    cgroups: HashMap<TargetId, Arc<str>>,
    /// control groups that were read later than the last snapshot: a record has them before its snapshots
    later: VecDeque<Attribution>,
}

impl Context {
    pub(super) fn new(thresholds: &Thresholds) -> Self {
        Context {
            thresholds: *thresholds,
            facts: RecordingHeader::new("", Attrs::default(), Nanos(0)),
            targets: HashMap::new(),
            cgroups: HashMap::new(),
            later: VecDeque::new(),
        }
    }

    /// The facts of the recording, empty before their event.
    pub(super) fn facts(&self) -> &RecordingHeader {
        &self.facts
    }

    /// Keeps what later rows require. It must get each event before the columns get it.
    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::Header(facts) => self.facts = facts.clone(),
            Event::Target(fact) => {
                // A batch repeats a command in many rows, and a column holds at most 2 GiB.
                let command = cut(&fact.command, TargetInfo::MAX_COMMAND).to_owned();
                self.targets.insert(fact.id, TargetInfo { command, ..*fact });
            }
            Event::Attribution(a) => {
                if self.later.len() == MAX_LATER {
                    self.later.pop_front();
                }
                self.later.push_back(a.clone());
            }
            Event::Snapshot(s) => {
                let read = self.later.iter().take_while(|a| a.at <= s.end).count();
                self.cgroups.extend(self.later.drain(..read).map(|a| (a.target, a.cgroup)));
            }
            _ => {}
        }
    }

    /// The time of the rows of an event, in us since the start of the recording; `None` if it has no rows.
    pub(super) fn elapsed_us(&self, event: &Event) -> Option<u64> {
        let at = match event {
            Event::Attribution(a) => a.at,
            Event::Snapshot(s) => s.end,
            _ => return None,
        };
        Some(at.0.saturating_sub(self.facts.started.0) / 1000)
    }

    /// A time since the start of the recording, in us since 1970; `None` if that start is not known.
    pub(super) fn unix_us(&self, elapsed_us: u64) -> Option<u64> {
        let started = self.facts.started_unix_ms;
        (started > 0).then(|| started.saturating_mul(1000).saturating_add(elapsed_us))
    }

    /// The targets whose attribution was never read, in ascending order of number.
    fn unattributed(&self) -> Vec<&TargetInfo> {
        let is_read =
            |id| self.cgroups.contains_key(&id) || self.later.iter().any(|a| a.target == id);
        let mut targets: Vec<_> = self.targets.values().filter(|t| !is_read(t.id)).collect();
        targets.sort_by_key(|t| t.id);
        targets
    }

    fn command(&self, target: TargetId) -> &str {
        self.targets.get(&target).map_or("", |t| &t.command)
    }
}

/// Columns that become rows of a table.
pub(super) trait Columns: Default {
    /// name of the table
    const NAME: &'static str;
    /// names of the columns that grow by small steps, which a difference encodes best
    const STEPS: &'static [&'static str];

    /// Appends the rows of an event.
    fn push(&mut self, event: &Event, context: &Context);

    /// Appends the rows that the end of the record shows to be necessary.
    fn end(&mut self, _: &Context) {}

    /// Number of rows.
    fn rows(&self) -> usize;

    /// The rows, which are removed.
    fn take(&mut self) -> Result<RecordBatch, ArrowError>;
}

/// A column: its name, its values, and whether they may be null.
type Column = (&'static str, ArrayRef, bool);

#[derive(Default)]
pub(super) struct Regions {
    seq: UInt64Builder,
    target: UInt32Builder,
    start: UInt64Builder,
    bytes: UInt64Builder,
    rate_hz: Float32Builder,
    age_ms: UInt64Builder,
    shares: [UInt16Builder; SHARES.len()],
}

/// The shares of a region, and whether they may be null.
const SHARES: [(&str, bool); 6] = [
    ("accesses_bp", false),
    ("touched_bp", false),
    ("resident_bp", true),
    ("unknown_bp", false),
    ("measured_bp", true),
    ("extended_bp", true),
];

impl Columns for Regions {
    const NAME: &'static str = "regions";
    const STEPS: &'static [&'static str] = &["seq", "start"];

    fn push(&mut self, event: &Event, context: &Context) {
        let Event::Snapshot(s) = event else { return };
        let missing = context.facts.missing;
        for (target, r) in s.targets.iter().flat_map(|t| t.regions.iter().map(|r| (t.id, r))) {
            self.seq.append_value(s.seq);
            self.target.append_value(target.0);
            self.start.append_value(r.range.start);
            self.bytes.append_value(r.range.len());
            self.rate_hz.append_value(r.rate.hz);
            let age_ms = u64::try_from(r.age.as_millis()).unwrap_or(u64::MAX);
            self.age_ms.append_option(missing.age(age_ms));
            let unknown = u32::try_from(r.unknown_bp.total()).unwrap_or(u32::MAX);
            let shares = [
                Some(r.accesses_bp),
                Some(r.touched_bp),
                missing.resident(r.resident_bp),
                Some(unknown),
                r.support.map(|s| s.measured_bp),
                r.support.map(|s| s.extended_bp),
            ];
            for (column, bp) in self.shares.iter_mut().zip(shares) {
                column.append_option(bp.and_then(|bp| u16::try_from(bp.min(10_000)).ok()));
            }
        }
    }

    fn rows(&self) -> usize {
        self.seq.len()
    }

    fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        let shares = SHARES.into_iter().zip(&mut self.shares);
        let columns: [Column; 6] = [
            ("seq", Arc::new(self.seq.finish()), false),
            ("target", Arc::new(self.target.finish()), false),
            ("start", Arc::new(self.start.finish()), false),
            ("bytes", Arc::new(self.bytes.finish()), false),
            ("rate_hz", Arc::new(self.rate_hz.finish()), false),
            ("age_ms", Arc::new(self.age_ms.finish()), true),
        ];
        let shares =
            shares.map(|((name, null), bp)| (name, Arc::new(bp.finish()) as ArrayRef, null));
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().chain(shares))
    }
}

#[derive(Default)]
pub(super) struct Snapshots {
    time: TimestampMicrosecondBuilder,
    elapsed_us: UInt64Builder,
    seq: UInt64Builder,
    target: UInt32Builder,
    command: StringBuilder,
    cgroup: StringBuilder,
    length_us: UInt64Builder,
    ran_us: UInt64Builder,
    bytes: [UInt64Builder; 5],
}

impl Columns for Snapshots {
    const NAME: &'static str = "snapshots";
    const STEPS: &'static [&'static str] = &["time", "elapsed_us", "seq"];

    fn push(&mut self, event: &Event, context: &Context) {
        let (Event::Snapshot(s), Some(elapsed)) = (event, context.elapsed_us(event)) else {
            return;
        };
        let us_of = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        for view in &s.targets {
            self.time.append_option(context.unix_us(elapsed).and_then(|us| i64::try_from(us).ok()));
            self.elapsed_us.append_value(elapsed);
            self.seq.append_value(s.seq);
            self.target.append_value(view.id.0);
            self.command.append_value(context.command(view.id));
            self.cgroup.append_option(context.cgroups.get(&view.id));
            self.length_us.append_value(us_of(s.end.since(s.start)));
            self.ran_us.append_option(view.ran.map(us_of));
            let bytes = view.bytes(&context.thresholds);
            let absent = context.facts.missing.resident(bytes.absent);
            let heats = [bytes.hot, bytes.warm, bytes.cold, bytes.unknown].map(Some);
            for (column, bytes) in self.bytes.iter_mut().zip(heats.into_iter().chain([absent])) {
                column.append_option(bytes);
            }
        }
    }

    fn rows(&self) -> usize {
        self.seq.len()
    }

    fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        let names = ["hot_bytes", "warm_bytes", "cold_bytes", "unknown_bytes", "absent_bytes"];
        let bytes = names.into_iter().zip(&mut self.bytes);
        let columns: [Column; 8] = [
            ("time", Arc::new(self.time.finish().with_timezone("UTC")), true),
            ("elapsed_us", Arc::new(self.elapsed_us.finish()), false),
            ("seq", Arc::new(self.seq.finish()), false),
            ("target", Arc::new(self.target.finish()), false),
            ("command", Arc::new(self.command.finish()), false),
            ("cgroup", Arc::new(self.cgroup.finish()), true),
            ("length_us", Arc::new(self.length_us.finish()), false),
            ("ran_us", Arc::new(self.ran_us.finish()), true),
        ];
        let bytes = bytes.map(|(name, bytes)| {
            (name, Arc::new(bytes.finish()) as ArrayRef, name == "absent_bytes")
        });
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().chain(bytes))
    }
}

#[derive(Default)]
pub(super) struct Attributions {
    time: TimestampMicrosecondBuilder,
    target: UInt32Builder,
    pid: UInt32Builder,
    command: StringBuilder,
    comm: StringBuilder,
    cgroup: StringBuilder,
    swapped_bytes: UInt64Builder,
    major_faults: UInt64Builder,
}

impl Columns for Attributions {
    const NAME: &'static str = "targets";
    const STEPS: &'static [&'static str] = &["time"];

    fn push(&mut self, event: &Event, context: &Context) {
        let (Event::Attribution(a), Some(elapsed)) = (event, context.elapsed_us(event)) else {
            return;
        };
        let pid = context.targets.get(&a.target).and_then(|t| t.pid);
        self.row(a.target, pid, context.command(a.target), Some((a, context.unix_us(elapsed))));
    }

    fn end(&mut self, context: &Context) {
        for t in context.unattributed() {
            self.row(t.id, t.pid, &t.command, None);
        }
    }

    fn rows(&self) -> usize {
        self.target.len()
    }

    fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        let columns: [Column; 8] = [
            ("time", Arc::new(self.time.finish().with_timezone("UTC")), true),
            ("target", Arc::new(self.target.finish()), false),
            ("pid", Arc::new(self.pid.finish()), true),
            ("command", Arc::new(self.command.finish()), false),
            ("comm", Arc::new(self.comm.finish()), true),
            ("cgroup", Arc::new(self.cgroup.finish()), true),
            ("swapped_bytes", Arc::new(self.swapped_bytes.finish()), true),
            ("major_faults", Arc::new(self.major_faults.finish()), true),
        ];
        RecordBatch::try_from_iter_with_nullable(columns)
    }
}

impl Attributions {
    /// Appends a target, with its attribution and the time at which that was read, in us since 1970.
    fn row(
        &mut self,
        target: TargetId,
        pid: Option<u32>,
        command: &str,
        read: Option<(&Attribution, Option<u64>)>,
    ) {
        let (a, us) = (read.map(|(a, _)| a), read.and_then(|(_, us)| us));
        self.time.append_option(us.and_then(|us| i64::try_from(us).ok()));
        self.target.append_value(target.0);
        self.pid.append_option(pid);
        self.command.append_value(command);
        self.comm.append_option(a.map(|a| &*a.comm));
        self.cgroup.append_option(a.map(|a| &*a.cgroup));
        self.swapped_bytes.append_option(a.map(|a| a.swapped));
        self.major_faults.append_option(a.map(|a| a.major_faults));
    }
}
