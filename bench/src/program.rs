//! The program that is measured, and this program as a process that is watched.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

/// `isotherm`, which is built into the directory of the benches.
pub fn beside() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("isotherm");
    if !path.is_file() {
        bail!(
            "{} does not exist: build it (cargo build --release -p isotherm-cli)",
            path.display()
        );
    }
    Ok(path)
}

/// The command `program`, which is asked to end if this process ends by a signal.
pub fn dependent(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM"]).arg(program);
    command
}

/// A process that is ended when this is dropped.
#[derive(Debug)]
pub struct ChildGuard(pub Child);

impl ChildGuard {
    /// Its pid.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap_or(0)
    }

    /// Sends it a signal, and waits for its end.
    pub fn stop(mut self, signal: Signal) -> Result<ExitStatus> {
        kill_process(Pid::from_child(&self.0), signal)?;
        Ok(self.0.wait()?)
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The arguments of this process if this program has started itself with `role` as the first one. The process
/// then ends with its parent.
pub fn asked(role: &str) -> Result<Option<impl Iterator<Item = String> + use<>>> {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() != Some(role) {
        return Ok(None);
    }
    set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(Some(words))
}

/// A process that prints lines, and may read some.
#[derive(Debug)]
pub struct Helper {
    /// the process
    pub process: ChildGuard,
    to: ChildStdin,
    /// its output
    pub from: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts this program again, in a role.
    pub fn again<S: AsRef<std::ffi::OsStr>>(
        role: &str,
        args: impl IntoIterator<Item = S>,
    ) -> Result<Self> {
        Helper::start(Command::new(std::env::current_exe()?).arg(role).args(args))
    }

    /// Starts a program.
    pub fn start(command: &mut Command) -> Result<Self> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut process = ChildGuard(child);
        let to = process.0.stdin.take().context("no standard input")?;
        let from = BufReader::new(process.0.stdout.take().context("no standard output")?);
        Ok(Helper { process, to, from })
    }

    /// Its pid.
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// The process without its pipes, once it has printed a line.
    pub fn ready(mut self) -> Result<ChildGuard> {
        self.line()?;
        Ok(self.process)
    }

    /// Writes a line to its input.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        Ok(writeln!(self.to, "{line}")?)
    }

    /// Its next line.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        ensure!(line.ends_with('\n'), "the process has ended");
        Ok(line.trim().to_owned())
    }

    /// Its answer to a line.
    pub fn ask(&mut self, line: &str) -> Result<String> {
        self.tell(line)?;
        self.line()
    }
}

/// Starts `isotherm reclaim` for a process with this objective, without watermarks or quotas.
pub fn reclaim_by_aim(isotherm: &Path, pid: i32, aim: &str) -> Result<ChildGuard> {
    let child = Command::new(isotherm)
        .args(["reclaim", "--pid", &pid.to_string(), "--aim", aim])
        .args(["--watermarks", "none", "--control", "none"])
        .args(["--quota", "none", "--quota-size", "none"])
        .stdout(Stdio::null())
        .spawn()?;
    Ok(ChildGuard(child))
}
