//! Records: read in a thread, while the page already shows a sample of them.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use isotherm::stop::Stop;
use isotherm_core::Nanos;
use isotherm_linux::sys;
use isotherm_record::{Event, ReadError, Reader};
use tokio::sync::watch;
use tracing::error;

use crate::index::{Index, Limits};
use crate::server::Server;
use crate::source::{Source, SourceKind};
use crate::{WebOptions, announce, farewell, record_limits};

/// A record of more bytes is first shown by a sample of about as many.
const SAMPLE_BYTES: u64 = 8 << 20;

/// A record to show.
#[derive(Debug, Clone)]
pub struct RecordInput {
    /// path of the file
    pub path: PathBuf,
    /// whether damaged parts are left out
    pub skip_damaged: bool,
}

/// Shows records side by side, until a signal.
///
/// # Errors
/// If a record cannot be opened, or the server cannot start.
pub fn show(inputs: &[RecordInput], options: &WebOptions) -> Result<()> {
    let stop = Stop::at_signals()?.at(options.duration.map(|d| sys::monotonic() + d));
    let (changes, changed) = watch::channel(0);
    let limits = record_limits(options.thresholds);
    let source = |input: &RecordInput| {
        let name = input.path.display().to_string();
        let record = Some((input.path.clone(), input.skip_damaged));
        Arc::new(Source::new(SourceKind::Record, name, record, Index::new(limits)))
    };
    let sources: Vec<Arc<Source>> = inputs.iter().map(source).collect();
    for source in &sources {
        // A wrong path is reported at once, and before a browser is opened.
        let mut reader = source.open()?;
        reader.next().transpose()?;
    }
    let server = Server::start(&options.listen, sources.clone(), changed)?;
    announce(&server);
    for source in sources {
        let changes = changes.clone();
        let read = move || {
            if let Err(e) = load(&source, limits, &changes) {
                error!("{e}");
                source.end(&e.to_string());
                changes.send_modify(|n| *n += 1);
            }
        };
        std::thread::Builder::new()
            .name("read".into())
            .spawn(read)
            .context("cannot start a thread")?;
    }
    stop.wait();
    farewell(&server);
    Ok(())
}

/// Reads a record twice: a sample of its frames, if it is long, and then all of it.
///
/// # Errors
/// If the record cannot be read. One that breaks off is read up to there, and its source has a note.
pub fn load(
    source: &Source,
    limits: Limits,
    changes: &watch::Sender<u64>,
) -> Result<(), ReadError> {
    let bytes = source.bytes();
    if bytes > 2 * SAMPLE_BYTES {
        let reader = source.open()?.sampled(bytes.div_ceil(SAMPLE_BYTES));
        let mut sample = Index::new(Limits { bridge: true, ..limits });
        read(reader, &mut sample, |_, _| {})?;
        *source.change() = sample;
        changes.send_modify(|n| *n += 1);
    }
    let mut index = Index::new(limits);
    let note = read(source.open()?, &mut index, |end, reader| {
        if let Some(mark) = reader.mark() {
            source.seeker().add(end, mark);
        }
    })?;
    *source.change() = index;
    source.end(&note.map_or_else(String::new, |torn| torn.to_string()));
    changes.send_modify(|n| *n += 1);
    Ok(())
}

/// Reads all events into an index. Returns the reason if the record breaks off.
fn read(
    mut reader: Reader,
    index: &mut Index,
    mut between: impl FnMut(Nanos, &Reader),
) -> Result<Option<ReadError>, ReadError> {
    let mut torn = None;
    let mut end = Nanos(0);
    while let Some(event) = reader.next() {
        match event {
            Ok(event) => {
                if let Event::Snapshot(s) = &event {
                    end = s.end;
                }
                index.push(event);
                between(end, &reader);
            }
            Err(e @ ReadError::Torn { .. }) => {
                torn = Some(e);
                break;
            }
            Err(e) => return Err(e),
        }
    }
    index.finish();
    Ok(torn)
}
