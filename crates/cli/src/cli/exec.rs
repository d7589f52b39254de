//! Options of `exec`.

use std::path::PathBuf;

use clap::Args;
use isotherm::units;

/// Options of `exec`.
#[derive(Debug, Args)]
pub struct Exec {
    /// Advice from an earlier run of the command: the output of isotherm report advice --json
    #[arg(long, value_name = "FILE")]
    pub advice: PathBuf,
    /// Maximum locked memory; 0: none [default: 90 % of the memory limit, or of the machine's memory; less if the
    /// recorded run needed more memory outside the advised ranges]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub lock_limit: Option<u64>,
    /// Apply the advice to this running process and its descendants, until it ends; at the end isotherm releases
    /// the locks
    #[arg(short, long, value_name = "PID", value_parser = units::pid, conflicts_with = "command")]
    pub pid: Option<i32>,
    /// Command to run
    #[arg(last = true, required_unless_present = "pid", value_name = "COMMAND")]
    pub command: Vec<String>,
}
