//! `isotherm record`.

mod check;
mod child;
mod follow;
mod status;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use isotherm_core::{Attrs, Monitor, Nanos, Source, Step};
use isotherm_linux::{Vaddr, sys};
use isotherm_record::{Facts, Progress, Why, Writer};

use self::child::Started;
use self::follow::Follower;
use self::status::Status;
use crate::cli::{Record, UsageError};
use crate::words::{chain, say};

/// How often signals, ended targets and new children are looked for.
const WAKE: Duration = Duration::from_millis(100);

/// Records until there is a reason to end.
pub fn run(o: Record) -> Result<ExitCode> {
    if let Some(path) = &o.check {
        return check::run(path);
    }
    if o.pid.is_empty() && o.command.is_empty() {
        let text =
            "nothing to watch: give --pid PID, or a command after -- (isotherm record -- ./app)";
        return Err(UsageError::new(text).into());
    }
    let attrs = o.attrs()?;
    let limits = o.limits()?;
    let seed = o.seed.unwrap_or_else(|| sys::monotonic().0);
    let stop = signals()?;
    let mut ops = Vaddr::new()?;
    let mut follower = Follower::default();
    for &pid in &o.pid {
        follower.attach(&mut ops, pid, o.children)?;
    }
    let program = child::resolve(&o.command)?;
    let mut writer = Writer::create(&o.output, &facts(attrs, seed), limits)?;
    let mut started = match start(program, &o.command, &mut ops, &mut follower) {
        Ok(started) => started,
        Err(e) => {
            let _ = writer.finish(Why::Failed, &chain(&e));
            return Err(e);
        }
    };
    sys::drop_privileges(limits.rotate.is_some()).context("cannot give up capabilities")?;
    for fact in follower.news() {
        let _ = writer.target(fact)?;
    }
    let monitor = Monitor::new(ops, attrs, &follower.targets(), seed).map_err(UsageError::from)?;
    let status = Status::new(sys::monotonic(), sys::own_cpu());
    let mut recording = Recording { monitor, writer, follower, status };
    let end = o.duration.map(|d| sys::monotonic() + d);
    let result = recording.until(end, &stop);
    let over = || is_over(end, &stop);
    let mut end_command = || started.as_mut().map(|c| c.end(over)).transpose();
    // A command that is asked to end may have last words; one that goes on does not hold up the
    // record.
    let ended = over().then(&mut end_command);
    let finished = recording.finish(result, &o.output);
    let status = ended.unwrap_or_else(end_command);
    finished?;
    Ok(status?.flatten().map_or(ExitCode::SUCCESS, ExitCode::from))
}

/// Starts the command, if there is one, and takes hold of it, unless it has ended by then.
fn start(
    program: Option<PathBuf>,
    command: &[String],
    ops: &mut Vaddr,
    follower: &mut Follower,
) -> Result<Option<Started>> {
    let Some(program) = program else { return Ok(None) };
    let mut child = Started::spawn(&program, command)?;
    if let Err(e) = follower.attach(ops, child.pid(), true)
        && !child.has_ended_in(WAKE)?
    {
        return Err(e).context("the command cannot be watched");
    }
    Ok(Some(child))
}

/// Set by SIGINT, SIGTERM or SIGHUP.
fn signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in
        [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
    {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

fn is_over(end: Option<Nanos>, stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed) || end.is_some_and(|end| sys::monotonic() >= end)
}

fn facts(attrs: Attrs, seed: u64) -> Facts {
    let uname = rustix::system::uname();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Facts {
        host: uname.nodename().to_string_lossy().into_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        started_unix_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        seed,
        look: "vaddr: page tables read by BPF, cleared by MADV_COLD".into(),
        ..Facts::new(env!("CARGO_PKG_VERSION"), attrs, sys::monotonic())
    }
}

struct Recording {
    monitor: Monitor<Vaddr>,
    writer: Writer,
    follower: Follower,
    status: Status,
}

impl Recording {
    /// Records until `end`, a signal, the end of all targets, or a full record.
    fn until(&mut self, end: Option<Nanos>, stop: &AtomicBool) -> Result<Why> {
        let mut next_check = sys::monotonic();
        loop {
            let now = sys::monotonic();
            if is_over(end, stop) {
                return Ok(Why::Stopped);
            }
            if now >= next_check {
                next_check = now + WAKE;
                self.follow()?;
                if !self.follower.any_alive(self.monitor.ops()) {
                    return Ok(Why::TargetsGone);
                }
            }
            match self.monitor.step(now)? {
                Step::Wait(until) => {
                    let until = until.min(next_check).min(end.unwrap_or(until));
                    std::thread::sleep(until.since(sys::monotonic()));
                }
                Step::Snapshot(s) => {
                    self.status.show(&s);
                    if self.writer.snapshot(&s)? == Progress::Full {
                        return Ok(Why::MaxSize);
                    }
                }
                Step::End(why) => return Ok(why.into()),
            }
            if self.writer.flush_by().is_some_and(|by| sys::monotonic() >= by) {
                let _ = self.writer.flush()?;
            }
        }
    }

    /// Children that have come since, and processes that have ended.
    fn follow(&mut self) -> Result<()> {
        let ended = self.follower.find_children(self.monitor.ops());
        let news = self.follower.news();
        for fact in &news {
            let _ = self.writer.target(fact.clone())?;
        }
        if !news.is_empty() || !ended.is_empty() {
            self.monitor.set_targets(&self.follower.targets());
        }
        ended.into_iter().for_each(|target| self.monitor.ops().detach(target));
        Ok(())
    }

    /// Gives the record its end, whatever happened, and says what has come of it.
    fn finish(mut self, result: Result<Why>, path: &std::path::Path) -> Result<()> {
        self.monitor.stop();
        let (why, note) = match &result {
            Ok(why) => (*why, String::new()),
            Err(e) => (Why::Failed, chain(e)),
        };
        let written = self.writer.finish(why, &note);
        self.status.clear();
        let why = result?;
        let summary = written?;
        say(self.status.last_line(why, &summary, self.follower.count(), path));
        Ok(())
    }
}
