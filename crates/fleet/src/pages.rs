//! Limits of a Parquet file, checked before its pages are unpacked: a page may state any size, and may repeat a text any
//! number of times.
//!
//! The headers of pages are structs of compact Thrift. A header is accepted only if it can be read in one way.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Type;
use parquet::column::page::{Page, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::ColumnDescriptor;

/// Maximum size of all unpacked pages of a file. An hour of a thousand groups has 13 MiB.
const MAX_UNPACKED: u64 = 256 << 20;
/// Maximum length of a text that many rows may share. Paths of control groups have at most 4 KiB.
const MAX_TEXT: usize = 16 << 10;
/// The encodings that need no more memory than the page and a batch of rows: `PLAIN`, `PLAIN_DICTIONARY`,
/// `DELTA_BINARY_PACKED` and `RLE_DICTIONARY`. Texts that share prefixes, or whose lengths come first, may need any.
const ENCODINGS: [u64; 4] = [0, 2, 5, 8];

/// Maximum size of the footer, which needs fifty times as much in memory. That of a day of a fleet has 600 KiB.
const MAX_FOOTER: u32 = 1 << 20;

/// Kinds of pages.
const DATA: u64 = 0;
const DICTIONARY: u64 = 2;
const DATA_V2: u64 = 3;

/// Types of compact Thrift.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const I32: u8 = 5;
const STRUCT: u8 = 12;

/// Whether the footer of a file is small enough to be read.
pub fn has_small_footer(file: &[u8]) -> bool {
    let len = file.len().checked_sub(8).and_then(|at| file[at..].first_chunk());
    len.is_none_or(|len| u32::from_le_bytes(*len) <= MAX_FOOTER)
}

/// Whether the `known` columns of these row groups of a file can be read in bounded memory, a batch of rows at a time, and
/// have as many rows as the groups state.
///
/// # Errors
/// If a dictionary cannot be unpacked.
pub fn are_bounded(
    file: &Bytes,
    groups: &[RowGroupMetaData],
    known: impl Fn(&ColumnDescriptor) -> bool,
) -> Result<bool, ParquetError> {
    let (mut packed, mut unpacked) = (0, 0);
    for group in groups {
        for chunk in group.columns().iter().filter(|chunk| known(chunk.column_descr())) {
            // Values of a fixed length may have any.
            if chunk.column_type() == Type::FIXED_LEN_BYTE_ARRAY {
                return Ok(false);
            }
            let pages = bytes_of(file, chunk).and_then(|bytes| Some((bytes.len(), pages(bytes)?)));
            let Some((len, pages)) = pages else { return Ok(false) };
            // Chunks that overlap would be read again and again.
            packed += len;
            unpacked += pages.iter().map(|page| page.unpacked).sum::<u64>();
            let rows = pages.iter().filter(|page| page.kind != DICTIONARY).map(|page| page.values);
            let has_all_rows = i64::try_from(rows.sum::<u64>()) == Ok(group.num_rows());
            if !has_all_rows || packed > file.len() || unpacked > MAX_UNPACKED {
                return Ok(false);
            }
            let has_texts = chunk.column_type() == Type::BYTE_ARRAY
                && pages.first().is_some_and(|page| page.kind == DICTIONARY);
            if has_texts && longest_text(file, chunk)? > MAX_TEXT {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The bytes of a chunk. None if they are not in the file.
fn bytes_of<'a>(file: &'a Bytes, chunk: &ColumnChunkMetaData) -> Option<&'a [u8]> {
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    let len = usize::try_from(chunk.compressed_size()).ok()?;
    file.get(usize::try_from(start).ok()?..)?.get(..len)
}

/// The length of the longest text in the dictionary with which a chunk begins.
fn longest_text(file: &Bytes, chunk: &ColumnChunkMetaData) -> Result<usize, ParquetError> {
    let mut pages = SerializedPageReader::new(Arc::new(file.clone()), chunk, 0, None)?;
    let Some(Page::DictionaryPage { buf, .. }) = pages.get_next_page()? else { return Ok(0) };
    let (mut rest, mut longest) = (&*buf, 0);
    while let Some((len, after)) = rest.split_first_chunk() {
        let len = u32::from_le_bytes(*len) as usize;
        longest = longest.max(len);
        rest = after.get(len..).unwrap_or_default();
    }
    Ok(longest)
}

/// What the header of a page states.
#[derive(Debug, Default, PartialEq, Eq)]
struct PageHeader {
    kind: u64,
    packed: usize,
    unpacked: u64,
    values: u64,
    encoding: u64,
}

/// The pages of a chunk. None if a header is invalid or exceeds a limit.
fn pages(mut chunk: &[u8]) -> Option<Vec<PageHeader>> {
    let mut all = Vec::new();
    while !chunk.is_empty() {
        let page = PageHeader::read(&mut chunk)?;
        chunk = chunk.get(page.packed..)?;
        let is_valid = match page.kind {
            DATA | DATA_V2 => true,
            // Each of its values has at least four bytes.
            DICTIONARY => all.is_empty() && page.values <= page.unpacked / 4,
            _ => false,
        };
        if !is_valid || !ENCODINGS.contains(&page.encoding) {
            return None;
        }
        all.push(page);
    }
    Some(all)
}

impl PageHeader {
    /// Reads a header, and leaves what follows it.
    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let mut page = PageHeader::default();
        let mut sizes = [None; 3];
        fields(bytes, &mut |bytes, id, kind| match (id, kind) {
            (1..=3, I32) => {
                sizes[usize::from(id) - 1] = Some(number(bytes)?);
                Some(())
            }
            // a checksum
            (4, I32) => signed(bytes).map(drop),
            (5 | 7 | 8, STRUCT) => {
                fields(bytes, &mut |bytes, inner, kind| match (id, inner, kind) {
                    (_, 1, I32) => number(bytes).map(|values| page.values = values),
                    (5 | 7, 2, I32) | (8, 4, I32) => number(bytes).map(|e| page.encoding = e),
                    (5, 3 | 4, I32) | (8, 2 | 3 | 5 | 6, I32) => number(bytes).map(drop),
                    (7, 3, TRUE | FALSE) | (8, 7, TRUE | FALSE) => Some(()),
                    _ => None,
                })
            }
            _ => None,
        })?;
        let [kind, unpacked, packed] = sizes;
        (page.kind, page.unpacked, page.packed) = (kind?, unpacked?, packed?.try_into().ok()?);
        Some(page)
    }
}

/// Calls `each` with the number and type of each field of a struct; it reads the value. The numbers ascend, so that no
/// field comes twice.
fn fields(bytes: &mut &[u8], each: &mut dyn FnMut(&mut &[u8], u8, u8) -> Option<()>) -> Option<()> {
    let mut id = 0_u8;
    loop {
        let (&head, rest) = bytes.split_first()?;
        *bytes = rest;
        match (head >> 4, head & 15) {
            (_, 0) => return Some(()),
            (0, _) => return None,
            (step, kind) => {
                id = id.checked_add(step)?;
                each(bytes, id, kind)?;
            }
        }
    }
}

/// A number that is not negative.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    signed(bytes)?.try_into().ok()
}

/// A number of 32 bits: seven bits in each byte, the lowest first, and its sign in the lowest one.
fn signed(bytes: &mut &[u8]) -> Option<i32> {
    let mut bits = 0_u64;
    for shift in (0..35).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        bits |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            let bits = u32::try_from(bits).ok()?;
            return Some((bits >> 1).cast_signed() ^ -(bits & 1).cast_signed());
        }
    }
    None
}
