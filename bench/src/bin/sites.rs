//! Whether `isotherm report code` gives each function the memory that it made, for programs whose truth is known.
//!
//! The programs are in `bench/sites`. Some fill memory once, and are recorded with `--stacks`. Others allocate and free all
//! the time, and are recorded with `--alloc`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use isotherm_bench::bootstrap::middle;
use isotherm_bench::program::{beside, dependent};
use isotherm_bench::sites::{self, Report, Score, Truth, printed_truth};

/// Compares the memory of known functions with the report.
#[derive(Parser)]
struct Options {
    /// records of each program. Each has other sizes
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    runs: u64,
    /// seed of the sizes of the first run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// MiB a second at which the programs fill memory once
    #[arg(long, default_value_t = 64)]
    rate: u64,
    /// length of a record of these programs in s
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(10..))]
    seconds: u64,
    /// MiB a second that the other programs allocate
    #[arg(long, default_value_t = 30)]
    churn_rate: u64,
    /// time in s after the last allocation in which they only read their hot memory
    #[arg(long, default_value_t = 30)]
    rest: u64,
    /// distance of sampled allocations
    #[arg(long, default_value = "16K")]
    alloc: String,
    /// CPU budget of the records with sampled allocations
    #[arg(long, default_value = "10%")]
    alloc_budget: String,
    /// only the programs of these names (first column)
    #[arg(long)]
    only: Vec<String>,
    /// print each function
    #[arg(long)]
    each: bool,
}

const MIB: f64 = 1_048_576.0;
/// Bounds, in shares: of the functions that are right, of the intervals that hold, and of the cold bytes that are cold.
const MIN_RIGHT: f64 = 0.9;
const MIN_HELD: f64 = 0.9;
const MIN_PRECISION: f64 = 0.99;
/// Tolerated errors, as shares of the memory of a function.
const TOLERANCE: f64 = 0.1;
const ALLOC_TOLERANCE: f64 = 0.15;
/// A rate that makes no program wait.
const AT_ONCE: u64 = 1 << 20;
/// Each round but the first replaces half of the memory.
const CHURN_ROUNDS: u64 = 4;

/// A program and the command that builds it.
struct Build {
    name: &'static str,
    source: &'static str,
    compiler: &'static [&'static str],
    /// overrides the option
    rate: Option<u64>,
}

const fn build(
    name: &'static str,
    source: &'static str,
    compiler: &'static [&'static str],
) -> Build {
    Build { name, source, compiler, rate: None }
}

const C: &[&str] = &["cc", "-O2", "-g", "-fomit-frame-pointer", "-pthread"];
const WITH_FRAMES: &[&str] = &["cc", "-O2", "-g", "-fno-omit-frame-pointer", "-pthread"];
const CPP: &[&str] = &["c++", "-O2", "-g", "-std=c++17", "-pthread"];
const RUST: &[&str] = &["rustc", "-O", "-g", "--edition", "2024"];
/// `churn.c` is C++, too.
const CHURN_CPP: &[&str] = &["c++", "-O2", "-g", "-x", "c++"];

const FILLING: [Build; 5] = [
    build("C, frame pointers", "sites.c", WITH_FRAMES),
    build("C", "sites.c", C),
    build("C++", "sites.cpp", CPP),
    build("Rust", "sites.rs", RUST),
    Build { rate: Some(AT_ONCE), ..build("C, filled at once", "sites.c", C) },
];
const CHURNING: [Build; 2] =
    [build("churn, C", "churn.c", C), build("churn, C++", "churn.c", CHURN_CPP)];

fn main() -> Result<()> {
    let o = Options::parse();
    let bench = Bench { isotherm: beside()?, dir: tempfile::tempdir()?, o };
    let mut missed = String::new();
    bench.filling(&mut missed)?;
    bench.churning(&mut missed)?;
    ensure!(missed.is_empty(), "missed bounds:\n{missed}");
    Ok(())
}

struct Bench {
    isotherm: PathBuf,
    dir: tempfile::TempDir,
    o: Options,
}

impl Bench {
    fn is_wanted(&self, build: &Build) -> bool {
        self.o.only.is_empty() || self.o.only.iter().any(|name| name == build.name)
    }

    fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        self.o.seed..self.o.seed + self.o.runs
    }

    fn program(&self, build: &Build) -> Result<PathBuf> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("sites").join(build.source);
        let program = self.dir.path().join("program");
        let [compiler, options @ ..] = build.compiler else { unreachable!("a compiler is named") };
        let built = Command::new(compiler)
            .args(options)
            .arg("-o")
            .arg(&program)
            .arg(source)
            .status()
            .with_context(|| format!("cannot start {compiler}"))?;
        ensure!(built.success(), "{compiler} cannot build {}", build.source);
        Ok(program)
    }

    /// Records a program, and returns what it has printed.
    fn record(&self, options: &[&str], program: &Path, arguments: &[String]) -> Result<String> {
        let mut command = dependent(&self.isotherm);
        command.arg("record").args(options).arg("-o").arg(self.record_path()).arg("--");
        let done = command.arg(program).args(arguments).output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "isotherm record has failed:\n{said}");
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }

    fn record_path(&self) -> PathBuf {
        self.dir.path().join("rec")
    }

    fn report(&self, options: &[&str]) -> Result<Report> {
        let mut command = dependent(&self.isotherm);
        command.args(["report", "code", "--json"]).args(options).arg("-i").arg(self.record_path());
        let done = command.output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "isotherm report code has failed:\n{said}");
        serde_json::from_slice(&done.stdout).context("an unknown report")
    }

    fn filling(&self, missed: &mut String) -> Result<()> {
        if FILLING.iter().any(|build| self.is_wanted(build)) {
            println!(
                "{:<18} {:>9} {:>9} {:>10} {:>9} {:>9} {:>17} {:>18} {:>7} {:>8}",
                "--stacks",
                "functions",
                "no sample",
                "right",
                "cold held",
                "hot held",
                "precision (worst)",
                "cold error (worst)",
                "stacks",
                "samples"
            );
        }
        for build in FILLING.iter().filter(|build| self.is_wanted(build)) {
            let program = self.program(build)?;
            let (mut scores, mut with_stack, mut samples) = (Vec::new(), Vec::new(), Vec::new());
            for seed in self.seeds() {
                let drawn = sites::filling(seed);
                let mut arguments = vec![build.rate.unwrap_or(self.o.rate).to_string()];
                arguments
                    .extend(drawn.iter().map(|(kib, hot)| format!("{kib}:{}", u8::from(*hot))));
                let seconds = format!("{}s", self.o.seconds);
                self.record(&["--stacks", "--duration", &seconds], &program, &arguments)?;
                let report = self.report(&[])?;
                let truth = |&(kib, hot): &(u64, bool)| {
                    let bytes = kib as f64 * 1024.0;
                    Truth { bytes, cold: if hot { 0.0 } else { bytes } }
                };
                let truths: Vec<Truth> = drawn.iter().map(truth).collect();
                self.show_each(&report, &truths);
                scores.push(Score::of(&report, &truths, TOLERANCE));
                with_stack.push(share_with_stack(&report));
                samples.push(report.samples as f64);
            }
            show_filling(build.name, &scores, with_stack, samples);
            // Where there are few samples, the figures show what is left.
            if build.rate.is_none() {
                check_filling(build.name, &scores, missed);
            }
        }
        Ok(())
    }

    fn churning(&self, missed: &mut String) -> Result<()> {
        if CHURNING.iter().any(|build| self.is_wanted(build)) {
            println!(
                "\n{:<24} {:>9} {:>10} {:>9} {:>19} {:>12} {:>20} {:>8}",
                format!("--alloc={}", self.o.alloc),
                "functions",
                "right",
                "cold held",
                "|error|, worst",
                "half width",
                "cold error (worst)",
                "samples"
            );
        }
        for build in CHURNING.iter().filter(|build| self.is_wanted(build)) {
            let program = self.program(build)?;
            let (mut scores, mut first, mut samples) = (Vec::new(), Vec::new(), Vec::new());
            for seed in self.seeds() {
                let drawn = sites::churning(seed);
                let truths = self.record_churn(&program, seed, &drawn)?;
                let report = self.report(&[])?;
                self.show_each(&report, &truths);
                scores.push(Score::of(&report, &truths, ALLOC_TOLERANCE));
                samples.push(report.samples as f64);
                first.push(Score::of(&self.report(&["--first-touch"])?, &truths, ALLOC_TOLERANCE));
            }
            show_churning(build.name, &scores, samples);
            show_churning("    by first touch", &first, Vec::new());
            check_churning(build.name, &scores, missed);
        }
        Ok(())
    }

    /// Records the program that allocates and frees. Returns the truth that it has printed.
    fn record_churn(
        &self,
        program: &Path,
        seed: u64,
        drawn: &[(u64, u64, bool)],
    ) -> Result<Vec<Truth>> {
        let rate = self.o.churn_rate;
        let mut arguments = vec![seed.to_string(), rate.to_string(), CHURN_ROUNDS.to_string()];
        let site =
            |&(block, mib, hot): &(u64, u64, bool)| format!("{block}:{mib}:{}", u8::from(hot));
        arguments.extend(drawn.iter().map(site));
        let mib: u64 = drawn.iter().map(|(_, mib, _)| mib).sum();
        let seconds = mib * (CHURN_ROUNDS + 1) / 2 / rate.max(1) + self.o.rest;
        let (alloc, seconds) = (format!("--alloc={}", self.o.alloc), format!("{seconds}s"));
        let options = [&alloc, "--budget", &self.o.alloc_budget, "--duration", &seconds];
        let said = self.record(&options, program, &arguments)?;
        ensure!(said.contains("\nend\n"), "the program was too slow:\n{said}");
        let truths: Vec<_> = said.lines().filter_map(printed_truth).collect();
        ensure!(truths.iter().map(|(n, _)| *n).eq(0..drawn.len()), "an unknown truth:\n{said}");
        Ok(truths.into_iter().map(|(_, truth)| truth).collect())
    }

    fn show_each(&self, report: &Report, truths: &[Truth]) {
        if self.o.each {
            println!("  heat at {:.1} s of the record", report.to_ms / 1e3);
        }
        for (number, truth) in truths.iter().enumerate().filter(|_| self.o.each) {
            let found = report.of(number).map_or_else(
                || "no sample".to_owned(),
                |m| {
                    let [low, value, high] =
                        [m.cold_bytes.low, m.cold_bytes.value, m.cold_bytes.high].map(|b| b / MIB);
                    let (hot, all) = (m.hot_bytes.value / MIB, m.resident_bytes.value / MIB);
                    format!("cold {value:.2} ({low:.2} to {high:.2}), hot {hot:.2} of {all:.2} MiB")
                },
            );
            let (cold, all) = (truth.cold / MIB, truth.bytes / MIB);
            println!("  site {number}: {cold:.2} of {all:.2} MiB are cold; {found}");
        }
    }
}

/// Share of the resident memory that has a stack, in percent.
fn share_with_stack(report: &Report) -> f64 {
    100.0 * report.with_stack.resident_bytes.value / report.all.resident_bytes.value
}

fn percent(part: usize, of: usize) -> f64 {
    100.0 * part as f64 / of.max(1) as f64
}

fn median(values: Vec<f64>) -> f64 {
    middle(values).unwrap_or(f64::NAN)
}

fn precisions(scores: &[Score]) -> Vec<f64> {
    scores.iter().map(Score::precision).collect()
}

/// The one that is farthest from 0.
fn worst(values: impl Iterator<Item = f64>) -> f64 {
    values.max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(f64::NAN)
}

fn show_filling(name: &str, scores: &[Score], with_stack: Vec<f64>, samples: Vec<f64>) {
    let all = Score::sum(scores);
    let lowest = precisions(scores).into_iter().fold(1.0, f64::min);
    let errors = || scores.iter().map(Score::sum_error);
    println!(
        "{name:<18} {:>9} {:>9} {:>8.1} % {:>7.1} % {:>7.1} % {:>17} {:>18} {:>5.1} % {:>8.0}",
        all.sites,
        all.without_sample,
        percent(all.right, all.sites),
        percent(all.cold_held, all.cold_sites),
        percent(all.hot_held, all.hot_sites),
        format!("{:.4} ({lowest:.4})", median(precisions(scores))),
        format!("{:+.1} % ({:+.1})", median(errors().collect()), worst(errors())),
        median(with_stack),
        median(samples)
    );
}

fn check_filling(name: &str, scores: &[Score], missed: &mut String) {
    let all = Score::sum(scores);
    for (what, part, of, bound) in [
        ("functions are right", all.right, all.sites, MIN_RIGHT),
        ("intervals of cold memory hold", all.cold_held, all.cold_sites, MIN_HELD),
        ("intervals of hot memory hold", all.hot_held, all.hot_sites, MIN_HELD),
    ] {
        if (part as f64) < bound * of as f64 {
            let _ = writeln!(missed, "{name}: {part} of {of} {what}");
        }
    }
    let precision = median(precisions(scores));
    if precision < MIN_PRECISION {
        let _ = writeln!(missed, "{name}: the precision of cold is {precision:.4}");
    }
}

fn show_churning(name: &str, scores: &[Score], samples: Vec<f64>) {
    let all = Score::sum(scores);
    let absolute: Vec<f64> = all.errors.iter().map(|e| e.abs()).collect();
    let errors = || scores.iter().map(Score::sum_error);
    let samples = middle(samples).map_or_else(String::new, |n| format!("{n:.0}"));
    println!(
        "{name:<24} {:>9} {:>8.1} % {:>7.1} % {:>19} {:>10.1} % {:>20} {samples:>8}",
        all.sites,
        percent(all.right, all.sites),
        percent(all.cold_held, all.cold_sites),
        format!("{:.1} %, {:+.1} %", median(absolute), worst(all.errors.iter().copied())),
        median(all.half_widths.clone()),
        format!("{:+.1} % ({:+.1})", median(errors().collect()), worst(errors()))
    );
}

fn check_churning(name: &str, scores: &[Score], missed: &mut String) {
    let all = Score::sum(scores);
    if (all.right as f64) < MIN_RIGHT * all.sites as f64 {
        let _ = writeln!(missed, "{name}: {} of {} functions are right", all.right, all.sites);
    }
    let error = worst(scores.iter().map(Score::sum_error));
    if error.abs() > 100.0 * ALLOC_TOLERANCE {
        let _ = writeln!(missed, "{name}: the sum of the cold bytes is wrong by {error:+.1} %");
    }
}
