//! `isotherm record`.

mod answer;
mod check;
mod status;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result};
use isotherm_core::{Attrs, MonitorKind, Nanos, Snapshot, Step};
use isotherm_linux::damon;
use isotherm_linux::sys::{self, Kept};
use isotherm_record::{Facts, Progress, Why, Writer};

use self::status::last_lines;
use super::child;
use super::stop::Stop;
use super::watch::{Attributions, Ends, Follower, Status, Watch, probes, ready};
use crate::cli::{Record, UsageError};
use crate::commands::metrics::{Metrics, Scene};
use crate::control::{self, Control, Request};
use crate::served::Wait;
use crate::words::{chain, say};

/// Records until there is a reason to end.
pub fn run(o: Record) -> Result<ExitCode> {
    if let Some(path) = &o.check {
        return check::run(path);
    }
    if o.targets.is_empty() && !o.physical {
        let text = "nothing to watch: give --pid PID, --comm NAME, --cgroup PATH, a command after -- \
                    (isotherm record -- ./app), or --physical";
        return Err(UsageError::new(text).into());
    }
    // Before anything is opened, for the ways that are not chosen yet.
    let _ = o.watching.check()?;
    let limits = o.limits()?;
    if o.to_stdout() {
        check_stdout(&o)?;
    }
    let seed = o.watching.seed.unwrap_or_else(|| sys::monotonic().0);
    let stop = Stop::at_signals()?;
    sweep();
    let mut way = ready(&o)?;
    let attrs = way.attrs(&o.watching)?;
    let mut follower = Follower::new(way.watched());
    follower.attach_all(way.hold(), &o.targets)?;
    let program = child::resolve(&o.targets.command)?;
    let control = o.control.as_deref().map(Control::open).transpose()?;
    let metrics = Metrics::open(o.metrics.to.as_ref(), o.metrics.every)?;
    let facts = facts(attrs, seed, way.describe());
    let writer = match o.to_stdout() {
        true => Writer::stdout(Path::new("on standard output"), &facts, limits)?,
        false => Writer::create(&o.output, &facts, limits)?,
    };
    let started = follower.start(way.hold(), program, &o.targets.command);
    let (mut started, mut writer) = or_finish(started, writer)?;
    // Those that come later may be other users'.
    let reach = limits.rotate.is_some() || o.targets.may_be_strangers() || metrics.writes();
    let (files, frames) = (way.takes_files(), way.takes_frames());
    let mut privileges = Privileges { reach, files, frames, writing: None };
    privileges.fit(&writer)?;
    for fact in follower.news() {
        let _ = writer.target(fact)?;
    }
    let begun = way.begin(attrs, &follower.targets(), seed);
    let (mut watch, writer) = or_finish(begun, writer)?;
    if follower.may_grow() {
        watch.outlive_targets();
    }
    let (status, monitor, quiet) = (Status::new(&attrs), attrs.monitor, o.quiet);
    let attributions = Attributions::default();
    let mut recording = Recording {
        watch,
        writer,
        follower,
        attributions,
        metrics,
        control,
        file: o.output.clone(),
        last: None,
        paused: false,
        left_out: 0,
        status,
        privileges,
        monitor,
        quiet,
    };
    let stop = stop.at(o.duration.map(|d| sys::monotonic() + d));
    let result = recording.until(&stop);
    let mut end_command = || started.as_mut().map(|c| c.end(&stop)).transpose();
    // A command that is asked to end may have last words; one that goes on does not hold up the
    // record, nor what there is to say about it.
    let ended = stop.is_over().then(&mut end_command);
    let finished = recording.finish(result, &o.output);
    if let Err(e) = &finished {
        say(format_args!("isotherm: {}", chain(e)));
    }
    let status = ended.unwrap_or_else(end_command)?;
    Ok(match finished {
        Ok(()) => status.flatten().map_or(ExitCode::SUCCESS, ExitCode::from),
        Err(_) => ExitCode::FAILURE,
    })
}

/// Whether standard output can have the record.
fn check_stdout(o: &Record) -> Result<(), UsageError> {
    let text = if io::stdout().is_terminal() {
        "a record is not for a terminal: give -o FILE, or pipe it into a program"
    } else if o.rotate.is_some() {
        "standard output has no second file: leave out --rotate, or give -o FILE"
    } else if !o.targets.command.is_empty() {
        "the command that is started writes to standard output as well: give -o FILE"
    } else {
        return Ok(());
    };
    Err(UsageError::new(text))
}

/// Takes away a kdamond that an isotherm has left which was killed. What comes in the way of that is
/// no reason not to record.
pub fn sweep() {
    match damon::sweep("/".as_ref()) {
        Ok(None) => {}
        Ok(Some(pid)) => say(format_args!(
            "isotherm: isotherm {pid}, which was killed, has left a kdamond: it was taken away"
        )),
        Err(e) => say(format_args!("isotherm: a kdamond that was left cannot be taken away: {e}")),
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
pub fn facts(attrs: Attrs, seed: u64, look: String) -> Facts {
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

struct Recording {
    watch: Box<dyn Watch>,
    writer: Writer,
    follower: Follower,
    attributions: Attributions,
    metrics: Metrics,
    control: Option<Control>,
    file: PathBuf,
    last: Option<Arc<Snapshot>>,
    paused: bool,
    /// snapshots that were made while it was paused
    left_out: u64,
    status: Status,
    privileges: Privileges,
    monitor: MonitorKind,
    /// what has come of it is for somebody else to say
    quiet: bool,
}

/// Why a recording has ended, and in words if there is more to say.
type Ended = (Why, String);

/// Who has asked over the control socket, and for what.
type Asked = (usize, Result<Request, String>);

impl Recording {
    /// Records until it is told to stop, the end of all targets, or a full record.
    fn until(&mut self, stop: &Stop) -> Result<Ended> {
        let mut ended = true;
        loop {
            let now = sys::monotonic();
            if let Some(cause) = stop.cause() {
                return Ok((Why::Stopped, cause.to_string()));
            }
            if std::mem::take(&mut ended) || self.follower.is_due(now) {
                self.follow()?;
                if !self.follower.any_alive(self.watch.hold()) {
                    return Ok((Why::TargetsGone, String::new()));
                }
            }
            let read = self.attributions.read(&self.follower, self.watch.hold());
            let renamed = self.follower.renamed(&read);
            self.attributions.read_anew(&renamed);
            for fact in renamed {
                let _ = self.writer.target(fact)?;
            }
            for a in read {
                let _ = self.writer.attribution(a)?;
            }
            match self.watch.step(now)? {
                Step::Wait(until) => {
                    let (requests, come) = self.wait(until, stop);
                    ended = come;
                    self.tell();
                    if let Some(why) = self.answer(requests) {
                        return Ok((Why::Stopped, why));
                    }
                }
                Step::Snapshot(s) => {
                    if !self.quiet {
                        self.status.show(&s, "");
                    }
                    probes::aggregated(&s, &self.follower.pid_of());
                    self.last = Some(Arc::clone(&s));
                    if self.write(&s)? == Progress::Full {
                        return Ok((Why::MaxSize, String::new()));
                    }
                }
                Step::End(why) => return Ok((why.into(), String::new())),
            }
            if self.writer.flush_by().is_some_and(|by| sys::monotonic() >= by) {
                let _ = self.writer.flush()?;
            }
            self.privileges.fit(&self.writer)?;
        }
    }

    /// Waits until then, or until there is something else to do; what is asked, and whether targets may have
    /// ended.
    fn wait(&mut self, until: Nanos, stop: &Stop) -> (Vec<Asked>, bool) {
        let others = [
            stop.end(),
            self.follower.by(),
            self.attributions.by(&self.follower),
            self.writer.flush_by(),
            self.metrics.by(),
        ];
        let until = others.into_iter().flatten().fold(until, Nanos::min);
        let (mut ends, mut signals) = (Ends::of(self.watch.hold()), stop);
        let until = ends.by(until);
        let all: [&mut dyn Wait; 2] = [&mut ends, &mut signals];
        let all = all.into_iter().chain(self.metrics.listener());
        let asked = control::wait(self.control.as_mut(), all, until);
        (asked, ends.come)
    }

    /// In the record snapshots are numbered without a gap: one would be a loss.
    fn write(&mut self, s: &Snapshot) -> Result<Progress> {
        if self.paused {
            self.left_out += 1;
            return Ok(Progress::Going);
        }
        Ok(match self.left_out {
            0 => self.writer.snapshot(s)?,
            n => self.writer.snapshot(&Snapshot { seq: s.seq - n, ..s.clone() })?,
        })
    }

    /// How it goes, to be told.
    fn scene(&self) -> Scene<'_> {
        Scene {
            snapshot: self.last.as_deref(),
            follower: &self.follower,
            attributions: &self.attributions,
            status: &self.status,
            engine: None,
        }
    }

    fn tell(&mut self) {
        let mut metrics = std::mem::take(&mut self.metrics);
        metrics.tell(&self.scene());
        self.metrics = metrics;
    }

    /// Processes that have come since, and those that have ended.
    fn follow(&mut self) -> Result<()> {
        let ended = self.follower.follow(self.watch.hold());
        let news = self.follower.news();
        for fact in &news {
            let _ = self.writer.target(fact.clone())?;
        }
        if !news.is_empty() || !ended.is_empty() {
            self.watch.set_targets(&self.follower.targets())?;
        }
        self.attributions.forget(&ended);
        ended.into_iter().for_each(|target| self.watch.hold().detach(target));
        Ok(())
    }

    /// Gives the record its end, whatever happened, and says what has come of it.
    fn finish(mut self, result: Result<Ended>, path: &Path) -> Result<()> {
        let result = result.and_then(|ended| self.watch.stop().map(|()| ended));
        let (why, note) = match &result {
            Ok((why, note)) => (*why, note.clone()),
            Err(e) => (Why::Failed, chain(e)),
        };
        let written = self.writer.finish(why, &note);
        self.status.clear();
        let ended = result?;
        let summary = written?;
        if !self.quiet || summary.snapshots == 0 {
            let watched = self.follower.summary();
            say(last_lines(&self.status, &ended, &summary, &watched, path, self.monitor));
        }
        Ok(())
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
