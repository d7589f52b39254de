//! Options of `run`, and of all commands that act by schemes.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use isotherm::service;
use isotherm::units;
use isotherm::watch::LookBy;
use isotherm_core::Attrs;

use super::{Metrics, Targets, UsageError, Watching};

/// Options of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Schemes to act by: TOML where the name ends in .toml, else one a line; may be given several times
    #[arg(long, value_name = "FILE", required_unless_present = "scheme_line")]
    pub scheme: Vec<PathBuf>,
    /// A scheme to act by, as a line of such a file: '4K max min 5 2s max pageout'; may be given several
    /// times. Those of files have their turn first, then these, each in the order in which they are given
    #[arg(long, value_name = "SCHEME")]
    pub scheme_line: Vec<String>,
    /// Listen on this socket for isotherm service status and all that speaks with a service
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    #[command(flatten)]
    pub acting: Acting,
}

/// Options of all commands that act by schemes.
#[derive(Debug, Args)]
pub struct Acting {
    /// Do nothing; print what would be done, to what, and what a second of it would cost
    #[arg(long)]
    pub dry_run: bool,
    /// Write here, a JSON object a line, what was done, when, to what, and what came of it; it is added
    /// to what is there. If it cannot be written any more, the run ends
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Have --log and --dry-run tell, too, what matched and was passed over, and why
    #[arg(long)]
    pub passed: bool,
    /// Print the statistics at the end as JSON
    #[arg(long)]
    pub json: bool,
    /// End after this time [default: when all targets have ended and no --cgroup, --comm or --all is
    /// given, or at Ctrl-C]. A started command that still runs is then ended too (SIGTERM, after 5 s
    /// SIGKILL)
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub duration: Option<Duration>,
    #[command(flatten)]
    pub metrics: Metrics,
    #[command(flatten)]
    pub targets: Targets,
    #[command(flatten)]
    pub watching: Watching,
}

impl Acting {
    /// The same for the library; `awaited`: processes and control groups need not exist yet.
    pub fn acting(&self, awaited: bool) -> service::Acting {
        service::Acting {
            targets: self.targets.selection(awaited),
            look: self.watching.look,
            seed: self.watching.seed,
            dry_run: self.dry_run,
            log: self.log.clone(),
            passed: self.passed,
            duration: self.duration,
            metrics: self.metrics.to.clone(),
            metrics_every: self.metrics.every,
        }
    }

    /// Whether that makes sense, before anything is opened.
    pub fn check(&self) -> Result<Attrs, UsageError> {
        if self.targets.selection(false).is_empty() {
            return Err(UsageError::new(
                "nothing to act on: give --pid PID, --comm NAME, --cgroup PATH, --all, or a command after --",
            ));
        }
        if self.watching.look == LookBy::Damon {
            return Err(UsageError::new(
                "memory is looked at again before anything is done to it, page by page, and damon cannot do \
                 that: look by bpf, bpf-probe or bpf-iter",
            ));
        }
        self.watching.check()
    }
}
