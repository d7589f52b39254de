//! Options of `agent`, and of all commands that write rows to a lake.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use isotherm::agent::{LakeOptions, LakePlace};
use isotherm::control::default_path;
use isotherm::reclaim::NONE;
use isotherm::units;

use super::{Metrics, Targets, UsageError, Watching};

/// Options of `agent`, which starts no command.
#[derive(Debug, Args)]
#[command(mut_arg("command", |a| a.hide(true)))]
pub struct Agent {
    #[command(flatten)]
    pub lake: Lake,
    /// End after this time [default: at Ctrl-C or SIGTERM]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub duration: Option<Duration>,
    /// Listen on this socket for the commands isotherm service status, attributes, targets and stop; none: no socket
    /// [default: /run/isotherm/control.sock; for users other than root $XDG_RUNTIME_DIR/isotherm/control.sock]
    #[arg(long, value_name = "PATH|none")]
    pub control: Option<PathBuf>,
    #[command(flatten)]
    pub metrics: Metrics,
    #[command(flatten)]
    pub targets: Targets,
    #[command(flatten)]
    pub watching: Watching,
}

impl Agent {
    /// The path of the control socket; `None` with `--control none`.
    pub fn socket(&self) -> Option<PathBuf> {
        let path = self.control.clone().unwrap_or_else(default_path);
        Some(path).filter(|path| path != Path::new(NONE))
    }
}

/// Refuses a lake where only files or physical memory are watched.
pub const LAKE_OF_PROCESSES: &str = "--lake has rows of control groups, and neither files nor physical memory have \
                                     any: leave out --lake, or watch processes";

/// The lake, and what to write to it.
#[derive(Debug, Args)]
pub struct Lake {
    /// Each minute, write a row for each control group to this lake: a directory, or s3://BUCKET/PREFIX. Credentials
    /// for S3 come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT
    #[arg(long = "lake", value_name = "DIR|s3://BUCKET/PREFIX", value_parser = LakePlace::parse)]
    pub place: Option<LakePlace>,
    /// Name of this machine in the rows [default: its host name]
    #[arg(long, value_name = "NAME", requires = "place", value_parser = NonEmptyStringValueParser::new())]
    pub host: Option<String>,
    /// Remove rows of this machine from the directory after this time
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = units::duration)]
    pub keep: Duration,
    /// Remove the oldest rows of this machine from the directory while they are larger than this
    #[arg(long, value_name = "SIZE", value_parser = units::size, requires = "place")]
    pub keep_size: Option<u64>,
    /// With S3: directory for rows that are not uploaded yet
    #[arg(long, value_name = "DIR", default_value = "/var/lib/isotherm/spool")]
    pub spool: PathBuf,
    /// With S3: while the rows that are not uploaded are larger than this, drop the oldest; the next row counts the
    /// minutes that are lost
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = units::size)]
    pub spool_size: u64,
    /// With S3: time between two uploads
    #[arg(long, value_name = "TIME", default_value = "5m")]
    #[arg(value_parser = units::at_least(MINUTE, "there is one row a minute"))]
    pub upload_every: Duration,
    /// Also write the command line of the largest process of each group. Command lines may contain secrets
    #[arg(long, requires = "place")]
    pub command_lines: bool,
}

const MINUTE: Duration = Duration::from_secs(60);

impl Lake {
    /// The options as the library's type; `None` without a lake.
    pub fn options(&self) -> Option<LakeOptions> {
        Some(LakeOptions {
            place: self.place.clone()?,
            host: self.host.clone(),
            keep: self.keep,
            keep_bytes: self.keep_size,
            spool: self.spool.clone(),
            spool_bytes: self.spool_size,
            upload_every: self.upload_every,
            command_lines: self.command_lines,
        })
    }

    /// The same for a command that does nothing else.
    pub fn required(&self) -> Result<LakeOptions, UsageError> {
        let missing =
            "isotherm agent writes rows to a lake: give --lake DIR or --lake s3://BUCKET/PREFIX";
        self.options().ok_or_else(|| UsageError::new(missing))
    }
}
