//! A record as Parquet: tables for warehouses and DuckDB, partitioned by host and day.
//!
//! `docs/abi/testing/interchange.md` describes the columns and their units.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::{
    Float32Builder, StringBuilder, TimestampMicrosecondBuilder, UInt16Builder, UInt32Builder,
    UInt64Builder,
};
use arrow_array::{ArrayRef, RecordBatch};
use isotherm_core::{Attribution, Nanos, Snapshot, TargetId, Thresholds};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;

use super::{ExportError, Exported, each};
use crate::event::Event;
use crate::facts::{Facts, TargetFact};
use crate::reader::Reader;

/// Rows that wait in columns until they are given to the writer, and rows of a row group.
const BATCH: usize = 64 << 10;
const GROUP: usize = 512 << 10;
const DAY_MS: u64 = 86_400_000;
/// Level of zstd: higher ones are slower without being much smaller.
const LEVEL: i32 = 6;

impl From<ParquetError> for ExportError {
    fn from(e: ParquetError) -> Self {
        ExportError::Write(e.to_string())
    }
}

/// Writes a record as Parquet files below the directory `dir`: `TABLE/host=HOST/day=YYYY-MM-DD/START.parquet`, with the
/// tables `regions`, `snapshots` and `targets`. START is the start of the recording in ms since 1970, so that the
/// exports of several records lie side by side.
///
/// # Errors
/// If the record cannot be read (a missing end is not an error), or a file cannot be written or exists.
pub fn export_parquet(
    reader: Reader,
    thresholds: &Thresholds,
    dir: &Path,
) -> Result<Exported, ExportError> {
    let mut tables = Tables::new(dir, thresholds);
    let exported = each(reader, |event| {
        match event {
            Event::Facts(facts) => tables.facts = facts.clone(),
            Event::Target(fact) => {
                tables.targets.insert(fact.id, fact.clone());
            }
            Event::Attribution(a) => tables.attribution(a)?,
            Event::Snapshot(s) => {
                tables.snapshot(s)?;
                return Ok(true);
            }
            _ => {}
        }
        Ok(false)
    })?;
    tables.finish()?;
    Ok(exported)
}

struct Tables {
    dir: PathBuf,
    thresholds: Thresholds,
    facts: Facts,
    targets: HashMap<TargetId, TargetFact>,
    cgroups: HashMap<TargetId, Arc<str>>,
    /// control groups that were read later than the last snapshot: a record has them before its snapshots
    later: VecDeque<Attribution>,
    /// days since 1970 of the open files
    day: Option<u64>,
    regions: Table<Regions>,
    snapshots: Table<Snapshots>,
    attributions: Table<Attributions>,
}

impl Tables {
    fn new(dir: &Path, thresholds: &Thresholds) -> Self {
        Tables {
            dir: dir.to_owned(),
            thresholds: *thresholds,
            facts: Facts::new("", isotherm_core::Attrs::default(), Nanos(0)),
            targets: HashMap::new(),
            cgroups: HashMap::new(),
            later: VecDeque::new(),
            day: None,
            regions: Table::new("regions"),
            snapshots: Table::new("snapshots"),
            attributions: Table::new("targets"),
        }
    }

    /// The wall clock at a time of the record, in us since 1970.
    fn unix_us(&self, at: Nanos) -> u64 {
        self.facts.started_unix_ms * 1000 + (at.0.saturating_sub(self.facts.started.0)) / 1000
    }

    /// Opens the files of the day of `us`.
    fn begin(&mut self, us: u64) -> Result<(), ExportError> {
        let day = us / 1000 / DAY_MS;
        if self.day == Some(day) {
            return Ok(());
        }
        self.finish()?;
        self.day = Some(day);
        let (y, m, d) = date(day);
        let host = match self.facts.host.as_str() {
            "" => "unknown".to_owned(),
            // a directory of the same name as the host, whatever that is
            host => host
                .chars()
                .map(|c| if c.is_alphanumeric() || "-._".contains(c) { c } else { '_' })
                .collect(),
        };
        let part =
            format!("host={host}/day={y:04}-{m:02}-{d:02}/{}.parquet", self.facts.started_unix_ms);
        self.regions.path = self.dir.join("regions").join(&part);
        self.snapshots.path = self.dir.join("snapshots").join(&part);
        self.attributions.path = self.dir.join("targets").join(&part);
        Ok(())
    }

    fn attribution(&mut self, a: &Attribution) -> Result<(), ExportError> {
        let us = self.unix_us(a.at);
        self.begin(us)?;
        self.later.push_back(a.clone());
        let fact = self.targets.get(&a.target);
        self.attributions.columns.push(us, a, fact);
        self.attributions.grown()
    }

    fn snapshot(&mut self, s: &Snapshot) -> Result<(), ExportError> {
        let us = self.unix_us(s.end);
        self.begin(us)?;
        let read = self.later.iter().take_while(|a| a.at <= s.end).count();
        self.cgroups.extend(self.later.drain(..read).map(|a| (a.target, a.cgroup)));
        for view in &s.targets {
            let cgroup = self.cgroups.get(&view.id).map(|c| &**c);
            let command = self.targets.get(&view.id).map_or("", |t| &t.command);
            let bytes = view.bytes(&self.thresholds);
            let row = &mut self.snapshots.columns;
            row.time.append_value(i64::try_from(us).unwrap_or(i64::MAX));
            row.seq.append_value(s.seq);
            row.target.append_value(view.id.0);
            row.command.append_value(command);
            row.cgroup.append_option(cgroup);
            row.length_us
                .append_value(u64::try_from(s.end.since(s.start).as_micros()).unwrap_or(u64::MAX));
            let ran = view.ran.map(|ran| u64::try_from(ran.as_micros()).unwrap_or(u64::MAX));
            row.ran_us.append_option(ran);
            let figures = [bytes.hot, bytes.warm, bytes.cold, bytes.unknown, bytes.absent];
            for (column, bytes) in row.bytes.iter_mut().zip(figures) {
                column.append_value(bytes);
            }
            self.snapshots.grown()?;
            for r in &view.regions {
                let row = &mut self.regions.columns;
                row.seq.append_value(s.seq);
                row.target.append_value(view.id.0);
                row.start.append_value(r.range.start);
                row.bytes.append_value(r.range.len());
                row.rate_hz.append_value(r.rate.hz);
                row.age_ms.append_value(u64::try_from(r.age.as_millis()).unwrap_or(u64::MAX));
                let unknown = u32::try_from(r.unknown_bp.total()).unwrap_or(u32::MAX);
                let shares = [r.accesses_bp, r.touched_bp, r.resident_bp, unknown];
                for (column, bp) in row.shares.iter_mut().zip(shares) {
                    column.append_value(u16::try_from(bp.min(10_000)).unwrap_or(10_000));
                }
            }
            self.regions.rows += view.regions.len();
            self.regions.flush_if_large()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), ExportError> {
        self.regions.finish()?;
        self.snapshots.finish()?;
        self.attributions.finish()
    }
}

/// Columns that become rows of a table.
trait Columns: Default {
    /// Names of the columns that grow by small steps, which a difference encodes best.
    const STEPS: &'static [&'static str];
    /// The columns so far, empty afterwards.
    fn take(&mut self) -> Vec<(&'static str, bool, ArrayRef)>;
}

struct Table<C> {
    name: &'static str,
    path: PathBuf,
    columns: C,
    rows: usize,
    writer: Option<ArrowWriter<BufWriter<File>>>,
}

impl<C: Columns> Table<C> {
    fn new(name: &'static str) -> Self {
        Table { name, path: PathBuf::new(), columns: C::default(), rows: 0, writer: None }
    }

    fn grown(&mut self) -> Result<(), ExportError> {
        self.rows += 1;
        self.flush_if_large()
    }

    fn flush_if_large(&mut self) -> Result<(), ExportError> {
        if self.rows >= BATCH { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        if self.rows == 0 {
            return Ok(());
        }
        self.rows = 0;
        let columns =
            self.columns.take().into_iter().map(|(name, null, array)| (name, array, null));
        let batch = RecordBatch::try_from_iter_with_nullable(columns)?;
        if self.writer.is_none() {
            let cannot = |e: std::io::Error| {
                ExportError::Write(format!(
                    "the table {} at {}: {e}",
                    self.name,
                    self.path.display()
                ))
            };
            fs::create_dir_all(self.path.parent().unwrap_or(Path::new("."))).map_err(cannot)?;
            let file = File::create_new(&self.path).map_err(cannot)?;
            let out = BufWriter::new(file);
            self.writer =
                Some(ArrowWriter::try_new(out, batch.schema(), Some(properties::<C>()?))?);
        }
        self.writer.as_mut().map_or(Ok(()), |w| w.write(&batch))?;
        Ok(())
    }

    /// Writes the end of the file.
    fn finish(&mut self) -> Result<(), ExportError> {
        self.flush()?;
        if let Some(writer) = self.writer.take() {
            writer.close()?;
        }
        Ok(())
    }
}

fn properties<C: Columns>() -> Result<WriterProperties, ParquetError> {
    let mut builder = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL)?))
        .set_max_row_group_row_count(Some(GROUP))
        .set_created_by(concat!("isotherm ", env!("CARGO_PKG_VERSION")).to_owned());
    for &name in C::STEPS {
        let path = ColumnPath::from(name);
        builder = builder
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    Ok(builder.build())
}

#[derive(Default)]
struct Regions {
    seq: UInt64Builder,
    target: UInt32Builder,
    start: UInt64Builder,
    bytes: UInt64Builder,
    rate_hz: Float32Builder,
    age_ms: UInt64Builder,
    shares: [UInt16Builder; 4],
}

impl Columns for Regions {
    const STEPS: &'static [&'static str] = &["seq", "start"];

    fn take(&mut self) -> Vec<(&'static str, bool, ArrayRef)> {
        let mut columns: Vec<(&'static str, bool, ArrayRef)> = vec![
            ("seq", false, Arc::new(self.seq.finish())),
            ("target", false, Arc::new(self.target.finish())),
            ("start", false, Arc::new(self.start.finish())),
            ("bytes", false, Arc::new(self.bytes.finish())),
            ("rate_hz", false, Arc::new(self.rate_hz.finish())),
            ("age_ms", false, Arc::new(self.age_ms.finish())),
        ];
        let names = ["accesses_bp", "touched_bp", "resident_bp", "unknown_bp"];
        for (name, column) in names.into_iter().zip(&mut self.shares) {
            columns.push((name, false, Arc::new(column.finish())));
        }
        columns
    }
}

#[derive(Default)]
struct Snapshots {
    time: TimestampMicrosecondBuilder,
    seq: UInt64Builder,
    target: UInt32Builder,
    command: StringBuilder,
    cgroup: StringBuilder,
    length_us: UInt64Builder,
    ran_us: UInt64Builder,
    bytes: [UInt64Builder; 5],
}

impl Columns for Snapshots {
    const STEPS: &'static [&'static str] = &["time", "seq"];

    fn take(&mut self) -> Vec<(&'static str, bool, ArrayRef)> {
        let mut columns: Vec<(&'static str, bool, ArrayRef)> = vec![
            ("time", false, Arc::new(self.time.finish().with_timezone("UTC"))),
            ("seq", false, Arc::new(self.seq.finish())),
            ("target", false, Arc::new(self.target.finish())),
            ("command", false, Arc::new(self.command.finish())),
            ("cgroup", true, Arc::new(self.cgroup.finish())),
            ("length_us", false, Arc::new(self.length_us.finish())),
            ("ran_us", true, Arc::new(self.ran_us.finish())),
        ];
        let names = ["hot_bytes", "warm_bytes", "cold_bytes", "unknown_bytes", "absent_bytes"];
        for (name, column) in names.into_iter().zip(&mut self.bytes) {
            columns.push((name, false, Arc::new(column.finish())));
        }
        columns
    }
}

#[derive(Default)]
struct Attributions {
    time: TimestampMicrosecondBuilder,
    target: UInt32Builder,
    pid: UInt32Builder,
    command: StringBuilder,
    comm: StringBuilder,
    cgroup: StringBuilder,
    swapped_bytes: UInt64Builder,
    major_faults: UInt64Builder,
}

impl Attributions {
    fn push(&mut self, us: u64, a: &Attribution, fact: Option<&TargetFact>) {
        self.time.append_value(i64::try_from(us).unwrap_or(i64::MAX));
        self.target.append_value(a.target.0);
        self.pid.append_option(fact.and_then(|t| t.pid));
        self.command.append_value(fact.map_or("", |t| &t.command));
        self.comm.append_value(&*a.comm);
        self.cgroup.append_value(&*a.cgroup);
        self.swapped_bytes.append_value(a.swapped);
        self.major_faults.append_value(a.major_faults);
    }
}

impl Columns for Attributions {
    const STEPS: &'static [&'static str] = &["time"];

    fn take(&mut self) -> Vec<(&'static str, bool, ArrayRef)> {
        vec![
            ("time", false, Arc::new(self.time.finish().with_timezone("UTC"))),
            ("target", false, Arc::new(self.target.finish())),
            ("pid", true, Arc::new(self.pid.finish())),
            ("command", false, Arc::new(self.command.finish())),
            ("comm", false, Arc::new(self.comm.finish())),
            ("cgroup", false, Arc::new(self.cgroup.finish())),
            ("swapped_bytes", false, Arc::new(self.swapped_bytes.finish())),
            ("major_faults", false, Arc::new(self.major_faults.finish())),
        ]
    }
}

/// Year, month and day of a number of days since 1970, by the Gregorian calendar: Howard Hinnant's
/// `civil_from_days`.
fn date(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, day) = (z / 146_097, z % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let d = day - (153 * month + 2) / 5 + 1;
    let m = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(m <= 2), m, d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        for (days, expected) in [
            (0, (1970, 1, 1)),
            (11_016, (2000, 2, 29)),
            (20_780, (2026, 11, 23)),
            (20_453, (2025, 12, 31)),
        ] {
            assert_eq!(date(days), expected);
        }
    }
}
