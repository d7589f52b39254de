//! A record as an Arrow IPC stream.

use std::io::Write;
use std::mem;

use arrow_ipc::writer::StreamWriter;
use arrow_schema::{Metadata, Schema};
use isotherm_core::Snapshot;

use super::{BATCH_BYTES, ExportError, Exported, each};
use crate::columns::SnapshotColumns;
use crate::event::Event;
use crate::reader::Reader;
use crate::sets::Sets;

/// Writes the snapshots of a record as a plain Arrow IPC stream, with the same columns as in the record,
/// uncompressed. The metadata of its schema are the facts.
///
/// # Errors
/// If the record cannot be read (a missing end is not an error), or `out` cannot be written.
pub fn export_arrow(reader: Reader, out: impl Write) -> Result<Exported, ExportError> {
    let mut stream = Stream {
        out: Some(out),
        metadata: Metadata::default(),
        writer: None,
        columns: SnapshotColumns::default(),
        sets: Sets::default(),
    };
    let exported = each(reader, |event| {
        match event {
            Event::Header(facts) => stream.metadata = facts.metadata()?.into(),
            Event::Snapshot(s) => {
                stream.push(s)?;
                return Ok(true);
            }
            _ => {}
        }
        Ok(false)
    })?;
    stream.finish()?;
    Ok(exported)
}

struct Stream<W: Write> {
    /// the output, until the writer has it
    out: Option<W>,
    metadata: Metadata,
    writer: Option<StreamWriter<W>>,
    columns: SnapshotColumns,
    sets: Sets,
}

impl<W: Write> Stream<W> {
    fn push(&mut self, s: &Snapshot) -> Result<(), ExportError> {
        let numbers = self.sets.numbers(s);
        self.columns.push(s, &numbers)?;
        if self.columns.bytes() >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes the batch, and the schema before the first one.
    fn flush(&mut self) -> Result<(), ExportError> {
        self.sets.forget_retired();
        let batch = self.columns.take()?;
        if let Some(out) = self.out.take() {
            let fields = batch.schema().fields().clone();
            let schema = Schema::new_with_metadata(fields, mem::take(&mut self.metadata));
            self.writer = Some(StreamWriter::try_new(out, &schema)?);
        }
        let filled = batch.num_rows() > 0;
        self.writer.iter_mut().filter(|_| filled).try_for_each(|w| w.write(&batch))?;
        Ok(())
    }

    fn finish(mut self) -> Result<(), ExportError> {
        self.flush()?;
        self.writer.iter_mut().try_for_each(StreamWriter::finish)?;
        Ok(())
    }
}
