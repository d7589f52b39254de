//! The command that isotherm starts.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How long a command may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(5);
/// How often it is asked whether a command is to end.
const POLL: Duration = Duration::from_millis(100);

/// A command that was started; killed when dropped, should it still run.
pub struct Started(Child);

/// Finds the program of a command, so that a wrong name is told before anything is done.
pub fn resolve(command: &[String]) -> Result<Option<PathBuf>> {
    let Some(name) = command.first() else { return Ok(None) };
    let is_program =
        |p: &Path| p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    let found = if name.contains('/') {
        Some(PathBuf::from(name)).filter(|p| is_program(p))
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p| is_program(p))
    };
    match found {
        Some(program) => Ok(Some(program)),
        None => bail!("cannot start {name}: there is no such program, or it may not be executed"),
    }
}

impl Started {
    /// Starts `program` with the words of `command` as its arguments.
    pub fn spawn(program: &Path, command: &[String]) -> Result<Self> {
        let child = Command::new(program).args(command.iter().skip(1)).spawn();
        let child = child.with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Started(child))
    }

    /// Its pid.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap_or(0)
    }

    /// Its exit status as a shell would give it, once it has ended by itself. When `over`, it is
    /// asked to end, and its status means nothing.
    pub fn end(&mut self, over: impl Fn() -> bool) -> Result<Option<u8>> {
        while !over() {
            if self.has_ended_in(POLL)? {
                break;
            }
        }
        Ok(self.ask_to_end()?.map(exit_code))
    }

    /// Whether it has ended, or does so in this time.
    pub fn has_ended_in(&mut self, time: Duration) -> Result<bool> {
        let since = Instant::now();
        while self.0.try_wait()?.is_none() {
            if since.elapsed() >= time {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(true)
    }

    fn ask_to_end(&mut self) -> Result<Option<ExitStatus>> {
        if let Some(status) = self.0.try_wait()? {
            return Ok(Some(status));
        }
        if let Some(pid) = Pid::from_raw(self.pid()) {
            kill_process(pid, Signal::TERM).context("cannot end the command")?;
        }
        if !self.has_ended_in(GRACE)? {
            self.0.kill()?;
            self.0.wait()?;
        }
        Ok(None)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|s| 128 + s)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}
