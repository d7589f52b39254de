//! One Parquet file of rows.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray, TimestampMillisecondArray,
};
use arrow_schema::ArrowError;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;

use crate::row::{Group, LakeRow, NUMBER_COLUMNS, TEXTS, schema};

/// Maximum number of rows to convert to columns at once: they stay in the cache of a core.
const BATCH_ROWS: usize = 1024;
/// Maximum number of rows in a row group.
const ROW_GROUP: usize = 128 << 10;
/// Maximum size of the different texts of a column of a row group, in bytes. Beyond that, parquet would write them in an
/// encoding that `decode` does not read.
const DICTIONARY_BYTES: usize = 1 << 30;

/// Failures of writing or reading a file of rows.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LakeFileError {
    /// a file cannot be opened or written
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// the file is not Parquet, or cannot be encoded
    #[error("{}", cause(.0))]
    Parquet(ParquetError),
    /// columns do not fit together
    #[error("{0}")]
    Columns(#[from] ArrowError),
    /// a row refers to a group that does not exist
    #[error("a row refers to group {0}, which does not exist")]
    NoGroup(u32),
    /// a column has another type
    #[error("the column {0} is missing or has an unexpected type")]
    Column(String),
    /// the file is larger than one of a host can be
    #[error("it has more than {limit} {unit}")]
    TooLarge {
        /// the limit
        limit: u64,
        /// what is limited
        unit: &'static str,
    },
    /// the file is damaged, or another program wrote it
    #[error("it is damaged, or isotherm has not written it: {0}")]
    Damaged(&'static str),
}

impl From<ParquetError> for LakeFileError {
    fn from(e: ParquetError) -> Self {
        LakeFileError::Parquet(e)
    }
}

/// The text of an error, without a prefix for errors of the operating system.
fn cause(e: &ParquetError) -> String {
    match e {
        ParquetError::External(e) => e.to_string(),
        e => e.to_string(),
    }
}

/// The effort of compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effort {
    /// for a file that will be rewritten soon, or for many rows
    Fast,
    /// for a file that stays
    Small,
}

/// Writes a file of rows.
pub struct Writer<W: Write + Send> {
    out: ArrowWriter<W>,
}

impl<W: Write + Send> Writer<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// If its head cannot be written.
    pub fn new(out: W, effort: Effort) -> Result<Self, LakeFileError> {
        let options = ArrowWriterOptions::new()
            .with_properties(properties(effort)?)
            .with_skip_arrow_metadata(true);
        Ok(Writer { out: ArrowWriter::try_new_with_options(out, schema(), options)? })
    }

    /// Writes rows, whose `group` is an index of `groups`.
    ///
    /// # Errors
    /// If a row refers to no group, or the file cannot be written.
    pub fn write(&mut self, groups: &[Group], rows: &[LakeRow]) -> Result<(), LakeFileError> {
        for part in rows.chunks(BATCH_ROWS) {
            self.out.write(&batch(groups, part)?)?;
        }
        Ok(())
    }

    /// Writes the end of the file and returns what it was written to.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(self) -> Result<W, LakeFileError> {
        Ok(self.out.into_inner()?)
    }
}

fn properties(effort: Effort) -> Result<WriterProperties, ParquetError> {
    let level = match effort {
        Effort::Fast => 1,
        Effort::Small => 9,
    };
    let mut builder = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(level)?))
        .set_max_row_group_row_count(Some(ROW_GROUP))
        .set_dictionary_page_size_limit(DICTIONARY_BYTES)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_created_by(concat!("isotherm ", env!("CARGO_PKG_VERSION")).to_owned());
    let numbers = NUMBER_COLUMNS.iter().map(|n| n.name.as_str());
    for name in numbers.chain(["minute"]) {
        let path = ColumnPath::from(name);
        builder = builder
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    Ok(builder.build())
}

/// The columns of some rows.
fn batch(groups: &[Group], rows: &[LakeRow]) -> Result<RecordBatch, LakeFileError> {
    let (used, keys) = used(groups, rows)?;
    let minutes = TimestampMillisecondArray::from_iter_values(rows.iter().map(|r| r.minute));
    let mut columns: Vec<ArrayRef> = vec![Arc::new(minutes.with_timezone("UTC"))];
    for column in TEXTS {
        let values: StringArray = used
            .iter()
            .map(|group| Some((column.get)(group)).filter(|t| !column.nullable || !t.is_empty()))
            .collect();
        columns.push(Arc::new(DictionaryArray::try_new(keys.clone(), Arc::new(values))?));
    }
    columns.extend(NUMBER_COLUMNS.iter().map(|column| Arc::new((column.get)(rows)) as ArrayRef));
    Ok(RecordBatch::try_new(schema(), columns)?)
}

/// The groups of these rows, and for each row the index of its group among them.
fn used<'a>(
    groups: &'a [Group],
    rows: &[LakeRow],
) -> Result<(Vec<&'a Group>, Int32Array), LakeFileError> {
    let mut used = Vec::new();
    let mut places = HashMap::new();
    let mut keys = Vec::with_capacity(rows.len());
    for id in rows.iter().map(|row| row.group) {
        let place = match places.get(&id) {
            Some(place) => *place,
            None => {
                used.push(groups.get(id as usize).ok_or(LakeFileError::NoGroup(id))?);
                *places.entry(id).or_insert(i32::try_from(used.len() - 1).unwrap_or(i32::MAX))
            }
        };
        keys.push(place);
    }
    Ok((used, keys.into()))
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;
    use crate::decode::{MAX_BYTES, decode, read};
    use crate::row::{COLUMN_AGES, Rows};

    #[test]
    fn an_error_of_the_system_has_no_prefix() {
        let full = io::Error::from_raw_os_error(28);
        let e = LakeFileError::from(ParquetError::External(full.into()));
        assert_eq!(e.to_string(), "No space left on device (os error 28)");
        assert!(std::error::Error::source(&e).is_none(), "it would repeat the text, with a prefix");
    }

    fn group(i: usize) -> Group {
        Group {
            host: "h".to_owned(),
            cgroup: format!("/system.slice/s{i}.service"),
            service: format!("s{i}"),
            unit: format!("s{i}.service"),
            ..Group::default()
        }
    }

    fn rows(n: u32) -> Rows {
        let rows = (0..n)
            .map(|i| LakeRow {
                group: i % 3,
                minute: 60_000 * i64::from(i / 3),
                resident_bytes: i64::from(i) << 12,
                saved_bytes: (i % 2 == 0).then_some(i64::from(i)),
                idle: COLUMN_AGES.map(|(_, age)| (i64::from(i) << 20) / age.cast_signed()),
                returned: COLUMN_AGES.map(|(_, age)| i64::from(i) * age.cast_signed()),
                ..LakeRow::default()
            })
            .collect();
        Rows { groups: (0..3).map(group).collect(), rows }
    }

    fn written(rows: &Rows, effort: Effort) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), effort).unwrap();
        writer.write(&rows.groups, &rows.rows).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn what_is_read_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.parquet");
        for (n, effort) in [(0, Effort::Fast), (5, Effort::Small), (3000, Effort::Fast)] {
            let rows = rows(n);
            std::fs::write(&path, written(&rows, effort)).unwrap();
            let mut back = read(&path).unwrap();
            // groups without rows are not in a file
            assert_eq!(back.rows, rows.rows);
            back.groups.resize(3, Group::default());
            assert!(n == 0 || back.groups == rows.groups);
        }
    }

    #[test]
    fn rows_are_sorted_by_group_and_minute() {
        let mut rows = rows(9);
        rows.groups.swap(0, 2);
        rows.sort();
        let order: Vec<_> = rows.rows.iter().map(|r| (r.group, r.minute / 60_000)).collect();
        assert_eq!(order, [(2, 0), (2, 1), (2, 2), (1, 0), (1, 1), (1, 2), (0, 0), (0, 1), (0, 2)]);
    }

    #[test]
    fn a_row_without_group_is_an_error() {
        let mut writer = Writer::new(Vec::new(), Effort::Fast).unwrap();
        let row = LakeRow { group: 1, ..LakeRow::default() };
        assert!(matches!(writer.write(&[group(0)], &[row]), Err(LakeFileError::NoGroup(1))));
    }

    #[test]
    fn a_file_that_is_torn_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.parquet");
        let whole = written(&rows(30), Effort::Small);
        for length in [0, 3, 100, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(read(&path).is_err());
        }
    }

    /// A pipe in the place of a file made `fleet compact` wait forever.
    #[test]
    fn a_pipe_in_the_place_of_a_file_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.parquet");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(matches!(read(&path), Err(LakeFileError::Io(_))));
    }

    /// The size was not checked, so a sparse file could use all memory.
    #[test]
    fn a_file_that_is_too_large_is_refused_with_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.parquet");
        std::fs::File::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap();
        let refused = read(&path).unwrap_err();
        assert_eq!(refused.to_string(), "it has more than 1048576 bytes");
        let refused = decode(written(&rows(30), Effort::Small), 29).unwrap_err();
        assert_eq!(refused.to_string(), "it has more than 29 rows");
        let mut file = written(&rows(30), Effort::Small);
        let at = file.len() - 8;
        file[at..at + 4].copy_from_slice(&(2_u32 << 20).to_le_bytes());
        let refused = decode(file, 30).unwrap_err();
        assert_eq!(refused.to_string(), "it has more than 1048576 bytes of metadata");
    }

    /// Groups repeat texts: 32 MiB of them are too many.
    #[test]
    fn a_file_with_too_much_text_is_refused() {
        let mut rows = rows(3);
        rows.groups.iter_mut().for_each(|group| group.command = "x".repeat(15 << 20));
        let refused = decode(written(&rows, Effort::Small), 3).unwrap_err();
        assert_eq!(refused.to_string(), "it has more than 33554432 bytes of text");
        rows.groups[0].command = "x".repeat(17 << 20);
        let refused = decode(written(&rows, Effort::Small), 3).unwrap_err();
        assert_eq!(refused.to_string(), "it has more than 16777216 bytes in a column");
    }

    /// parquet writes texts in another encoding beyond 1 MiB, unless it is told a limit.
    #[test]
    fn many_different_texts_are_read_back() {
        let groups = (0..5000).map(|i| Group { command: format!("{i:0>300}"), ..group(i) });
        let row = |group| LakeRow { group, ..LakeRow::default() };
        let rows = Rows { groups: groups.collect(), rows: (0..5000).map(row).collect() };
        let back = decode(written(&rows, Effort::Fast), 5000).unwrap();
        assert_eq!((back.groups, back.rows), (rows.groups, rows.rows));
    }

    /// parquet panics at some files, and the agent ended.
    #[test]
    fn a_file_with_damaged_bytes_is_an_error_or_is_read() {
        let whole = written(&rows(9), Effort::Fast);
        for at in 0..whole.len() {
            let mut file = whole.clone();
            file[at] = !file[at];
            let _ = decode(file, 9);
        }
    }

    #[test]
    fn columns_are_named_once() {
        let mut names: Vec<_> = schema().fields().iter().map(|f| f.name().clone()).collect();
        assert_eq!(names.len(), 1 + 9 + 18 + 2 * COLUMN_AGES.len());
        names.sort();
        names.dedup();
        assert_eq!(names.len(), schema().fields().len());
    }
}
