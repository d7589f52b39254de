//! The snapshots of a service, for programs that show them.

use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use isotherm_core::{Nanos, Snapshot};
use isotherm_record::{Event, Reader};
use serde_json::Value;

use super::{ControlError, Request, ask, default_path};

/// The longest time without snapshots for which the next one stands.
const MAX_GAP: Duration = Duration::from_secs(2);

/// The last snapshot that a client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastSnapshot {
    seq: u64,
    end: Nanos,
}

/// The start of the service that has sent this answer to [`Request::Status`]: another one at its socket has another.
#[must_use]
pub fn run_of(answer: &Value) -> Option<u64> {
    answer["status"]["started_ns"].as_u64()
}

/// Passes the snapshots of the service at `path`, or at the default path, to `take`, with the facts of their
/// targets. Without `after` these are all that the service keeps, the oldest first, some at a time. Otherwise it
/// is the last one, if it is later than `after`. A service may make several between two questions: the last one then
/// stands for the time of all of them. Returns the last one, or `after`.
///
/// # Errors
/// If the service does not answer, or refuses because its way to look has no regions.
pub fn snapshots(
    path: Option<&Path>,
    after: Option<LastSnapshot>,
    mut take: impl FnMut(Vec<Event>),
) -> Result<Option<LastSnapshot>, ControlError> {
    let (mut from, mut last) = (Nanos(0), after);
    loop {
        let request = Request::Snapshot {
            after: after.map(|after| after.seq),
            from: after.is_none().then_some(from.0),
        };
        let answer = ask(path, &request)?;
        let answer = &answer["snapshot"];
        let (Some(seq), Some(record)) = (answer["seq"].as_u64(), answer["record"].as_str()) else {
            return Ok(last);
        };
        let mut events = decode(record).map_err(|why| ControlError::Senseless {
            path: path.map_or_else(default_path, Path::to_owned).display().to_string(),
            what: format!("{why}; use the same version of isotherm"),
        })?;
        for event in &mut events {
            if let Event::Snapshot(s) = event {
                last.iter().for_each(|last| extend(Arc::make_mut(s), last.end));
                last = Some(LastSnapshot { seq, end: s.end });
            }
        }
        let end = events.iter().map(time).max().unwrap_or_default();
        take(events);
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

/// Makes a snapshot start where the previous one ended, if that is not long ago. Its costs are those of this time, at
/// the same rate.
fn extend(s: &mut Snapshot, previous_end: Nanos) {
    let (gap, length) = (s.start.since(previous_end), s.end.since(s.start));
    if gap.is_zero() || gap > MAX_GAP || length.is_zero() {
        return;
    }
    s.start = previous_end;
    let factor = (gap + length).as_secs_f64() / length.as_secs_f64();
    let times = s.targets.iter_mut().filter_map(|view| view.ran.as_mut());
    for time in times.chain([&mut s.cost.cpu, &mut s.cost.lost]) {
        *time = Duration::try_from_secs_f64(time.as_secs_f64() * factor).unwrap_or(*time);
    }
    for count in [&mut s.cost.looks, &mut s.cost.pages, &mut s.cost.clears] {
        *count = (*count as f64 * factor).round() as u64;
    }
}

/// When a view should take an event.
fn time(event: &Event) -> Nanos {
    match event {
        Event::Attribution(a) => a.at,
        Event::Snapshot(s) => s.end,
        _ => Nanos(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene;

    #[test]
    fn a_snapshot_stands_for_a_short_time_before_it_at_the_same_cost() {
        let made = scene::snapshot(4, 0.25, vec![scene::target(0, vec![], vec![])]);
        let extended = |gap: Duration| {
            let mut s = made.clone();
            extend(&mut s, made.start.before(gap));
            s
        };
        let s = extended(Duration::from_millis(750));
        assert_eq!(s.end.since(s.start), Duration::from_secs(1));
        assert_eq!((s.cost.cpu, s.cost.looks), (made.cost.cpu * 4, made.cost.looks * 4));
        assert_eq!(s.targets[0].ran, made.targets[0].ran.map(|ran| ran * 4));
        assert_eq!(extended(Duration::ZERO), made);
        assert_eq!(extended(MAX_GAP + Duration::from_millis(1)), made, "nothing is known of it");
        let mut s = made.clone();
        extend(&mut s, made.end);
        assert_eq!(s, made, "it comes from another clock");
    }
}
