//! Runs a command with a limit in time.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

/// Time that a program has to end after SIGINT, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of an output that are kept.
const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// How a command has ended, and what it wrote.
pub struct Finished {
    /// `None` if it ignored SIGINT for [`PATIENCE`]; then it was killed
    pub status: Option<ExitStatus>,
    /// whether it got SIGINT
    pub interrupted: bool,
    pub out: String,
    pub err: String,
}

impl Finished {
    /// What no program may do: hang, end by a signal, panic, or exit with a status that is not documented.
    pub fn fault(&self) -> Option<String> {
        let Some(status) = self.status else {
            return Some(format!("it did not end within {PATIENCE:?} after SIGINT"));
        };
        if self.err.contains("panicked at") || self.err.contains("memory allocation of") {
            return Some(format!("a panic: {}", last(&self.err)));
        }
        match status.code() {
            Some(0..=2) => None,
            // `isotherm` exits like this if the command that it runs ends by the signal, as shells do.
            Some(code) if self.interrupted && code == 128 + Signal::INT.as_raw() => None,
            Some(code) => Some(format!("exit status {code}: {}", last(&self.err))),
            None if self.interrupted && status.signal() == Some(Signal::INT.as_raw()) => None,
            None => Some(format!("{status}: {}", last(&self.err))),
        }
    }

    /// Whether it ended with another status than 0.
    pub fn failed(&self) -> bool {
        !self.status.is_some_and(|status| status.success())
    }

    /// Both outputs.
    pub fn text(&self) -> String {
        format!("{}{}", self.out, self.err)
    }

    /// The exit status as a class.
    pub fn class(&self) -> String {
        match self.status.map(|status| status.code()) {
            Some(Some(code)) => format!("exit {code}"),
            Some(None) if self.interrupted => "SIGINT".to_owned(),
            Some(None) => "signal".to_owned(),
            None => "hang".to_owned(),
        }
    }
}

/// The last part of a text.
fn last(text: &str) -> String {
    let chars: Vec<char> = text.trim().chars().collect();
    chars[chars.len().saturating_sub(600)..].iter().collect()
}

/// Runs `command` with outputs in `folder`, and sends SIGINT after `time`.
pub fn run(command: &mut Command, folder: &Path, time: Duration) -> Result<Finished> {
    let (out, err) = (folder.join("stdout"), folder.join("stderr"));
    command.stdout(File::create(&out)?).stderr(File::create(&err)?);
    let mut child = command.spawn().context("cannot start the program")?;
    let (status, interrupted) = match wait_for(&mut child, time)? {
        Some(status) => (Some(status), false),
        None => (stop(&mut child)?, true),
    };
    let text = |path: &Path| -> Result<String> {
        let bytes = fs::read(path)?;
        Ok(String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_OUTPUT_BYTES)]).into_owned())
    };
    Ok(Finished { status, interrupted, out: text(&out)?, err: text(&err)? })
}

/// Sends SIGINT, and SIGKILL after [`PATIENCE`]: then there is no status.
fn stop(child: &mut Child) -> Result<Option<ExitStatus>> {
    kill_process(Pid::from_child(child), Signal::INT)?;
    if let Some(status) = wait_for(child, PATIENCE)? {
        return Ok(Some(status));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

fn wait_for(child: &mut Child, time: Duration) -> Result<Option<ExitStatus>> {
    let begin = Instant::now();
    while begin.elapsed() < time {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(None)
}
