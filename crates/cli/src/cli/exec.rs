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
    /// Maximum memory to lock in total; 0 locks nothing [default: three quarters of the memory limit of the
    /// control group, or of the machine's memory without a limit]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub lock_limit: Option<u64>,
    /// Command to run
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
