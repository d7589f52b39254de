//! A recorder, a service and a page in the browser that follow 50 processes as they start and end. A trial is a minute.
//!
//! In each minute after the first, no program may use more memory, descriptors or threads than the processes explain,
//! and the cost of watching must be within the budget.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::random::Random;
use crate::sandbox::{PROGRAM, WORK_DIR};
use crate::target::{Behaviour, NAME, Target};
use crate::{Experiment, Trial, processes};

const MINUTE: Duration = Duration::from_secs(60);
/// Number of processes, and the time after which one of them is replaced.
const PROCESSES: usize = 50;
const EVERY: Duration = Duration::from_millis(100);
/// Memory that an allocator may keep, per process.
const SLACK: u64 = 2 << 20;
/// Limit of the CPU time of one program, as a share of one CPU. The budget of watching is 1 %; following processes
/// that come 10 times a second, and the web page, cost more.
const CPU: f64 = 0.10;

const COMMANDS: [(&str, &[&str]); 3] = [
    (
        "record",
        &[
            "record",
            "--comm",
            NAME,
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
            NAME,
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
    last: ResourceUsage,
    /// anonymous memory at the end of each minute, in bytes
    memory: Vec<u64>,
}

pub struct Soak {
    targets: Vec<Target>,
    programs: Vec<Program>,
    come: u64,
}

impl Soak {
    pub fn new() -> Result<Self> {
        let folder = Path::new(WORK_DIR);
        let mut targets = Vec::new();
        for _ in 0..PROCESSES {
            targets.push(Target::start(Behaviour::Touch)?);
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
            programs.push(Program { name, child, last, memory: Vec::new() });
        }
        Ok(Soak { targets, programs, come: 0 })
    }

    /// Replaces one process after the other for a minute.
    fn churn(&mut self, random: &mut Random) -> Result<()> {
        let deeds = [Behaviour::Touch, Behaviour::Touch, Behaviour::Rename, Behaviour::Die];
        let begin = Instant::now();
        while begin.elapsed() < MINUTE {
            let place = random.below(self.targets.len());
            self.targets[place] = Target::start(*random.pick(&deeds))?;
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
            slope(&self.memory) / f64::from(1 << 20),
            now.descriptors,
            now.threads,
            cpu * 100.0
        );
        // Three descriptors for each process, and those of the program.
        let many = now.descriptors > 6 * PROCESSES;
        let grown = before.is_some_and(|before| now.memory > before + SLACK);
        let busy = self.memory.len() > 1 && cpu > CPU;
        let wrong = (many || grown || busy || now.threads > self.last.threads + 4)
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

/// Slope of the line through the values by least squares, per step. 0 for fewer than two values.
fn slope(values: &[u64]) -> f64 {
    let n = values.len() as f64;
    let points = || values.iter().enumerate().map(|(x, &y)| (x as f64, y as f64));
    let (mean_x, mean_y) =
        (points().map(|(x, _)| x).sum::<f64>() / n, points().map(|(_, y)| y).sum::<f64>() / n);
    let spread: f64 = points().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let both: f64 = points().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    if spread > 0.0 { both / spread } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_that_of_a_line() {
        assert_eq!(slope(&[]), 0.0);
        assert_eq!(slope(&[7]), 0.0);
        assert_eq!(slope(&[5, 5, 5]), 0.0);
        assert!((slope(&[1, 3, 5, 7]) - 2.0).abs() < 1e-9);
    }
}
