//! PostgreSQL servers of benches.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use crate::program::ChildGuard;

/// The folder with the programs of PostgreSQL, of the last version that is installed.
///
/// # Errors
/// If none is.
pub fn programs() -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").context("PostgreSQL is not installed")?;
    let mut found: Vec<PathBuf> =
        versions.filter_map(|v| Some(v.ok()?.path().join("bin"))).collect();
    found.sort();
    found.pop().context("PostgreSQL is not installed")
}

/// A program of PostgreSQL, which does not run as root.
pub fn program(name: &str) -> Result<Command> {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    // If this process ends by a signal.
    command.args(["--pdeathsig", "KILL"]);
    command.arg(programs()?.join(name)).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

/// Starts a server with small shared buffers, whose socket is in the same folder.
pub fn start(dir: &Path) -> Result<ChildGuard> {
    start_with(dir, "16MB")
}

/// The same with shared buffers of a size such as `16MB`.
pub fn start_with(dir: &Path, shared_buffers: &str) -> Result<ChildGuard> {
    let mut server = program("postgres")?;
    server.arg("-D").arg(dir.join("data")).arg("-k").arg(dir);
    server.args(["-c", "listen_addresses="]);
    server.args(["-c", &format!("shared_buffers={shared_buffers}")]);
    server.args([
        "-c",
        "autovacuum=off",
        "-c",
        "max_wal_size=256MB",
        "-c",
        "synchronous_commit=off",
        "-c",
        "checkpoint_timeout=30min",
    ]);
    let server = ChildGuard(server.spawn()?);
    for _ in 0..300 {
        if program("pg_isready")?.arg("-h").arg(dir).status()?.success() {
            return Ok(server);
        }
        sleep(Duration::from_millis(100));
    }
    bail!("the server does not start")
}

/// Stops a server.
pub fn stop(server: ChildGuard) -> Result<()> {
    server.stop(Signal::INT).map(drop)
}

/// pgbench, connected to the server of a folder.
pub fn pgbench(dir: &Path) -> Result<Command> {
    let mut command = program("pgbench")?;
    command.arg("-h").arg(dir).arg("-U").arg("postgres");
    Ok(command)
}

/// Makes a database with the tables of pgbench at this scale, 15 MB each.
pub fn init(dir: &Path, scale: u32) -> Result<()> {
    let owner = Command::new("chown").arg("postgres").arg(dir).status()?;
    ensure!(owner.success(), "cannot give the folder to postgres");
    let init =
        program("initdb")?.arg("-U").arg("postgres").arg("-D").arg(dir.join("data")).status()?;
    ensure!(init.success(), "initdb has failed");
    let server = start(dir)?;
    let filled = pgbench(dir)?.args(["-i", "-q", "-s", &scale.to_string(), "postgres"]).status()?;
    ensure!(filled.success(), "pgbench -i has failed");
    stop(server)
}
