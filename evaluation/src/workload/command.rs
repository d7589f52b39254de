//! Any command, described in a file.

use std::fs::{File, read_to_string};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde::Deserialize;

use super::counted::{CountedProcess, CountsWork};
use super::{Length, Running, Workload, WorkloadResult};
use crate::beside::Companion;
use crate::process::{ChildProcess, ProcessCpus, last_words};
use crate::run::WorkDone;
use crate::small_pages;
use crate::stop::Stop;

/// Maximum size of a file.
const LIMIT: u64 = 64 << 10;
/// Time limit for a command, and for its start.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// The content of the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Other {
    /// its name in the tables
    name: String,
    /// the program and its arguments
    command: Vec<String>,
    /// It is ready when its standard output contains this text
    #[serde(default)]
    ready: Option<String>,
    /// It works until it is ended. The last number after this text in its standard output is its work per
    /// second. Without it, its work is to end
    #[serde(default)]
    rate: Option<String>,
    /// It works until it is ended, in one process. The last number after this text in its standard output is its
    /// work so far. It is measured together with a twin, which isotherm does not know
    #[serde(default)]
    count: Option<String>,
    /// upper limit of its memory
    #[serde(default)]
    mib: Option<u64>,
    #[serde(skip)]
    otherwise: u64,
}

impl Other {
    /// Reads a file. Its memory is `bytes` if the file does not contain it.
    pub fn read(path: &Path, bytes: u64) -> Result<Self> {
        let cannot = || format!("cannot read {}", path.display());
        ensure!(
            path.metadata().with_context(cannot)?.len() <= LIMIT,
            "{} is too long",
            path.display()
        );
        let text = read_to_string(path).with_context(cannot)?;
        let other: Other = toml::from_str(&text).with_context(cannot)?;
        ensure!(!other.command.is_empty(), "{}: no command", path.display());
        ensure!(
            other.rate.is_none() || other.count.is_none(),
            "{}: a command has a rate or a count, not both",
            path.display()
        );
        Ok(Other { otherwise: bytes, ..other })
    }
}

impl Workload for Other {
    fn name(&self) -> &str {
        &self.name
    }

    fn memory(&self) -> u64 {
        self.mib.map_or(self.otherwise, |mib| mib.saturating_mul(1 << 20))
    }

    fn start(&self, place: &Path, stop: &Stop) -> Result<Box<dyn Running>> {
        let Some(count) = &self.count else {
            return Ok(Box::new(self.started(place, true, stop)?));
        };
        let start = |place: &Path, huge| {
            let Started { mut process, out, said, .. } = self.started(place, huge, stop)?;
            let so_far = || last_count(&read_to_string(&out).unwrap_or_default(), count).is_some();
            process.until(stop, TIMEOUT, so_far).with_context(|| {
                format!("no number after {count:?} on standard output: {}", last_words(&said))
            })?;
            Ok(CountingCommand { process, out, said, mark: count.clone() })
        };
        Ok(Box::new(CountedProcess::start(place, true, start)?))
    }
}

impl Other {
    /// Starts it, and waits until it is ready.
    fn started(&self, place: &Path, huge: bool, stop: &Stop) -> Result<Started> {
        let [out, said] = ["out", "said"].map(|name| place.join(name));
        let (program, words) = self.command.split_first().context("no command")?;
        let mut command = small_pages::command(ProcessCpus::Workload, program.as_ref(), huge)?;
        command.args(words).stdout(File::create(&out)?).stderr(File::create(&said)?);
        let mut begin = Instant::now();
        let mut process = ChildProcess::start_group(&self.name, &mut command, Signal::TERM)?;
        if let Some(ready) = &self.ready {
            let is_ready = || read_to_string(&out).is_ok_and(|text| text.contains(ready));
            process.until(stop, TIMEOUT, is_ready).with_context(|| last_words(&said))?;
            begin = Instant::now();
        }
        Ok(Started { process, begin, out, said, rate: self.rate.clone() })
    }
}

/// A command that prints its work so far.
struct CountingCommand {
    process: ChildProcess,
    out: PathBuf,
    said: PathBuf,
    mark: String,
}

impl CountsWork for CountingCommand {
    fn process(&self) -> &ChildProcess {
        &self.process
    }

    fn count(&mut self) -> Result<u64> {
        self.process.check().with_context(|| last_words(&self.said))?;
        let count = last_count(&read_to_string(&self.out)?, &self.mark);
        Ok(count.context("it no longer prints its work")? as u64)
    }
}

struct Started {
    process: ChildProcess,
    begin: Instant,
    out: PathBuf,
    said: PathBuf,
    rate: Option<String>,
}

impl Running for Started {
    fn pid(&self) -> i32 {
        self.process.pid()
    }

    fn family(&self) -> bool {
        true
    }

    fn work(
        &mut self,
        length: Length,
        beside: &mut Companion<'_>,
        stop: &Stop,
    ) -> Result<WorkloadResult> {
        let work = match self.rate.clone() {
            Some(mark) => self.rate_after(&mark, length, beside, stop)?,
            None => {
                beside.begin()?;
                let done = self.process.wait(stop, TIMEOUT);
                done.with_context(|| last_words(&self.said))?;
                WorkDone::Seconds(self.begin.elapsed().as_secs_f64())
            }
        };
        Ok(WorkloadResult::at_once(work))
    }
}

impl Started {
    fn rate_after(
        &mut self,
        mark: &str,
        length: Length,
        beside: &mut Companion<'_>,
        stop: &Stop,
    ) -> Result<WorkDone> {
        stop.sleep(length.lead_in)?;
        beside.begin()?;
        stop.sleep(length.measured)?;
        self.process.check().with_context(|| last_words(&self.said))?;
        self.process.end()?;
        match last_number(&read_to_string(&self.out)?, mark) {
            Some(rate) => Ok(WorkDone::PerSecond(rate)),
            None => bail!("{} printed no number after {mark:?}", self.process.name()),
        }
    }
}

fn last_number(text: &str, mark: &str) -> Option<f64> {
    let (_, rest) = text.rsplit_once(mark)?;
    let word = rest.split_whitespace().next()?;
    word.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok()
}

/// The last number in a complete line. The command may be writing the next line.
fn last_count(text: &str, mark: &str) -> Option<f64> {
    let (lines, _) = text.rsplit_once('\n')?;
    last_number(lines, mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.toml");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Other::read(&path, 7)
        };
        let other = read("name = 'a'\ncommand = ['sleep', '1']\nmib = 3").unwrap();
        assert_eq!((other.name(), other.memory()), ("a", 3 << 20));
        assert_eq!(read("name = 'a'\ncommand = ['true']").unwrap().memory(), 7);
        assert!(read("name = 'a'\ncommand = []").is_err());
        assert!(read("name = 'a'\ncommand = ['a']\nnonsense = 1").is_err());
        assert!(read("name = 'a'\ncommand = ['a']\nrate = 'r'\ncount = 'c'").is_err());
    }

    #[test]
    fn the_last_number_counts() {
        assert_eq!(last_number("rate: 3\nrate: 12.5/s\n", "rate:"), Some(12.5));
        assert_eq!(last_number("none", "rate:"), None);
        for cut in ["", "do", "done", "done 1"] {
            assert_eq!(last_count(&format!("done 11\ndone 12\n{cut}"), "done"), Some(12.0));
        }
        assert_eq!(last_count("done 1", "done"), None);
    }
}
