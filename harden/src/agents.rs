//! Agents that are killed at the end of a minute, when they write its rows, and started again.
//!
//! A lake must have each minute once. Only the minute that ended at the kill may be missing, and every file must be
//! readable. A trial takes two minutes, because a whole one lies between two kills.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, ensure};
use isotherm_fleet::{DiskLimits, Lake, MINUTE_MS, read};

use crate::random::Random;
use crate::sandbox::{PROGRAM, WORK_DIR};
use crate::target::{Behaviour, TargetProcess};
use crate::{Experiment, Trial};

const AGENTS: usize = 20;
const HOST: &str = "h";
/// The span around the end of a minute in which agents are killed, in ms.
const BEFORE: i64 = 300;
const SPAN: usize = 1000;

/// A running agent with a lake of its own. It is killed when dropped.
struct Agent {
    lake: PathBuf,
    child: Child,
    /// the minutes at whose ends it was killed
    cut: BTreeSet<i64>,
    /// the minutes that the last check found
    stored: BTreeSet<i64>,
}

impl Agent {
    fn start(lake: PathBuf, pid: u32) -> Result<Self> {
        let child = start(&lake, pid)?;
        Ok(Agent { lake, child, cut: BTreeSet::new(), stored: BTreeSet::new() })
    }

    /// Kills it at the end of this minute, checks its lake, and starts it again. Returns whether the lake has the
    /// minute, or the fault.
    fn kill(&mut self, minute: i64, pid: u32) -> Result<Result<bool>> {
        let early = self.child.try_wait()?;
        self.child.kill()?;
        self.child.wait()?;
        self.cut.insert(minute);
        let checked = match early {
            Some(status) => {
                let log = fs::read_to_string(self.lake.with_extension("log"))?;
                Err(anyhow!("it ended by itself: {status}: {}", log.trim()))
            }
            None => self.check(),
        };
        self.child = start(&self.lake, pid)?;
        Ok(checked)
    }

    /// Whether the minute of the last kill is in the lake. An error is a fault of the lake.
    fn check(&mut self) -> Result<bool> {
        let mut seen = BTreeSet::new();
        // It sets a damaged file aside.
        let hours = Lake::open(&self.lake, HOST, DiskLimits::default())?.stored()?;
        ensure!(!has_damaged(&self.lake)?, "a file is damaged");
        for hour in hours {
            let rows = read(&hour.path).with_context(|| hour.path.display().to_string())?;
            for row in &rows.rows {
                let group = &rows.groups[row.group as usize].cgroup;
                let is_new = seen.insert((row.minute, group.clone()));
                ensure!(is_new, "{group} has the minute {} twice", row.minute);
            }
        }
        let minutes: BTreeSet<i64> = seen.into_iter().map(|(minute, _)| minute).collect();
        let last = self.cut.last().copied().unwrap_or_default();
        let first = minutes.first().copied().unwrap_or(last);
        let mut expected = (0..).map(|n| first + n * MINUTE_MS).take_while(|m| *m <= last);
        let missing = expected.find(|m| !minutes.contains(m) && !self.cut.contains(m));
        ensure!(missing.is_none(), "the minute {missing:?} is missing");
        ensure!(!minutes.is_empty() || self.cut.len() < 2, "the lake is empty");
        let is_written = minutes.contains(&last);
        ensure!(self.stored.is_subset(&minutes), "minutes that the lake had are gone");
        self.stored = minutes;
        Ok(is_written)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether there is a file that the lake has set aside.
fn has_damaged(dir: &Path) -> Result<bool> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "bad") || path.is_dir() && has_damaged(&path)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn start(lake: &Path, pid: u32) -> Result<Child> {
    let mut command = Command::new(PROGRAM);
    command.args(["agent", "--host", HOST, "--budget", "0.2%", "--control", "none"]);
    command.args(["--pid", &pid.to_string(), "--lake"]).arg(lake);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(File::create(lake.with_extension("log"))?);
    command.spawn().context("cannot start the program")
}

pub struct Agents {
    target: TargetProcess,
    agents: Vec<Agent>,
}

impl Agents {
    pub fn new() -> Result<Self> {
        let target = TargetProcess::start(Behaviour::Touch)?;
        let lake = |n| Path::new(WORK_DIR).join(format!("lake{n}"));
        let agents = (0..AGENTS).map(|n| Agent::start(lake(n), target.pid()));
        let agents = agents.collect::<Result<_>>()?;
        Ok(Agents { target, agents })
    }
}

impl Experiment for Agents {
    fn trial(&mut self, random: &mut Random) -> Result<Trial> {
        let end = (now()? / MINUTE_MS + 2) * MINUTE_MS;
        let mut moments: Vec<(i64, usize)> = (0..AGENTS)
            .map(|n| (end - BEFORE + i64::try_from(random.below(SPAN)).unwrap_or_default(), n))
            .collect();
        moments.sort_unstable();
        let (mut written, mut fault) = (0, None);
        for (at, n) in moments {
            let left = u64::try_from(at - now()?).unwrap_or_default();
            std::thread::sleep(Duration::from_millis(left));
            match self.agents[n].kill(end - MINUTE_MS, self.target.pid())? {
                Ok(is_written) => written += usize::from(is_written),
                Err(e) => {
                    fault.get_or_insert(format!("agent {n}: {e:#}"));
                }
            }
        }
        Ok(Trial { class: format!("{written} of {AGENTS} after the write"), fault })
    }
}

/// Milliseconds since 1970.
fn now() -> Result<i64> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}
