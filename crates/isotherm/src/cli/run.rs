//! Options of `run`, and of all commands that act by schemes.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{Metrics, Targets, Watching};
use crate::units;

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
