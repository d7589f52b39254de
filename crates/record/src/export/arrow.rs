//! A record as an Arrow IPC stream.

use std::io::Write;

use arrow_ipc::writer::StreamWriter;
use arrow_schema::Schema;

use super::{BATCH, ExportError, Exported};
use crate::columns::Columns;
use crate::event::{Event, ReadError};
use crate::facts::Facts;
use crate::reader::Reader;
use crate::sets::Sets;

/// Writes the snapshots of a record as a plain Arrow IPC stream, with the same columns as in the record,
/// uncompressed. The metadata of its schema are the facts.
///
/// # Errors
/// If the record cannot be read (a missing end is not an error), or `out` cannot be written.
pub fn export_arrow(reader: Reader, out: impl Write) -> Result<Exported, ExportError> {
    let mut reader = reader;
    let mut next = reader.next();
    let mut stream = match &next {
        Some(Ok(Event::Facts(facts))) => Stream::new(out, Some(facts))?,
        _ => Stream::new(out, None)?,
    };
    if matches!(next, Some(Ok(Event::Facts(_)))) {
        next = reader.next();
    }
    let mut torn = None;
    while let Some(event) = next {
        match event {
            Ok(Event::Snapshot(s)) => stream.push(&s)?,
            Ok(Event::Facts(_)) => return Err(ExportError::Mixed),
            Ok(_) => {}
            Err(e @ ReadError::Torn { .. }) => torn = Some(e),
            Err(e) => return Err(e.into()),
        }
        next = reader.next();
    }
    Ok(Exported { snapshots: stream.finish()?, torn, lost: reader.lost() })
}

struct Stream<W: Write> {
    writer: StreamWriter<W>,
    columns: Columns,
    sets: Sets,
    snapshots: u64,
}

impl<W: Write> Stream<W> {
    fn new(out: W, facts: Option<&Facts>) -> Result<Self, ExportError> {
        let mut columns = Columns::default();
        let fields = columns.take()?.schema().fields().clone();
        let metadata = facts.map(Facts::metadata).transpose()?.unwrap_or_default();
        let schema = Schema::new_with_metadata(fields, metadata);
        let writer = StreamWriter::try_new(out, &schema)?;
        Ok(Stream { writer, columns, sets: Sets::default(), snapshots: 0 })
    }

    fn push(&mut self, s: &isotherm_core::Snapshot) -> Result<(), ExportError> {
        let numbers = self.sets.numbers(s);
        self.columns.push(s, &numbers)?;
        self.snapshots += 1;
        if self.columns.bytes() >= BATCH { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        self.sets.forget_retired();
        Ok(self.writer.write(&self.columns.take()?)?)
    }

    fn finish(mut self) -> Result<u64, ExportError> {
        if !self.columns.is_empty() {
            self.flush()?;
        }
        self.writer.finish()?;
        Ok(self.snapshots)
    }
}
