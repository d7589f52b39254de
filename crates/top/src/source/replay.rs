//! A record that is played.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use isotherm_core::Nanos;
use isotherm_record::{Event, ReadError, Reader};

use super::NewsSender;

/// Which record to play, and how fast.
pub struct ReplayOptions {
    /// the record
    pub path: PathBuf,
    /// seconds of the record per second
    pub speed: f64,
    /// whether damage is skipped
    pub skip_damaged: bool,
}

/// Plays until the end of the record or of the view.
pub fn play(o: &ReplayOptions, to: &mut NewsSender) -> Result<String> {
    let reader = Reader::open(&o.path)?;
    let reader = if o.skip_damaged { reader.skip_damaged() } else { reader };
    let (mut clock, start) = (None, Instant::now());
    for event in reader {
        let event = match event {
            Ok(event) => event,
            Err(torn @ ReadError::Torn { .. }) => return Ok(torn.to_string()),
            Err(e) => return Err(e.into()),
        };
        if let Event::Snapshot(s) = &event {
            let first: Nanos = *clock.get_or_insert(s.end);
            let due = s.end.since(first).div_f64(o.speed.max(1e-3));
            if !to.wait(due.saturating_sub(start.elapsed())) {
                return Ok(String::new());
            }
        }
        if !matches!(event, Event::Mappings { .. }) && !to.send(event) {
            return Ok(String::new());
        }
    }
    Ok("the record has ended".to_owned())
}
