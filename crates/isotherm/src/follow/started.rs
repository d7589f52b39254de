//! The command that isotherm starts.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use isotherm_core::Nanos;
use isotherm_linux::sys;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::error::FollowError;
use crate::served::{self, Ends, Wait};
use crate::stop::Stop;

/// Time in which a command has to end after it was asked to end. Then it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// A command that isotherm started. If it still runs when this value is dropped, it is killed.
pub struct StartedCommand {
    child: Child,
    /// readable once the command has ended
    pidfd: Option<OwnedFd>,
}

/// Finds the program of a command, so that a wrong name is reported before anything is changed.
pub fn resolve(command: &[String]) -> Result<Option<PathBuf>, FollowError> {
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
        None => Err(FollowError::NoProgram(name.clone())),
    }
}

impl StartedCommand {
    /// Starts `program` with the words of `command` as its arguments, and `environment` in addition to its own.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(
        program: &Path,
        command: &[String],
        environment: &[(&str, OsString)],
    ) -> Result<Self, FollowError> {
        let mut start = Command::new(program);
        start.args(command.iter().skip(1));
        start.envs(environment.iter().map(|(name, value)| (name, value)));
        let child = start
            .spawn()
            .map_err(|source| FollowError::Start { program: program.to_owned(), source })?;
        let mut started = StartedCommand { child, pidfd: None };
        let pid = Pid::from_raw(started.pid()).ok_or(FollowError::NoPid)?;
        // Only this process reaps the command, so the pid still belongs to it. If this call fails, the command
        // is killed.
        let pidfd = pidfd_open(pid, PidfdFlags::empty());
        started.pidfd = Some(pidfd.map_err(|e| FollowError::Pidfd(e.into()))?);
        Ok(started)
    }

    /// The pid of the command.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(0)
    }

    /// Returns the command's exit status, as a shell computes it, once the command has ended by itself. When
    /// `stop` is over, asks the command to end and returns `None`, because such a status has no meaning.
    pub fn end(&mut self, stop: &Stop) -> Result<Option<u8>, FollowError> {
        while !stop.is_over() && self.child.try_wait()?.is_none() {
            let mut signals = stop;
            self.wait(stop.end().unwrap_or(Nanos(u64::MAX)), &mut [&mut signals]);
        }
        Ok(self.ask_to_end()?.map(exit_code))
    }

    /// Whether the command has ended, or ends within `time`.
    pub fn has_ended_in(&mut self, time: Duration) -> Result<bool, FollowError> {
        self.has_ended_before(time, &Stop::never())
    }

    /// Whether the command has ended, or ends within `time` and before `stop` is over.
    pub fn has_ended_before(&mut self, time: Duration, stop: &Stop) -> Result<bool, FollowError> {
        let until = sys::monotonic() + time;
        while self.child.try_wait()?.is_none() {
            if stop.is_over() || sys::monotonic() >= until {
                return Ok(false);
            }
            let mut signals = stop;
            self.wait(until, &mut [&mut signals]);
        }
        Ok(true)
    }

    /// Waits until the given time, until the command has ended, or until one of `others` has something to do.
    fn wait(&self, until: Nanos, others: &mut [&mut dyn Wait]) {
        let mut end = Ends::of_process(self.pidfd.as_ref().map(AsFd::as_fd));
        let until = end.by(until);
        let mut all: Vec<&mut dyn Wait> = vec![&mut end];
        all.extend(others.iter_mut().map(|other| &mut **other as &mut dyn Wait));
        served::wait(&mut all, until);
    }

    fn ask_to_end(&mut self) -> Result<Option<ExitStatus>, FollowError> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(Some(status));
        }
        if let Some(pid) = Pid::from_raw(self.pid()) {
            kill_process(pid, Signal::TERM).map_err(|e| FollowError::End(e.into()))?;
        }
        if !self.has_ended_in(GRACE)? {
            self.child.kill()?;
            self.child.wait()?;
        }
        Ok(None)
    }
}

impl Drop for StartedCommand {
    fn drop(&mut self) {
        // In a sandbox that refuses `kill`, the command may run for ever.
        if self.child.kill().is_ok() {
            let _ = self.child.wait();
        }
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|s| 128 + s)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}
