//! `isotherm run`: acts on memory by what is seen of it, as schemes say.

mod answer;
mod change;
mod dry;
mod event;
mod log;
mod metrics;
mod needs;
mod recording;
mod running;
mod saved;
mod state;
mod status;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Result, bail};
use isotherm_core::scheme::{Engine, Scheme};
use isotherm_core::{Action, Attrs, Support};
use isotherm_linux::possible;
use isotherm_linux::sys::{self, Kept};

use self::log::Log;
use self::metrics::Meter;
use self::recording::Recording;
use self::running::Running;
use self::saved::Saved;
pub use self::table::Table;
use super::report::output::print;
use super::stop::Stop;
use super::watch::{Follower, Looks, ROOT, Ready};
use super::{child, text_of};
use crate::cli::{Acting, Look, RunSchemes, UsageError};
use crate::commands::metrics::Metrics;
use crate::control::Control;
use crate::schemes;
use crate::words::{chain, is_closed_pipe, say};

/// What is to be done, as somebody has said.
pub trait Told {
    /// On whom, and how they are watched.
    fn acting(&self) -> &Acting;

    /// The schemes, for a monitor of these attributes.
    fn schemes(&self, attrs: &Attrs) -> Result<Vec<Scheme>, UsageError>;

    /// The socket on which who asks is answered, if there is one.
    fn socket(&self) -> Option<PathBuf>;

    /// Whether what it is told while it runs is to outlive a crash.
    fn is_service(&self) -> bool {
        false
    }

    /// Whether it comes from where it can be read anew.
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

    /// The same, read anew: what has not changed, or may change while it runs.
    fn anew(&self) -> Result<Rc<dyn Told>>;
}

/// Schemes in files, and those that were typed.
struct Typed {
    options: RunSchemes,
    /// what is in each of the files
    texts: Vec<String>,
}

impl Told for Typed {
    fn acting(&self) -> &Acting {
        &self.options.acting
    }

    fn schemes(&self, attrs: &Attrs) -> Result<Vec<Scheme>, UsageError> {
        let (interval, mut all) = (attrs.snapshot_interval(), Vec::new());
        for (path, text) in self.options.scheme.iter().zip(&self.texts) {
            schemes::load(path, text, interval, &mut all)?;
        }
        for (n, line) in (1..).zip(&self.options.scheme_line) {
            schemes::load_line(n, line, interval, &mut all)?;
        }
        Ok(all)
    }

    fn socket(&self) -> Option<PathBuf> {
        self.options.control.clone()
    }

    fn anew(&self) -> Result<Rc<dyn Told>> {
        bail!("isotherm run is not told anew: isotherm service commit sends other schemes")
    }
}

/// Acts by the schemes in files and of the command line.
pub fn run(options: RunSchemes) -> Result<ExitCode> {
    let text =
        |path: &PathBuf| text_of(path, || format!("cannot read the schemes {}", path.display()));
    let texts = options.scheme.iter().map(text).collect::<Result<_>>()?;
    act(&(Rc::new(Typed { options, texts }) as Rc<dyn Told>))
}

/// Acts as it is told until there is a reason to end, and says what has come of it.
pub fn act(told: &Rc<dyn Told>) -> Result<ExitCode> {
    let o = told.acting();
    let attrs = check(o).map_err(|e| told.placed(e))?;
    let engine = |attrs: &Attrs| -> Result<Engine, UsageError> {
        Engine::new(told.schemes(attrs)?).map_err(|e| UsageError::new(e.to_string()))
    };
    let first = engine(&attrs)?;
    // One that is asked for by name may have a better reason.
    if o.watching.look == Look::Auto && !o.dry_run {
        refuse_at_once(&first)?;
    }
    let stop = if told.is_in_file() { Stop::at_signals_but_reload()? } else { Stop::at_signals()? };
    let mut looks = Looks::open(match o.watching.look {
        Look::By(way) => Some(way),
        _ => None,
    })?;
    // What does the looking may take another monitor, of other intervals.
    let attrs = looks.attrs(&o.watching).map_err(|e| told.placed(e))?;
    let mut engine = engine(&attrs)?;
    engine.log_passed(o.passed);
    let act = looks.act();
    let schemes = engine.schemes().map(|(scheme, _)| scheme);
    let mut notes = check_actions(schemes, |action| act.supports(action), o.dry_run)?;
    let takes = Takes::of(engine.schemes().map(|(s, _)| &s.action));
    let mut follower = Follower::new(None);
    follower.attach_all(looks.hold(), &o.targets)?;
    let program = child::resolve(&o.targets.command)?;
    let log = o.log.as_deref().map(Log::open).transpose()?;
    let socket = told.socket();
    let control = socket.as_deref().map(Control::open).transpose()?;
    let metrics = Metrics::open(o.metrics.to.as_ref(), o.metrics.every)?;
    // Before the command is started: if a figure cannot be read, it need not be ended again. It is going to
    // be in the groups that we are in.
    let own = program.as_ref().and_then(|_| i32::try_from(std::process::id()).ok());
    let pids: Vec<i32> = follower.pids().chain(own).collect();
    let schemes = engine.schemes().map(|(s, _)| s);
    let meter = Meter::new(ROOT.as_ref(), schemes, &pids, told.of_options())?;
    match meter.lacks().first() {
        Some(why) if !o.targets.awaited => bail!("{why}"),
        _ => notes.extend(meter.lacks().iter().cloned()),
    }
    notes.iter().for_each(|note| say(format_args!("isotherm: {note}")));
    let mut started = follower.start(looks.hold(), program, &o.targets.command)?;
    let reading = takes.frames || looks.takes_files() || meter.reads_files();
    let mut running = Running::new(engine, meter, follower, log, o.dry_run);
    running.answers(control, takes, Rc::clone(told));
    let kept = Kept {
        reading,
        writing: takes.files || o.targets.may_be_strangers() || metrics.writes(),
        frames: takes.frames || looks.takes_frames(),
    };
    running.tells(metrics);
    sys::drop_privileges(kept)?;
    let seed = o.watching.seed.unwrap_or_else(|| sys::monotonic().0);
    running.recording = Recording::off(seed, looks.describe());
    let saved = socket.filter(|_| told.is_service()).map(|socket| Saved::beside(&socket));
    let attrs = running.take_up(saved, looks.act(), attrs);
    let mut watch = looks.watch(attrs, &running.targets(), seed)?;
    let stop = stop.at(o.duration.map(|d| sys::monotonic() + d));
    let result = running.until(&mut watch, &stop, &attrs);
    if let Some(e) = result.as_ref().err().filter(|e| !is_closed_pipe(e)) {
        say(format_args!("isotherm: {}", chain(e)));
    }
    let table = running.end(result.as_ref().ok());
    let text = if o.json { json(&table) } else { Ok(table.text()) };
    let printed = text.and_then(|text| print(text.as_bytes()));
    let status = started.as_mut().map(|c| c.end(&stop)).transpose()?;
    printed?;
    Ok(match result {
        Ok(_) => status.flatten().map_or(ExitCode::SUCCESS, ExitCode::from),
        Err(e) if is_closed_pipe(&e) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

fn json(table: &Table) -> Result<String> {
    Ok(serde_json::to_string(table)? + "\n")
}

/// What makes no sense is told before anything is opened.
fn check(o: &Acting) -> Result<Attrs, UsageError> {
    if o.targets.is_empty() {
        return Err(UsageError::new(
            "nothing to act on: give --pid PID, --comm NAME, --cgroup PATH, --all, or a command after --",
        ));
    }
    if o.watching.look == Look::Damon {
        return Err(UsageError::new(
            "memory is looked at again before anything is done to it, page by page, and damon cannot do \
             that: look by bpf, bpf-probe or bpf-iter",
        ));
    }
    o.watching.check()
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
        return Ok(all.map(|why| format!("this could not be done here: {why}")).collect());
    }
    if !never.is_empty() {
        bail!("this cannot be done here: {}", never.join("\n  "));
    }
    let until = "Until that changes, what it tries in vain is counted as failed";
    Ok(not_now.into_iter().map(|why| format!("{why}. {until}")).collect())
}

/// What acting takes beyond watching.
#[derive(Debug, Clone, Copy, Default)]
struct Takes {
    /// files of others are paged out
    files: bool,
    /// page frames are looked up
    frames: bool,
}

impl Takes {
    fn of<'a>(actions: impl Iterator<Item = &'a Action>) -> Self {
        let mut takes = Takes { files: false, frames: false };
        for action in actions {
            takes.files |= matches!(action, Action::PageOut | Action::NoHugePage);
            takes.frames |= matches!(action, Action::MigrateHot(_) | Action::MigrateCold(_));
        }
        takes
    }

    /// Whether `have` is as much.
    fn are_within(self, have: &Takes) -> bool {
        self.files <= have.files && self.frames <= have.frames
    }
}
