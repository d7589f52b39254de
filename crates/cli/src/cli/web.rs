//! Options of `web`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use isotherm::units;
use isotherm_web::{ListenOptions, RecordInput, WebOptions};

use super::report::HeatLimits;
use super::{SERVICE_OPTIONS, TARGET_OPTIONS, Targets, Watching};

/// Options of `web`.
#[derive(Debug, Args)]
pub struct Web {
    /// Record to show
    #[arg(value_name = "FILE", conflicts_with_all = TARGET_OPTIONS, conflicts_with_all = SERVICE_OPTIONS)]
    pub file: Option<PathBuf>,
    /// Show this record next to the first one, over the same time since their starts
    // It also excludes what `file` excludes, because clap does not report that an argument is missing that another one
    // excludes.
    #[arg(long, value_name = "FILE", requires = "file", conflicts_with_all = TARGET_OPTIONS, conflicts_with_all = SERVICE_OPTIONS)]
    pub compare: Option<PathBuf>,
    /// Mark on the time line what schemes did while the records were made: a log of isotherm run or reclaim
    /// (--log); repeatable
    #[arg(long = "log", value_name = "FILE", requires = "file", conflicts_with_all = TARGET_OPTIONS, conflicts_with_all = SERVICE_OPTIONS)]
    pub logs: Vec<PathBuf>,
    /// Leave out damaged parts of records, instead of ending there
    #[arg(long, requires = "file", conflicts_with_all = TARGET_OPTIONS, conflicts_with_all = SERVICE_OPTIONS)]
    pub skip_damaged: bool,
    /// Show a running service: isotherm reclaim or agent, or run or record with --control
    #[arg(long, conflicts_with_all = TARGET_OPTIONS)]
    pub service: bool,
    /// Show the service with this socket [default: /run/isotherm/control.sock; for users other than root
    /// $XDG_RUNTIME_DIR/isotherm/control.sock]
    #[arg(long, value_name = "PATH", conflicts_with_all = TARGET_OPTIONS)]
    pub control: Option<PathBuf>,
    /// Address and port to listen on; port 0 is any free one. Any address except a loopback address requires
    /// --tls-cert and --tls-key
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0", value_parser = address)]
    pub listen: SocketAddr,
    /// Certificate chain of the server, a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Further name by which browsers reach the server, without the port; isotherm refuses requests for other
    /// names than those and the address; required to listen on 0.0.0.0 or [::]; repeatable
    #[arg(long = "host", value_name = "NAME", value_parser = units::host)]
    pub hosts: Vec<String>,
    /// End after this time [default: at Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub duration: Option<Duration>,
    #[command(flatten)]
    pub heat: HeatLimits,
    #[command(flatten)]
    pub targets: Targets,
    #[command(flatten)]
    pub watching: Watching,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let why = |_| format!("{text:?} is no address with a port: write 127.0.0.1:7777 or [::1]:7777");
    text.parse().map_err(why)
}

impl Web {
    /// The options of the server.
    pub fn options(&self) -> WebOptions {
        WebOptions {
            listen: ListenOptions {
                listen: self.listen,
                tls: self.tls_cert.clone().zip(self.tls_key.clone()),
                hosts: self.hosts.clone(),
            },
            thresholds: self.heat.thresholds(),
            duration: self.duration,
        }
    }

    /// The records to show.
    pub fn records(&self) -> Vec<RecordInput> {
        let paths = self.file.iter().chain(&self.compare);
        paths
            .map(|path| RecordInput { path: path.clone(), skip_damaged: self.skip_damaged })
            .collect()
    }
}
