//! Rows for a lake: each minute one row for each control group that has watched processes.
//!
//! A session hands over its snapshots; a thread of its own writes the rows, so that a slow disk or bucket does not
//! delay monitoring. `docs/abi/testing/lake.md` describes the rows.

mod counters;
mod error;
mod job;
mod minute;
mod names;
mod store;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use isotherm_core::scheme::{ActionEvent, Outcome};
use isotherm_core::{Action, Nanos, Snapshot, TargetId};
use isotherm_fleet::{Bucket, DiskLimits, Lake, MINUTE_MS, Rows, Uploader};
use isotherm_linux::{proc, sys};

use self::counters::CounterTracker;
use self::minute::{Minute, Observed};
use self::names::GroupNames;
use self::store::Store;
use crate::ROOT;
use crate::session::Scene;

pub use error::AgentError;
pub use job::{AgentOptions, run};

/// Maximum number of minutes that are filled with the last sizes while no snapshot comes.
const MAX_FILLED_MINUTES: i64 = 15;
/// Maximum length of a command line, in characters.
const MAX_COMMAND_BYTES: usize = 256;

/// The place of a lake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LakePlace {
    /// a directory
    Dir(PathBuf),
    /// object storage: `s3://BUCKET/PREFIX`
    Objects(String),
}

impl LakePlace {
    /// A directory, or `s3://BUCKET/PREFIX`.
    ///
    /// # Errors
    /// If it is a URL of another kind.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once("://") {
            None => Ok(LakePlace::Dir(text.into())),
            Some(("s3", place)) if !place.is_empty() && !place.starts_with('/') => {
                Ok(LakePlace::Objects(text.to_owned()))
            }
            Some(_) => {
                Err(format!("{text:?} is not a lake: name a directory, or s3://BUCKET/PREFIX"))
            }
        }
    }
}

/// Which lake to write rows to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LakeOptions {
    /// where it is
    pub place: LakePlace,
    /// name of this machine in the rows; `None`: that of the kernel
    pub host: Option<String>,
    /// age at which rows are removed from the directory
    pub keep: Duration,
    /// size at which the oldest rows are removed from the directory; `None`: no limit
    pub keep_bytes: Option<u64>,
    /// directory for rows that are not in object storage yet
    pub spool: PathBuf,
    /// size of these rows from which on the oldest are dropped
    pub spool_bytes: u64,
    /// time between two uploads
    pub upload_every: Duration,
    /// whether the rows contain command lines
    pub command_lines: bool,
}

/// Writes the rows of a session, if an option asks for it.
#[derive(Default)]
pub struct Agent(Option<Collector>);

/// Makes rows of snapshots.
struct Collector {
    host: String,
    command_lines: bool,
    /// start of the running minute, in ms since 1970
    at: i64,
    minute: Minute,
    names: GroupNames,
    counters: CounterTracker,
    /// CPU time of this process until the last row
    cpu: Duration,
    /// bytes that isotherm has paged out of each target; `None` if it does not page out
    paged_out: Option<BTreeMap<TargetId, u64>>,
    store: Store,
    /// CPU time of the session's thread for all this
    spent: Duration,
}

impl Agent {
    /// Opens the lake. `pages_out`: whether the session pages memory out.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(o: Option<&LakeOptions>, pages_out: bool) -> Result<Self, AgentError> {
        let Some(o) = o else { return Ok(Agent(None)) };
        let name = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        let host = o.host.clone().unwrap_or_else(name);
        let (dir, keep) = match &o.place {
            LakePlace::Dir(dir) => (dir, DiskLimits { age: Some(o.keep), bytes: o.keep_bytes }),
            LakePlace::Objects(_) => (&o.spool, DiskLimits::default()),
        };
        let uploader = match &o.place {
            LakePlace::Dir(_) => None,
            LakePlace::Objects(url) => {
                Some(Uploader::new(Bucket::s3(url)?, o.upload_every, o.spool_bytes))
            }
        };
        let lake = Lake::open(dir, &host, keep)?;
        Ok(Agent(Some(Collector {
            host,
            command_lines: o.command_lines,
            at: minute_of(now_ms()),
            minute: Minute::default(),
            names: GroupNames::default(),
            counters: CounterTracker::default(),
            cpu: sys::own_cpu(),
            paged_out: pages_out.then(BTreeMap::new),
            store: Store::new(lake, uploader),
            spent: Duration::ZERO,
        })))
    }

    /// Whether files are written during the run.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.0.is_some()
    }

    /// CPU time for making and writing rows, without that for watching.
    #[must_use]
    pub fn spent(&self) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, |c| c.spent + c.store.spent())
    }

    /// When the next minute begins.
    pub(crate) fn by(&self) -> Option<Nanos> {
        self.0.as_ref()?;
        let ms = MINUTE_MS - now_ms().rem_euclid(MINUTE_MS);
        Some(sys::monotonic() + Duration::from_millis(u64::try_from(ms).unwrap_or_default()))
    }

    /// Writes the rows of a minute that has ended. Fails if no rows would be written any more.
    pub(crate) fn turn(&mut self, scene: &Scene<'_>) -> io::Result<()> {
        let Some(collector) = &mut self.0 else { return Ok(()) };
        let begin = sys::thread_cpu();
        let sent = collector.turn(now_ms(), scene);
        collector.spent += sys::thread_cpu().saturating_sub(begin);
        sent
    }

    /// Adds a snapshot; fails as [`Agent::turn`].
    pub(crate) fn snapshot(&mut self, s: &Snapshot, scene: &Scene<'_>) -> io::Result<()> {
        let Some(collector) = &mut self.0 else { return Ok(()) };
        let begin = sys::thread_cpu();
        let sent = collector.turn(now_ms(), scene);
        collector.snapshot(s, scene);
        collector.spent += sys::thread_cpu().saturating_sub(begin);
        sent
    }

    /// Adds the memory that schemes have paged out.
    pub(crate) fn acted(&mut self, events: &[ActionEvent], scene: &Scene<'_>) {
        let Some((collector, paged_out)) =
            self.0.as_mut().and_then(|c| Some((&mut c.minute, c.paged_out.as_mut()?)))
        else {
            return;
        };
        for event in events.iter().filter(|event| event.action == Action::PageOut) {
            let Outcome::Acted(applied) = event.outcome else { continue };
            *paged_out.entry(event.target).or_default() += applied.applied;
            if let Some(a) = scene.attributions.of(event.target) {
                collector.paged_out(&a.cgroup, applied.applied);
            }
        }
    }
}

impl Collector {
    fn snapshot(&mut self, s: &Snapshot, scene: &Scene<'_>) {
        if let Some(paged_out) = &mut self.paged_out {
            paged_out.retain(|id, _| s.targets.binary_search_by_key(id, |view| view.id).is_ok());
        }
        let targets = s.targets.iter().filter_map(|view| {
            let attribution = scene.attributions.of(view.id)?;
            let paged_out = self.paged_out.as_ref();
            let of_target = |all: &BTreeMap<TargetId, u64>| all.get(&view.id).copied();
            Some(Observed {
                heat: minute::heat(view),
                attribution,
                ages: scene.ages.pages(view.id),
                ages_are_new: view.ages.is_some(),
                saved: paged_out.map(|all| of_target(all).unwrap_or(0).min(attribution.swapped)),
            })
        });
        self.minute.snapshot(targets);
        // The state of a container may be gone at the end of the minute.
        self.names.meet(ROOT.as_ref(), &self.host, self.minute.groups());
    }

    fn turn(&mut self, now: i64, scene: &Scene<'_>) -> io::Result<()> {
        let minute = minute_of(now);
        self.follow_clock(minute);
        while self.at < minute {
            self.end_minute(scene)?;
            self.at += MINUTE_MS;
        }
        Ok(())
    }

    /// If the clock was set, or the machine was suspended, the running minute has no end, and is lost.
    fn follow_clock(&mut self, minute: i64) {
        if minute < self.at || minute - self.at > MAX_FILLED_MINUTES * MINUTE_MS {
            self.at = minute;
            self.minute = std::mem::take(&mut self.minute).next();
            self.store.lose_minute();
        }
    }

    /// Writes the rows of the running minute.
    fn end_minute(&mut self, scene: &Scene<'_>) -> io::Result<()> {
        let cpu = sys::own_cpu();
        let own = cpu.saturating_sub(self.cpu);
        self.cpu = cpu;
        let root = ROOT.as_ref();
        let counted = self.counters.read(root, self.minute.groups());
        let mut groups = self.names.resolve(root, &self.host, self.minute.groups());
        if self.command_lines {
            let pids = scene.follower.pid_of();
            for (group, target) in groups.iter_mut().zip(self.minute.largest()) {
                let pid = target.and_then(|target| pids.get(&target));
                let command = pid.and_then(|pid| proc::command(root, *pid).ok());
                group.command =
                    command.unwrap_or_default().chars().take(MAX_COMMAND_BYTES).collect();
            }
        }
        let host_bytes = proc::meminfo(root).map_or(0, |m| m.total);
        let own = u64::try_from(own.as_micros()).unwrap_or(u64::MAX);
        let rows = self.minute.rows(self.at, own, host_bytes, &counted);
        self.minute = std::mem::take(&mut self.minute).next();
        self.store.send(self.at, Rows { groups, rows })
    }
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

fn minute_of(ms: i64) -> i64 {
    ms - ms.rem_euclid(MINUTE_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by an audit: the running minute was in no row and not counted if the clock was set.
    #[test]
    fn a_jump_of_the_clock_loses_a_minute_that_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let options = LakeOptions {
            place: LakePlace::Dir(dir.path().to_owned()),
            host: Some("h".to_owned()),
            keep: Duration::from_secs(3600),
            keep_bytes: None,
            spool: dir.path().join("spool"),
            spool_bytes: 0,
            upload_every: Duration::ZERO,
            command_lines: false,
        };
        let mut agent = Agent::open(Some(&options), false).unwrap();
        let collector = agent.0.as_mut().unwrap();
        for (minutes, lost) in
            [(0, 0), (MAX_FILLED_MINUTES, 0), (-1, 1), (MAX_FILLED_MINUTES + 1, 2)]
        {
            let minute = collector.at + minutes * MINUTE_MS;
            collector.follow_clock(minute);
            assert_eq!(collector.store.lost(), lost, "{minutes}");
        }
    }
}
