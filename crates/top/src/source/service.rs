//! A running service, by its control socket.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use isotherm::control::{ControlError, Request, ask};
use isotherm_record::{Event, Reader};

use super::pressure::Pressures;
use super::{News, NewsSender};

/// Time between two requests, if snapshots come more often.
const EVERY: Duration = Duration::from_secs(1);

/// Which service.
pub struct ServiceOptions {
    /// its control socket; `None`: the default
    pub control: Option<PathBuf>,
}

/// Asks for snapshots until the view or the service ends.
pub fn follow(o: &ServiceOptions, to: &NewsSender) -> Result<String> {
    let (mut last, mut pressures) = (None, Pressures::default());
    loop {
        let answer = match ask(o.control.as_deref(), &Request::Snapshot { after: last }) {
            Ok(answer) => answer,
            // It has answered before, so this is the end of the view's source, not an error of the command.
            Err(e @ ControlError::Nobody { .. }) if last.is_some() => {
                return Ok(format!("the service has ended ({e})"));
            }
            Err(e) => return Err(e.into()),
        };
        let snapshot = &answer["snapshot"];
        if let (Some(seq), Some(record)) = (snapshot["seq"].as_u64(), snapshot["record"].as_str()) {
            if let Some(news) = pressures.read() {
                to.offer(news);
            }
            for event in decode(record)? {
                if let Event::Attribution(a) = &event {
                    pressures.attribution(a);
                }
                to.offer(News::Event(event));
            }
            last = Some(seq);
        }
        if !to.wait(EVERY) {
            return Ok(String::new());
        }
    }
}

/// The events of a record of one snapshot, but for its end.
fn decode(record: &str) -> Result<Vec<Event>> {
    let invalid = "the service has sent an invalid snapshot: use the same version of isotherm";
    let bytes = BASE64_STANDARD.decode(record).context(invalid)?;
    let reader = Reader::new(Cursor::new(bytes), Path::new("of the service"))?;
    let events: Result<Vec<Event>, _> = reader.collect();
    Ok(events.context(invalid)?.into_iter().filter(|e| !matches!(e, Event::End(_))).collect())
}
