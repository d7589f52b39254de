//! Kills at random moments, each followed by a start.
//!
//! The next command must restore settings of the machine, records must be readable up to their last flush, and a
//! service must restore the state that it acknowledged.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use isotherm_record::{Event, Reader};
use rustix::fs::{FlockOperation, flock};

use crate::random::Random;
use crate::run::{Finished, run};
use crate::sandbox::{PROGRAM, SWAP_LOCK, WORK_DIR};
use crate::target::{Behaviour, TargetProcess};
use crate::{Experiment, Trial};

/// A command that ends by itself has this time to do so before SIGINT.
const SIGINT_AFTER: Duration = Duration::from_secs(60);
/// A recorder writes snapshots that have waited for this time (`FLUSH` of the writer of records).
const FLUSH: Duration = Duration::from_secs(5);
/// Time in which a recorder starts, and in which its monitor finishes a snapshot, on a busy machine.
const MAX_START_TIME: Duration = Duration::from_secs(5);
/// First bytes of each frame of a record.
const FRAME_MAGIC: &[u8] = b"\x89ISOTHM\n";
const WEIGHTS: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";
/// The name of the swap of trials.
const NAME: &str = "harden";

pub struct Kills {
    target: TargetProcess,
    folder: PathBuf,
    commands: &'static [(&'static str, Kill)],
}

/// Kills a command of one kind.
type Kill = fn(&Kills, &mut Random) -> Result<Fault>;

const WATCHING: [(&str, Kill); 3] =
    [("record", Kills::record), ("run", Kills::run_schemes), ("reclaim", Kills::reclaim)];
static SETTINGS: [(&str, Kill); 2] = [("swap", Kills::swap), ("interleave", Kills::interleave)];

/// A fault of the program; `None` if there was none.
type Fault = Option<String>;

impl Kills {
    /// Kills commands that watch processes.
    pub fn of_watching() -> Result<Self> {
        Kills::new(&WATCHING)
    }

    /// Kills commands that change settings of the machine.
    pub fn of_settings() -> Result<Self> {
        if weights().is_ok_and(|weights| !weights.is_empty()) {
            return Kills::new(&SETTINGS);
        }
        eprintln!("settings: only swap, because this kernel has no {WEIGHTS} (Linux 6.9)");
        Kills::new(&SETTINGS[..1])
    }

    fn new(commands: &'static [(&'static str, Kill)]) -> Result<Self> {
        let target = TargetProcess::start(Behaviour::Touch)?;
        Ok(Kills { target, folder: Path::new(WORK_DIR).join("cwd"), commands })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(args).current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    fn run(&self, args: &[&str]) -> Result<Finished> {
        run(&mut self.command(args), Path::new(WORK_DIR), SIGINT_AFTER)
    }

    /// A fault unless it exits with status 0.
    fn must(&self, args: &[&str]) -> Result<Fault> {
        let ended = self.run(args)?;
        Ok(ended
            .failed()
            .then(|| format!("{}: {}: {}", args.join(" "), ended.class(), ended.err.trim())))
    }

    /// Kills the command after a random time of at most `most`.
    fn kill(&self, args: &[&str], most: Duration, random: &mut Random) -> Result<Killed> {
        let begin = Instant::now();
        let mut child = self.start(args)?;
        std::thread::sleep(some_of(most, random));
        let killed = Killed { lived: begin.elapsed(), at: SystemTime::now() };
        child.kill()?;
        child.wait()?;
        Ok(killed)
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
        let killed = self.kill(&args, Duration::from_secs(12), random)?;
        // The newest file may be without a snapshot: the kill came after the rotation.
        let files = names(&self.folder)?;
        let newest = files.iter().filter_map(|name| newest(&self.folder.join(name))).max();
        let mut fault = killed.unwritten(newest);
        for name in files {
            let ended = self.run(&["record", "--check", &name])?;
            let file = fs::read(self.folder.join(&name))?;
            fault = fault.or(damage(&ended, &name, &file));
            // A record without a snapshot has nothing to repair.
            let has_snapshots =
                ended.out.contains("is sound: ") && !ended.out.contains("is sound: 0 snapshots");
            let ended = self.run(&["edit", "--repair", &name, "-o", "repaired"])?;
            if !ended.failed() {
                fault = fault.or(self.must(&["record", "--check", "repaired"])?);
                fs::remove_file(self.folder.join("repaired"))?;
            } else if has_snapshots
                || !["nothing of the record", "empty"].iter().any(|why| ended.err.contains(why))
            {
                fault = fault.or(Some(format!("repair of {name}: {}", ended.err)));
            }
        }
        let again = self.must(&[&args[..], &["--duration", "200ms"]].concat())?;
        Ok(fault.or(again))
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
        while begin.elapsed() < SIGINT_AFTER {
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

/// When a command was killed.
struct Killed {
    /// how long it had run
    lived: Duration,
    at: SystemTime,
}

impl Killed {
    /// The fault of a recorder whose newest snapshot in the file is older than it must be.
    fn unwritten(&self, newest: Option<SystemTime>) -> Fault {
        let due = self.at - FLUSH - MAX_START_TIME;
        let is_late =
            self.lived > FLUSH + MAX_START_TIME && newest.is_none_or(|newest| newest < due);
        let age = newest.map_or("none".to_owned(), |newest| {
            format!("{:?} old", self.at.duration_since(newest).unwrap_or_default())
        });
        is_late.then(|| format!("killed after {:?}; newest snapshot: {age}", self.lived))
    }
}

/// The end of the newest snapshot of a record.
fn newest(path: &Path) -> Option<SystemTime> {
    let (mut start, mut newest) = (None, None);
    for event in Reader::open(path).ok()?.map_while(Result::ok) {
        match event {
            Event::Header(facts) => start = Some((facts.started_unix_ms, facts.started)),
            Event::Snapshot(s) => newest = Some(s.end),
            _ => {}
        }
    }
    let (unix_ms, started) = start?;
    Some(UNIX_EPOCH + Duration::from_millis(unix_ms) + newest?.since(started))
}

/// The fault in the check of a file of a record. A kill may cut only what was being written.
fn damage(check: &Finished, name: &str, file: &[u8]) -> Fault {
    let text = check.text();
    let is_torn = text.contains("breaks off");
    let is_known = is_torn || ["is sound", "is empty"].iter().any(|part| text.contains(part));
    if check.fault().is_some() || !is_known || text.contains("is not sound") {
        return Some(format!("check of {name}: {text}"));
    }
    let is_at_the_end = || {
        let (_, after) = text.split_once(&format!("the record {name} breaks off after byte "))?;
        let cut = file.get(after.split(':').next()?.parse().ok()?..)?;
        Some(!cut.windows(FRAME_MAGIC.len()).skip(1).any(|part| part == FRAME_MAGIC))
    };
    (is_torn && is_at_the_end() != Some(true))
        .then(|| format!("{name} breaks off before its last frame: {text}"))
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

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use super::*;

    /// Found by an audit: records that had never been written, or that broke off anywhere, passed.
    #[test]
    fn a_record_must_be_readable_up_to_the_last_flush() {
        let text = |err: &str, out: &str| Finished {
            status: Some(ExitStatus::default()),
            interrupted: false,
            out: out.to_owned(),
            err: err.to_owned(),
        };
        let torn =
            |at| text(&format!("the record a breaks off after byte {at}: it was killed"), "");
        let file = [FRAME_MAGIC, b"1234", FRAME_MAGIC, b"5678", &FRAME_MAGIC[..3]].concat();
        assert_eq!(damage(&text("", "a is sound: 3 snapshots"), "a", &file), None);
        assert_eq!(damage(&torn(24), "a", &file), None, "after the last whole frame");
        assert_eq!(damage(&torn(12), "a", &file), None, "the last frame is not whole");
        assert_eq!(damage(&torn(27), "a", &file), None, "nothing is cut");
        for wrong in [torn(0), torn(28), text("a breaks off", "a is not sound: 3 snapshots")] {
            assert!(damage(&wrong, "a", &file).is_some(), "{}", wrong.text());
        }
        assert!(damage(&torn(24), "b", &file).is_some(), "another file breaks off");

        let at = UNIX_EPOCH + Duration::from_secs(1000);
        let killed = |seconds| Killed { lived: Duration::from_secs(seconds), at };
        let newest = |age| Some(at - Duration::from_secs(age));
        assert_eq!(killed(9).unwritten(None), None, "it may not have begun");
        assert!(killed(11).unwritten(None).is_some());
        assert!(killed(20).unwritten(newest(11)).is_some());
        assert_eq!(killed(20).unwritten(newest(9)), None);
    }

    /// The record has a snapshot, so its time is known.
    #[test]
    fn the_newest_snapshot_has_a_wall_time() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("a.rec");
        fs::write(&path, crate::arguments::RECORD).unwrap();
        assert!(newest(&path).is_some());
        fs::write(&path, &crate::arguments::RECORD[..100]).unwrap();
        assert_eq!(newest(&path), None);
    }
}
