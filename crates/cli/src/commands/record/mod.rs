//! `isotherm record`.

mod check;
mod status;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use isotherm::record::{RecordOptions, Recorded, record};
use isotherm::session::{Progress, Silent};
use isotherm::stacks::StackOptions;
use isotherm::watch::{AttrsFor, WatchedMemory};

use self::status::last_lines;
use super::line::StatusLine;
use crate::cli::{LAKE_OF_PROCESSES, Record, Targets, UsageError, Watching};
use crate::log::say;

/// Records until a signal, a request, a limit or the end of the targets.
pub fn run(o: Record) -> Result<ExitCode> {
    if let Some(path) = &o.check {
        return check::run(path);
    }
    let options = options(&o)?;
    // Check the options before anything is opened, while the way to look is still open.
    let _ = o.watching.check()?;
    if options.to_stdout() {
        check_stdout(&o)?;
    }
    keep(&options, &o, Box::new(StatusLine::new()), |done| say(last_lines(done, &o.output)))
}

/// Records without a message, except if there was no snapshot. `line`: whether a terminal shows
/// the progress in a line.
pub fn in_passing(
    targets: &Targets,
    what: WatchedMemory,
    watching: &Watching,
    duration: Duration,
    path: &Path,
    line: bool,
) -> Result<ExitCode> {
    let mut options = RecordOptions::new(targets.selection(false), path.to_owned());
    options.what = what;
    options.look = watching.look;
    options.seed = watching.seed;
    options.duration = Some(duration);
    let _ = watching.check()?;
    let progress: Box<dyn Progress> =
        if line { Box::new(StatusLine::new()) } else { Box::new(Silent) };
    keep(&options, watching, progress, |done| {
        if done.summary.snapshots == 0 {
            say(last_lines(done, path));
        }
    })
}

/// The options of the recorder.
fn options(o: &Record) -> Result<RecordOptions> {
    let targets = o.targets.selection(false);
    if targets.is_empty() && !o.physical && !o.of_files() {
        let text = "nothing to watch: give --pid PID, --comm NAME, --cgroup PATH, a command after -- \
                    (isotherm record -- ./app), --physical, or files by --file, --dir, --mount or --cached";
        return Err(UsageError::new(text).into());
    }
    if o.lake.place.is_some() && (o.physical || o.of_files()) {
        return Err(UsageError::new(LAKE_OF_PROCESSES).into());
    }
    if o.alloc == Some(0) {
        let text = "--alloc=0 has no meaning: give the mean number of bytes between two samples (--alloc=512K)";
        return Err(UsageError::new(text).into());
    }
    let mut options = RecordOptions::new(targets, o.output.clone());
    options.what = o.what()?;
    options.look = o.watching.look;
    options.seed = o.watching.seed;
    options.limits = o.limits()?;
    if o.stacks || o.alloc.is_some() {
        options.stacks.insert(StackOptions::default()).allocation_bytes = o.alloc;
    }
    options.duration = o.duration;
    options.control.clone_from(&o.control);
    options.metrics.clone_from(&o.metrics.to);
    options.metrics_every = o.metrics.every;
    options.lake = o.lake.options();
    Ok(options)
}

/// Records, and returns the exit status of the command that it started.
fn keep(
    options: &RecordOptions,
    attrs: &dyn AttrsFor,
    progress: Box<dyn Progress>,
    finish: impl FnOnce(&Recorded),
) -> Result<ExitCode> {
    let (status, whole) = record(options, attrs, progress, finish)?;
    Ok(match (whole, status) {
        (true, status) => status.map_or(ExitCode::SUCCESS, ExitCode::from),
        (false, _) => ExitCode::FAILURE,
    })
}

/// Fails if the record cannot be written to standard output.
fn check_stdout(o: &Record) -> Result<(), UsageError> {
    let text = if io::stdout().is_terminal() {
        "standard output is a terminal, and a record is binary: give -o FILE, or pipe it into a program"
    } else if o.rotate.is_some() {
        "--rotate requires files, and this record goes to standard output: leave out --rotate, \
         or give -o FILE"
    } else if !o.targets.command.is_empty() {
        "the command that is started writes to standard output as well: give -o FILE"
    } else {
        return Ok(());
    };
    Err(UsageError::new(text))
}
