//! Acting on memory by what is seen of it, as schemes say, until there is a reason to end.

mod answer;
mod change;
mod dry;
mod event;
pub mod kernel;
mod kernel_memory;
mod log;
mod meter;
mod needs;
mod recording;
mod running;
mod saved;
mod state;
mod status;
mod table;

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use isotherm_core::scheme::{Engine, Scheme};
use isotherm_core::{Action, Attrs, Support};
use isotherm_linux::possible;
use isotherm_linux::sys::{self, Kept};
use sd_notify::NotifyState;
use tracing::{error, warn};

use self::log::Log;
use self::meter::Meter;
use self::recording::SideRecord;
use self::running::SchemeJob;
use self::saved::Saved;
use crate::ROOT;
use crate::control::Control;
use crate::follow::{Follower, Selection, resolve};
use crate::metrics::{Metrics, MetricsTo};
use crate::notify::Notify;
use crate::session::{End, Progress, Session};
use crate::stop::Stop;
use crate::usage::UsageError;
use crate::watch::{AttrsFor, LookBy, Looks, Ready};
use crate::words::{chain, is_closed_pipe};

pub use self::table::SchemeTable;

/// How a service acts, whatever its schemes are.
#[derive(Debug, Clone)]
pub struct Acting {
    /// the processes
    pub targets: Selection,
    /// how to look
    pub look: LookBy,
    /// where the random numbers begin; none: different each time
    pub seed: Option<u64>,
    /// Nothing is done; it is printed what would be.
    pub dry_run: bool,
    /// a JSON object a line of what was done goes here
    pub log: Option<PathBuf>,
    /// The log has what matched and was skipped, too.
    pub passed: bool,
    /// It ends after this time.
    pub duration: Option<Duration>,
    /// where metrics go
    pub metrics: Option<MetricsTo>,
    /// how often they are written
    pub metrics_every: Duration,
}

/// What a service is to do, as somebody has configured it.
pub trait ServiceConfig {
    /// On whom, and how.
    fn acting(&self) -> &Acting;

    /// The attributes of its monitor.
    fn attrs(&self) -> &dyn AttrsFor;

    /// Those of the best way to look, before one is chosen.
    ///
    /// # Errors
    /// If the options make no sense.
    fn check(&self) -> Result<Attrs, UsageError>;

    /// The schemes, for a monitor of these attributes.
    ///
    /// # Errors
    /// If one makes no sense.
    fn schemes(&self, attrs: &Attrs) -> Result<Vec<Scheme>, UsageError>;

    /// The socket on which who asks is answered, if there is one.
    fn socket(&self) -> Option<PathBuf>;

    /// Whether what it is told while it runs is to outlive a crash.
    fn is_service(&self) -> bool {
        false
    }

    /// Whether it comes from a file that can be read again.
    fn is_in_file(&self) -> bool {
        false
    }

    /// The scheme that options make, if there is one: its faults are those of options.
    fn of_options(&self) -> Option<&'static str> {
        None
    }

    /// What is wrong, with the place where it is said, if that is in a file.
    fn placed(&self, e: UsageError) -> UsageError {
        e
    }

    /// The same, read again: what has not changed, or may change while it runs.
    ///
    /// # Errors
    /// If it cannot be read, or changes what must stay.
    fn reread(&self) -> Result<Rc<dyn ServiceConfig>>;
}

/// What has come of acting.
pub struct Acted {
    /// of each scheme
    pub table: SchemeTable,
    /// the exit status of the started command, if it has ended by itself
    pub status: Option<u8>,
    /// what has ended it, if that was an error
    pub failed: Option<anyhow::Error>,
}

/// Acts as `config` says until there is a reason to end. `finish` gets the table before a started command is asked to
/// end.
///
/// # Errors
/// If it cannot begin.
pub fn act(
    config: &Rc<dyn ServiceConfig>,
    progress: Box<dyn Progress>,
    finish: impl FnOnce(&SchemeTable) -> Result<()>,
) -> Result<Acted> {
    let o = config.acting();
    let attrs = config.check().map_err(|e| config.placed(e))?;
    let engine = |attrs: &Attrs| -> Result<Engine, UsageError> {
        Engine::new(config.schemes(attrs)?).map_err(|e| UsageError::new(e.to_string()))
    };
    let first = engine(&attrs)?;
    // One that is asked for by name may have a better reason.
    if o.look == LookBy::Auto && !o.dry_run {
        refuse_at_once(&first)?;
    }
    let stop =
        if config.is_in_file() { Stop::at_signals_but_reload()? } else { Stop::at_signals()? };
    let mut looks = Looks::open(match o.look {
        LookBy::Way(way) => Some(way),
        _ => None,
    })?;
    // What does the looking may take another monitor, of other intervals.
    let attrs = looks.attrs(config.attrs()).map_err(|e| config.placed(e))?;
    let mut engine = engine(&attrs)?;
    engine.log_passed(o.passed);
    let act = looks.act().context("there is nobody who acts")?;
    let schemes = engine.schemes().map(|(scheme, _)| scheme);
    let mut notes = check_actions(schemes, |action| act.supports(action), o.dry_run)?;
    let required = RequiredPrivileges::of(engine.schemes().map(|(s, _)| &s.action));
    let mut follower = Follower::new(None);
    follower.attach_all(looks.hold(), &o.targets)?;
    let program = resolve(&o.targets.command)?;
    let log = o.log.as_deref().map(Log::open).transpose()?;
    let socket = config.socket();
    let control = socket.as_deref().map(Control::open).transpose()?;
    let metrics = Metrics::open(o.metrics.as_ref(), o.metrics_every)?;
    // Before the command is started: if a figure cannot be read, it need not be ended again. It is going to
    // be in the groups that we are in.
    let own = program.as_ref().and_then(|_| i32::try_from(std::process::id()).ok());
    let pids: Vec<i32> = follower.pids().chain(own).collect();
    let schemes = engine.schemes().map(|(s, _)| s);
    let meter = Meter::new(ROOT.as_ref(), schemes, &pids, config.of_options())?;
    match meter.lacks().first() {
        Some(why) if !o.targets.awaited => bail!("{why}"),
        _ => notes.extend(meter.lacks().iter().cloned()),
    }
    notes.iter().for_each(|note| warn!("{note}"));
    let mut started = follower.start(looks.hold(), program, &o.targets.command)?;
    let kept = Kept {
        reading: required.frames || looks.takes_files() || meter.reads_files(),
        writing: required.files || o.targets.may_be_strangers() || metrics.writes(),
        frames: required.frames || looks.takes_frames(),
    };
    sys::drop_privileges(kept)?;
    let seed = o.seed.unwrap_or_else(|| sys::monotonic().0);
    let recording = SideRecord::off(seed, looks.describe());
    let saved = socket.filter(|_| config.is_service()).map(|socket| Saved::beside(&socket));
    let mut running = SchemeJob::new(engine, meter, log, recording, required, Rc::clone(config));
    let targets = follower.news();
    running.met(targets);
    let act = looks.act().context("there is nobody who acts")?;
    let pids: Vec<i32> = follower.pids().collect();
    let attrs = running.take_up(saved, act, &pids, attrs);
    let mut session = Session::begin(Box::new(looks), follower, attrs, seed, progress)?.speaking(
        control,
        metrics,
        Notify::from_env(),
    );
    let stop = stop.at(o.duration.map(|d| sys::monotonic() + d));
    let result = until(&mut session, &mut running, &stop);
    if let Some(e) = result.as_ref().err().filter(|e| !is_closed_pipe(e)) {
        error!("{}", chain(e));
    }
    let table = running.end(result.as_ref().ok(), &session.watched().follower);
    let finished = finish(&table);
    let status = started.as_mut().map(|c| c.end(&stop)).transpose()?;
    finished?;
    Ok(Acted { table, status: status.flatten(), failed: result.err() })
}

/// Acts; says why that has ended.
fn until(session: &mut Session, running: &mut SchemeJob, stop: &Stop) -> Result<End> {
    Notify::say(&[NotifyState::Ready]);
    let ended = session.run(running, stop);
    Notify::say(&[NotifyState::Stopping]);
    session.watched().status.clear();
    running.recording.end();
    let stopped = session.stop();
    let why = ended?;
    stopped?;
    running.saved.iter().for_each(Saved::forget);
    Ok(why)
}

/// What can never be done here, whatever the way to look, is refused before one is opened: that takes a
/// while.
fn refuse_at_once(engine: &Engine) -> Result<()> {
    let schemes = engine.schemes().map(|(scheme, _)| scheme);
    check_actions(schemes, |action| possible(ROOT.as_ref(), action), false).map(drop)
}

/// Whether the actions of these schemes are possible; returns what has to change before they can act.
///
/// # Errors
/// If one can never act here; a dry run only says so.
pub fn check_actions<'a>(
    schemes: impl Iterator<Item = &'a Scheme>,
    supports: impl Fn(&Action) -> Support,
    dry: bool,
) -> Result<Vec<String>> {
    let (mut never, mut not_now) = (Vec::new(), Vec::new());
    for scheme in schemes {
        match supports(&scheme.action) {
            Support::Yes => {}
            Support::NotNow(why) => not_now.push(format!("scheme `{}`: {why}", scheme.name)),
            Support::No(why) => never.push(format!("scheme `{}`: {why}", scheme.name)),
        }
    }
    if dry && supports(&Action::Stat) == Support::Yes {
        let all = never.into_iter().chain(not_now);
        return Ok(all
            .map(|why| format!("this could not be done here; the dry run goes on: {why}"))
            .collect());
    }
    if !never.is_empty() {
        bail!("this cannot be done here: {}", never.join("\n  "));
    }
    let until = "Until that changes, what it tries in vain is counted as failed";
    Ok(not_now.into_iter().map(|why| format!("{why}. {until}")).collect())
}

/// What acting requires beyond watching.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RequiredPrivileges {
    /// files of others are paged out
    pub(crate) files: bool,
    /// page frames are looked up
    pub(crate) frames: bool,
}

impl RequiredPrivileges {
    pub(crate) fn of<'a>(actions: impl Iterator<Item = &'a Action>) -> Self {
        let mut required = RequiredPrivileges { files: false, frames: false };
        for action in actions {
            required.files |= matches!(action, Action::PageOut | Action::NoHugePage);
            required.frames |= matches!(action, Action::MigrateHot(_) | Action::MigrateCold(_));
        }
        required
    }

    /// Whether `have` is as much.
    pub(crate) fn are_within(self, have: &RequiredPrivileges) -> bool {
        self.files <= have.files && self.frames <= have.frames
    }
}
