//! Processes that a run starts, all of which end with it.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};

use super::stop::Stop;
use isotherm_bench::cpus;

/// Time in which a process has to end after it was asked to end.
const GRACE: Duration = Duration::from_secs(10);

/// CPUs for processes: the workload has one CPU for itself, its load and isotherm have the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessCpus {
    /// the first CPU
    Workload,
    /// the others
    Beside,
}

impl ProcessCpus {
    /// Its CPUs in the format of `taskset`; all CPUs if there is only one.
    fn list(self) -> Result<String> {
        let all = cpus::allowed()?;
        let (first, rest) = all.split_at(1.min(all.len()));
        let chosen = if self == ProcessCpus::Workload || rest.is_empty() { first } else { rest };
        Ok(chosen.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
    }
}

/// A command that runs on those CPUs, and that the kernel kills when this program ends.
pub fn command(cpus: ProcessCpus, program: impl AsRef<OsStr>) -> Result<Command> {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &cpus.list()?, "setpriv", "--pdeathsig", "KILL"]).arg(program);
    command.stdin(Stdio::null());
    Ok(command)
}

/// A process, ended when dropped.
#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
    name: String,
    /// signal that asks it to end
    by: Signal,
    /// whether signals go to its whole process group
    group: bool,
    /// its exit status, once it is reaped
    status: Option<ExitStatus>,
}

impl ChildProcess {
    /// Starts it.
    pub fn start(name: &str, command: &mut Command, by: Signal) -> Result<Self> {
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(ChildProcess { child, name: name.to_owned(), by, group: false, status: None })
    }

    /// Starts it in its own process group. Its descendants in that group end with it.
    pub fn start_group(name: &str, command: &mut Command, by: Signal) -> Result<Self> {
        let mut process = ChildProcess::start(name, command.process_group(0), by)?;
        process.group = true;
        Ok(process)
    }

    /// Its pid.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(0)
    }

    /// The name of the process, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.status.is_some() {
            return Ok(self.status);
        }
        // Until the process is reaped, no other process can have its pid or its group id. So it is not reaped if it ends
        // after this look.
        if self.group {
            if !has_ended(Pid::from_child(&self.child)) {
                return Ok(None);
            }
            let _ = self.signal(Signal::KILL);
        }
        self.status = self.child.try_wait()?;
        Ok(self.status)
    }

    /// Checks that it still runs.
    pub fn check(&mut self) -> Result<()> {
        match self.ended()? {
            Some(status) => bail!("{} has ended early: {status}", self.name),
            None => Ok(()),
        }
    }

    /// Waits until a condition is true.
    pub fn until(
        &mut self,
        stop: &Stop,
        most: Duration,
        mut is_so: impl FnMut() -> bool,
    ) -> Result<()> {
        let done = stop.until(most, || {
            self.check()?;
            Ok(is_so())
        })?;
        if !done {
            bail!("{} is not ready after {} s", self.name, most.as_secs());
        }
        Ok(())
    }

    /// Waits for its end.
    pub fn wait(&mut self, stop: &Stop, most: Duration) -> Result<()> {
        let mut status = None;
        stop.until(most, || {
            status = self.ended()?;
            Ok(status.is_some())
        })?;
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("{} has failed: {status}", self.name),
            None => bail!("{} has not ended after {} s", self.name, most.as_secs()),
        }
    }

    /// Sends a signal to the process, or to its whole group.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let kill = if self.group { kill_process_group } else { kill_process };
        Ok(kill(Pid::from_child(&self.child), signal)?)
    }

    /// Asks it to end, and kills it if it does not; returns its exit status.
    pub fn end(&mut self) -> Result<ExitStatus> {
        if self.ended()?.is_none() {
            let _ = self.signal(self.by);
            // A stopped process receives the signal only when it continues.
            let _ = self.signal(Signal::CONT);
        }
        let begin = Instant::now();
        while begin.elapsed() < GRACE {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.signal(Signal::KILL)?;
        let status = self.child.wait()?;
        self.status = Some(status);
        Ok(status)
    }
}

/// Whether a child has ended, possibly without having been reaped.
fn has_ended(child: Pid) -> bool {
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(child), how), Ok(Some(_)))
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Runs a command to its end.
pub fn run(name: &str, command: &mut Command, stop: &Stop, most: Duration) -> Result<()> {
    let said = tempfile::NamedTempFile::new()?;
    command.stdout(Stdio::null()).stderr(said.reopen()?);
    let done = ChildProcess::start(name, command, Signal::TERM)?.wait(stop, most);
    done.with_context(|| last_words(said.path()))
}

/// The end of a program's output.
pub fn last_words(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.trim().lines().rev().take(3).collect();
    if lines.is_empty() {
        return "it printed no message".to_owned();
    }
    lines.into_iter().rev().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use std::fs::read_to_string;
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    /// Whether it has ended or is gone.
    fn is_over(pid: i32) -> bool {
        let stat = read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    }

    /// However it comes to its end.
    #[test]
    fn what_one_has_started_ends_with_it() {
        let begins = "sleep 1000 & echo $!";
        for (script, is_waited_for) in
            [(begins, false), (begins, true), ("sleep 1000 & echo $!; exec sleep 1000", false)]
        {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdout(Stdio::piped());
            let mut process = ChildProcess::start_group("sh", &mut command, Signal::TERM).unwrap();
            let mut line = String::new();
            BufReader::new(process.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            let below: i32 = line.trim().parse().unwrap();
            if is_waited_for {
                while !has_ended(Pid::from_child(&process.child)) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            let status = process.end().unwrap();
            assert_eq!(process.end().unwrap(), status);
            let begin = Instant::now();
            while !is_over(below) {
                assert!(begin.elapsed() < GRACE, "{script}");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn one_that_is_stopped_ends_as_well() {
        let mut process =
            ChildProcess::start("sleep", Command::new("sleep").arg("1000"), Signal::TERM).unwrap();
        process.signal(Signal::STOP).unwrap();
        let state = || read_to_string(format!("/proc/{}/stat", process.pid())).unwrap();
        while !state().contains(") T ") {
            std::thread::sleep(Duration::from_millis(1));
        }
        let status = process.end().unwrap();
        assert_eq!(status.signal(), Some(Signal::TERM.as_raw()), "it had not to be killed");
    }
}
