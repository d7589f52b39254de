//! Recording of snapshots, until there is a reason to end.

mod error;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use isotherm_core::{Attribution, Attrs, Fault, MonitorKind, Nanos, Snapshot, TargetId};
use isotherm_linux::damon;
use isotherm_linux::sys::{self, KeptCapabilities};
use isotherm_record::{
    FileEndReason, Limits, RecordProgress, RecordingHeader, RecordingTotals, TargetInfo, Writer,
};
use tracing::{error, info, warn};

use crate::agent::{Agent, LakeOptions};
use crate::control::{Control, Request, Response};
use crate::follow::{Follower, Selection, StartedCommand, resolve};
use crate::metrics::{MetricsExporter, MetricsTo};
use crate::notify::Notify;
use crate::session::{
    Job, JobContext, Progress, RecordState, Session, SessionEnd, SessionState, WatchStatus,
};
use crate::stacks::{SampleCounts, StackNews, StackOptions, Stacks, try_target};
use crate::stop::Stop;
use crate::watch::{AttrsFor, LookBy, WatchedMemory, open};
use crate::words::chain;

pub use error::RecordError;

/// Default interval between two writes of the metrics.
const METRICS_EVERY: Duration = Duration::from_secs(15);

/// The memory to record, how to watch it, and the file.
#[non_exhaustive]
pub struct RecordOptions {
    /// the processes to watch
    pub targets: Selection,
    /// whether to watch these processes or physical memory
    pub what: WatchedMemory,
    /// how to look
    pub look: LookBy,
    /// seed of the random numbers; `None`: different each time
    pub seed: Option<u64>,
    /// the record; `-` is standard output
    pub output: PathBuf,
    /// limits on the size of the record
    pub limits: Limits,
    /// sample page faults with their call stacks
    pub stacks: Option<StackOptions>,
    /// The recording ends after this time.
    pub duration: Option<Duration>,
    /// path of the control socket; `None`: no socket
    pub control: Option<PathBuf>,
    /// destination of the metrics
    pub metrics: Option<MetricsTo>,
    /// interval between two writes of the metrics
    pub metrics_every: Duration,
    /// the lake to write rows to
    pub lake: Option<LakeOptions>,
}

impl RecordOptions {
    /// Records these processes to this file: by the best way to look, without stacks, metrics or limits.
    #[must_use]
    pub fn new(targets: Selection, output: PathBuf) -> Self {
        RecordOptions {
            targets,
            what: WatchedMemory::processes(),
            look: LookBy::Auto,
            seed: None,
            output,
            limits: Limits::default(),
            stacks: None,
            duration: None,
            control: None,
            metrics: None,
            metrics_every: METRICS_EVERY,
            lake: None,
        }
    }

    /// Whether the record goes to standard output.
    #[must_use]
    pub fn to_stdout(&self) -> bool {
        self.output == Path::new("-")
    }
}

/// The result of a recording.
pub struct Recorded {
    /// why it ended
    pub end: SessionEnd,
    /// the contents of the record
    pub summary: RecordingTotals,
    /// duration, in seconds
    pub seconds: f64,
    /// cost of watching, as text
    pub cost: String,
    /// the sampled page faults and allocations, if there are any
    pub samples: Option<SampleCounts>,
    /// the watched processes, as text
    pub watched: String,
    /// the monitor that watched
    pub monitor: MonitorKind,
}

/// Records until there is a reason to end. `finish` receives the result before the function waits for a command
/// that still runs. Returns the exit status of a started command that ended by itself, and whether the record
/// is complete.
///
/// # Errors
/// If the recording cannot start. A later failure is printed, and the function returns that the record is
/// incomplete.
pub fn record(
    o: &RecordOptions,
    attrs: &dyn AttrsFor,
    progress: Box<dyn Progress>,
    finish: impl FnOnce(&Recorded),
) -> Result<(Option<u8>, bool), RecordError> {
    let seed = o.seed.unwrap_or_else(|| sys::monotonic().0);
    let stop = Stop::at_signals()?;
    sweep();
    let mut ready = open(&o.what, o.look, attrs)?;
    let attrs = ready.attrs(attrs)?;
    let mut follower = Follower::new(ready.watched());
    follower.attach_all(ready.hold(), &o.targets)?;
    let program = resolve(&o.targets.command)?;
    let control = o.control.as_deref().map(Control::open).transpose()?;
    let metrics = MetricsExporter::open(o.metrics.as_ref(), o.metrics_every)?;
    let agent = Agent::open(o.lake.as_ref(), false)?;
    let facts = facts(attrs, seed, ready.describe());
    let stacks = o.stacks.map(|stacks| stacks.within(attrs.budget()));
    let mut stacks = stacks.map(|stacks| Stacks::open(&o.targets, stacks)).transpose()?;
    let writer = match o.to_stdout() {
        true => Writer::stdout(Path::new("on standard output"), &facts, o.limits)?,
        false => Writer::create(&o.output, &facts, o.limits)?,
    };
    let environment = stacks.as_ref().map(Stacks::environment).unwrap_or_default();
    let started = follower.start(ready.hold(), program, &o.targets.command, &environment);
    let (started, mut writer) = or_finish(started, writer)?;
    // Processes that start later may belong to other users.
    let writes = metrics.writes() || agent.writes();
    let reach = o.limits.rotate.is_some() || o.targets.may_be_strangers() || writes;
    let files = ready.requires_files() || o.stacks.is_some();
    // A page that was filled again has another frame. A command, its children and each `exec` have a new `pagemap`.
    let frames = ready.requires_frames() || o.stacks.is_some();
    let mut privileges = Privileges { reach, files, frames, writing: None };
    if let (Some(stacks), Some(command)) = (&mut stacks, &started) {
        stacks.started(command.pid());
    }
    let announced = follower.news().into_iter().try_for_each(|fact| {
        stacks.as_mut().map_or(Ok(()), |stacks| stacks.target(&fact))?;
        writer.target(fact).map(drop).map_err(RecordError::from)
    });
    // The probe of a running process requires more.
    let announced = announced.and_then(|()| privileges.fit(&writer));
    let ((), writer) = or_finish(announced, writer)?;
    let begun = Session::begin(ready, follower, attrs, seed, progress);
    let (session, writer) = or_finish(begun, writer)?;
    let session = session.speaking(control, metrics, Notify::default()).writing(agent);
    let recording = RecordJob {
        files: writer.summary().files,
        unwatched_files: 0,
        file_size: o.limits.file_size().unwrap_or(u64::MAX),
        writer,
        stacks,
        file: o.output.clone(),
        paused: false,
        left_out: 0,
        failed: None,
        privileges,
    };
    let stop = stop.at(o.duration.map(|d| sys::monotonic() + d));
    run_to_end(session, recording, started, &stop, attrs.monitor, finish)
}

/// Runs the session, and ends the record and a started command. Returns the same as [`record`].
fn run_to_end(
    mut session: Session,
    mut recording: RecordJob,
    mut started: Option<StartedCommand>,
    stop: &Stop,
    monitor: MonitorKind,
    finish: impl FnOnce(&Recorded),
) -> Result<(Option<u8>, bool), RecordError> {
    let result = session.run(&mut recording, stop);
    // A command still has its memory.
    let result = result.and_then(|end| recording.complete_stacks().map(|()| end));
    let mut end_command = || started.as_mut().map(|c: &mut StartedCommand| c.end(stop)).transpose();
    // A command that is asked to end may still print something, so wait for it first. A command that continues
    // to run must not delay the end of the record or its summary.
    let ended = stop.is_over().then(&mut end_command);
    let finished = recording.finish(&mut session, result).map(|(end, summary, samples)| {
        let SessionState { follower, status, .. } = session.state();
        finish(&Recorded {
            end,
            summary,
            seconds: status.seconds(),
            cost: status.cost(),
            samples,
            watched: follower.summary(),
            monitor,
        });
    });
    if let Err(e) = &finished {
        error!("{}", chain(e));
    }
    // The files of metrics and of the socket go now: the command may run for days.
    drop(session);
    let status = ended.unwrap_or_else(end_command)?;
    Ok((status.flatten(), finished.is_ok()))
}

/// Removes a kdamond that a killed isotherm has left. A failure is printed and does not prevent the recording.
pub fn sweep() {
    match damon::sweep(crate::ROOT.as_ref()) {
        Ok(None) => {}
        Ok(Some(pid)) => {
            info!("isotherm {pid}, which was killed, has left a kdamond: it was removed")
        }
        Err(e) => warn!("cannot remove a kdamond that a killed isotherm has left: {e}"),
    }
}

/// On an error, ends the record with that error as its reason.
pub(crate) fn or_finish<T, E: std::error::Error + 'static>(
    result: Result<T, E>,
    writer: Writer,
) -> Result<(T, Writer), E> {
    match result {
        Ok(value) => Ok((value, writer)),
        Err(e) => {
            let _ = writer.finish(FileEndReason::Failed, &chain(&e));
            Err(e)
        }
    }
}

/// The facts that a record contains about itself.
#[must_use]
pub fn facts(attrs: Attrs, seed: u64, look: String) -> RecordingHeader {
    let uname = rustix::system::uname();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    RecordingHeader {
        host: uname.nodename().to_string_lossy().into_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        command: words.collect::<Vec<_>>().join(" "),
        started_unix_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        seed,
        look,
        ..RecordingHeader::new(env!("CARGO_PKG_VERSION"), attrs, sys::monotonic())
    }
}

/// A record in progress.
struct RecordJob {
    writer: Writer,
    stacks: Option<Stacks>,
    /// number of files that contain the sampled pages
    files: u64,
    /// number of files that are not watched, because they are the record itself
    unwatched_files: u64,
    /// maximum number of bytes of a file
    file_size: u64,
    file: PathBuf,
    paused: bool,
    /// snapshots that arrived while recording was paused, and are not in the record
    left_out: u64,
    /// the error of a request after which the record would be incomplete
    failed: Option<RecordError>,
    privileges: Privileges,
}

impl RecordJob {
    /// Snapshots in the record are numbered without gaps, because a gap would mean a loss.
    fn write(&mut self, s: &Snapshot) -> Result<RecordProgress, RecordError> {
        if self.paused {
            self.left_out += 1;
            return Ok(RecordProgress::Going);
        }
        Ok(match self.left_out {
            0 => self.writer.snapshot(s)?,
            n => self.writer.snapshot(&Snapshot { seq: s.seq - n, ..s.clone() })?,
        })
    }

    /// Writes faults and code.
    fn write_stacks(&mut self, news: Vec<StackNews>) -> Result<(), RecordError> {
        for news in news {
            let _ = match news {
                StackNews::Code(target, code) => self.writer.code(target, code)?,
                StackNews::Fault(fault) => self.writer.fault(fault)?,
            };
        }
        Ok(())
    }

    /// Writes the sampled pages into a new file as well, because rotation deletes the earlier ones. They may take up to
    /// half of it.
    fn repeat_pages(&mut self) -> Result<(), RecordError> {
        let files = self.writer.summary().files;
        let Some(stacks) = self.stacks.as_ref().filter(|_| files > self.files) else {
            return Ok(());
        };
        let pages = stacks.pages();
        let bytes = pages.iter().map(|f| (size_of::<Fault>() + size_of_val(&*f.frames)) as u64);
        if bytes.sum::<u64>() <= self.file_size / 2 {
            self.write_stacks(pages.into_iter().map(StackNews::Fault).collect())?;
        }
        self.files = self.writer.summary().files;
        Ok(())
    }

    fn state(&self, on: &JobContext<'_>) -> WatchStatus {
        let file = self.file.display().to_string();
        let record = RecordState::new(file, self.writer.summary(), None);
        WatchStatus::new(&on.state.scene(None), on.watch.attrs(), self.paused, Some(record))
    }

    /// Writes the last faults, and the state of all sampled pages.
    fn complete_stacks(&mut self) -> Result<(), RecordError> {
        let Some(stacks) = &mut self.stacks else { return Ok(()) };
        let news = stacks.finish(sys::monotonic());
        self.write_stacks(news)?;
        // The last snapshots may begin another file.
        let _ = self.writer.flush()?;
        self.repeat_pages()
    }

    /// Lets the next [`Job::turn`] end the recording if `done` has failed, and returns the reason.
    fn or_end<T>(&mut self, done: Result<T, RecordError>) -> Result<T, RecordError> {
        done.map_err(|e| {
            let why = chain(&e);
            self.failed = Some(e);
            RecordError::Incomplete(why)
        })
    }

    /// Ends the record, whether or not the session succeeded.
    fn finish(
        mut self,
        session: &mut Session,
        result: Result<SessionEnd, RecordError>,
    ) -> Result<(SessionEnd, RecordingTotals, Option<SampleCounts>), RecordError> {
        let samples = self.stacks.as_ref().map(Stacks::counts);
        // The session may have ended before the next turn.
        let result = self.failed.take().map_or(result, Err);
        let result = result.and_then(|ended| Ok(session.stop().map(|()| ended)?));
        let result = result.and_then(|end| {
            if let Some((files, trace)) = session.trace().filter(|_| !self.paused) {
                for file in files {
                    let _ = self.writer.target(file)?;
                }
                let _ = self.writer.trace(trace)?;
            }
            Ok(end)
        });
        let (why, note) = match &result {
            Ok(end) => (end.why(), end.note().to_owned()),
            Err(e) => (FileEndReason::Failed, chain(e)),
        };
        let written = self.writer.finish(why, &note);
        session.state().status.clear();
        let ended = result?;
        Ok((ended, written?, samples))
    }
}

impl Job for RecordJob {
    type Status = WatchStatus;
    type Error = RecordError;

    fn turn(&mut self, on: &mut JobContext<'_>, now: Nanos) -> Result<(), RecordError> {
        if let Some(e) = self.failed.take() {
            return Err(e);
        }
        if self.writer.flush_by().is_some_and(|by| now >= by) {
            let _ = self.writer.flush()?;
        }
        if let Some(stacks) = &mut self.stacks {
            let news = stacks.turn(now);
            self.write_stacks(news)?;
            self.repeat_pages()?;
        }
        let files = self.writer.summary().files;
        if std::mem::replace(&mut self.unwatched_files, files) != files {
            on.watch.leave_out(self.writer.file())?;
        }
        self.privileges.fit(&self.writer)
    }

    fn target(&mut self, fact: &TargetInfo) -> Result<(), RecordError> {
        let _ = self.writer.target(fact.clone())?;
        if let Some(stacks) = &mut self.stacks {
            try_target(stacks, fact);
        }
        Ok(())
    }

    fn gone(&mut self, target: TargetId) {
        if let Some(stacks) = &mut self.stacks {
            stacks.gone(target);
        }
    }

    fn attribution(&mut self, a: Attribution) -> Result<(), RecordError> {
        // In hours without snapshots these would replace all files that have some.
        if self.paused {
            return Ok(());
        }
        let _ = self.writer.attribution(a)?;
        Ok(())
    }

    fn snapshot(
        &mut self,
        on: &mut JobContext<'_>,
        s: &Arc<Snapshot>,
    ) -> Result<ControlFlow<SessionEnd>, RecordError> {
        on.state.status.show(s, String::new);
        if let Some(trace) = on.watch.trace().filter(|_| !self.paused) {
            let _ = self.writer.trace(trace)?;
        }
        Ok(match self.write(s)? {
            RecordProgress::Full => ControlFlow::Break(SessionEnd::Full),
            RecordProgress::Going => ControlFlow::Continue(()),
        })
    }

    fn by(&self) -> Option<Nanos> {
        let stacks = self.stacks.as_ref().map(Stacks::by);
        self.writer.flush_by().into_iter().chain(stacks).min()
    }

    fn request(
        &mut self,
        on: &mut JobContext<'_>,
        request: Request,
    ) -> Result<Response<WatchStatus>, RecordError> {
        match request {
            Request::Status => return Ok(Response::status(self.state(on))),
            Request::Snapshot { after, from } => {
                return Ok(Response::snapshot(on.state.snapshots(after, from.map(Nanos))?));
            }
            Request::Pause => {
                // Data from before the pause is written now, so that it is safe.
                let flushed = self.writer.flush().map_err(RecordError::from);
                let _ = self.or_end(flushed)?;
                self.paused = true;
            }
            Request::Resume => self.paused = false,
            Request::Stop => {}
            Request::Attributes(new) => {
                let Some(attrs) = on.watch.attrs() else {
                    return Err(RecordError::KernelMonitor);
                };
                let attrs = new.over(attrs).map_err(RecordError::Attributes)?;
                on.watch.set_attrs(attrs)?;
                on.state.status.set_attrs(&attrs);
            }
            Request::Targets { add, remove } => {
                if let Some(kind) = on.state.follower.lasting() {
                    return Err(RecordError::NoProcesses(kind));
                }
                on.state.follower.set_targets(on.watch.hold(), &add, &remove)?;
                let followed = on.follow(self);
                self.or_end(followed)?;
            }
            Request::Commit { .. } => return Err(RecordError::NoSchemes),
            Request::Record { .. } => return Err(RecordError::Recording(self.file.clone())),
        }
        Ok(Response::done())
    }
}

/// The privileges that are still required.
struct Privileges {
    /// Files of other users are written during the run.
    reach: bool,
    /// Files that only their owner may read are read during the run.
    files: bool,
    /// Page frames are looked up during the run.
    frames: bool,
    /// whether files in directories of other users can still be created and renamed
    writing: Option<bool>,
}

impl Privileges {
    /// Drops, for good, the privileges that are no longer required.
    fn fit(&mut self, writer: &Writer) -> Result<(), RecordError> {
        let writing = self.reach || !writer.is_settled();
        if self.writing != Some(writing) {
            sys::drop_privileges(KeptCapabilities {
                reading: self.files,
                writing,
                frames: self.frames,
                ..KeptCapabilities::default()
            })
            .map_err(RecordError::Privileges)?;
            self.writing = Some(writing);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use isotherm_core::{AddrRange, FaultKind};

    use super::*;
    use crate::session::tests::late_session;

    /// Found by a review: the answer was an error, and the recording went on without the data.
    #[test]
    fn a_pause_that_cannot_write_ends_the_recording() {
        let dir = tempfile::tempdir().unwrap();
        let [socket, file] = ["sock", "rec"].map(|name| dir.path().join(name));
        let limits = Limits { max_size: Some(128 << 10), rotate: Some(2) };
        let facts = facts(Attrs::default(), 0, String::new());
        let mut writer = Writer::create(&file, &facts, limits).unwrap();
        // Neither this file nor a rotated one has room for them.
        std::fs::create_dir(dir.path().join("rec.1")).unwrap();
        let _ = writer.target(TargetInfo { id: TargetId(0), pid: None, command: String::new() });
        for at in 0..100u64 {
            let noise = (0..1000u64).map(|i| (at * 1000 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let _ = writer.fault(Fault {
                target: TargetId(0),
                at: Nanos(at),
                kind: FaultKind::Minor,
                tid: 1,
                thread: "sh".into(),
                range: AddrRange::new(0, 4096),
                weight: 1,
                frames: noise.collect(),
            });
        }
        let mut job = RecordJob {
            files: 1,
            unwatched_files: 1,
            file_size: 64 << 10,
            writer,
            stacks: None,
            file,
            paused: false,
            left_out: 0,
            failed: None,
            privileges: Privileges { reach: true, files: true, frames: true, writing: Some(true) },
        };
        let mut session = late_session(Control::open(&socket).unwrap(), true);
        let mut client = UnixStream::connect(&socket).unwrap();
        client.write_all(b"{\"do\":\"pause\"}\n").unwrap();
        let ended = session.run(&mut job, &Stop::never());
        assert!(matches!(ended, Err(RecordError::Write(_))), "{ended:?}");
        drop(session);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("{\"ok\":false") && answer.contains("ends"), "{answer}");
    }
}
