//! Acts on memory as schemes define, based on snapshots, until there is a reason to end.

mod aim_line;
mod answer;
mod change;
mod continued_pressure;
mod dry;
mod error;
mod event;
pub mod kernel;
mod kernel_memory;
mod log;
mod major_faults;
mod meter;
mod needs;
mod recording;
mod refaults;
mod running;
mod saved;
mod state;
mod status;
mod table;

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use isotherm_core::scheme::{Engine, Scheme};
use isotherm_core::{Action, Attrs, MonitorKind, Support};
use isotherm_linux::possible;
use isotherm_linux::sys::{self, KeptCapabilities};
use sd_notify::NotifyState;
use tracing::{error, warn};

use self::log::Log;
use self::meter::Meter;
use self::recording::SideRecord;
use self::running::SchemeJob;
use self::saved::Saved;
use crate::ROOT;
use crate::agent::{Agent, LakeOptions};
use crate::control::Control;
use crate::follow::{Follower, Selection, resolve};
use crate::metrics::{MetricsExporter, MetricsTo};
use crate::notify::Notify;
use crate::session::{Progress, SavedAges, Session, SessionEnd};
use crate::stacks::{StackOptions, Stacks};
use crate::stop::Stop;
use crate::usage::UsageError;
use crate::watch::{self, AttrsFor, FilesToWatch, LookBy, Ready, WatchedMemory};
use crate::words::{chain, is_closed_pipe};

pub use self::error::{MeterError, ServiceError};
pub use self::event::{LoggedAction, logged_actions};
pub use self::table::SchemeTable;

/// How a service acts, independent of its schemes.
#[derive(Debug, Clone)]
pub struct Acting {
    /// the processes to watch
    pub targets: Selection,
    /// the files to watch, in addition to processes if there are any
    pub files: Option<FilesToWatch>,
    /// how to look
    pub look: LookBy,
    /// seed of the random numbers; `None`: different each time
    pub seed: Option<u64>,
    /// Dry run: the service only reports the actions that it would do.
    pub dry_run: bool,
    /// file for a JSON line per action
    pub log: Option<PathBuf>,
    /// The log also contains matches that were skipped.
    pub passed: bool,
    /// whether to sample page faults with their call stacks
    pub stacks: bool,
    /// The service ends after this time.
    pub duration: Option<Duration>,
    /// destination of the metrics
    pub metrics: Option<MetricsTo>,
    /// interval between two writes of the metrics
    pub metrics_every: Duration,
    /// the lake to write rows to
    pub lake: Option<LakeOptions>,
}

/// The configuration of a service.
pub trait ServiceConfig {
    /// The targets, and how to act.
    fn acting(&self) -> &Acting;

    /// The attributes of its monitor.
    fn attrs(&self) -> &dyn AttrsFor;

    /// The attributes for the best way to look, before a way is chosen.
    ///
    /// # Errors
    /// If the options are invalid.
    fn check(&self) -> Result<Attrs, UsageError>;

    /// The schemes, for a monitor with these attributes.
    ///
    /// # Errors
    /// If a scheme is invalid.
    fn schemes(&self, attrs: &Attrs) -> Result<Vec<Scheme>, UsageError>;

    /// The path of the control socket, if there is one.
    fn socket(&self) -> Option<PathBuf>;

    /// Whether changes that it receives while running must survive a crash.
    fn is_service(&self) -> bool {
        false
    }

    /// Whether the configuration comes from a file that can be read again.
    fn is_in_file(&self) -> bool {
        false
    }

    /// The name of the scheme that was made from options, if there is one. Errors in it are reported as errors
    /// in options.
    fn of_options(&self) -> Option<&'static str> {
        None
    }

    /// Adds the file and the line to an error, if the configuration comes from a file.
    fn placed(&self, e: UsageError) -> UsageError {
        e
    }

    /// Reads the configuration again. Only parts that may change at run time may differ.
    ///
    /// # Errors
    /// If it cannot be read, or differs in a part that must not change.
    fn reread(&self) -> Result<Rc<dyn ServiceConfig>, ServiceError>;
}

/// The result of acting.
pub struct Acted<T> {
    /// the results of each scheme
    pub table: SchemeTable,
    /// the exit status of the started command, if it has ended by itself
    pub status: Option<u8>,
    /// the error that ended the run, if any
    pub failed: Option<ServiceError>,
    /// the value that `finish` returned
    pub finished: T,
}

/// Ways to look that cannot act are refused at the start.
const CANNOT_ACT: &str = "this way to look cannot act: choose --look bpf, bpf-probe or bpf-iter";

/// Acts as `config` defines until there is a reason to end. `finish` receives the table before a started
/// command is asked to end.
///
/// # Errors
/// If it cannot start.
pub fn act<T>(
    config: &Rc<dyn ServiceConfig>,
    progress: Box<dyn Progress>,
    finish: impl FnOnce(&SchemeTable) -> T,
) -> Result<Acted<T>, ServiceError> {
    let o = config.acting();
    let stop =
        if config.is_in_file() { Stop::at_signals_but_reload()? } else { Stop::at_signals()? };
    let Opened { mut looks, attrs, engine, mut notes } = open(&**config)?;
    let required = RequiredPrivileges::of(engine.schemes().map(|(s, _)| &s.action));
    let mut follower = Follower::new(looks.watched());
    follower.attach_all(looks.hold(), &o.targets)?;
    let program = resolve(&o.targets.command)?;
    let log = o.log.as_deref().map(Log::open).transpose()?;
    let socket = config.socket();
    let control = socket.as_deref().map(Control::open).transpose()?;
    let metrics = MetricsExporter::open(o.metrics.as_ref(), o.metrics_every)?;
    let agent = Agent::open(o.lake.as_ref(), !o.dry_run)?;
    // This is before the command starts, so that no command has to be ended if a figure cannot be read.
    let meter = open_meter(&**config, &engine, &follower, program.is_some(), &mut notes)?;
    notes.iter().for_each(|note| warn!("{note}"));
    let stacks = StackOptions::default().within(attrs.budget());
    let mut stacks = o.stacks.then(|| Stacks::open(&o.targets, stacks)).transpose()?;
    let mut started = follower.start(looks.hold(), program, &o.targets.command, &[])?;
    if let (Some(stacks), Some(command)) = (&mut stacks, &started) {
        stacks.started(command.pid());
    }
    let kept = KeptCapabilities {
        reading: required.frames || looks.requires_files() || o.stacks || meter.reads_files(),
        writing: required.files
            || o.files.is_some()
            || o.targets.may_be_strangers()
            || metrics.writes()
            || agent.writes(),
        frames: required.frames || looks.requires_frames(),
        locking: o.files.is_some(),
    };
    sys::drop_privileges(kept)?;
    let seed = o.seed.unwrap_or_else(|| sys::monotonic().0);
    let recording = SideRecord::off(seed, looks.describe());
    let socket = socket.filter(|_| config.is_service());
    let ages = socket.as_deref().map(SavedAges::beside);
    let saved = socket.as_deref().map(Saved::beside);
    let mut running =
        SchemeJob::new(engine, meter, log, recording, stacks, required, Rc::clone(config));
    running.add_targets(follower.news())?;
    let act = looks.act().ok_or(ServiceError::CannotAct)?;
    let pids: Vec<i32> = follower.pids().collect();
    let attrs = running.take_up(saved, act, &pids, attrs);
    let mut session = Session::begin(looks, follower, attrs, seed, progress)?
        .speaking(control, metrics, Notify::from_env())
        .writing(agent);
    ages.iter().for_each(|ages| ages.take_up(&mut session));
    let stop = stop.at(o.duration.map(|d| sys::monotonic() + d));
    let result = until(&mut session, &mut running, &stop);
    if result.is_ok() {
        ages.iter().for_each(|ages| ages.leave(&session));
    }
    if let Some(e) = result.as_ref().err().filter(|e| !is_closed_pipe(*e)) {
        error!("{}", chain(e));
    }
    let table = running.end(result.as_ref().ok(), &session.state().follower);
    let finished = finish(&table);
    // The files of metrics and of the socket go now: the command may run for days.
    drop(session);
    let status = started.as_mut().map(|c| c.end(&stop)).transpose()?;
    Ok(Acted { table, status: status.flatten(), failed: result.err(), finished })
}

/// Reads the figures that the schemes of `engine` require. Those that cannot be read become notes if processes are
/// awaited, otherwise an error.
fn open_meter(
    config: &dyn ServiceConfig,
    engine: &Engine,
    follower: &Follower,
    starts_command: bool,
    notes: &mut Vec<String>,
) -> Result<Meter, ServiceError> {
    let targets = &config.acting().targets;
    // The command will be in the control groups of this process.
    let own = starts_command.then(|| i32::try_from(std::process::id()).ok()).flatten();
    let pids: Vec<i32> = follower.pids().chain(own).collect();
    let schemes = engine.schemes().map(|(s, _)| s);
    let meter = Meter::new(ROOT.as_ref(), schemes, &pids, config.of_options())?.selecting(targets);
    match meter.missing().first() {
        Some(why) if !targets.awaited => Err(ServiceError::Lacks(why.clone())),
        _ => {
            notes.extend(meter.missing().iter().cloned());
            Ok(meter)
        }
    }
}

/// A way to look that can act, and the schemes for it.
struct Opened {
    looks: Box<dyn Ready>,
    attrs: Attrs,
    engine: Engine,
    /// what must change before the schemes can act
    notes: Vec<String>,
}

/// Opens a way to look, and checks that the schemes of `config` can act by it.
fn open(config: &dyn ServiceConfig) -> Result<Opened, ServiceError> {
    let o = config.acting();
    let attrs = config.check().map_err(|e| config.placed(e))?;
    let engine = |attrs: &Attrs| -> Result<Engine, UsageError> {
        Engine::new(config.schemes(attrs)?).map_err(|e| UsageError::new(e.to_string()))
    };
    let first = engine(&attrs)?;
    let has_processes = o.files.is_none() || !o.targets.is_empty();
    // A way to look that was named explicitly may have a more specific reason to fail.
    if o.look == LookBy::Auto && has_processes && !o.dry_run {
        refuse_at_once(&first)?;
    }
    let of_files = |files| WatchedMemory::files(files, has_processes);
    let what = o.files.clone().map_or_else(WatchedMemory::processes, of_files);
    let looks = watch::open(&what, o.look, config.attrs())?;
    // The available way to look may require another monitor, with other intervals.
    let attrs = looks.attrs(config.attrs()).map_err(|e| config.placed(e))?;
    let mut engine = engine(&attrs)?;
    check_aims(engine.schemes().map(|(scheme, _)| scheme), &attrs)?;
    if o.files.is_some() {
        check_for_files(engine.schemes().map(|(scheme, _)| scheme))?;
    }
    engine.log_passed(o.passed);
    let act = looks.act().ok_or(ServiceError::CannotAct)?;
    let schemes = engine.schemes().map(|(scheme, _)| scheme);
    let notes = check_actions(schemes, |action| act.supports(action), o.dry_run)?;
    Ok(Opened { looks, attrs, engine, notes })
}

/// Acts, and returns the reason for ending.
fn until(
    session: &mut Session,
    running: &mut SchemeJob,
    stop: &Stop,
) -> Result<SessionEnd, ServiceError> {
    Notify::say(&[NotifyState::Ready]);
    let ended = session.run(running, stop);
    Notify::say(&[NotifyState::Stopping]);
    session.state().status.clear();
    running.complete_record();
    running.recording.end();
    let stopped = session.stop();
    let why = ended?;
    stopped?;
    running.saved.iter().for_each(Saved::forget);
    Ok(why)
}

/// Refuses actions that can never work here, regardless of the way to look. The check comes first because opening
/// a way to look takes time.
fn refuse_at_once(engine: &Engine) -> Result<(), ServiceError> {
    let schemes = engine.schemes().map(|(scheme, _)| scheme);
    check_actions(schemes, |action| possible(ROOT.as_ref(), action), false).map(drop)
}

/// Checks that the actions of these schemes are possible. Returns notes about what must change before they can
/// act.
///
/// # Errors
/// If an action can never work here; a dry run only returns a note.
pub fn check_actions<'a>(
    schemes: impl Iterator<Item = &'a Scheme>,
    supports: impl Fn(&Action) -> Support,
    dry: bool,
) -> Result<Vec<String>, ServiceError> {
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
            .map(|why| format!("the action is not possible here; the dry run continues: {why}"))
            .collect());
    }
    if !never.is_empty() {
        return Err(ServiceError::Impossible(never.join("\n  ")));
    }
    let until = "Until that changes, its attempts count as failed";
    Ok(not_now.into_iter().map(|why| format!("{why}. {until}")).collect())
}

/// Fails if a scheme has an objective, and the monitor counts no idle ages of pages.
fn check_aims<'a>(
    schemes: impl Iterator<Item = &'a Scheme>,
    attrs: &Attrs,
) -> Result<(), ServiceError> {
    if schemes.into_iter().any(|s| s.aim.is_some()) && attrs.monitor != MonitorKind::Exposure {
        return Err(ServiceError::NoAges(attrs.monitor.name()));
    }
    Ok(())
}

/// Fails if a scheme has a rule for single pages, which cannot be looked at in files.
///
/// # Errors
/// If one has an objective or a page filter.
pub fn check_for_files<'a>(
    mut schemes: impl Iterator<Item = &'a Scheme>,
) -> Result<(), ServiceError> {
    match schemes.find(|s| s.aim.is_some() || !s.page_filters.is_empty()) {
        Some(scheme) => Err(ServiceError::SinglePages(scheme.name.to_string())),
        None => Ok(()),
    }
}

/// The privileges that acting requires in addition to watching.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RequiredPrivileges {
    /// to page out files of other users
    pub(crate) files: bool,
    /// to look up page frames
    pub(crate) frames: bool,
}

impl RequiredPrivileges {
    pub(crate) fn of<'a>(actions: impl Iterator<Item = &'a Action>) -> Self {
        let mut required = RequiredPrivileges { files: false, frames: false };
        for action in actions {
            required.files |= matches!(action, Action::PageOut);
            required.frames |= matches!(action, Action::MigrateHot(_) | Action::MigrateCold(_));
        }
        required
    }

    /// Whether `have` contains all of these privileges.
    pub(crate) fn are_within(self, have: &RequiredPrivileges) -> bool {
        self.files <= have.files && self.frames <= have.frames
    }
}

#[cfg(test)]
mod tests {
    use isotherm_linux::Way;
    use isotherm_linux::damon::KdamondAttrs;

    use super::*;

    impl Acting {
        /// Acts on these processes, without further options.
        pub(super) fn on(targets: Selection) -> Self {
            Acting {
                targets,
                files: None,
                look: LookBy::Auto,
                seed: None,
                dry_run: false,
                log: None,
                passed: false,
                stacks: false,
                duration: None,
                metrics: None,
                metrics_every: Duration::from_secs(15),
                lake: None,
            }
        }
    }

    /// A configuration without schemes.
    pub(super) struct Config(Acting);

    impl Default for Config {
        fn default() -> Self {
            Config(Acting::on(Selection::default()))
        }
    }

    impl AttrsFor for Config {
        fn attrs_for(&self, _: Way, _: bool) -> Result<Attrs, UsageError> {
            Ok(Attrs::default())
        }

        fn kdamond(&self) -> Result<KdamondAttrs, UsageError> {
            Err(UsageError::new("no kdamond".to_owned()))
        }
    }

    impl ServiceConfig for Config {
        fn acting(&self) -> &Acting {
            &self.0
        }

        fn attrs(&self) -> &dyn AttrsFor {
            self
        }

        fn check(&self) -> Result<Attrs, UsageError> {
            Ok(Attrs::default())
        }

        fn schemes(&self, _: &Attrs) -> Result<Vec<Scheme>, UsageError> {
            Ok(Vec::new())
        }

        fn socket(&self) -> Option<PathBuf> {
            None
        }

        fn reread(&self) -> Result<Rc<dyn ServiceConfig>, ServiceError> {
            Ok(Rc::new(Config::default()))
        }
    }
}
