//! Options of what speaks with a service.

use std::path::PathBuf;

use clap::Args;

/// Which service.
#[derive(Debug, Args)]
pub struct Control {
    /// Socket of the service [default: /run/isotherm/control.sock; for others than root
    /// $XDG_RUNTIME_DIR/isotherm/control.sock]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

/// Options of `status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub of: Control,
}

/// Options of `commit`.
#[derive(Debug, Args)]
pub struct Commit {
    /// Schemes: TOML where the name ends in .toml, else one a line. One of the name of one before goes on
    /// with its statistics; that of isotherm reclaim is called reclaim
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub of: Control,
}
