//! Options of `top`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use isotherm::units;

use super::report::HeatLimits;
use super::{DEFAULT_RECORD, SERVICE_OPTIONS, TARGET_OPTIONS, Targets, Watching};

/// The shortest time between two refreshes.
const MIN_REFRESH: Duration = Duration::from_millis(100);

/// Options of `top`, which starts no command.
#[derive(Debug, Args)]
#[command(mut_arg("command", |a| a.hide(true)))]
pub struct Top {
    #[command(flatten)]
    pub targets: Targets,
    /// Show the processes that a running service watches: isotherm reclaim or agent, or run or record
    /// with --control
    #[arg(long, conflicts_with_all = TARGET_OPTIONS, conflicts_with = "replay")]
    pub service: bool,
    /// Show the service with this socket [default: /run/isotherm/control.sock; for users other than root
    /// $XDG_RUNTIME_DIR/isotherm/control.sock]
    #[arg(long, value_name = "PATH", conflicts_with_all = TARGET_OPTIONS, conflicts_with = "replay")]
    pub control: Option<PathBuf>,
    /// Play this record
    #[arg(long, value_name = "FILE", conflicts_with_all = TARGET_OPTIONS)]
    pub replay: Option<PathBuf>,
    /// Seconds of the record per second: 4x
    #[arg(long, value_name = "FACTOR", default_value = "1x", value_parser = speed, requires = "replay", conflicts_with_all = TARGET_OPTIONS, conflicts_with_all = SERVICE_OPTIONS)]
    pub speed: f64,
    /// Skip damaged parts of the record
    #[arg(long, requires = "replay", conflicts_with_all = TARGET_OPTIONS, conflicts_with_all = SERVICE_OPTIONS)]
    pub skip_damaged: bool,
    /// Show control groups first, instead of processes
    #[arg(long)]
    pub groups: bool,
    #[command(flatten)]
    pub heat: HeatLimits,
    /// Time between two refreshes of the screen
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::at_least(MIN_REFRESH, "the screen is refreshed too often"))]
    pub refresh: Duration,
    /// Maximum memory of the history, in which the view seeks back
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = units::size)]
    pub history: u64,
    /// Record that the key w suggests for a saved time
    #[arg(long, value_name = "FILE", default_value = DEFAULT_RECORD)]
    pub save: PathBuf,
    /// Colours; auto follows NO_COLOR, COLORTERM and TERM
    #[arg(long, value_name = "WHICH", default_value = "auto")]
    pub color: ColorOption,
    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub duration: Option<Duration>,
    #[command(flatten)]
    pub watching: Watching,
}

/// The colours of `top`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorOption {
    /// as the environment states
    Auto,
    /// 24 bits
    True,
    /// 256 colours
    #[value(name = "256")]
    Ansi256,
    /// 16 colours
    #[value(name = "16")]
    Ansi16,
    /// none
    Never,
}

fn speed(text: &str) -> Result<f64, String> {
    let factor: Option<f64> = text.strip_suffix('x').unwrap_or(text).parse().ok();
    let valid = factor.filter(|f| (0.01..=1000.0).contains(f));
    valid.ok_or_else(|| "a speed is a factor from 0.01x to 1000x: 4x".to_owned())
}
