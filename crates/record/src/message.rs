//! Arrow IPC messages: one compressed message is the payload of a frame.
//!
//! The frame's version determines the columns of a table, so rows can be read even if the frame with the
//! table's schema is lost. The schema is present for other readers. There are no dictionaries, because they
//! would make one frame depend on another.

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::convert::{MessageBuffer, try_fb_to_schema};
use arrow_ipc::reader::RecordBatchDecoder;
use arrow_ipc::writer::{
    DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteContext, IpcWriteOptions,
    write_message,
};
use arrow_ipc::{MessageHeader, MetadataVersion};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};

use crate::bad::{InvalidField, ensure};
use crate::frame::MAX_PAYLOAD;
use crate::packed::{beginning, unpack};

/// Maximal size of a message head, in bytes. Real heads are far smaller: 100 columns need 16 KiB.
const MAX_HEAD: usize = 1 << 20;

/// Encodes schemas and rows as messages.
pub(crate) struct Encoder {
    options: IpcWriteOptions,
    context: IpcWriteContext,
}

impl Encoder {
    pub(crate) fn new() -> Result<Self, ArrowError> {
        let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5)?;
        Ok(Encoder { options, context: IpcWriteContext::default() })
    }

    pub(crate) fn schema(&self, schema: &Schema) -> Result<Vec<u8>, ArrowError> {
        let mut none = DictionaryTracker::new(true);
        let data = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
            schema,
            &mut none,
            &self.options,
        );
        self.message(data)
    }

    pub(crate) fn rows(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
        let mut none = DictionaryTracker::new(true);
        let (_, data) = IpcDataGenerator::default().encode(
            batch,
            &mut none,
            &self.options,
            &mut self.context,
        )?;
        self.message(data)
    }

    fn message(&self, data: EncodedData) -> Result<Vec<u8>, ArrowError> {
        let mut bytes = Vec::with_capacity(16 + data.ipc_message.len() + data.arrow_data.len());
        write_message(&mut bytes, data, &self.options)?;
        Ok(bytes)
    }
}

/// A decoded message.
#[derive(Debug)]
pub(crate) enum Message {
    Schema(Schema),
    Rows(RecordBatch),
}

/// Whether a message contains rows, according to its head.
pub(crate) fn holds_rows(payload: &Buffer) -> Result<bool, InvalidField> {
    let (head, _) = split(&beginning(payload, MAX_HEAD)?)?;
    Ok(MessageBuffer::try_new(head)?.as_ref().header_type() == MessageHeader::RecordBatch)
}

/// Decodes a message of the table with the columns `schema`.
pub(crate) fn decode(payload: Buffer, schema: &SchemaRef) -> Result<Message, InvalidField> {
    let (head, body) = split(&unpack(payload)?)?;
    let head = MessageBuffer::try_new(head)?;
    let message = head.as_ref();
    let wrong = || InvalidField::new("it holds neither a schema nor rows");
    match message.header_type() {
        MessageHeader::Schema => {
            let found = try_fb_to_schema(message.header_as_schema().ok_or_else(wrong)?)?;
            ensure(found.fields() == schema.fields(), "its columns are not those of its version")?;
            Ok(Message::Schema(found))
        }
        MessageHeader::RecordBatch => {
            let rows = message.header_as_record_batch().ok_or_else(wrong)?;
            check(&rows, &body, schema)?;
            let none = std::collections::HashMap::new();
            let version = message.version();
            let decoder =
                RecordBatchDecoder::try_new(&body, rows, schema.clone(), &none, &version)?;
            Ok(Message::Rows(decoder.read_record_batch()?))
        }
        _ => Err(wrong()),
    }
}

/// Splits an encapsulated message (continuation mark, length of the head, head, body) into head and body.
fn split(bytes: &Buffer) -> Result<(Buffer, Buffer), InvalidField> {
    let number = |at: usize| -> Option<u32> {
        Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    let short = || InvalidField::new("it is too short for an Arrow message");
    ensure(number(0).ok_or_else(short)? == u32::MAX, "it does not begin as an Arrow message")?;
    let length = number(4).ok_or_else(short)? as usize;
    ensure(length <= bytes.len() - 8, "the head of its Arrow message is longer than the frame")?;
    Ok((bytes.slice_with_length(8, length), bytes.slice(8 + length)))
}

/// Checks what the Arrow reader does not: that all buffers lie within the body and contain whole values, and
/// that the uncompressed size is within limits.
fn check(rows: &arrow_ipc::RecordBatch, body: &[u8], schema: &Schema) -> Result<(), InvalidField> {
    let sane = |n: i64| usize::try_from(n).is_ok_and(|n| n <= MAX_PAYLOAD);
    let mut nodes = rows.nodes().into_iter().flatten();
    ensure(
        sane(rows.length())
            && nodes.all(|n| sane(n.length()) && (0..=n.length()).contains(&n.null_count())),
        "a column is longer than a frame may be, or of a negative length",
    )?;
    let mut widths = Vec::new();
    schema.fields().iter().for_each(|field| add_widths(field.data_type(), &mut widths));
    let buffers = rows.buffers().unwrap_or_default();
    ensure(buffers.len() == widths.len(), "it has not as many buffers as its columns need")?;
    let mut unpacked = 0;
    for (buffer, width) in buffers.iter().zip(widths) {
        let bytes = usize::try_from(buffer.offset())
            .ok()
            .zip(usize::try_from(buffer.length()).ok())
            .and_then(|(begin, length)| body.get(begin..begin.checked_add(length)?))
            .ok_or(InvalidField::new("a column lies outside the frame"))?;
        let length =
            if rows.compression().is_some() { unpacked_length(bytes)? } else { bytes.len() };
        ensure(length % width == 0, "a column ends within a value")?;
        unpacked += length;
        ensure(unpacked <= MAX_PAYLOAD, "its columns unpack to more than a frame may hold")?;
    }
    Ok(())
}

/// Appends the bytes per value of each buffer of a column: validity, offsets, values.
fn add_widths(column: &DataType, widths: &mut Vec<usize>) {
    match column {
        DataType::List(item) => {
            widths.extend([1, 4]);
            add_widths(item.data_type(), widths);
        }
        DataType::Utf8 => widths.extend([1, 4, 1]),
        plain => widths.extend([1, plain.primitive_width().unwrap_or(1)]),
    }
}

/// The uncompressed size of a compressed buffer, according to the buffer itself. -1 marks a buffer that is not
/// compressed.
fn unpacked_length(bytes: &[u8]) -> Result<usize, InvalidField> {
    let wrong = || InvalidField::new("a packed column has an invalid length");
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
        return if bytes.is_empty() { Ok(0) } else { Err(wrong()) };
    };
    let length = match i64::from_le_bytes(*length) {
        -1 => rest.len(),
        length => usize::try_from(length).map_err(|_| wrong())?,
    };
    ensure(length <= MAX_PAYLOAD, "a column unpacks to more than a frame may hold")?;
    Ok(length)
}
