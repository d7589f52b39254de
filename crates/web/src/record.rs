//! Records: read in a thread, while the page already shows a sample of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use isotherm::service::logged_actions;
use isotherm::stop::Stop;
use isotherm::words::chain;
use isotherm_core::Nanos;
use isotherm_linux::sys;
use isotherm_record::{Event, ReadError, Reader};
use isotherm_view::Index;
use isotherm_view::index::{IndexLimits, SchemeMark};
use tokio::sync::watch;
use tracing::error;

use crate::server::Server;
use crate::source::{PageSource, SourceKind, ms};
use crate::{WebOptions, announce, farewell, record_limits};

/// A record of more bytes is first shown by a sample of about as many.
const SAMPLE_BYTES: u64 = 8 << 20;
/// The actions of a scheme in one of so many parts of the time are one mark, and in a second too.
const MARKED_PARTS: f64 = 512.0;
const MARKED: Duration = Duration::from_secs(1);

/// A record to show.
#[derive(Debug, Clone)]
pub struct RecordInput {
    /// path of the file
    pub path: PathBuf,
    /// whether damaged parts are left out
    pub skip_damaged: bool,
}

/// Shows records side by side, until a signal, with the actions of schemes in the logs of services.
///
/// # Errors
/// If a record or a log cannot be opened, or the server cannot start.
pub fn show(inputs: &[RecordInput], logs: &[PathBuf], options: &WebOptions) -> Result<()> {
    let stop = Stop::at_signals()?.at(options.duration.map(|d| sys::monotonic() + d));
    let (changes, changed) = watch::channel(0);
    let limits = record_limits(options.thresholds);
    let source = |input: &RecordInput| {
        let name = input.path.display().to_string();
        let record = Some((input.path.clone(), input.skip_damaged));
        Arc::new(PageSource::new(SourceKind::Record, name, record, Index::new(limits)))
    };
    let sources: Vec<Arc<PageSource>> = inputs.iter().map(source).collect();
    for source in &sources {
        // A wrong path is reported at once, and before a browser is opened.
        let mut reader = source.open()?;
        reader.next().transpose()?;
    }
    logs.iter().try_for_each(|log| open(log).map(drop))?;
    let server = Server::start(&options.listen, sources.clone(), changed)?;
    announce(&server);
    for source in sources {
        let (changes, logs) = (changes.clone(), logs.to_vec());
        let read = move || {
            if let Err(e) = load(&source, &logs, limits, &changes) {
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

fn open(log: &Path) -> Result<File> {
    sys::open_regular(log).with_context(|| format!("cannot open the log {}", log.display()))
}

/// Reads a record twice: a sample of its frames, if it is long, and then all of it; and the logs.
///
/// # Errors
/// If the record cannot be read. One that breaks off is read up to there, and its source has a note, also about logs.
pub fn load(
    source: &PageSource,
    logs: &[PathBuf],
    limits: IndexLimits,
    changes: &watch::Sender<u64>,
) -> Result<(), ReadError> {
    let bytes = source.bytes();
    if bytes > 2 * SAMPLE_BYTES {
        let reader = source.open()?.sampled(bytes.div_ceil(SAMPLE_BYTES));
        let mut sample = Index::new(IndexLimits { bridge: true, ..limits });
        read(reader, &mut sample, |_, _, _| {})?;
        *source.change() = sample;
        changes.send_modify(|n| *n += 1);
    }
    let mut index = Index::new(limits);
    let note = read(source.open()?, &mut index, |end, regions, reader| {
        if let Some(mark) = reader.mark() {
            source.seeker().add(end, regions, mark);
        }
    })?;
    let mut notes: Vec<String> = note.iter().map(ToString::to_string).collect();
    match marks(logs, &index) {
        Ok(marks) if marks.is_empty() && !logs.is_empty() => {
            notes.push("the log has no action of the processes and the time of this record".into());
        }
        Ok(marks) => marks.into_iter().for_each(|mark| index.mark(mark)),
        Err(e) => notes.push(chain(e.as_ref())),
    }
    *source.change() = index;
    source.end(&notes.join("; "));
    changes.send_modify(|n| *n += 1);
    Ok(())
}

/// The actions on the processes of a record while it was made.
fn marks(logs: &[PathBuf], index: &Index) -> Result<Vec<SchemeMark>> {
    let Some((span, header)) = index.span().zip(index.view().facts()) else {
        return Ok(Vec::new());
    };
    let start = Duration::from_millis(header.started_unix_ms) + span.start.since(header.started);
    let length = span.end.since(span.start);
    let part = length.div_f64(MARKED_PARTS).max(MARKED).as_nanos();
    let pids: BTreeSet<u32> = index.facts().filter_map(|fact| fact.pid).collect();
    let mut found: BTreeMap<(u128, String), SchemeMark> = BTreeMap::new();
    for log in logs {
        for action in logged_actions(BufReader::new(open(log)?)) {
            let action =
                action.with_context(|| format!("cannot read the log {}", log.display()))?;
            let at = action.since_1970().and_then(|time| time.checked_sub(start));
            let Some(at) = at.filter(|at| *at <= length) else { continue };
            if action.pid.is_some_and(|pid| !pids.contains(&pid)) {
                continue;
            }
            let key = (at.as_nanos() / part, action.scheme.clone());
            let new = || SchemeMark {
                ms: ms(at),
                scheme: action.scheme,
                action: action.action,
                bytes: 0,
            };
            found.entry(key).or_insert_with(new).bytes += action.applied;
        }
    }
    Ok(found.into_values().collect())
}

/// Reads all events into an index. `between` gets the end of the last snapshot and the number of all regions so far.
/// Returns the reason if the record breaks off.
fn read(
    mut reader: Reader,
    index: &mut Index,
    mut between: impl FnMut(Nanos, usize, &Reader),
) -> Result<Option<ReadError>, ReadError> {
    let mut torn = None;
    let (mut end, mut regions) = (Nanos(0), 0);
    while let Some(event) = reader.next() {
        match event {
            Ok(event) => {
                if let Event::Snapshot(s) = &event {
                    (end, regions) = (s.end, regions + s.nr_regions());
                }
                index.push(event);
                between(end, regions, &reader);
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
