//! System calls that fail, or that succeed in part.
//!
//! Calls return an error that the kernel could return, by the fault injection of `strace`. Or they transfer less than the
//! program requested ([`shorten`]), and the call that continues them may fail. The program must end with a message, or
//! continue without the call. It must neither panic nor hang, nor lose an earlier record. If the kernel permits the
//! fault at any time, as it does a short read, then the results must be those of an undisturbed run.

mod matrix;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use self::matrix::{Cell, Fault, Place};
use crate::arguments::RECORD;
use crate::random::Random;
use crate::run::{Finished, run};
use crate::sandbox::{PROGRAM, WORK_DIR};
use crate::shorten::{ACCEPTED, Plan};
use crate::target::{Behaviour, TargetProcess};
use crate::{Experiment, Trial, processes};

/// A command that does not end by itself gets SIGINT after this time.
const SIGINT_AFTER: Duration = Duration::from_secs(20);
/// The file with the calls that had a fault.
const TRACE: &str = "/tmp/work/trace";
/// The mark of their lines.
const INJECTED: &str = "(INJECTED)";

/// The commands whose calls fail. `PID` is that of the target, and `cold` a file with a scheme.
const COMMANDS: [&str; 10] = [
    "record --pid PID -o a.rec --duration 700ms --control c",
    "record --pid PID -o a.rec --duration 700ms --aggr 50ms --sample 5ms",
    "record --pid PID -o a.rec --duration 700ms --stacks --metrics m.prom",
    "reclaim --pid PID --duration 700ms --min-age 100ms --control c --log log",
    "reclaim --pid PID --duration 700ms --min-age 100ms --dry-run",
    "run --pid PID --duration 700ms --log log --scheme cold",
    "files --json /tmp",
    "report summary -i a.rec",
    "report heatmap -i a.rec",
    "system doctor --json",
];
const COLD: &str = "4K max null null null null cold\n";
/// Share by which sizes may differ from those of an undisturbed run.
const TOLERANCE: f64 = 0.2;

/// The results of a run that do not depend on time.
#[derive(Debug, Default)]
struct Results {
    /// that must be the same
    text: String,
    /// that must be about the same, in bytes
    sizes: Vec<f64>,
}

impl Results {
    fn is_like(&self, undisturbed: &Results) -> bool {
        let pairs = || self.sizes.iter().zip(&undisturbed.sizes);
        self.text == undisturbed.text
            && self.sizes.len() == undisturbed.sizes.len()
            && pairs().all(|(own, other)| (own - other).abs() <= other * TOLERANCE)
    }
}

pub struct Calls {
    /// a process that is only watched, and one whose memory commands page out
    targets: [TargetProcess; 2],
    folder: PathBuf,
    /// the number of calls of each command, by name
    counts: Vec<BTreeMap<String, usize>>,
    /// the results of each command without a fault
    undisturbed: Vec<Results>,
}

impl Calls {
    pub fn new() -> Result<Self> {
        let folder = Path::new(WORK_DIR).join("cwd");
        let targets =
            [TargetProcess::start(Behaviour::Touch)?, TargetProcess::start(Behaviour::Touch)?];
        let mut calls = Calls { targets, folder, counts: Vec::new(), undisturbed: Vec::new() };
        for of in 0..COMMANDS.len() {
            let (counts, results) = calls.count(of)?;
            calls.counts.push(counts);
            calls.undisturbed.push(results);
        }
        Ok(calls)
    }

    fn args(&self, of: usize) -> Vec<String> {
        let acts = COMMANDS[of].starts_with("run ") || COMMANDS[of].starts_with("reclaim ");
        let pid = self.targets[usize::from(acts)].pid().to_string();
        let word = |word| if word == "PID" { pid.clone() } else { String::from(word) };
        COMMANDS[of].split(' ').map(word).collect()
    }

    /// The program under `strace`, which is not its parent.
    fn traced(&self, of: usize, options: &[&str]) -> Command {
        let mut command = Command::new("strace");
        command.args(["-D", "-f", "--seccomp-bpf", "-o", TRACE]).args(options);
        command.arg(PROGRAM).args(self.args(of));
        self.in_folder(command)
    }

    fn in_folder(&self, mut command: Command) -> Command {
        command.current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    /// The command with a fault of some of its calls.
    fn with_fault(&self, of: usize, fault: Fault, place: Place) -> Command {
        let Place { first, step } = place;
        match fault {
            Fault::Error { error, .. } => {
                let calls = fault.calls(&self.counts[of]).join(",");
                let from = if step == 0 { String::new() } else { format!("+{step}") };
                let inject = format!("inject={calls}:error={error}:when={first}{from}");
                self.traced(of, &["-e", &format!("trace={calls}"), "-e", &inject])
            }
            Fault::Part { transfer, part, then } => {
                let then = then.map_or(0, |errno| errno.number);
                let plan = Plan { transfer, part, first, step, then };
                let mut command = plan.command(Path::new(TRACE));
                command.arg(PROGRAM).args(self.args(of));
                self.in_folder(command)
            }
        }
    }

    /// A folder with an earlier record.
    fn prepare(&self) -> Result<()> {
        fs::create_dir(&self.folder)?;
        fs::write(self.folder.join("cold"), COLD)?;
        Ok(fs::write(self.folder.join("a.rec"), RECORD)?)
    }

    /// The number of calls of each kind, and the results, of a run without a fault.
    fn count(&self, of: usize) -> Result<(BTreeMap<String, usize>, Results)> {
        self.prepare()?;
        let ended = run(
            &mut self.traced(of, &["-c", "-U", "calls,name"]),
            Path::new(WORK_DIR),
            SIGINT_AFTER,
        )?;
        ensure!(!ended.failed(), "{} fails: {}", COMMANDS[of], ended.text());
        ensure!(self.others_end()?.is_empty(), "strace does not end");
        let results = self.results(of, &ended)?;
        ensure!(!results.text.is_empty(), "{} has no results to compare", COMMANDS[of]);
        fs::remove_dir_all(&self.folder)?;
        let table = fs::read_to_string(TRACE).context("strace has written nothing")?;
        let row = |line: &str| {
            let (count, name) = line.trim().split_once(char::is_whitespace)?;
            Some((name.trim().to_owned(), count.parse().ok()?))
        };
        let counts = table.lines().filter_map(row).filter(|(name, _)| name != "total");
        Ok((counts.collect(), results))
    }

    /// Processes other than the targets that do not end by themselves.
    fn others_end(&self) -> Result<Vec<String>> {
        processes::left_but(&self.targets.each_ref().map(TargetProcess::pid))
    }

    /// The program without a fault.
    fn plain(&self, args: &[&str]) -> Result<Finished> {
        let mut command = Command::new(PROGRAM);
        command.args(args).current_dir(&self.folder);
        run(&mut command, Path::new(WORK_DIR), SIGINT_AFTER)
    }

    /// The results of a command that has ended well.
    fn results(&self, of: usize, ended: &Finished) -> Result<Results> {
        let json = |text: &str| -> Result<Value> {
            serde_json::from_str(text).with_context(|| format!("no JSON: {text:?}"))
        };
        let why = || ended.err.contains("(--duration is over)").to_string();
        let command = COMMANDS[of];
        Ok(match command.split(' ').next() {
            Some("record") => {
                let summary =
                    json(&self.plain(&["report", "summary", "--json", "-i", "a.rec"])?.out)?;
                let names = summary["mappings"].as_array().map_or(0, Vec::len);
                // The sampler estimates the resident bytes from few windows.
                let sizes = ["mapped_bytes", "resident_bytes"];
                let sizes = if command.contains("--sample") { &sizes[..1] } else { &sizes };
                let sizes = sizes.iter().filter_map(|name| summary["mean"][name].as_f64());
                Results { text: format!("{}, {names} names", why()), sizes: sizes.collect() }
            }
            Some("reclaim" | "run") => Results { text: why(), sizes: Vec::new() },
            Some("report") => Results { text: ended.out.clone(), sizes: Vec::new() },
            Some("files") => {
                let value = json(&ended.out)?;
                let rows = value["rows"].as_array().into_iter().flatten();
                let names = rows.filter_map(|row| row["name"].as_str());
                let mut names: Vec<&str> =
                    names.filter(|name| Path::new(name).starts_with(&self.folder)).collect();
                names.sort_unstable();
                Results { text: names.join("\n"), sizes: Vec::new() }
            }
            _ => {
                let value = json(&ended.out)?;
                let findings = value["findings"].as_array().into_iter().flatten();
                let states =
                    findings.map(|finding| format!("{} {}\n", finding["what"], finding["state"]));
                Results { text: states.collect(), sizes: Vec::new() }
            }
        })
    }

    /// A fault in the folder: of the record, or of the earlier one.
    fn check(&self) -> Result<Option<String>> {
        let is_earlier = |name| fs::read(self.folder.join(name)).is_ok_and(|bytes| bytes == RECORD);
        if is_earlier("a.rec") {
            return Ok(None);
        }
        if !is_earlier("a.rec.old") {
            return Ok(Some(format!("the earlier record is lost: {:?}", self.names())));
        }
        if !self.folder.join("a.rec").exists() {
            return Ok(None);
        }
        let ended = self.plain(&["record", "--check", "a.rec"])?;
        let reported = ["is sound", "breaks off", "is cut short"];
        let well =
            ended.fault().is_none() && reported.iter().any(|part| ended.text().contains(part));
        Ok((!well).then(|| format!("the record is damaged: {}", ended.text())))
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    fn run(&self, of: usize, fault: Fault, place: Place) -> Result<Trial> {
        self.prepare()?;
        // That of the trial before must not count.
        let _ = fs::remove_file(TRACE);
        let mut command = self.with_fault(of, fault, place);
        let ended = run(&mut command, Path::new(WORK_DIR), SIGINT_AFTER)?;
        let left = self.others_end()?;
        let log = fs::read(TRACE).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let injected = log.lines().find(|line| line.contains(INJECTED));
        // A debug build has shared libraries, which the loader reads before the program starts.
        let not_started = ended.err.contains("while loading shared libraries");
        let found = match self::fault(&ended, &left).filter(|_| !not_started) {
            None => self
                .check()?
                .or_else(|| self.believes_too_much(fault, &log))
                .or(self.wrong(of, fault, &ended, &log)?),
            fault => fault,
        };
        fs::remove_dir_all(&self.folder)?;
        let class = match injected {
            None => "not reached".to_owned(),
            Some(_) if not_started => "not started".to_owned(),
            Some(_) => ended.class(),
        };
        let fault = found.map(|found| {
            let (command, injected) = (COMMANDS[of], injected.unwrap_or("not injected"));
            format!(
                "{command}: {fault} from call {} by {}: {found}\n    {injected}",
                place.first, place.step
            )
        });
        Ok(Trial { class, fault })
    }

    /// More memory than the calls returned, of which the program has logged that it paged it out.
    fn believes_too_much(&self, fault: Fault, calls: &str) -> Option<String> {
        let Fault::Part { transfer, .. } = fault else { return None };
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        (transfer.name == "process_madvise").then(|| excess(&log, calls))?
    }

    /// What is wrong with an end, except for its status: it lacks a message, or has other results.
    fn wrong(
        &self,
        of: usize,
        fault: Fault,
        ended: &Finished,
        log: &str,
    ) -> Result<Option<String>> {
        let is_too_slow = ended.err.contains("too short for a snapshot");
        let must_succeed = fault.is_regular() && !ended.interrupted && !is_too_slow;
        if ended.failed() {
            if must_succeed {
                return Ok(Some(format!("it failed: {}", ended.text())));
            }
            // Where writing to standard error fails, there is no message.
            let is_error = |line: &str| {
                line.contains("write(2, ") || line.contains(&format!("write(<{WORK_DIR}/stderr>"))
            };
            let cannot_print = log.lines().any(|line| is_error(line) && line.contains(INJECTED));
            let is_silent = ended.text().is_empty() && !cannot_print;
            return Ok(is_silent.then(|| "it failed without a message".to_owned()));
        }
        if !must_succeed {
            return Ok(None);
        }
        let (results, undisturbed) = (self.results(of, ended)?, &self.undisturbed[of]);
        let differ = || format!("{results:?} instead of {undisturbed:?}: {}", ended.err);
        Ok((!results.is_like(undisturbed)).then(differ))
    }
}

impl Experiment for Calls {
    fn trial(&mut self, random: &mut Random) -> Result<Trial> {
        let of = random.below(COMMANDS.len());
        let counts = &self.counts[of];
        let mut faults = matrix::faults();
        faults.retain(|fault| !fault.calls(counts).is_empty());
        // As many transfers in part as errors.
        let in_part = random.one_in(2);
        faults.retain(|fault| matches!(fault, Fault::Part { .. }) == in_part);
        let fault = *random.pick(&faults);
        // The first calls of a kind differ most from each other.
        let count = most(fault, counts);
        let among = if random.one_in(2) { count.min(20) } else { count };
        let first = 1 + random.below(among);
        let place = if random.one_in(2) { fault.from(first) } else { Place { first, step: 0 } };
        self.run(of, fault, place)
    }
}

/// The greatest number of calls of one kind that can have the fault.
fn most(fault: Fault, counts: &BTreeMap<String, usize>) -> usize {
    let made = fault.calls(counts).into_iter().map(|call| counts[call]).max();
    fault.possible(made.unwrap_or(0))
}

/// The cells of the matrix, one for each trial.
pub struct Matrix {
    calls: Calls,
    cells: Vec<Cell>,
}

impl Matrix {
    pub fn new() -> Result<Self> {
        Ok(Matrix { calls: Calls::new()?, cells: matrix::cells() })
    }

    /// Number of cells.
    pub fn cells() -> u64 {
        matrix::cells().len() as u64
    }
}

impl Experiment for Matrix {
    fn trial(&mut self, random: &mut Random) -> Result<Trial> {
        let index = usize::try_from(random.trial())?;
        let cell = self.cells.get(index).context("the matrix has no such cell")?;
        match most(cell.fault, &self.calls.counts[cell.of]) {
            0 => Ok(Trial { class: "call not made".to_owned(), fault: None }),
            count => self.calls.run(cell.of, cell.fault, cell.place(count)),
        }
    }
}

/// Compares the page-out in a log of the program with what the calls accepted.
fn excess(log: &str, calls: &str) -> Option<String> {
    let applied = |line: &str| {
        let line: Value = serde_json::from_str(line).ok()?;
        (line["action"] == "pageout").then(|| line["applied"].as_u64())?
    };
    let logged: u64 = log.lines().filter_map(applied).sum();
    let accepted = |line: &str| line.strip_prefix(ACCEPTED)?.parse::<u64>().ok();
    let accepted: u64 = calls.lines().filter_map(accepted).sum();
    let is_more = logged > accepted;
    is_more.then(|| format!("it logged {logged} bytes as paged out, but {accepted} were accepted"))
}

fn fault(ended: &Finished, left: &[String]) -> Option<String> {
    ended
        .fault()
        .or_else(|| ended.interrupted.then(|| format!("it did not end within {SIGINT_AFTER:?}")))
        .or_else(|| (!left.is_empty()).then(|| format!("left processes: {}", left.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_out_that_the_kernel_did_not_accept_is_found() {
        let line = |action, applied| {
            format!(
                "{{\"action\": \"{action}\", \"outcome\": \"acted\", \"applied\": {applied}}}\n"
            )
        };
        let log = [line("pageout", 8192), line("cold", 1 << 20), line("pageout", 4096)].concat();
        let calls = |bytes| {
            format!("process_madvise(<>, 2) of 1 (INJECTED)\n{ACCEPTED}8192\n{ACCEPTED}{bytes}\n")
        };
        assert_eq!(excess(&log, &calls(4096)), None);
        let found = excess(&log, &calls(4095)).unwrap();
        assert_eq!(found, "it logged 12288 bytes as paged out, but 12287 were accepted");
    }
}
