//! Plays a part of a record.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use isotherm_core::scheme::{Metrics, Process};
use isotherm_core::{Attrs, Nanos, Snapshot};
use isotherm_record::{Event, ReadError, Reader};
use isotherm_report::{FilterError, Options, RecordFilter};
use isotherm_sim::whatif::{Player, SettingEffect, SnapshotSelector};
use tracing::info;

use super::{Head, ReadingError, RecordSelection, open, options};

/// Snapshots that are read ahead.
const AHEAD_SNAPSHOTS: usize = 64;

/// A time, from its begin to its end.
type Span = (Duration, Duration);

/// A record that is to be played.
pub struct PlayedRecord<'a> {
    part: &'a RecordSelection,
    head: Head,
    options: Options,
}

impl<'a> PlayedRecord<'a> {
    /// Reads what the record contains about itself.
    ///
    /// # Errors
    /// If it cannot be read, or no target matches.
    pub fn open(part: &'a RecordSelection) -> Result<Self, ReadingError> {
        let head = Head::read(&part.input)?;
        let options = options(part, &head)?;
        Ok(PlayedRecord { part, head, options })
    }

    /// The title of a report.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.options.title
    }

    /// The time between two snapshots, by the attributes of the record.
    #[must_use]
    pub fn interval(&self) -> Duration {
        let attrs = self.head.facts.as_ref().map_or_else(Attrs::default, |f| f.attrs);
        attrs.snapshot_interval()
    }

    /// The processes and control groups of the targets, as they were at first.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let mut metrics = Metrics::default();
        for (id, a) in self.head.attributions.iter().flatten() {
            metrics.cgroups.insert(*id, Arc::clone(&a.cgroup));
            let pid = self.head.targets.iter().find(|t| t.id == *id).and_then(|t| t.pid);
            if let Some(pid) = pid.and_then(|pid| i32::try_from(pid).ok()) {
                metrics.processes.insert(*id, Process { pid, comm: Arc::clone(&a.comm) });
            }
        }
        metrics
    }

    /// Plays the selected part, each setting in a thread of its own. Returns its time, since the start of the record, and
    /// the effects of the settings.
    ///
    /// # Errors
    /// If the record cannot be read or played, or the part is empty.
    pub fn play(&self, player: Player) -> Result<(Span, Vec<SettingEffect>), ReadingError> {
        let reader = open(&self.part.input)?;
        let selector = player.selector();
        thread::scope(|scope| {
            let start = |mut player: Player| {
                let (send, snapshots) = sync_channel::<Arc<Snapshot>>(AHEAD_SNAPSHOTS);
                let playing = scope.spawn(move || {
                    // If this fails, the reader ends too, because this receiver is missing.
                    snapshots.into_iter().try_for_each(|s| player.push(&s))?;
                    player.finish()
                });
                (send, playing)
            };
            let (sends, playing): (Vec<_>, Vec<_>) =
                player.divided().into_iter().map(start).unzip();
            let span = self.read(reader, selector, sends);
            let mut effects = Vec::new();
            for setting in playing {
                effects.extend(setting.join().unwrap_or_else(|panic| resume_unwind(panic))?);
            }
            Ok((span?, effects))
        })
    }

    /// Sends the snapshots that are to be played, until a receiver is missing.
    fn read(
        &self,
        mut reader: Reader,
        mut selector: SnapshotSelector,
        play: Vec<SyncSender<Arc<Snapshot>>>,
    ) -> Result<Span, ReadingError> {
        let RecordFilter { time, targets, .. } = &self.options.filter;
        let wanted = time.clone().unwrap_or(Duration::ZERO..Duration::MAX);
        let (mut begin, mut span) = (None, Duration::ZERO);
        let mut played: Option<Span> = None;
        while let Some(event) = reader.next() {
            let mut s = match event {
                Ok(Event::Snapshot(s)) => s,
                Ok(_) => continue,
                Err(torn @ ReadError::Torn { .. }) => {
                    info!("{torn}");
                    break;
                }
                Err(e) => return Err(e.into()),
            };
            let begin = *begin.get_or_insert(s.start);
            let (from, until) = (s.start.since(begin), s.end.since(begin));
            span = until;
            if from < wanted.start {
                reader.skip_until(begin + wanted.start);
            }
            if until > wanted.end {
                // What follows is not read, but for the length of the record.
                reader.skip_until(Nanos(u64::MAX));
            } else if from >= wanted.start {
                played = Some((played.map_or(from, |p| p.0), until));
                reader.skip_until(selector.push(s.end));
                if let Some(ids) = targets {
                    Arc::make_mut(&mut s).targets.retain(|t| ids.contains(&t.id));
                }
                if play.iter().any(|play| play.send(Arc::clone(&s)).is_err()) {
                    break;
                }
            }
        }
        let none = || match (time, begin) {
            (Some(asked), Some(_)) => FilterError::Time { asked: asked.clone(), span },
            _ => FilterError::Empty,
        };
        Ok(played.ok_or_else(none)?)
    }
}
