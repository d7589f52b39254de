//! Targets that misbehave, with a canary next to them that the program must never touch.
//!
//! The canary has touched its memory once, and sleeps. Its pages stay referenced unless someone clears the accessed
//! bits of the wrong process. It gets the pid of a target that has ended while it was watched.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::random::Random;
use crate::run::{Finished, run};
use crate::sandbox::{PROGRAM, WORK_DIR};
use crate::target::{Behaviour, ODD_NAME, TargetProcess};
use crate::{Experiment, Trial, processes};

/// Pids of the sandbox. They are few, so that the kernel soon assigns each of them again. It does not assign pids below
/// 300 (`RESERVED_PIDS`) again.
const PIDS: std::ops::Range<u32> = 300..600;
/// The program must end this long after its `--duration` at the latest, on a busy machine.
const MAX_OVERRUN: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(30);

/// All memory, at once.
const COLD: &str = "4K max null null null null cold";

pub struct Targets {
    folder: PathBuf,
}

impl Targets {
    pub fn new() -> Result<Self> {
        fs::write("/proc/sys/kernel/pid_max", PIDS.end.to_string()).context("pid_max")?;
        use_pids_up_to(PIDS.start)?;
        let targets = Targets { folder: Path::new(WORK_DIR).join("cwd") };
        targets.prove()?;
        Ok(targets)
    }

    /// A canary must detect that it is watched, or the experiment proves nothing.
    fn prove(&self) -> Result<()> {
        let canary = Canary::start()?;
        let pid = canary.target.pid().to_string();
        fs::create_dir(&self.folder)?;
        let ended = run(&mut self.command(&["--pid", &pid]), Path::new(WORK_DIR), MAX_OVERRUN)?;
        fs::remove_dir_all(&self.folder)?;
        ensure!(!ended.failed(), "cannot watch a process: {}", ended.err);
        ensure!(canary.touched()?.is_some(), "a watched canary does not show it: {}", ended.err);
        Ok(())
    }

    /// Whether the program has not acted yet.
    fn log_is_empty(&self) -> bool {
        !fs::metadata(self.folder.join("log")).is_ok_and(|log| log.len() > 0)
    }

    fn command(&self, who: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(["run", "--scheme-line", COLD, "--duration", "1s", "--log", "log"]).args(who);
        command.current_dir(&self.folder).stdin(Stdio::null());
        command
    }
}

/// A process that the program must not touch.
struct Canary {
    target: TargetProcess,
    referenced: u64,
}

impl Canary {
    fn start() -> Result<Self> {
        let target = TargetProcess::start(Behaviour::Canary)?;
        let begin = Instant::now();
        // It sleeps once it has touched all.
        while !is_asleep(target.pid()) || referenced(target.pid())? < 8 << 10 {
            ensure!(begin.elapsed() < PATIENCE, "the canary does not start");
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(Canary { referenced: referenced(target.pid())?, target })
    }

    /// The evidence, if the program touched it.
    fn touched(&self) -> Result<Option<String>> {
        let now = referenced(self.target.pid())?;
        let before = self.referenced;
        Ok((now != before)
            .then(|| format!("{before} KiB of the canary were referenced, now {now}")))
    }
}

fn is_asleep(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.contains("(canary) S")
}

/// Referenced anonymous memory of a process, in KiB. Pages of files may be referenced by others.
fn referenced(pid: u32) -> Result<u64> {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).context("the canary has ended")?;
    let (mut anonymous, mut sum) = (false, 0);
    for line in smaps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [range, _, _, _, inode, ..] if range.contains('-') => {
                anonymous = inode == "0" && words.len() == 5;
            }
            ["Referenced:", kib, "kB"] if anonymous => sum += kib.parse::<u64>()?,
            _ => {}
        }
    }
    Ok(sum)
}

/// Starts processes that end at once, until the next one gets this pid.
fn use_pids_up_to(pid: u32) -> Result<()> {
    for _ in 0..4 * PIDS.end {
        let mut child = Command::new("/bin/true").stdin(Stdio::null()).spawn()?;
        let last = child.id();
        child.wait()?;
        if last + 1 == pid {
            return Ok(());
        }
    }
    bail!("pid {pid} is not free")
}

impl Experiment for Targets {
    fn trial(&mut self, random: &mut Random) -> Result<Trial> {
        let deeds = [
            Behaviour::Touch,
            Behaviour::Fork,
            Behaviour::Exec,
            Behaviour::Unmap,
            Behaviour::Areas,
            Behaviour::LongPath,
            Behaviour::Pipe,
            Behaviour::Rename,
            Behaviour::Die,
            Behaviour::Die,
            Behaviour::Stop,
            Behaviour::Namespaces,
        ];
        fs::create_dir(&self.folder)?;
        let mut targets = Vec::new();
        let mut names = Vec::new();
        for _ in 0..2 + random.below(5) {
            if random.one_in(8) {
                targets.push(TargetProcess::traced()?);
                names.push("Traced".to_owned());
                continue;
            }
            let deed = *random.pick(&deeds);
            targets.push(TargetProcess::start(deed)?);
            names.push(format!("{deed:?}"));
        }
        // One that stays, so that the program has no reason to end early.
        targets.push(TargetProcess::start(Behaviour::Touch)?);
        let beside = Canary::start()?;
        let victim = targets.swap_remove(0);
        let pids: Vec<String> =
            targets.iter().chain([&victim]).map(|t| t.pid().to_string()).collect();
        let mut who = vec!["--comm", ODD_NAME];
        if random.one_in(2) {
            who = pids.iter().flat_map(|pid| ["--pid", pid]).collect();
        }
        let mut command = self.command(&who);
        // To read stacks, it opens the files that its targets execute.
        if random.one_in(2) {
            command.arg("--stacks");
        }
        // The victim ends while it is watched, and a canary gets its pid. Before, the pid may mean the canary.
        let delay = Duration::from_millis(random.below(600) as u64);
        let (ended, reused) = std::thread::scope(|scope| -> Result<_> {
            let running = scope.spawn(|| run(&mut command, Path::new(WORK_DIR), MAX_OVERRUN));
            while !running.is_finished() && self.log_is_empty() {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(delay);
            let pid = victim.pid();
            drop(victim);
            let reused = match use_pids_up_to(pid) {
                Ok(()) => Some(Canary::start()?).filter(|canary| canary.target.pid() == pid),
                Err(_) => None,
            };
            let ended = running.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            Ok((ended, reused))
        })?;
        // A pid may end before the program watches it. With `--comm`, or once the program has acted, it must succeed.
        let must_succeed = who[0] == "--comm" || !self.log_is_empty();
        let mut fault = fault(&ended, must_succeed);
        for canary in [Some(&beside), reused.as_ref()].into_iter().flatten() {
            fault = fault.or(canary.touched()?);
        }
        let reuse = if reused.is_some() { "pid reused" } else { "pid not reused" };
        let class = format!("{}, {reuse}", ended.class());
        drop((targets, beside, reused));
        // Children of targets end with them.
        processes::left()?;
        fs::remove_dir_all(&self.folder)?;
        let fault = fault.map(|fault| format!("{} by {}: {fault}", names.join(", "), who[0]));
        Ok(Trial { class, fault })
    }
}

/// `must_succeed`: the targets give the program no reason to end with an error.
fn fault(ended: &Finished, must_succeed: bool) -> Option<String> {
    let raw = |c: char| c.is_control() && !"\n\t\r".contains(c);
    let said = || format!("{}: {}", ended.class(), ended.err.trim());
    ended
        .fault()
        .or_else(|| ended.interrupted.then(|| format!("it did not end within {MAX_OVERRUN:?}")))
        .or_else(|| ended.text().contains(raw).then(|| "it printed control characters".to_owned()))
        .or_else(|| (ended.failed() && (must_succeed || ended.err.is_empty())).then(said))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    /// Found by an audit: a target that made the program end with a message was no fault.
    #[test]
    fn a_target_must_not_end_the_program() {
        let ended = |code: i32, err: &str| Finished {
            status: Some(ExitStatus::from_raw(code << 8)),
            interrupted: false,
            out: String::new(),
            err: err.to_owned(),
        };
        let refused = ended(1, "isotherm: cannot open /proc/7/maps");
        let found = fault(&refused, true).unwrap();
        assert!(found.contains("exit 1: isotherm: cannot open"), "{found}");
        assert_eq!(fault(&refused, false), None, "the pid ended before it was watched");
        assert!(fault(&ended(1, ""), false).is_some(), "without a message");
        assert_eq!(fault(&ended(0, ""), true), None);
    }
}
