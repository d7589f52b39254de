//! Reads a Parquet file of rows, which other hosts or users may have written.
//!
//! A few bytes of such a file may stand for very many: its pages are compressed, and state counts and sizes that parquet
//! trusts. So this unpacks the pages, within limits, and reads a few values at a time. It reads only encodings that
//! [`Writer`](crate::Writer) uses, because decoders of others allocate what a page states.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, ConvertedType, Encoding, LogicalType, TimeUnit};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::FOOTER_SIZE;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::ColumnDescriptor;
use rustix::fs::OFlags;

use crate::file::LakeFileError;
use crate::row::{Group, LakeRow, NUMBER_COLUMNS, Rows, TEXTS};

/// Maximum size of a file that [`read`] accepts, in bytes.
pub(crate) const MAX_BYTES: u64 = if cfg!(test) { 1 << 20 } else { 256 << 20 };
/// Maximum number of rows in a file that [`read`] accepts.
const MAX_ROWS: usize = 1 << 20;
/// Maximum size of the metadata at the end of a file, in bytes. The metadata of [`MAX_ROWS`] has 0.1 MiB.
const MAX_METADATA: u64 = 1 << 20;
/// Maximum size of a column of a row group, and of all columns, without compression, in bytes.
const MAX_COLUMN: u64 = 16 << 20;
const MAX_UNPACKED: u64 = 1 << 30;
/// Memory that a page needs in addition to its bytes, or more.
const PAGE_BYTES: u64 = 256;
/// Maximum size of all different texts, and of the texts of all groups, in bytes.
const MAX_TEXT: u64 = 32 << 20;
/// Texts of at most so many bytes are hashed for each row.
const SHORT_TEXT: usize = 64;
/// Maximum window of zstd, as a power of 2. The writer uses at most 4 MiB.
const WINDOW_LOG: u32 = 23;
/// Maximum number of values to read at once.
const BATCH: usize = 1024;

/// Reads a file of rows. Columns that it does not have are null or 0; other columns are ignored.
///
/// # Errors
/// [`LakeFileError::Io`] if it cannot be read, [`LakeFileError::TooLarge`] if it exceeds a limit, and others if it is no
/// such file.
pub fn read(path: &Path) -> Result<Rows, LakeFileError> {
    // A pipe must not make it wait for a writer.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file").into());
    }
    // All of it, so that a failure of the disk or network is not taken for a damaged file.
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    decode(bytes, MAX_ROWS)
}

/// Decodes the contents of a file of rows, as [`read`] does. `max_rows` also bounds the memory: a row needs up to 1 KiB,
/// and everything else 100 MiB.
///
/// # Errors
/// As [`read`], but never [`LakeFileError::Io`].
pub fn decode(file: impl Into<Bytes>, max_rows: usize) -> Result<Rows, LakeFileError> {
    let file = file.into();
    // parquet panics at some damaged pages. Whatever it was using then is dropped.
    let decoded = catch_unwind(AssertUnwindSafe(|| decode_unguarded(file, max_rows)));
    decoded.unwrap_or(Err(LakeFileError::Damaged("a page cannot be decoded")))
}

/// Number of rows in a file, by its metadata; 0 if that cannot be read.
pub(crate) fn count_rows(path: &Path) -> usize {
    let count = || {
        let file = File::open(path).ok()?;
        let metadata = ParquetMetaDataReader::new().parse_and_finish(&file).ok()?;
        usize::try_from(metadata.file_metadata().num_rows()).ok()
    };
    catch_unwind(count).ok().flatten().unwrap_or(0)
}

/// Decodes the contents of an object, as [`read`] does those of a file.
#[cfg(feature = "upload")]
pub(crate) fn decode_object(object: Bytes) -> Result<Rows, LakeFileError> {
    decode(object, MAX_ROWS)
}

fn decode_unguarded(file: Bytes, max_rows: usize) -> Result<Rows, LakeFileError> {
    within(file.len() as u64, MAX_BYTES, "bytes")?;
    if let Some((tail, _)) = file.last_chunk::<FOOTER_SIZE>().and_then(|t| t.split_first_chunk()) {
        within(u32::from_le_bytes(*tail).into(), MAX_METADATA, "bytes of metadata")?;
    }
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&file)?;
    let mut decoder = Decoder {
        file: Arc::new(file),
        unpacked: 0,
        texts: HashMap::from([(String::new(), 0)]),
        text_bytes: 0,
    };
    let (mut rows, mut keys, mut groups) = (Vec::new(), Vec::new(), HashMap::new());
    for part in metadata.row_groups() {
        let first: usize = rows.len();
        let count = usize::try_from(part.num_rows()).unwrap_or(usize::MAX);
        within(first.saturating_add(count) as u64, max_rows as u64, "rows")?;
        decoder.minutes(part, count, &mut rows)?;
        for (key, row) in decoder.keys(part, count)?.into_iter().zip(&mut rows[first..]) {
            row.group = *groups.entry(key).or_insert_with(|| {
                keys.push(key);
                u32::try_from(keys.len() - 1).unwrap_or(u32::MAX)
            });
        }
        for column in NUMBER_COLUMNS.iter() {
            let read = decoder.column::<Int64Type, _>(part, &column.name, count, |_, v| Ok(*v))?;
            for (row, value) in rows[first..].iter_mut().zip(read.into_iter().flatten()) {
                (column.set)(row, value);
            }
        }
    }
    Ok(Rows { groups: decoder.groups(&keys)?, rows })
}

fn within(value: u64, limit: u64, unit: &'static str) -> Result<(), LakeFileError> {
    if value > limit { Err(LakeFileError::TooLarge { limit, unit }) } else { Ok(()) }
}

/// Indices of the texts of a group.
type Key = [u32; TEXTS.len()];

struct Decoder {
    file: Arc<Bytes>,
    /// bytes that pages had without compression
    unpacked: u64,
    /// the different texts, and their indices
    texts: HashMap<String, u32>,
    text_bytes: u64,
}

impl Decoder {
    /// Appends rows for the minutes of a row group.
    fn minutes(
        &mut self,
        part: &RowGroupMetaData,
        count: usize,
        rows: &mut Vec<LakeRow>,
    ) -> Result<(), LakeFileError> {
        let is_time = |c: &ColumnChunkMetaData| is_in_milliseconds(c.column_descr());
        let wrong = || LakeFileError::Column("minute".to_owned());
        find(part, "minute").filter(|c| is_time(c)).ok_or_else(wrong)?;
        let minutes = self.column::<Int64Type, _>(part, "minute", count, |_, v| Ok(*v))?;
        for minute in minutes.into_iter().flatten() {
            let minute = minute.ok_or_else(wrong)?;
            rows.push(LakeRow { minute, ..LakeRow::default() });
        }
        Ok(())
    }

    /// The groups of the rows of a row group.
    fn keys(&mut self, part: &RowGroupMetaData, count: usize) -> Result<Vec<Key>, LakeFileError> {
        let mut keys = vec![Key::default(); count];
        for (i, column) in TEXTS.iter().enumerate() {
            let wrong = || LakeFileError::Column(column.name.to_owned());
            // Many rows may share one long text, which must not be hashed for each. The value keeps the place its own.
            let mut known: HashMap<_, (ByteArray, u32)> = HashMap::new();
            let index = |decoder: &mut Self, value: &ByteArray| {
                let place = value.data().as_ptr_range();
                if let Some((_, index)) = known.get(&place) {
                    return Ok(*index);
                }
                let text = std::str::from_utf8(value.data()).map_err(|_| wrong())?;
                let index = decoder.index(text)?;
                if text.len() > SHORT_TEXT {
                    known.insert(place, (value.clone(), index));
                }
                Ok(index)
            };
            let read = self.column::<ByteArrayType, _>(part, column.name, count, index)?;
            for (key, text) in keys.iter_mut().zip(read.into_iter().flatten()) {
                key[i] = text.unwrap_or(0);
            }
        }
        Ok(keys)
    }

    /// The index of a text.
    fn index(&mut self, text: &str) -> Result<u32, LakeFileError> {
        if let Some(index) = self.texts.get(text) {
            return Ok(*index);
        }
        self.text_bytes += text.len() as u64;
        within(self.text_bytes, MAX_TEXT, "bytes of text")?;
        let index = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.texts.insert(text.to_owned(), index);
        Ok(index)
    }

    fn groups(&self, keys: &[Key]) -> Result<Vec<Group>, LakeFileError> {
        let mut texts = vec![""; self.texts.len()];
        for (text, index) in &self.texts {
            texts[*index as usize] = text;
        }
        let (mut groups, mut bytes) = (Vec::with_capacity(keys.len()), 0);
        for key in keys {
            let mut group = Group::default();
            for (column, index) in TEXTS.iter().zip(key) {
                let text = texts[*index as usize];
                bytes += text.len() as u64;
                within(bytes, MAX_TEXT, "bytes of text")?;
                (column.get_mut)(&mut group).push_str(text);
            }
            groups.push(group);
        }
        Ok(groups)
    }

    /// The values of a column in a row group, which has `count` rows; `None` if the file has no such column.
    fn column<T: DataType, U>(
        &mut self,
        part: &RowGroupMetaData,
        name: &str,
        count: usize,
        mut take: impl FnMut(&mut Self, &T::T) -> Result<U, LakeFileError>,
    ) -> Result<Option<Vec<Option<U>>>, LakeFileError> {
        const FEW: LakeFileError = LakeFileError::Damaged("a column has fewer values than rows");
        let Some(chunk) = find(part, name) else { return Ok(None) };
        let shape = chunk.column_descr_ptr();
        let is_flat = shape.max_rep_level() == 0 && shape.max_def_level() <= 1;
        if shape.physical_type() != T::get_physical_type() || !is_flat {
            return Err(LakeFileError::Column(name.to_owned()));
        }
        let nullable = shape.max_def_level() == 1;
        let pages = Pages(self.pages(chunk, count)?.into_iter());
        let mut reader = ColumnReaderImpl::<T>::new(shape, Box::new(pages));
        let (mut all, mut present, mut values) = (Vec::new(), Vec::new(), Vec::new());
        while all.len() < count {
            present.clear();
            values.clear();
            let most = BATCH.min(count - all.len());
            let levels = nullable.then_some(&mut present);
            let (read, ..) = reader.read_records(most, levels, None, &mut values)?;
            if read == 0 {
                return Err(FEW);
            }
            let mut values = values.iter();
            for i in 0..read {
                let is_null = present.get(i).is_some_and(|level| *level == 0);
                all.push(match is_null {
                    true => None,
                    false => Some(take(self, values.next().ok_or(FEW)?)?),
                });
            }
        }
        Ok(Some(all))
    }

    /// The pages of a column in a row group without compression.
    fn pages(
        &mut self,
        chunk: &ColumnChunkMetaData,
        rows: usize,
    ) -> Result<Vec<Page>, LakeFileError> {
        let is_packed = match chunk.compression() {
            Compression::UNCOMPRESSED => false,
            Compression::ZSTD(_) => true,
            _ => return Err(LakeFileError::Damaged("its compression is unknown")),
        };
        // As if nothing were compressed: before it unpacks a page, parquet allocates the size that it states.
        let packed = chunk.clone().into_builder().set_compression(Compression::UNCOMPRESSED);
        let mut reader =
            SerializedPageReader::new(Arc::clone(&self.file), &packed.build()?, rows, None)?;
        let (mut pages, mut bytes) = (Vec::new(), 0);
        while let Some(page) = reader.get_next_page()? {
            let page = if is_packed { unpack(page, MAX_COLUMN - bytes)? } else { page };
            check(&page, rows)?;
            let size = page.buffer().len() as u64 + PAGE_BYTES;
            (bytes, self.unpacked) = (bytes + size, self.unpacked + size);
            within(bytes, MAX_COLUMN, "bytes in a column")?;
            within(self.unpacked, MAX_UNPACKED, "bytes in its columns")?;
            pages.push(page);
        }
        Ok(pages)
    }
}

fn find<'a>(part: &'a RowGroupMetaData, name: &str) -> Option<&'a ColumnChunkMetaData> {
    part.columns().iter().find(|column| column.column_path().parts() == [name])
}

fn is_in_milliseconds(shape: &ColumnDescriptor) -> bool {
    match shape.logical_type_ref() {
        Some(LogicalType::Timestamp(time)) => time.unit == TimeUnit::MILLIS,
        Some(_) => false,
        None => shape.converted_type() == ConvertedType::TIMESTAMP_MILLIS,
    }
}

/// Checks counts and lengths that parquet trusts, in a page of a row group with so many rows.
fn check(page: &Page, rows: usize) -> Result<(), LakeFileError> {
    let is_sound = match page {
        Page::DictionaryPage { buf, num_values, .. } => {
            // A number has 8 bytes, and a text the 4 bytes of its length.
            *num_values as usize <= rows.min(buf.len() / 4)
        }
        Page::DataPageV2 { buf, .. } => uncompressed_head(page) <= buf.len() as u64,
        Page::DataPage { .. } => true,
    };
    let is_known = matches!(
        page.encoding(),
        Encoding::PLAIN
            | Encoding::PLAIN_DICTIONARY
            | Encoding::RLE_DICTIONARY
            | Encoding::DELTA_BINARY_PACKED
    );
    match (is_sound, is_known) {
        (true, true) => Ok(()),
        (false, _) => Err(LakeFileError::Damaged("a page states lengths that it does not have")),
        (_, false) => Err(LakeFileError::Damaged("isotherm does not write its encoding")),
    }
}

/// Length of the levels of a page, which are never compressed in this version of pages.
fn uncompressed_head(page: &Page) -> u64 {
    match page {
        Page::DataPageV2 { def_levels_byte_len, rep_levels_byte_len, .. } => {
            u64::from(*def_levels_byte_len) + u64::from(*rep_levels_byte_len)
        }
        _ => 0,
    }
}

/// Unpacks a page, to at most so many bytes.
fn unpack(mut page: Page, most: u64) -> Result<Page, LakeFileError> {
    let head = usize::try_from(uncompressed_head(&page)).unwrap_or(usize::MAX);
    let (Page::DataPage { buf, .. }
    | Page::DataPageV2 { buf, is_compressed: true, .. }
    | Page::DictionaryPage { buf, .. }) = &mut page
    else {
        return Ok(page);
    };
    let (head, stream) = buf
        .split_at_checked(head)
        .ok_or(LakeFileError::Damaged("a page states lengths that it does not have"))?;
    let mut out = head.to_vec();
    if !stream.is_empty() {
        let mut unpack = || {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(stream)?;
            decoder.window_log_max(WINDOW_LOG)?;
            decoder.take(most.saturating_add(1)).read_to_end(&mut out)
        };
        // The disk has not failed, so it is no `LakeFileError::Io`.
        unpack().map_err(|e| ParquetError::External(e.into()))?;
    }
    within(out.len() as u64, most, "bytes in a column")?;
    *buf = out.into();
    Ok(page)
}

/// Pages in memory.
struct Pages(std::vec::IntoIter<Page>);

impl Iterator for Pages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(Ok)
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        Ok(self.0.next())
    }

    // Only needed to skip values.
    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        Err(ParquetError::General("pages are read in order".to_owned()))
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        Err(ParquetError::General("pages are read in order".to_owned()))
    }
}
