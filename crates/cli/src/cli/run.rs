//! Options of `run`, and of all commands that act according to schemes.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use isotherm::service;
use isotherm::units;
use isotherm::watch::{FilesToWatch, LookBy};
use isotherm_core::Attrs;

use super::file_targets::FileTargets;
use super::{LAKE_OF_PROCESSES, Lake, Metrics, Targets, UsageError, Watching};

/// Options of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// File with schemes: TOML if its name ends in .toml, else one scheme per line; repeatable
    #[arg(long, value_name = "FILE", required_unless_present = "scheme_line")]
    pub scheme: Vec<PathBuf>,
    /// Scheme, as a line of such a file: '4K max min 5 2s max pageout'; repeatable. The schemes of
    /// files come first, then these, each in the given order
    #[arg(long, value_name = "SCHEME")]
    pub scheme_line: Vec<String>,
    /// Listen on this socket for the commands of isotherm service
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    #[command(flatten)]
    pub acting: Acting,
}

/// Options of all commands that act according to schemes.
#[derive(Debug, Args)]
pub struct Acting {
    /// Do nothing; print each action that isotherm would do, on which memory, and the cost per
    /// second
    #[arg(long)]
    pub dry_run: bool,
    /// Append each action to this file, as one JSON object per line, with its time, its memory and
    /// its result. If a write fails, the run ends
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Make --log and --dry-run also report skipped matches, with reasons
    #[arg(long)]
    pub passed: bool,
    /// Sample page faults with their call stacks: isotherm service status shows which code brings
    /// memory back, and a record of isotherm service record has the stacks
    #[arg(long, conflicts_with_all = ["file", "dir", "mount", "cached"])]
    pub stacks: bool,
    /// Print the statistics at the end as JSON
    #[arg(long)]
    pub json: bool,
    /// End after this time, and end the started command (SIGTERM, after 5 s SIGKILL) [default:
    /// at Ctrl-C; without --comm and --all also when all targets are gone. isotherm reclaim waits for each --cgroup;
    /// isotherm run ends when all are removed]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub duration: Option<Duration>,
    #[command(flatten)]
    pub metrics: Metrics,
    #[command(flatten)]
    pub targets: Targets,
    #[command(flatten)]
    pub files: FileTargets,
    #[command(flatten)]
    pub watching: Watching,
    // The heading would apply to all options that follow.
    #[command(flatten, next_help_heading = "Rows for a lake")]
    pub lake: Lake,
}

impl Acting {
    /// Whether an option selects processes or files.
    pub fn selects(&self) -> bool {
        !self.targets.selection(false).is_empty() || !self.files.is_empty()
    }

    /// The options as the library's type. With `awaited`, processes and control groups need not
    /// exist yet.
    pub fn acting(&self, awaited: bool) -> Result<service::Acting, UsageError> {
        let scope = self.files.scope(&self.targets)?;
        let files = FilesToWatch { scope, by_access: false, remembers: true, traces: false };
        Ok(service::Acting {
            targets: self.targets.selection(awaited),
            files: (!self.files.is_empty()).then_some(files),
            look: self.watching.look,
            seed: self.watching.seed,
            dry_run: self.dry_run,
            log: self.log.clone(),
            passed: self.passed,
            stacks: self.stacks,
            duration: self.duration,
            metrics: self.metrics.to.clone(),
            metrics_every: self.metrics.every,
            lake: self.lake.options(),
        })
    }

    /// Checks the options, before anything is opened.
    pub fn check(&self) -> Result<Attrs, UsageError> {
        if !self.selects() {
            return Err(UsageError::new(
                "nothing to act on: give --pid PID, --comm NAME, --cgroup PATH, --all, a command after --, or files \
                 with --file PATH, --dir DIR, --mount DIR or --cached",
            ));
        }
        let processes = !self.targets.selection(false).is_empty();
        if !self.files.is_empty() && !processes && self.watching.monitor.is_some() {
            return Err(UsageError::new(
                "files are counted by a monitor of their own: leave out --monitor",
            ));
        }
        if !processes && self.lake.place.is_some() {
            return Err(UsageError::new(LAKE_OF_PROCESSES));
        }
        if self.watching.look == LookBy::Damon {
            return Err(UsageError::new(
                "isotherm checks each page again before it acts on it, and damon cannot do that: \
                 choose --look bpf, bpf-probe or bpf-iter",
            ));
        }
        self.watching.check()
    }
}
