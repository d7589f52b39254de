//! `isotherm` next to a workload: how it is started, and its resource use.

use std::ffi::OsString;
use std::fs::{File, read_to_string, write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use isotherm_linux::sys::process_cpu;
use rustix::process::Signal;

use super::config::Config;
use super::process::{ChildProcess, ProcessCpus, command, last_words};
use super::run::Windows;
use super::statistics::median;
use isotherm_bench::program;
use isotherm_bench::quotas::audit::{self, QuotaWindow};

const LOG: &str = "log";

/// The program, ended when dropped.
#[derive(Debug)]
pub struct Watching {
    process: ChildProcess,
    log: PathBuf,
    said: PathBuf,
    quota: Option<u32>,
}

/// Its resource use and actions up to a time.
#[derive(Debug, Clone, Copy)]
pub struct UsageMark {
    cpu: Duration,
    logged: usize,
}

/// Its resource use and actions between two times.
#[derive(Debug, Clone, Copy)]
pub struct ResourceUse {
    /// CPU time of all its threads
    pub cpu: Duration,
    /// time of acting, by the log; `None` if it does not act
    pub acting: Option<Duration>,
    /// if there is a quota
    pub windows: Option<Windows>,
}

impl Watching {
    /// Starts isotherm on process `pid`, with its descendants if it is a `family`. `None` for a configuration
    /// without isotherm.
    pub fn start(config: Config, pid: i32, family: bool, place: &Path) -> Result<Option<Self>> {
        let path = |name: &str| place.join(name).into_os_string();
        let mut words: Vec<OsString> = match config.scheme() {
            Some(scheme) => {
                write(place.join(scheme.name), &scheme.text)?;
                let mut words = ["run", "--scheme"].map(OsString::from).to_vec();
                words.extend([path(scheme.name), "--log".into(), path(LOG)]);
                words
            }
            None if config == Config::Rec => vec!["record".into(), "-o".into(), path("record")],
            None => return Ok(None),
        };
        words.extend(family.then(|| "--children".into()));
        Watching::with(&words, config.quota(), pid, place).map(Some)
    }

    /// Starts isotherm with these arguments on process `pid`.
    pub fn with(words: &[OsString], quota: Option<u32>, pid: i32, place: &Path) -> Result<Self> {
        let said = place.join("isotherm");
        let mut command = command(ProcessCpus::Beside, program::beside()?)?;
        command.args(words).args(["--pid", &pid.to_string()]);
        command.stdout(File::create(place.join("table"))?).stderr(File::create(&said)?);
        let process = ChildProcess::start("isotherm", &mut command, Signal::TERM)?;
        Ok(Watching { process, log: place.join(LOG), said, quota })
    }

    /// The present state.
    pub fn mark(&self) -> Result<UsageMark> {
        let cpu = process_cpu(self.process.pid()).with_context(|| self.why())?;
        Ok(UsageMark { cpu, logged: read_to_string(&self.log).map_or(0, |text| whole(&text)) })
    }

    /// The difference of two states.
    pub fn between(&self, from: UsageMark, to: UsageMark) -> Result<ResourceUse> {
        let cpu = to.cpu.saturating_sub(from.cpu);
        let Ok(text) = read_to_string(&self.log) else {
            return Ok(ResourceUse { cpu, acting: None, windows: None });
        };
        let new = text.get(from.logged..to.logged).unwrap_or_default();
        let all = audit::windows(&audit::parse(new)?);
        let acting = Some(all.iter().map(|w| w.took).sum());
        let windows = self.quota.map(|ms| windows(&all, ms));
        Ok(ResourceUse { cpu, acting, windows })
    }

    /// Suspends its work until [`Watching::resume`], or until it is ended.
    pub fn rest(&self) -> Result<()> {
        self.process.signal(Signal::STOP).with_context(|| self.why())
    }

    /// Resumes its work.
    pub fn resume(&self) -> Result<()> {
        self.process.signal(Signal::CONT).with_context(|| self.why())
    }

    /// Ends it.
    pub fn end(mut self) -> Result<()> {
        let status = self.process.end()?;
        if !status.success() {
            bail!("{}", self.why());
        }
        Ok(())
    }

    fn why(&self) -> String {
        format!("isotherm has failed: {}", last_words(&self.said))
    }
}

/// Bytes of complete lines. isotherm may be writing the last one.
fn whole(text: &str) -> usize {
    text.rfind('\n').map_or(0, |end| end + 1)
}

/// The windows of a quota of `ms`.
fn windows(all: &[QuotaWindow], ms: u32) -> Windows {
    let share = |w: &QuotaWindow| w.took.as_secs_f64() * 1e5 / f64::from(ms.max(1));
    let busy = all.windows(2).filter_map(|pair| pair.first().zip(pair.last()));
    let busy = busy.filter(|(a, b)| b.number == a.number + 1).map(|(a, _)| share(a));
    Windows {
        count: all.len(),
        worst: all.iter().map(share).fold(0.0, f64::max),
        median: median(&busy.collect::<Vec<_>>()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_being_written_is_left_for_later() {
        assert_eq!([whole("a\nb"), whole("a\n"), whole("a"), whole("")], [2, 2, 0, 0]);
    }

    #[test]
    fn windows_that_had_enough_to_do() {
        let window = |number, ms| QuotaWindow {
            number,
            applied: 1,
            took: Duration::from_millis(ms),
            so_far: 0,
        };
        let windows_used = windows(&[window(3, 9), window(4, 11), window(5, 10), window(9, 1)], 10);
        assert_eq!(windows_used.count, 4);
        assert!((windows_used.worst - 110.0).abs() < 1e-9, "{windows_used:?}");
        assert!(
            (windows_used.median.unwrap() - 100.0).abs() < 1e-9,
            "of 90 and 110: {windows_used:?}"
        );
        assert_eq!(windows(&[], 10).median, None);
    }
}
