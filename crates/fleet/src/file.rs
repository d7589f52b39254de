//! One Parquet file of rows.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray,
    TimestampMillisecondArray,
};
use arrow_schema::{ArrowError, DataType, TimeUnit};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::{ColumnDescriptor, ColumnPath};

use crate::pages;
use crate::row::{Group, LakeRow, NUMBERS, Rows, TEXTS, schema};

/// Maximum number of rows to convert to columns at once: they stay in the cache of a core.
const BATCH: usize = 1024;
/// Maximum number of rows in a row group.
const ROW_GROUP: usize = 128 << 10;
/// Maximum size of a file that [`read`] accepts, in bytes, and maximum number of its rows.
const MAX_BYTES: u64 = 256 << 20;
const MAX_ROWS: usize = 1 << 20;
/// Maximum number of rows of a host and day, which are in memory together. Each has half a KiB.
const MAX_ROWS_OF_DAY: usize = 4 << 20;

/// Failures of writing or reading a file of rows.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LakeFileError {
    /// a file cannot be opened or written
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// the file is not Parquet, or cannot be encoded
    #[error("{0}")]
    Parquet(#[from] ParquetError),
    /// columns do not fit together
    #[error("{0}")]
    Columns(#[from] ArrowError),
    /// a row refers to a group that does not exist
    #[error("a row refers to group {0}, which does not exist")]
    NoGroup(u32),
    /// a column has another type
    #[error("the column {0} is missing or has an unexpected type")]
    Column(String),
    /// the file has more rows than a host can write in an hour, or is larger
    #[error(
        "it is too large: a file may have {MAX_BYTES} bytes and {MAX_ROWS} rows, and all files of a host and day \
         {MAX_ROWS_OF_DAY} rows"
    )]
    TooLarge,
    /// the file states other sizes than it has, or would need too much memory
    #[error("its pages are invalid, or unpack to too much")]
    Unbounded,
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
        for part in rows.chunks(BATCH) {
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
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_created_by(concat!("isotherm ", env!("CARGO_PKG_VERSION")).to_owned());
    // Of texts that do not fit into a dictionary.
    for text in TEXTS {
        builder = builder.set_column_encoding(ColumnPath::from(text.name), Encoding::PLAIN);
    }
    let numbers = NUMBERS.iter().map(|n| n.name.as_str());
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
    columns.extend(NUMBERS.iter().map(|column| Arc::new((column.get)(rows)) as ArrayRef));
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

/// Reads a file of rows. Columns that it does not have are null or 0; other columns are ignored.
///
/// # Errors
/// [`LakeFileError::Io`] if it cannot be read, and others if it is no such file.
pub fn read(path: &Path) -> Result<Rows, LakeFileError> {
    DayReader::default().read(path)
}

/// Reads the files of a host and day.
pub(crate) struct DayReader {
    /// number of rows that may still be read
    left: usize,
}

impl Default for DayReader {
    fn default() -> Self {
        DayReader { left: MAX_ROWS_OF_DAY }
    }
}

impl DayReader {
    pub fn read(&mut self, path: &Path) -> Result<Rows, LakeFileError> {
        // All of it, so that a failure of the disk or network is not taken for a damaged file.
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        self.decode(bytes.into())
    }

    pub fn decode(&mut self, file: Bytes) -> Result<Rows, LakeFileError> {
        let rows = decode(file, self.left.min(MAX_ROWS))?;
        self.left -= rows.rows.len();
        Ok(rows)
    }
}

/// Decodes the contents of a file with at most `most` rows, as [`read`] does. It may come from another host.
///
/// # Errors
/// If it is no such file, or exceeds a limit.
pub fn decode(file: Bytes, most: usize) -> Result<Rows, LakeFileError> {
    if file.len() as u64 > MAX_BYTES {
        return Err(LakeFileError::TooLarge);
    }
    if !pages::has_small_footer(&file) {
        return Err(LakeFileError::Unbounded);
    }
    // The types are those of the file: strings, not dictionaries.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file.clone(), options)?;
    let parquet = builder.parquet_schema();
    let known = (0..parquet.num_columns()).filter(|&i| is_known(&parquet.column(i)));
    let columns = ProjectionMask::leaves(parquet, known);
    let (groups, stated) =
        (builder.metadata().row_groups(), builder.metadata().file_metadata().num_rows());
    let rows = groups.iter().fold(0_i64, |rows, group| rows.saturating_add(group.num_rows()));
    if usize::try_from(rows).is_ok_and(|rows| rows > most) {
        return Err(LakeFileError::TooLarge);
    }
    // By a false number, the reader would choose tiny batches.
    if rows != stated || !pages::are_bounded(&file, groups, is_known)? {
        return Err(LakeFileError::Unbounded);
    }
    let mut out = Rows::default();
    let mut ids = HashMap::new();
    for batch in builder.with_projection(columns).with_batch_size(BATCH).build()? {
        take(&batch?, &mut out, &mut ids)?;
    }
    Ok(out)
}

/// Whether a column has the name of one of ours, and one value in each row.
fn is_known(column: &ColumnDescriptor) -> bool {
    column.max_rep_level() == 0 && schema().index_of(&column.path().string()).is_ok()
}

/// Appends the rows of a batch.
fn take(
    batch: &RecordBatch,
    out: &mut Rows,
    ids: &mut HashMap<Group, u32>,
) -> Result<(), LakeFileError> {
    let minutes = batch
        .column_by_name("minute")
        .filter(|c| matches!(c.data_type(), DataType::Timestamp(TimeUnit::Millisecond, _)))
        .ok_or_else(|| LakeFileError::Column("minute".to_owned()))?
        .as_primitive::<TimestampMillisecondType>();
    let texts = TEXTS.iter().map(|t| text(batch, t.name)).collect::<Result<Vec<_>, _>>()?;
    let first = out.rows.len();
    for i in 0..batch.num_rows() {
        let mut group = Group::default();
        for (column, values) in TEXTS.iter().zip(&texts) {
            if let Some(values) = values.as_ref().filter(|v| v.is_valid(i)) {
                (column.get_mut)(&mut group).push_str(values.value(i));
            }
        }
        let group = match ids.get(&group) {
            Some(id) => *id,
            None => {
                let id = u32::try_from(out.groups.len()).unwrap_or(u32::MAX);
                out.groups.push(group.clone());
                *ids.entry(group).or_insert(id)
            }
        };
        out.rows.push(LakeRow { group, minute: minutes.value(i), ..LakeRow::default() });
    }
    for column in NUMBERS.iter() {
        let Some(values) = batch.column_by_name(&column.name) else { continue };
        let values = values
            .as_primitive_opt::<Int64Type>()
            .ok_or_else(|| LakeFileError::Column(column.name.clone()))?;
        for (row, value) in out.rows[first..].iter_mut().zip(values) {
            (column.set)(row, value);
        }
    }
    Ok(())
}

/// A column of text; `None` if the file has no such column.
fn text<'a>(batch: &'a RecordBatch, name: &str) -> Result<Option<&'a StringArray>, LakeFileError> {
    let Some(column) = batch.column_by_name(name) else { return Ok(None) };
    let text = column.as_string_opt::<i32>();
    text.map(Some).ok_or_else(|| LakeFileError::Column(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int32Type;

    use super::*;
    use crate::row::AGES;

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
                idle: AGES.map(|(_, age)| (i64::from(i) << 20) / age.cast_signed()),
                returned: AGES.map(|(_, age)| i64::from(i) * age.cast_signed()),
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

    /// A column of text whose dictionary has one long value, which all rows share.
    fn with_text(len: usize, rows: usize) -> Vec<u8> {
        let texts = DictionaryArray::<Int32Type>::try_new(
            vec![0; rows].into(),
            Arc::new(StringArray::from(vec!["x".repeat(len)])),
        );
        let minutes = TimestampMillisecondArray::from(vec![0; rows]);
        let columns: [(&str, ArrayRef); 2] =
            [("minute", Arc::new(minutes)), ("host", Arc::new(texts.unwrap()))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.into_inner().unwrap()
    }

    /// A small file of one host could exhaust the memory of `fleet compact`: 100 MB, repeated a thousand times.
    #[test]
    fn a_long_text_that_many_rows_share_is_refused() {
        assert_eq!(decode(with_text(1000, 3000).into(), MAX_ROWS).unwrap().rows.len(), 3000);
        let refused = decode(with_text(100_000, 3000).into(), MAX_ROWS).unwrap_err();
        assert!(matches!(refused, LakeFileError::Unbounded), "{refused}");
    }

    /// The limit held for the number of rows in the footer only, which may be another one than that of the pages.
    #[test]
    fn rows_beyond_the_limit_are_refused_whatever_the_footer_states() {
        let mut writer = Writer::new(Vec::new(), Effort::Fast).unwrap();
        writer.write(&[group(0)], &vec![LakeRow::default(); 9000]).unwrap();
        let mut file = writer.finish().unwrap();
        assert!(matches!(decode(file.clone().into(), 8999), Err(LakeFileError::TooLarge)));
        // The number of rows of the only row group, and of the file, as fields of compact Thrift.
        for after in [0x26, 0x19] {
            let stated = [0x16, 0xd0, 0x8c, 0x01, after];
            let at = file.windows(5).rposition(|bytes| bytes == stated).unwrap();
            file[at..at + 5].copy_from_slice(&[0x16, 0x82, 0x80, 0x00, after]);
            let read = decode(file.clone().into(), 8999);
            assert!(matches!(read, Err(LakeFileError::Unbounded)));
        }
    }

    /// A host with many files could exhaust the memory, too.
    #[test]
    fn rows_of_all_files_of_a_day_are_limited() {
        let file: Bytes = written(&rows(30), Effort::Fast).into();
        let mut day = DayReader { left: 70 };
        let mut read = || day.decode(file.clone()).map(|rows| rows.rows.len());
        assert_eq!([read().unwrap(), read().unwrap()], [30, 30]);
        assert!(matches!(read(), Err(LakeFileError::TooLarge)));
    }

    /// A page may state any size, and zstd unpacks a few bytes to 128 KiB.
    #[test]
    fn pages_that_unpack_to_too_much_are_refused() {
        let n = 1 << 16;
        let texts = StringArray::from_iter_values((0..n).map(|_| "x".repeat(5000)));
        let columns: [(&str, ArrayRef); 2] = [
            ("minute", Arc::new(TimestampMillisecondArray::from(vec![0; n]))),
            ("host", Arc::new(texts)),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let options = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_compression(Compression::ZSTD(ZstdLevel::default()));
        let mut writer =
            ArrowWriter::try_new(Vec::new(), batch.schema(), Some(options.build())).unwrap();
        writer.write(&batch).unwrap();
        let file = writer.into_inner().unwrap();
        assert!(file.len() < 1 << 20, "{}", file.len());
        assert!(matches!(decode(file.into(), MAX_ROWS), Err(LakeFileError::Unbounded)));
    }

    /// A footer may list any number of columns, which need more memory than the file.
    #[test]
    fn a_large_footer_is_not_read() {
        let mut file = written(&rows(30), Effort::Fast);
        let at = file.len() - 8;
        let footer = u32::from_le_bytes(*file[at..].first_chunk().unwrap()) as usize;
        file.splice(at - footer..at - footer, vec![0; 2 << 20]);
        let at = file.len() - 8;
        let len = u32::try_from(footer + (2 << 20)).unwrap();
        file[at..at + 4].copy_from_slice(&len.to_le_bytes());
        assert!(matches!(decode(file.into(), MAX_ROWS), Err(LakeFileError::Unbounded)));
    }

    /// Texts that share prefixes may unpack to any length.
    #[test]
    fn texts_that_share_prefixes_are_refused() {
        let columns: [(&str, ArrayRef); 2] = [
            ("minute", Arc::new(TimestampMillisecondArray::from(vec![0; 3]))),
            ("host", Arc::new(StringArray::from(vec!["aa", "aab", "aac"]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let options = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_encoding(Encoding::DELTA_BYTE_ARRAY)
            .set_column_encoding("minute".into(), Encoding::PLAIN);
        let mut writer =
            ArrowWriter::try_new(Vec::new(), batch.schema(), Some(options.build())).unwrap();
        writer.write(&batch).unwrap();
        let file = writer.into_inner().unwrap();
        assert!(matches!(decode(file.into(), MAX_ROWS), Err(LakeFileError::Unbounded)));
    }

    /// A group with more texts than a dictionary holds.
    #[test]
    fn texts_beyond_a_dictionary_are_read() {
        let groups: Vec<Group> =
            (0..6000).map(|i| Group { command: format!("{i:0300}"), ..group(i) }).collect();
        let rows: Vec<LakeRow> =
            (0..6000).map(|group| LakeRow { group, ..LakeRow::default() }).collect();
        let rows = Rows { groups, rows };
        assert!(decode(written(&rows, Effort::Fast).into(), MAX_ROWS).unwrap() == rows);
    }

    #[test]
    fn columns_are_named_once() {
        let mut names: Vec<_> = schema().fields().iter().map(|f| f.name().clone()).collect();
        assert_eq!(names.len(), 1 + 9 + 18 + 2 * AGES.len());
        names.sort();
        names.dedup();
        assert_eq!(names.len(), schema().fields().len());
    }
}
