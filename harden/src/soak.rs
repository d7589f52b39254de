//! A recorder, a service and a page in the browser that follow 50 processes as they start and end. A trial is a minute.
//!
//! In each minute after the first, no program may use more memory, descriptors or threads than the processes explain,
//! and the cost of watching must be within the budget. After half an hour, its memory may not grow steadily either.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::random::Random;
use crate::sandbox::{PROGRAM, WORK_DIR};
use crate::target::{Behaviour, ODD_NAME, TargetProcess};
use crate::{Experiment, Trial, processes};

const MINUTE: Duration = Duration::from_secs(60);
/// Number of processes, and the time after which one of them is replaced.
const PROCESSES: usize = 50;
const EVERY: Duration = Duration::from_millis(100);
/// Memory that an allocator may keep, per process.
const SLACK: u64 = 2 << 20;
/// Number of minutes after which the slope of the memory is judged, and its limit in bytes a minute: 27 bytes for each of
/// 600 processes that come in a minute, and 23 MiB a day.
const SLOPE_AFTER: usize = 30;
const MAX_SLOPE: f64 = 16384.0;
/// Limit of the CPU time of one program, as a share of one CPU. The budget of watching is 1 %; following processes
/// that come 10 times a second, and the web page, cost more.
const CPU: f64 = 0.10;

const COMMANDS: [(&str, &[&str]); 3] = [
    (
        "record",
        &[
            "record",
            "--comm",
            ODD_NAME,
            "-o",
            "a.rec",
            "--max-size",
            "16M",
            "--rotate",
            "3",
            "--metrics",
            "m.prom",
        ],
    ),
    (
        "reclaim",
        &[
            "reclaim",
            "--comm",
            ODD_NAME,
            "--dry-run",
            "--min-age",
            "5s",
            "--control",
            "c",
            "--metrics",
            "s.prom",
        ],
    ),
    ("web", &["web", "--service", "--control", "c"]),
];

/// The resources of a program at a moment.
#[derive(Debug, Clone, Copy)]
struct ResourceUsage {
    descriptors: usize,
    threads: u64,
    /// anonymous memory, in bytes
    memory: u64,
    /// CPU time in seconds
    cpu: f64,
}

struct Program {
    name: &'static str,
    child: Child,
    /// number of threads at the start
    threads: u64,
    last: ResourceUsage,
    /// anonymous memory at the end of each minute, in bytes
    memory: Vec<u64>,
}

pub struct Soak {
    targets: Vec<TargetProcess>,
    programs: Vec<Program>,
    come: u64,
}

impl Soak {
    pub fn new() -> Result<Self> {
        let folder = Path::new(WORK_DIR);
        let mut targets = Vec::new();
        for _ in 0..PROCESSES {
            targets.push(TargetProcess::start(Behaviour::Touch)?);
        }
        let mut programs = Vec::new();
        for (name, args) in COMMANDS {
            let err = fs::File::create(folder.join(name))?;
            let mut command = Command::new(PROGRAM);
            command.args(args).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
            let child = command.stderr(err).spawn().context("cannot start the program")?;
            // The page requires the socket of the service.
            std::thread::sleep(Duration::from_secs(3));
            let last = held(child.id())
                .with_context(|| fs::read_to_string(folder.join(name)).unwrap_or_default())?;
            programs.push(Program { name, child, threads: last.threads, last, memory: Vec::new() });
        }
        Ok(Soak { targets, programs, come: 0 })
    }

    /// Replaces one process after the other for a minute.
    fn churn(&mut self, random: &mut Random) -> Result<()> {
        let deeds = [Behaviour::Touch, Behaviour::Touch, Behaviour::Rename, Behaviour::Die];
        let begin = Instant::now();
        while begin.elapsed() < MINUTE {
            let place = random.below(self.targets.len());
            self.targets[place] = TargetProcess::start(*random.pick(&deeds))?;
            self.come += 1;
            std::thread::sleep(EVERY);
        }
        Ok(())
    }
}

impl Program {
    /// Its figures at the end of a minute, and what is wrong with them.
    fn look(&mut self) -> Result<(String, Option<String>)> {
        if let Some(status) = self.child.try_wait()? {
            let err = fs::read_to_string(Path::new(WORK_DIR).join(self.name)).unwrap_or_default();
            return Ok((String::new(), Some(format!("{} has ended: {status}: {err}", self.name))));
        }
        let now = held(self.child.id())?;
        let cpu = (now.cpu - self.last.cpu) / MINUTE.as_secs_f64();
        let before = self.memory.iter().max().copied();
        self.memory.push(now.memory);
        let figures = format!(
            "{}: {:.1} MiB, {:+.2} MiB a minute, {} descriptors, {} threads, {:.1} % of a CPU",
            self.name,
            mib(now.memory),
            line(&self.memory).slope / f64::from(1 << 20),
            now.descriptors,
            now.threads,
            cpu * 100.0
        );
        // Three descriptors for each process, and those of the program.
        let many = now.descriptors > 6 * PROCESSES;
        let grown = before.is_some_and(|before| now.memory > before + SLACK);
        let leaks = is_steady_growth(&self.memory);
        let busy = self.memory.len() > 1 && cpu > CPU;
        let wrong = (many || grown || leaks || busy || now.threads > self.threads + 4)
            .then(|| format!("{figures}; {:.1} MiB before", mib(before.unwrap_or_default())));
        self.last = now;
        Ok((figures, wrong))
    }
}

impl Experiment for Soak {
    fn trial(&mut self, random: &mut Random) -> Result<Trial> {
        self.churn(random)?;
        let mut faults = Vec::new();
        for program in &mut self.programs {
            let (figures, wrong) = program.look()?;
            eprintln!("{figures}");
            faults.extend(wrong);
        }
        eprintln!("{} processes have come", self.come);
        Ok(Trial { class: "minutes".to_owned(), fault: faults.into_iter().next() })
    }
}

impl Drop for Soak {
    fn drop(&mut self) {
        for program in &mut self.programs {
            let _ = program.child.kill();
            let _ = program.child.wait();
        }
        self.targets.clear();
        let _ = processes::left();
    }
}

fn held(pid: u32) -> Result<ResourceUsage> {
    let dir = PathBuf::from(format!("/proc/{pid}"));
    let status = fs::read_to_string(dir.join("status")).context("the program has ended")?;
    let number = |name: &str| -> Result<u64> {
        let line =
            status.lines().find_map(|line| line.strip_prefix(name)).context("no such line")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    };
    let stat = fs::read_to_string(dir.join("stat"))?;
    let (_, fields) = stat.rsplit_once(") ").context("no fields")?;
    let times: Vec<u64> =
        fields.split(' ').skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    ensure!(times.len() == 2, "no times");
    // The kernel counts in hundredths of a second.
    let cpu = times.iter().sum::<u64>() as f64 / 100.0;
    let descriptors = fs::read_dir(dir.join("fd"))?.count();
    Ok(ResourceUsage {
        descriptors,
        threads: number("Threads:")?,
        memory: number("RssAnon:")? << 10,
        cpu,
    })
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Whether the memory after the first third of the minutes has grown by more than [`MAX_SLOPE`] a minute, and by more than
/// twice the error of the slope.
fn is_steady_growth(memory: &[u64]) -> bool {
    let (_, settled) = memory.split_at(memory.len() / 3);
    let Line { slope, error } = line(settled);
    memory.len() >= SLOPE_AFTER && slope - 2.0 * error > MAX_SLOPE
}

/// A line through values, per step.
struct Line {
    slope: f64,
    /// standard error of the slope
    error: f64,
}

/// The line through the values by least squares. Its slope is 0 for fewer than two values.
fn line(values: &[u64]) -> Line {
    let n = values.len() as f64;
    let points = || values.iter().enumerate().map(|(x, &y)| (x as f64, y as f64));
    let (mean_x, mean_y) =
        (points().map(|(x, _)| x).sum::<f64>() / n, points().map(|(_, y)| y).sum::<f64>() / n);
    let spread: f64 = points().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let both: f64 = points().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let slope = if spread > 0.0 { both / spread } else { 0.0 };
    let rest = |(x, y): (f64, f64)| (y - mean_y - slope * (x - mean_x)).powi(2);
    let variance = points().map(rest).sum::<f64>() / (n - 2.0).max(1.0);
    Line { slope, error: if spread > 0.0 { (variance / spread).sqrt() } else { 0.0 } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_that_of_a_line() {
        assert_eq!(line(&[]).slope, 0.0);
        assert_eq!(line(&[7]).slope, 0.0);
        assert_eq!(line(&[5, 5, 5]).slope, 0.0);
        let Line { slope, error } = line(&[1, 3, 5, 7]);
        assert!((slope - 2.0).abs() < 1e-9 && error < 1e-9);
        // By hand: the residuals of 0, 1, 0, 1 are -0.2, 0.6, -0.6, 0.2, so the error is the root of 0.8 / 2 / 5.
        assert!((line(&[0, 1, 0, 1]).error - 0.08_f64.sqrt()).abs() < 1e-9);
    }

    /// A leak of 1.9 MiB a minute passed for ever, because each minute was compared with the one before.
    #[test]
    fn a_slow_leak_is_found_and_memory_that_goes_up_and_down_is_none() {
        let minutes = |n: u64, of: &dyn Fn(u64) -> u64| (0..n).map(of).collect::<Vec<u64>>();
        let noise = |i: u64| 8_000_000 + i * 7919 % 13 * 80_000;
        let leak = |i: u64| noise(i) + i * 40_000;
        assert!(is_steady_growth(&minutes(60, &leak)));
        assert!(!is_steady_growth(&minutes(29, &leak)), "too early");
        assert!(!is_steady_growth(&minutes(60, &noise)));
        assert!(
            !is_steady_growth(&minutes(60, &|i| 8_000_000 + i.min(15) * 1_000_000)),
            "it settles"
        );
    }
}
