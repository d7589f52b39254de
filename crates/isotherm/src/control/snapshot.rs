//! The last snapshot of a service, for programs that show it.

use std::io::Cursor;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use isotherm_record::{Event, Reader};

use super::{ControlError, Request, ask, default_path};

/// A snapshot of a service.
#[derive(Debug)]
pub struct ServiceSnapshot {
    /// its number in the service
    pub seq: u64,
    /// the facts of the recording, the names and groups of its targets, and the snapshot
    pub events: Vec<Event>,
}

/// Asks the service at `path`, or at the default path, for its last snapshot; `None` if it has none that is later
/// than the snapshot number `after`.
///
/// # Errors
/// If the service does not answer, or refuses because its way to look has no regions.
pub fn snapshot(
    path: Option<&Path>,
    after: Option<u64>,
) -> Result<Option<ServiceSnapshot>, ControlError> {
    let answer = ask(path, &Request::Snapshot { after })?;
    let answer = &answer["snapshot"];
    let (Some(seq), Some(record)) = (answer["seq"].as_u64(), answer["record"].as_str()) else {
        return Ok(None);
    };
    let events = decode(record).map_err(|why| ControlError::Senseless {
        path: path.map_or_else(default_path, Path::to_owned).display().to_string(),
        what: format!("{why}; use the same version of isotherm"),
    })?;
    Ok(Some(ServiceSnapshot { seq, events }))
}

/// The events of a record of one snapshot, except its end.
fn decode(record: &str) -> Result<Vec<Event>, String> {
    let bytes = BASE64_STANDARD.decode(record).map_err(|e| e.to_string())?;
    let reader = Reader::new(Cursor::new(bytes), Path::new("of the service"));
    let events: Result<Vec<Event>, _> = reader.and_then(|reader| reader.collect());
    let events = events.map_err(|e| e.to_string())?;
    Ok(events.into_iter().filter(|event| !matches!(event, Event::End(_))).collect())
}
