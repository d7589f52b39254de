//! Processes that this program starts as itself, and that count their work. The present count is at the beginning of
//! their standard output, which is a file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use rustix::process::Signal;

use super::counted::CountsWork;
use crate::process::{ChildProcess, ProcessCpus};
use crate::small_pages;
use crate::stop::Stop;

/// Time in which it must begin to count: before, it fills its memory.
const FILLED_WITHIN: Duration = Duration::from_secs(300);

/// Such a process.
pub struct CountingProcess {
    /// the process
    pub process: ChildProcess,
    count: File,
}

impl CountingProcess {
    /// Starts this program with these words, and waits until it counts. It uses no huge pages if it shall not.
    pub fn start(
        name: &str,
        words: &[&str],
        place: &Path,
        huge: bool,
        stop: &Stop,
    ) -> Result<Self> {
        let path = place.join("count");
        let program = std::env::current_exe()?;
        let mut command = small_pages::command(ProcessCpus::Workload, &program, huge)?;
        command.args(words).stdout(File::create(&path)?);
        let mut process = ChildProcess::start(name, &mut command, Signal::KILL)?;
        let count = File::open(&path)?;
        process.until(stop, FILLED_WITHIN, || read(&count).is_ok())?;
        Ok(CountingProcess { process, count })
    }
}

impl CountsWork for CountingProcess {
    fn process(&self) -> &ChildProcess {
        &self.process
    }

    fn count(&mut self) -> Result<u64> {
        self.process.check()?;
        read(&self.count)
    }
}

/// The count in a file.
pub fn read(count: &File) -> Result<u64> {
    let mut bytes = [0; 8];
    count.read_exact_at(&mut bytes, 0)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// The count, in such a process.
pub struct TouchCount {
    out: File,
    count: u64,
}

impl TouchCount {
    /// Writes to standard output.
    pub fn new() -> Result<Self> {
        Ok(TouchCount::to(File::from(rustix::io::dup(std::io::stdout())?)))
    }

    /// Writes to this file.
    pub fn to(out: File) -> Self {
        TouchCount { out, count: 0 }
    }

    /// Adds work that is done, and reports the count.
    pub fn add(&mut self, done: u64) -> Result<()> {
        self.count += done;
        Ok(self.out.write_all_at(&self.count.to_ne_bytes(), 0)?)
    }
}
