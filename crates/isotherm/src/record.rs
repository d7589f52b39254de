//! RecordJob what is seen, until there is a reason to end.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use isotherm_core::{Attribution, Attrs, MonitorKind, Nanos, Snapshot};
use isotherm_linux::damon;
use isotherm_linux::sys::{self, Kept};
use isotherm_record::{Facts, Limits, Progress as Written, Summary, TargetFact, Why, Writer};
use tracing::{error, info, warn};

use crate::control::{Answer, Control, Request};
use crate::follow::{Follower, Selection, Started, resolve};
use crate::metrics::{Metrics, MetricsTo};
use crate::notify::Notify;
use crate::session::{
    End, Job, JobContext, Progress, RecordState, Session, SessionState, WatchStatus,
};
use crate::stop::Stop;
use crate::watch::{AttrsFor, LookBy, What, open};
use crate::words::chain;

/// What is recorded, how, and where to.
pub struct RecordOptions {
    /// the processes
    pub targets: Selection,
    /// those, or physical memory
    pub what: What,
    /// how to look
    pub look: LookBy,
    /// where the random numbers begin; none: different each time
    pub seed: Option<u64>,
    /// the record; `-` is standard output
    pub output: PathBuf,
    /// how large it may become
    pub limits: Limits,
    /// It ends after this time.
    pub duration: Option<Duration>,
    /// the socket on which who asks is answered
    pub control: Option<PathBuf>,
    /// where metrics go
    pub metrics: Option<MetricsTo>,
    /// how often they are written
    pub metrics_every: Duration,
}

impl RecordOptions {
    /// Whether the record goes to standard output.
    #[must_use]
    pub fn to_stdout(&self) -> bool {
        self.output == Path::new("-")
    }
}

/// What was recorded.
pub struct Recorded {
    /// why it has ended
    pub end: End,
    /// what is in the record
    pub summary: Summary,
    /// for how long
    pub seconds: f64,
    /// what it has cost, in words
    pub cost: String,
    /// who was watched, in words
    pub watched: String,
    /// the monitor that watched
    pub monitor: MonitorKind,
}

/// Records until there is a reason to end. `finish` gets what has come of it, before a command that still runs is
/// waited for. Returns the exit status of a started command that has ended by itself, and whether the record is whole.
///
/// # Errors
/// If it cannot begin. What fails later is said, and returned as a record that is not whole.
pub fn record(
    o: &RecordOptions,
    attrs: &dyn AttrsFor,
    progress: Box<dyn Progress>,
    finish: impl FnOnce(&Recorded),
) -> Result<(Option<u8>, bool)> {
    let seed = o.seed.unwrap_or_else(|| sys::monotonic().0);
    let stop = Stop::at_signals()?;
    sweep();
    let mut ready = open(&o.what, o.look, attrs)?;
    let attrs = ready.attrs(attrs)?;
    let mut follower = Follower::new(ready.watched());
    follower.attach_all(ready.hold(), &o.targets)?;
    let program = resolve(&o.targets.command)?;
    let control = o.control.as_deref().map(Control::open).transpose()?;
    let metrics = Metrics::open(o.metrics.as_ref(), o.metrics_every)?;
    let facts = facts(attrs, seed, ready.describe());
    let writer = match o.to_stdout() {
        true => Writer::stdout(Path::new("on standard output"), &facts, o.limits)?,
        false => Writer::create(&o.output, &facts, o.limits)?,
    };
    let started = follower.start(ready.hold(), program, &o.targets.command);
    let (mut started, mut writer) = or_finish(started, writer)?;
    // Those that come later may be other users'.
    let reach = o.limits.rotate.is_some() || o.targets.may_be_strangers() || metrics.writes();
    let (files, frames) = (ready.takes_files(), ready.takes_frames());
    let mut privileges = Privileges { reach, files, frames, writing: None };
    privileges.fit(&writer)?;
    for fact in follower.news() {
        let _ = writer.target(fact)?;
    }
    let begun = Session::begin(ready, follower, attrs, seed, progress);
    let (session, writer) = or_finish(begun, writer)?;
    let mut session = session.speaking(control, metrics, Notify::default());
    let mut recording =
        RecordJob { writer, file: o.output.clone(), paused: false, left_out: 0, privileges };
    let stop = stop.at(o.duration.map(|d| sys::monotonic() + d));
    let result = session.run(&mut recording, &stop);
    let mut end_command = || started.as_mut().map(|c: &mut Started| c.end(&stop)).transpose();
    // A command that is asked to end may have last words; one that goes on does not hold up the
    // record, nor what there is to say about it.
    let ended = stop.is_over().then(&mut end_command);
    let finished = recording.finish(&mut session, result).map(|(end, summary)| {
        let SessionState { follower, status, .. } = session.watched();
        finish(&Recorded {
            end,
            summary,
            seconds: status.seconds(),
            cost: status.cost(),
            watched: follower.summary(),
            monitor: attrs.monitor,
        });
    });
    if let Err(e) = &finished {
        error!("{}", chain(e));
    }
    let status = ended.unwrap_or_else(end_command)?;
    Ok((status.flatten(), finished.is_ok()))
}

/// Takes away a kdamond that an isotherm has left which was killed. What comes in the way of that is
/// no reason not to record.
pub fn sweep() {
    match damon::sweep(crate::ROOT.as_ref()) {
        Ok(None) => {}
        Ok(Some(pid)) => {
            info!("isotherm {pid}, which was killed, has left a kdamond: it was removed")
        }
        Err(e) => warn!("cannot remove a kdamond that a killed isotherm has left: {e}"),
    }
}

/// Gives a record that comes to nothing its end.
fn or_finish<T>(result: Result<T>, writer: Writer) -> Result<(T, Writer)> {
    match result {
        Ok(value) => Ok((value, writer)),
        Err(e) => {
            let _ = writer.finish(Why::Failed, &chain(&e));
            Err(e)
        }
    }
}

/// What a record says about itself.
pub(crate) fn facts(attrs: Attrs, seed: u64, look: String) -> Facts {
    let uname = rustix::system::uname();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    Facts {
        host: uname.nodename().to_string_lossy().into_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        command: words.collect::<Vec<_>>().join(" "),
        started_unix_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        seed,
        look,
        ..Facts::new(env!("CARGO_PKG_VERSION"), attrs, sys::monotonic())
    }
}

/// A record that is written.
struct RecordJob {
    writer: Writer,
    file: PathBuf,
    paused: bool,
    /// snapshots that were made while it was paused
    left_out: u64,
    privileges: Privileges,
}

impl RecordJob {
    /// In the record snapshots are numbered without a gap: one would be a loss.
    fn write(&mut self, s: &Snapshot) -> Result<Written> {
        if self.paused {
            self.left_out += 1;
            return Ok(Written::Going);
        }
        Ok(match self.left_out {
            0 => self.writer.snapshot(s)?,
            n => self.writer.snapshot(&Snapshot { seq: s.seq - n, ..s.clone() })?,
        })
    }

    fn state(&self, on: &JobContext<'_>) -> WatchStatus {
        let file = self.file.display().to_string();
        let record = RecordState::new(file, self.writer.summary(), None);
        WatchStatus::new(&on.watched.scene(None), on.watch.attrs(), self.paused, Some(record))
    }

    /// Gives the record its end, whatever happened.
    fn finish(self, session: &mut Session, result: Result<End>) -> Result<(End, Summary)> {
        let result = result.and_then(|ended| session.stop().map(|()| ended));
        let (why, note) = match &result {
            Ok(end) => (end.why(), end.note().to_owned()),
            Err(e) => (Why::Failed, chain(e)),
        };
        let written = self.writer.finish(why, &note);
        session.watched().status.clear();
        let ended = result?;
        Ok((ended, written?))
    }
}

impl Job for RecordJob {
    type Status = WatchStatus;

    fn turn(&mut self, now: Nanos) -> Result<()> {
        if self.writer.flush_by().is_some_and(|by| now >= by) {
            let _ = self.writer.flush()?;
        }
        self.privileges.fit(&self.writer)
    }

    fn target(&mut self, fact: &TargetFact) -> Result<()> {
        let _ = self.writer.target(fact.clone())?;
        Ok(())
    }

    fn attribution(&mut self, a: Attribution) -> Result<()> {
        let _ = self.writer.attribution(a)?;
        Ok(())
    }

    fn snapshot(&mut self, on: &mut JobContext<'_>, s: &Arc<Snapshot>) -> Result<ControlFlow<End>> {
        on.watched.status.show(s, String::new);
        Ok(match self.write(s)? {
            Written::Full => ControlFlow::Break(End::Full),
            Written::Going => ControlFlow::Continue(()),
        })
    }

    fn by(&self) -> Option<Nanos> {
        self.writer.flush_by()
    }

    fn request(
        &mut self,
        on: &mut JobContext<'_>,
        request: Request,
    ) -> Result<Answer<WatchStatus>> {
        match request {
            Request::Status => return Ok(Answer::status(self.state(on))),
            Request::Pause => {
                self.paused = true;
                // What was seen before it is safe meanwhile.
                let _ = self.writer.flush()?;
            }
            Request::Resume => self.paused = false,
            Request::Stop => {}
            Request::Attributes(new) => {
                let Some(attrs) = on.watch.attrs() else {
                    bail!(
                        "the kernel's monitor keeps its attributes: start a new recording with others"
                    );
                };
                let attrs = new.over(attrs).map_err(anyhow::Error::msg)?;
                on.watch.set_attrs(attrs)?;
                on.watched.status.set_attrs(&attrs);
            }
            Request::Targets { add, remove } => {
                if on.watched.follower.has_lasting() {
                    bail!("physical memory is recorded: it has no processes to add or remove");
                }
                on.watched.follower.set_targets(on.watch.hold(), &add, &remove)?;
                on.follow(self)?;
            }
            Request::Commit { .. } => {
                bail!(
                    "isotherm record only watches: isotherm run and isotherm reclaim act by schemes"
                )
            }
            Request::Record { .. } => bail!(
                "this is isotherm record, which writes {}: isotherm service stop ends it, isotherm service pause leaves \
                 out what comes",
                self.file.display()
            ),
        }
        Ok(Answer::done())
    }
}

/// Those that are left.
struct Privileges {
    /// Files of others are written while it goes on.
    reach: bool,
    /// Files that are their owner's alone are read while it goes on.
    files: bool,
    /// Page frames are looked up while it goes on.
    frames: bool,
    /// whether files can still be made and renamed in directories of others
    writing: Option<bool>,
}

impl Privileges {
    /// Gives up, for good, what is no longer needed.
    fn fit(&mut self, writer: &Writer) -> Result<()> {
        let writing = self.reach || !writer.is_settled();
        if self.writing != Some(writing) {
            sys::drop_privileges(Kept { reading: self.files, writing, frames: self.frames })
                .context("cannot give up capabilities")?;
            self.writing = Some(writing);
        }
        Ok(())
    }
}
