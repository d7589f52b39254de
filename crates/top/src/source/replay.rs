//! A record that is played.

use std::path::PathBuf;
use std::time::{Duration, Instant};

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
    let (mut pace, start) = (Pace::new(o.speed), Instant::now());
    for event in reader {
        let event = match event {
            Ok(event) => event,
            Err(torn @ ReadError::Torn { .. }) => return Ok(torn.to_string()),
            Err(e) => return Err(e.into()),
        };
        if let Event::Snapshot(s) = &event
            && !to.wait(pace.due(s.end).saturating_sub(start.elapsed()))
        {
            return Ok(String::new());
        }
        if !matches!(event, Event::Mappings { .. }) && !to.send(event) {
            return Ok(String::new());
        }
    }
    Ok("the record has ended".to_owned())
}

/// When to show the snapshots of a record.
struct Pace {
    speed: f64,
    /// end of the first snapshot
    first: Option<Nanos>,
}

impl Pace {
    fn new(speed: f64) -> Self {
        Pace { speed, first: None }
    }

    /// The time from the start of the replay until the snapshot that ends at `end`. The first one is due at once.
    fn due(&mut self, end: Nanos) -> Duration {
        let first = *self.first.get_or_insert(end);
        end.since(first).div_f64(self.speed.max(1e-3))
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::{Attrs, TargetId};
    use isotherm_record::{FileEndReason, Limits, RecordingHeader, TargetInfo, Writer};

    use super::*;
    use crate::scene;
    use crate::source::{SourceEvent, ViewSource};

    #[test]
    fn each_snapshot_is_due_at_its_time_by_the_speed() {
        let ends = [1000, 1001, 1004, 1300].map(|s| Nanos(s * 1_000_000_000));
        for (speed, expected) in [
            (1.0, [0, 1000, 4000, 300_000]),
            (4.0, [0, 250, 1000, 75_000]),
            (0.5, [0, 2000, 8000, 600_000]),
        ] {
            let mut pace = Pace::new(speed);
            let due = ends.map(|end| pace.due(end).as_millis());
            assert_eq!(due, expected, "{speed}x");
        }
    }

    /// A busy machine may be later, but nothing makes it earlier.
    #[test]
    fn a_record_is_not_played_faster() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.rec");
        let facts = RecordingHeader::new("0.1.0", Attrs::default(), Nanos(0));
        let mut writer = Writer::create(&path, &facts, Limits::default()).unwrap();
        let info = TargetInfo { id: TargetId(0), pid: None, command: "a".into() };
        let _ = writer.target(info).unwrap();
        for seq in 0..=4 {
            let of = scene::target(0, vec![], vec![]);
            let _ = writer.snapshot(&scene::snapshot(seq, 0.5, vec![of])).unwrap();
        }
        writer.finish(FileEndReason::Stopped, "").unwrap();
        let start = Instant::now();
        let played = ViewSource::Replay(ReplayOptions { path, speed: 4.0, skip_damaged: false });
        let (mut feed, mut times) = (played.start().unwrap(), Vec::new());
        let stop = isotherm::stop::Stop::never();
        while let Some(news) = feed.next(&stop) {
            match news {
                SourceEvent::Event(Event::Snapshot(_)) => times.push(start.elapsed()),
                SourceEvent::Ended(why) => assert_eq!(why.unwrap(), "the record has ended"),
                _ => {}
            }
        }
        feed.join();
        assert_eq!(times.len(), 5);
        for (i, time) in (0..).zip(&times) {
            assert!(*time >= Duration::from_millis(125) * i, "{times:?}");
        }
    }
}
