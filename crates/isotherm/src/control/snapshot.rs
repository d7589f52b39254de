//! The snapshots of a service, for programs that show them.

use std::io::Cursor;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use isotherm_core::Nanos;
use isotherm_record::{Event, Reader};

use super::{ControlError, Request, ask, default_path};

/// Passes the snapshots of the service at `path`, or at the default path, to `take`, with the facts of their
/// targets. Without `after` these are all that the service keeps, the oldest first, some at a time. Otherwise it
/// is the last one, if it is later than the snapshot number `after`. Returns the number of the last one, or
/// `after`.
///
/// # Errors
/// If the service does not answer, or refuses because its way to look has no regions.
pub fn snapshots(
    path: Option<&Path>,
    after: Option<u64>,
    mut take: impl FnMut(Vec<Event>),
) -> Result<Option<u64>, ControlError> {
    let (mut from, mut last) = (Nanos(0), after);
    loop {
        let request = Request::Snapshot { after, from: after.is_none().then_some(from.0) };
        let answer = ask(path, &request)?;
        let answer = &answer["snapshot"];
        let (Some(seq), Some(record)) = (answer["seq"].as_u64(), answer["record"].as_str()) else {
            return Ok(last);
        };
        let events = decode(record).map_err(|why| ControlError::Senseless {
            path: path.map_or_else(default_path, Path::to_owned).display().to_string(),
            what: format!("{why}; use the same version of isotherm"),
        })?;
        let end = events.iter().map(time).max().unwrap_or_default();
        take(events);
        last = Some(seq);
        if after.is_some() || end <= from {
            return Ok(last);
        }
        from = end;
    }
}

/// The events of a record except its end. A record has attributions before the snapshots of the same frame; here,
/// they are before those that ended later.
fn decode(record: &str) -> Result<Vec<Event>, String> {
    let bytes = BASE64_STANDARD.decode(record).map_err(|e| e.to_string())?;
    let reader = Reader::new(Cursor::new(bytes), Path::new("of the service"));
    let events: Result<Vec<Event>, _> = reader.and_then(|reader| reader.collect());
    let mut events = events.map_err(|e| e.to_string())?;
    events.retain(|event| !matches!(event, Event::End(_)));
    events.sort_by_key(|event| (time(event), matches!(event, Event::Snapshot(_))));
    Ok(events)
}

/// When a view should take an event.
fn time(event: &Event) -> Nanos {
    match event {
        Event::Attribution(a) => a.at,
        Event::Snapshot(s) => s.end,
        _ => Nanos(0),
    }
}
