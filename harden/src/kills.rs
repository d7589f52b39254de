//! Kills at random moments, each followed by a start.
//!
//! The next command must restore settings of the machine, records must be readable up to their last flush, and a
//! service must restore the state that it acknowledged.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::{FlockOperation, flock};

use crate::random::Random;
use crate::run::{Ended, run};
use crate::sandbox::{PROGRAM, SWAP_LOCK, WORK_DIR};
use crate::target::{Behaviour, Target};
use crate::{Experiment, Trial};

/// A command that ends by itself has this time to do so before SIGINT.
const TIME: Duration = Duration::from_secs(60);
const WEIGHTS: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";
/// The name of the swap of trials.
const NAME: &str = "harden";

pub struct Kills {
    target: Target,
    folder: PathBuf,
    commands: &'static [(&'static str, Kill)],
}

/// Kills a command of one kind.
type Kill = fn(&Kills, &mut Random) -> Result<Fault>;

const WATCHING: [(&str, Kill); 3] =
    [("record", Kills::record), ("run", Kills::run_schemes), ("reclaim", Kills::reclaim)];
const SETTINGS: [(&str, Kill); 2] = [("interleave", Kills::interleave), ("swap", Kills::swap)];

/// A fault of the program; `None` if there was none.
type Fault = Option<String>;

impl Kills {
    /// Kills commands that watch processes.
    pub fn of_watching() -> Result<Self> {
        Kills::new(&WATCHING)
    }

    /// Kills commands that change settings of the machine.
    pub fn of_settings() -> Result<Self> {
        Kills::new(&SETTINGS)
    }

    fn new(commands: &'static [(&'static str, Kill)]) -> Result<Self> {
        let target = Target::start(Behaviour::Touch)?;
        Ok(Kills { target, folder: Path::new(WORK_DIR).join("cwd"), commands })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(args).current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    fn run(&self, args: &[&str]) -> Result<Ended> {
        run(&mut self.command(args), Path::new(WORK_DIR), TIME)
    }

    /// A fault unless it exits with status 0.
    fn must(&self, args: &[&str]) -> Result<Fault> {
        let ended = self.run(args)?;
        Ok(ended
            .failed()
            .then(|| format!("{}: {}: {}", args.join(" "), ended.class(), ended.err.trim())))
    }

    /// Kills the command after a random time of at most `most`.
    fn kill(&self, args: &[&str], most: Duration, random: &mut Random) -> Result<()> {
        let mut child = self.start(args)?;
        std::thread::sleep(some_of(most, random));
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    fn start(&self, args: &[&str]) -> Result<Child> {
        let log = File::create(Path::new(WORK_DIR).join("log"))?;
        let mut command = self.command(args);
        command.stdout(Stdio::null()).stderr(log).spawn().context("cannot start the program")
    }

    /// A recorder that flushes often, because its files are small.
    fn record(&self, random: &mut Random) -> Result<Fault> {
        let pid = self.target.pid().to_string();
        let quick = ["--sample", "5ms", "--aggr", "20ms", "--max-size", "256K", "--rotate", "4"];
        let args = [&["record", "--pid", &pid, "-o", "a.rec"][..], &quick].concat();
        self.kill(&args, Duration::from_secs(8), random)?;
        for name in names(&self.folder)? {
            let ended = self.run(&["record", "--check", &name])?;
            let reported = ["is sound", "breaks off", "is empty"];
            if ended.fault().is_some() || !reported.iter().any(|part| ended.text().contains(part)) {
                return Ok(Some(format!("check of {name}: {}", ended.text())));
            }
            // A record without a snapshot has nothing to repair.
            let ended = self.run(&["edit", "--repair", &name, "-o", "repaired"])?;
            if !ended.failed() {
                if let Some(fault) = self.must(&["record", "--check", "repaired"])? {
                    return Ok(Some(fault));
                }
                fs::remove_file(self.folder.join("repaired"))?;
            } else if !ended.err.contains("nothing of the record") && !ended.err.contains("empty") {
                return Ok(Some(format!("repair of {name}: {}", ended.err)));
            }
        }
        self.must(&[&args[..], &["--duration", "200ms"]].concat())
    }

    /// The log has whole lines, except for the last one, and the next run takes the socket.
    fn run_schemes(&self, random: &mut Random) -> Result<Fault> {
        let pid = self.target.pid().to_string();
        let scheme = "4K max null null null null stat";
        let args =
            ["run", "--scheme-line", scheme, "--pid", &pid, "--log", "log", "--control", "c"];
        self.kill(&args, Duration::from_millis(1500), random)?;
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
        if let Some(line) =
            whole.lines().find(|l| serde_json::from_str::<serde_json::Value>(l).is_err())
        {
            return Ok(Some(format!("a line of the log is damaged: {line}")));
        }
        self.must(&[&args[..], &["--duration", "200ms"]].concat())
    }

    /// A request that the service acknowledged holds after its restart.
    fn reclaim(&self, random: &mut Random) -> Result<Fault> {
        let pid = self.target.pid().to_string();
        let args = ["reclaim", "--pid", &pid, "--control", "c", "--min-age", "10s", "--dry-run"];
        let status = ["service", "status", "--json", "--control", "c"];
        let mut service = self.start(&args)?;
        if !self.until(&status)? {
            service.kill()?;
            service.wait()?;
            return Ok(Some("the service does not answer".to_owned()));
        }
        let mut requests = self.start(&["service", "pause", "--control", "c"])?;
        std::thread::sleep(some_of(Duration::from_millis(120), random));
        service.kill()?;
        service.wait()?;
        let acknowledged = requests.wait()?.success();
        let mut service = self.start(&args)?;
        let answers = self.until(&status)?;
        let after = self.run(&status)?;
        let ended = self.must(&["service", "stop", "--control", "c"])?;
        service.wait()?;
        let paused = after.out.contains("\"paused\":true");
        Ok(if !answers {
            Some("the service does not answer after its restart".to_owned())
        } else if acknowledged && !paused {
            Some(format!("the service forgot that it was paused: {}", after.out))
        } else if names(&self.folder)?.iter().any(|name| name.contains("state")) {
            Some("a clean end left the state".to_owned())
        } else {
            ended
        })
    }

    /// Waits until a command succeeds.
    fn until(&self, args: &[&str]) -> Result<bool> {
        let begin = Instant::now();
        while begin.elapsed() < TIME {
            if self.must(args)?.is_none() {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(false)
    }

    /// Weights of the machine. The automatic mode may stay off where no bandwidth is known, which the program prints.
    fn interleave(&self, random: &mut Random) -> Result<Fault> {
        let before = weights()?;
        ensure!(!before.is_empty(), "{WEIGHTS} is missing");
        let most = Duration::from_millis(80);
        if random.one_in(2) {
            let weight = format!("0={}", 2 + random.below(200));
            self.kill(&["interleave", "set", &weight], most, random)?;
            if random.one_in(2) {
                self.kill(&["interleave", "set", "restore"], most, random)?;
            }
        } else {
            let weight = (2 + random.below(200)).to_string();
            let run = ["interleave", "run", "--weights", &weight, "--", "sleep", "0.05"];
            self.kill(&run, most, random)?;
            // The weights hold while the command runs on.
            std::thread::sleep(Duration::from_millis(100));
        }
        let fault = self.must(&["interleave", "set", "restore"])?;
        let after = weights()?;
        Ok(fault
            .or_else(|| (before != after).then(|| format!("weights {before:?} became {after:?}"))))
    }

    /// Swap in compressed memory. No other program may have swap at the same time.
    fn swap(&self, random: &mut Random) -> Result<Fault> {
        let lock = File::open(SWAP_LOCK).context(SWAP_LOCK)?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let before = swap()?;
        let most = Duration::from_millis(80);
        self.kill(&["system", "swap", "zram", "16M", "--name", NAME], most, random)?;
        let restore = ["system", "swap", "restore", "--name", NAME];
        if random.one_in(2) {
            self.kill(&restore, most, random)?;
        }
        // Without a note of that name there is nothing to restore.
        let ended = self.run(&restore)?;
        // A device whose addition was interrupted is named, with the command that removes it.
        for device in swap()?.1.iter().filter(|device| !before.1.contains(device)) {
            let number = device.trim_start_matches("zram");
            if ended.err.contains(&format!("echo {number} > /sys/class/zram-control/hot_remove")) {
                fs::write("/sys/class/zram-control/hot_remove", number)?;
            }
        }
        let after = swap()?;
        let differs = || format!("{before:?} became {after:?}: {}", ended.text());
        Ok(ended.fault().or_else(|| (before != after).then(differs)))
    }
}

impl Experiment for Kills {
    fn trial(&mut self, random: &mut Random) -> Result<Trial> {
        fs::create_dir(&self.folder)?;
        let (name, kill) = random.pick(self.commands);
        let fault = kill(self, random)?;
        fs::remove_dir_all(&self.folder)?;
        Ok(Trial {
            class: (*name).to_owned(),
            fault: fault.map(|fault| format!("{name}: {fault}")),
        })
    }
}

fn some_of(most: Duration, random: &mut Random) -> Duration {
    most * u32::try_from(random.below(1000)).unwrap_or_default() / 1000
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder)?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// The weights by node, without the automatic mode.
fn weights() -> Result<Vec<(String, String)>> {
    let nodes = names(Path::new(WEIGHTS))?.into_iter().filter(|name| name.starts_with("node"));
    nodes
        .map(|node| Ok((node.clone(), fs::read_to_string(Path::new(WEIGHTS).join(&node))?)))
        .collect()
}

/// The swap of the machine, without how much of it is used, and the compressed devices.
fn swap() -> Result<(String, Vec<String>)> {
    let devices =
        names(Path::new("/sys/block"))?.into_iter().filter(|name| name.starts_with("zram"));
    let mut devices: Vec<String> = devices.collect();
    devices.sort_unstable();
    let swaps = fs::read_to_string("/proc/swaps")?;
    let without_used = |line: &str| {
        let mut columns: Vec<&str> = line.split_whitespace().collect();
        if columns.len() == 5 {
            columns.remove(3);
        }
        columns.join(" ")
    };
    let swaps: Vec<String> = swaps.lines().map(without_used).collect();
    Ok((swaps.join("\n"), devices))
}
