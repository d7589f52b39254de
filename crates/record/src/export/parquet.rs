//! A record as Parquet: tables for warehouses and DuckDB, partitioned by host and day.

use std::cmp::Reverse;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use isotherm_core::Thresholds;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use tempfile::TempPath;

use super::tables::{Attributions, BATCH_ROWS, Columns, Context, Regions, Snapshots};
use super::{ExportError, Exported, each};
use crate::event::Event;
use crate::header::RecordingHeader;
use crate::reader::Reader;

/// Rows of a row group.
const GROUP: usize = 512 << 10;
const DAY_US: u64 = 86_400_000_000;
/// The day of snapshots whose time is not known. Hive, DuckDB, Spark and Arrow read this name as null, so that the
/// other days remain dates.
const UNKNOWN_DAY: &str = "__HIVE_DEFAULT_PARTITION__";
/// Level of zstd: higher ones are slower without being much smaller.
const ZSTD_LEVEL: i32 = 6;

impl From<ParquetError> for ExportError {
    fn from(e: ParquetError) -> Self {
        // The text of an error of the operating system has no prefix.
        ExportError::Write(match e {
            ParquetError::External(e) => e.to_string(),
            e => e.to_string(),
        })
    }
}

/// Writes a record as Parquet files below the directory `dir`: `TABLE/host=HOST/day=YYYY-MM-DD/START.parquet`, with the
/// tables `regions`, `snapshots` and `targets`. START is the start of the recording in ms since 1970, so that the
/// exports of several records lie side by side. If that start is not known, the day is `__HIVE_DEFAULT_PARTITION__`,
/// and START is `at` with the start in ns on the clock of the snapshots. The files have hidden temporary names until all
/// are complete.
///
/// # Errors
/// If the record cannot be read (a missing end is not an error), or a file cannot be written or exists. Then no file or
/// folder of this export is left.
pub fn export_parquet(
    reader: Reader,
    thresholds: &Thresholds,
    dir: &Path,
) -> Result<Exported, ExportError> {
    let mut context = Context::new(thresholds);
    let mut files = Files::new(dir);
    let exported = each(reader, |event| {
        context.note(event);
        if let Some(elapsed) = context.elapsed_us(event) {
            // A record has attributions before the snapshots of the same time, so only snapshots turn the day.
            if matches!(event, Event::Snapshot(_)) {
                files.begin(elapsed, &context)?;
            } else if files.part.is_none() {
                files.begin(0, &context)?;
            }
            files.regions.push(event, &context)?;
            files.snapshots.push(event, &context)?;
            files.attributions.push(event, &context)?;
        }
        Ok(matches!(event, Event::Snapshot(_)))
    });
    let exported = exported.and_then(|exported| {
        // A record without a snapshot may have targets.
        if files.part.is_none() {
            files.begin(0, &context)?;
        }
        files.attributions.columns.end(&context);
        files.finish()?;
        files.place()?;
        Ok(exported)
    });
    if exported.is_err() {
        files.remove();
    }
    exported
}

/// The files of one day.
struct Files {
    dir: PathBuf,
    /// the path of each file below the folder of its table
    part: Option<PathBuf>,
    /// days since 1970; `None` if the start of the recording is not known
    day: Option<u64>,
    regions: Table<Regions>,
    snapshots: Table<Snapshots>,
    attributions: Table<Attributions>,
}

impl Files {
    fn new(dir: &Path) -> Self {
        Files {
            dir: dir.to_owned(),
            part: None,
            day: None,
            regions: Table::default(),
            snapshots: Table::default(),
            attributions: Table::default(),
        }
    }

    /// Opens the files of the day of this time since the start of the recording, unless they are open.
    fn begin(&mut self, elapsed_us: u64, context: &Context) -> Result<(), ExportError> {
        let day = context.unix_us(elapsed_us).map(|us| us / DAY_US);
        if self.part.is_some() && self.day == day {
            return Ok(());
        }
        self.finish()?;
        self.day = day;
        let part = part(day, context.facts());
        self.regions.path = self.dir.join(Regions::NAME).join(&part);
        self.snapshots.path = self.dir.join(Snapshots::NAME).join(&part);
        self.attributions.path = self.dir.join(Attributions::NAME).join(&part);
        self.part = Some(part);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), ExportError> {
        self.regions.finish()?;
        self.snapshots.finish()?;
        self.attributions.finish()
    }

    /// Gives all files their names.
    fn place(&mut self) -> Result<(), ExportError> {
        self.regions.place()?;
        self.snapshots.place()?;
        self.attributions.place()
    }

    /// Removes all files and folders that it has created.
    fn remove(self) {
        let mut folders = self.regions.remove();
        folders.extend(self.snapshots.remove());
        folders.extend(self.attributions.remove());
        // The first table has created the folder of all tables too.
        folders.sort_by_key(|folder| Reverse(folder.components().count()));
        // The reason of the failure matters more. A folder with files of others stays.
        folders.iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }
}

/// The path of the files of a day (days since 1970; `None`: not known) below the folder of their table.
fn part(day: Option<u64>, facts: &RecordingHeader) -> PathBuf {
    let host = match facts.host.as_str() {
        "" => "unknown".to_owned(),
        // a directory of the same name as the host, whatever that is
        host => host
            .chars()
            .map(|c| if c.is_alphanumeric() || "-._".contains(c) { c } else { '_' })
            .collect(),
    };
    let (day, start) = match day.map(date) {
        Some((y, m, d)) => (format!("{y:04}-{m:02}-{d:02}"), facts.started_unix_ms.to_string()),
        None => (UNKNOWN_DAY.to_owned(), format!("at{}", facts.started.0)),
    };
    Path::new(&format!("host={host}")).join(format!("day={day}")).join(format!("{start}.parquet"))
}

/// A file that is being written.
#[derive(Default)]
struct Table<C> {
    path: PathBuf,
    columns: C,
    /// the files under their temporary names, and their names
    pending: Vec<(TempPath, PathBuf)>,
    /// the files that have their names
    placed: Vec<PathBuf>,
    /// the folders that were created for them
    folders: Vec<PathBuf>,
    writer: Option<ArrowWriter<BufWriter<File>>>,
}

impl<C: Columns> Table<C> {
    fn push(&mut self, event: &Event, context: &Context) -> Result<(), ExportError> {
        self.columns.push(event, context);
        if self.columns.rows() >= BATCH_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        if self.columns.rows() == 0 {
            return Ok(());
        }
        let batch = self.columns.take()?;
        if self.writer.is_none() {
            let (file, temporary) = temporary(&self.path, &mut self.folders)
                .map_err(|e| cannot::<C>(&self.path, &e))?;
            self.pending.push((temporary, self.path.clone()));
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

    fn place(&mut self) -> Result<(), ExportError> {
        for (temporary, path) in self.pending.drain(..) {
            temporary.persist_noclobber(&path).map_err(|e| cannot::<C>(&path, &e.error))?;
            self.placed.push(path);
        }
        Ok(())
    }

    /// Removes its files, and returns the folders that were created for them.
    fn remove(self) -> Vec<PathBuf> {
        let Table { placed, folders, .. } = self;
        placed.iter().for_each(|path| drop(fs::remove_file(path)));
        folders
    }
}

fn cannot<C: Columns>(path: &Path, e: &io::Error) -> ExportError {
    let remedy = match e.kind() {
        io::ErrorKind::AlreadyExists => {
            ". This record is there already: name another folder, or remove the file"
        }
        _ => "",
    };
    ExportError::Write(format!("the table {} at {}: {e}{remedy}", C::NAME, path.display()))
}

/// Creates a file in the folder of `path`, and adds the folders that it creates to `folders`. Readers of folders ignore
/// names that begin with a dot.
fn temporary(path: &Path, folders: &mut Vec<PathBuf>) -> io::Result<(File, TempPath)> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
    folders.extend(dir.ancestors().take_while(is_missing).map(Path::to_owned));
    fs::create_dir_all(dir)?;
    let mut options = tempfile::Builder::new();
    options.prefix(".").suffix(".tmp");
    // Who may read it depends on the umask, as for any new file.
    #[cfg(unix)]
    options.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    Ok(options.tempfile_in(dir)?.into_parts())
}

fn properties<C: Columns>() -> Result<WriterProperties, ParquetError> {
    let mut builder = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
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
