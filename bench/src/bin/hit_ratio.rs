//! Does `report need` predict the hit ratio of the page cache? Each workload runs in control groups with memory
//! limits, and its reads from the disk are counted. Then it runs once without a limit while a recorder watches it,
//! and the predictions are compared with the counts.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use isotherm_bench::bootstrap::middle;
use isotherm_bench::limited::Limited;
use isotherm_bench::page_cache::{drop_cache, file_cache, read_bytes};
use isotherm_bench::postgres;
use isotherm_bench::program::{ChildGuard, beside, dependent};
use isotherm_core::PAGE_SIZE;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::fs::{Advice, fadvise};
use rustix::process::Signal;
use serde_json::Value;

#[derive(Parser)]
struct Options {
    /// create the files in this folder
    #[arg(long, default_value = ".")]
    within: PathBuf,
    /// workloads
    #[arg(long, value_delimiter = ',', default_value = "zipf,scan,pgbench,compile")]
    only: Vec<String>,
    /// reads or transactions of each workload are multiplied by this
    #[arg(long, default_value_t = 1.0)]
    length: f64,
    /// compare what runs with and without a recorder miss instead, so many times; not for pgbench, whose reads differ
    #[arg(long, value_name = "TIMES")]
    twins: Option<usize>,
    /// the program [default: that next to this one]
    #[arg(long)]
    isotherm: Option<PathBuf>,
}

/// The argument with which this program starts itself as a load.
const ARGUMENT: &str = "--be-a-load";
const MIB: u64 = 1 << 20;
/// Memory of a group without a limit.
const PLENTY: u64 = 8 << 30;
/// Pages of a read of the scan.
const SCAN_PAGES: u64 = 32;
/// Source files of the compiled program, and functions in each.
const SOURCES: usize = 48;
const FUNCTIONS: usize = 60;
/// Comments of a header: 1.5 MiB.
const HEADER_LINES: usize = 24 << 10;
const COMMENT: &str = "// A line of a comment, so that there is more to read than to do\n";

/// A workload with the limits, in MiB, at which it runs.
struct Workload {
    name: &'static str,
    limits: [u64; 4],
    prepare: fn(&Path) -> Result<()>,
    /// Runs twice the same work, and returns what the second one has read.
    load: fn(&Path, f64) -> Result<Counted>,
}

const WORKLOADS: [Workload; 4] = [
    Workload {
        name: "zipf",
        limits: [48, 96, 144, 192],
        prepare: |dir| create(&dir.join("file"), 256),
        load: |dir, length| read_files(dir, (700_000.0 * length) as u64, false),
    },
    Workload {
        name: "scan",
        limits: [48, 96, 144, 192],
        prepare: |dir| {
            create(&dir.join("file"), 256)?;
            create(&dir.join("scanned"), 384)
        },
        load: |dir, length| read_files(dir, (500_000.0 * length) as u64, true),
    },
    Workload {
        name: "pgbench",
        limits: [96, 144, 192, 256],
        prepare: |dir| postgres::init(dir, 24),
        load: transactions,
    },
    Workload { name: "compile", limits: [64, 80, 96, 128], prepare: write_sources, load: compile },
];

/// What the second half of a load has read: pages, if it knows, and pages from the disk.
struct Counted {
    reads: Option<u64>,
    misses: u64,
}

/// A run of a load.
struct Ran {
    counted: Counted,
    /// page cache of its group in the second half, mean, in bytes; its limit if that was never reached
    cache: u64,
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [ARGUMENT, name, dir, length] = &words.iter().map(String::as_str).collect::<Vec<_>>()[..]
    {
        let counted = (workload(name)?.load)(Path::new(dir), length.parse()?)?;
        println!("{} {}", counted.reads.unwrap_or(0), counted.misses);
        return Ok(());
    }
    let o = Options::parse();
    let isotherm = o.isotherm.clone().map_or_else(beside, Ok)?;
    if let Some(times) = o.twins {
        ensure!(
            o.only.iter().any(|name| name != "pgbench"),
            "--twins cannot compare pgbench: its reads differ from run to run"
        );
        let comparable = o.only.iter().filter(|name| *name != "pgbench");
        let each: Vec<Result<()>> =
            comparable.map(|name| compare_twins(workload(name)?, times, &isotherm, &o)).collect();
        return each.into_iter().collect();
    }
    println!(
        "{:<10}{:>10}{:>12}{:>12}{:>12}{:>24}",
        "", "limit", "page cache", "real hits", "predicted", "95 % interval"
    );
    let (mut errors, mut inside) = (Vec::new(), 0);
    for name in &o.only {
        let workload = workload(name)?;
        let dir = tempfile::tempdir_in(&o.within)?;
        let path = dir.path().canonicalize()?;
        (workload.prepare)(&path)?;
        let real = workload
            .limits
            .iter()
            .map(|limit| run(workload, &path, limit * MIB, o.length, None))
            .collect::<Result<Vec<Ran>>>()?;
        let record = tempfile::NamedTempFile::new()?;
        run(workload, &path, PLENTY, o.length, Some((&isotherm, record.path())))?;
        let need = need(&isotherm, record.path(), &real)?;
        for (limit, ran) in workload.limits.iter().zip(&real) {
            let row = row(&need, ran.cache)?;
            let figure = |key: &str| row[key].as_f64().context("no figure");
            let reads = reads(&need, ran)?;
            let hits = 100.0 - ran.counted.misses as f64 * 100.0 / reads;
            let (predicted, low, high) =
                (figure("hit_percent")?, figure("hit_low_percent")?, figure("hit_high_percent")?);
            println!(
                "{:<10}{:>10}{:>12}{:>12}{:>12}{:>24}",
                workload.name,
                format!("{limit} MiB"),
                format!("{:.1} MiB", ran.cache as f64 / MIB as f64),
                format!("{hits:.2} %"),
                format!("{predicted:.2} %"),
                format!("{low:.1} to {high:.1} %")
            );
            errors.push((hits - predicted).abs() / 100.0);
            inside += usize::from(low <= hits && hits <= high);
        }
    }
    let mean = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
    let most = errors.iter().copied().fold(0.0, f64::max);
    println!(
        "\nmean absolute error {mean:.4}, largest {most:.4}; {inside} of {} within the interval",
        errors.len()
    );
    ensure!(mean <= 0.03, "the mean absolute error is above 0.03");
    Ok(())
}

fn workload(name: &str) -> Result<&'static Workload> {
    WORKLOADS.iter().find(|w| w.name == name).with_context(|| format!("no workload {name}"))
}

/// Compares what a watched load misses with what its twins miss: the same load before and after it, without a recorder.
fn compare_twins(workload: &Workload, times: usize, isotherm: &Path, o: &Options) -> Result<()> {
    let dir = tempfile::tempdir_in(&o.within)?;
    let path = dir.path().canonicalize()?;
    (workload.prepare)(&path)?;
    let (mut more, mut control) = (Vec::new(), Vec::new());
    for _ in 0..times {
        let record = tempfile::NamedTempFile::new()?;
        let misses = |recorder| {
            let ran = run(workload, &path, workload.limits[1] * MIB, o.length, recorder)?;
            anyhow::Ok(ran.counted.misses as f64)
        };
        let before = misses(None)?;
        let watched = misses(Some((isotherm, record.path())))?;
        let after = misses(None)?;
        more.push((watched / f64::midpoint(before, after) - 1.0) * 100.0);
        control.push((after / before - 1.0) * 100.0);
    }
    let list = |all: &[f64]| all.iter().map(|more| format!(" {more:+.2}")).collect::<String>();
    let (all, all_control) = (list(&more), list(&control));
    let [more, control] = [more, control].map(|all| middle(all).unwrap_or(f64::NAN));
    println!(
        "{:<10} a watched load misses {more:+.2} % more than its twins (control {control:+.2} %), median of {times}:{all} (control:{all_control})",
        workload.name
    );
    ensure!(more.abs() <= 2.0, "the misses differ by more than 2 %");
    Ok(())
}

/// Runs a load from an empty cache in a group with a limit, while a recorder watches it if there is one.
fn run(
    workload: &Workload,
    dir: &Path,
    limit: u64,
    length: f64,
    recorder: Option<(&Path, &Path)>,
) -> Result<Ran> {
    drop_cache(dir)?;
    let group = Limited::start(limit)?;
    let recorder = recorder.map(|(isotherm, to)| start_recorder(isotherm, dir, to)).transpose()?;
    let mut load = group.within(|| {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([ARGUMENT, workload.name]).arg(dir).arg(length.to_string());
        Ok(ChildGuard(command.stdout(Stdio::piped()).spawn()?))
    })?;
    let mut sizes = Vec::new();
    let status = loop {
        if let Some(status) = load.0.try_wait()? {
            break status;
        }
        sizes.push(file_cache(&group)?);
        sleep(Duration::from_millis(50));
    };
    ensure!(status.success(), "the load has failed");
    let second = sizes.split_off(sizes.len() / 2);
    let cache = match group.times_reached()? {
        0 => limit,
        _ => second.iter().sum::<u64>() / second.len().max(1) as u64,
    };
    let mut line = String::new();
    load.0.stdout.take().context("no output")?.read_to_string(&mut line)?;
    if let Some(recorder) = recorder {
        ensure!(recorder.stop(Signal::TERM)?.success(), "the recorder has failed");
    }
    let mut numbers = line.split_whitespace().map(str::parse);
    let mut number =
        || numbers.next().context("the load has printed no counts")?.context("no count");
    let (reads, misses): (u64, u64) = (number()?, number()?);
    Ok(Ran { counted: Counted { reads: (reads > 0).then_some(reads), misses }, cache })
}

fn start_recorder(isotherm: &Path, dir: &Path, to: &Path) -> Result<ChildGuard> {
    let mut command = dependent(isotherm);
    command.args(["record", "--reuse", "--dir"]).arg(dir).arg("-o").arg(to);
    // In folders, isotherm finds files only once they are cached.
    for entry in fs::read_dir(dir)?.take(8) {
        let path = entry?.path();
        if path.is_file() {
            command.arg("--file").arg(path);
        }
    }
    let recorder = ChildGuard(command.stderr(Stdio::null()).spawn()?);
    // Until it has loaded its programs.
    sleep(Duration::from_secs(3));
    Ok(recorder)
}

/// The report of a record, with rows for the sizes of the real caches.
fn need(isotherm: &Path, record: &Path, real: &[Ran]) -> Result<Value> {
    let mut report = Command::new(isotherm);
    report.args(["report", "need", "--json", "-i"]).arg(record);
    for ran in real {
        report.args(["--page-cache", &ran.cache.to_string()]);
    }
    let out = report.output()?;
    let need: Value = serde_json::from_slice(&out.stdout).context("no report")?;
    if need["cache"]["curve"].as_array().is_none_or(Vec::is_empty) {
        bail!("no curve: {}", need["cache"]["refused"]);
    }
    Ok(need)
}

fn row(need: &Value, cache: u64) -> Result<&Value> {
    let rows = need["cache"]["curve"].as_array().context("no curve")?;
    rows.iter().find(|row| row["cache_bytes"].as_u64() == Some(cache)).context("no such size")
}

/// Pages that the second half reads: by its own count, or by the record's.
fn reads(need: &Value, ran: &Ran) -> Result<f64> {
    if let Some(reads) = ran.counted.reads {
        return Ok(reads as f64);
    }
    let figure = |key: &str| need["cache"][key].as_f64().context("no figure");
    Ok(figure("reads_per_second")? * figure("counted_ms")? / 1e3)
}

fn create(path: &Path, mib: u64) -> Result<()> {
    let mut file = File::create(path)?;
    (0..mib).try_for_each(|_| file.write_all(&vec![7; MIB as usize]))?;
    Ok(file.sync_all()?)
}

/// Reads pages of a file by a zipf law, strewn over the file; with `scans`, three of ten reads go through a second
/// file in turn.
fn read_files(dir: &Path, reads: u64, scans: bool) -> Result<Counted> {
    let file = File::open(dir.join("file"))?;
    fadvise(&file, 0, None, Advice::Random)?;
    let scanned = if scans { Some(File::open(dir.join("scanned"))?) } else { None };
    let pages = file.metadata()?.len() / PAGE_SIZE;
    let sums: Vec<f64> = (1..=pages)
        .scan(0.0, |sum, rank| {
            *sum += (rank as f64).powf(-0.9);
            Some(*sum)
        })
        .collect();
    let all = sums.last().copied().unwrap_or(1.0);
    let mut draws = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut page = vec![0; PAGE_SIZE as usize];
    let mut part = vec![0; (SCAN_PAGES * PAGE_SIZE) as usize];
    let (mut at, mut done, mut next_scan, mut half) = (0, 0, 0, None);
    while done < reads {
        if done >= reads / 2 && half.is_none() {
            half = Some((done, read_bytes("self").context("no count")?));
        }
        let drawn = draws.next_u64() as f64 / u64::MAX as f64 * all;
        let rank = sums.partition_point(|sum| *sum < drawn) as u64;
        // A multiplication by an odd number permutes the pages of a power of two.
        let scattered = rank.wrapping_mul(0x9e37_79b1) % pages;
        file.read_exact_at(&mut page, scattered * PAGE_SIZE)?;
        done += 1;
        if let Some(scanned) = scanned.as_ref().filter(|_| done >= next_scan) {
            let parts = scanned.metadata()?.len() / (SCAN_PAGES * PAGE_SIZE);
            scanned.read_exact_at(&mut part, at % parts * SCAN_PAGES * PAGE_SIZE)?;
            at += 1;
            done += SCAN_PAGES;
            next_scan = done + SCAN_PAGES * 7 / 3;
        }
    }
    let (begun, bytes) = half.context("no half")?;
    let misses = (read_bytes("self").context("no count")? - bytes) / PAGE_SIZE;
    Ok(Counted { reads: Some(done - begun), misses })
}

/// Transactions by a zipf law: the smaller the number of an account, the more often it is used.
fn transactions(dir: &Path, length: f64) -> Result<Counted> {
    let script = dir.join("transaction.sql");
    fs::write(
        &script,
        "\\set id random_zipfian(1, 2400000, 1.05)\n\
         \\set account (:id * 1566083941) % 2400000 + 1\n\
         \\set other (:account * 7) % 2400000 + 1\n\
         UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :account;\n\
         SELECT abalance FROM pgbench_accounts WHERE aid = :other;\n\
         SELECT abalance FROM pgbench_accounts WHERE aid = (:other * 7) % 2400000 + 1;\n\
         SELECT abalance FROM pgbench_accounts WHERE aid = (:other * 11) % 2400000 + 1;\n",
    )?;
    let server = postgres::start(dir)?;
    let (mut bytes, mut half) = (0, 0);
    for seed in ["7", "8"] {
        half = bytes;
        let transactions = (10_000.0 * length) as u64;
        let mut run = postgres::pgbench(dir)?;
        run.args(["-n", "-c", "4", "-t", &transactions.to_string(), "--random-seed", seed, "-f"]);
        ensure!(run.arg(&script).arg("postgres").status()?.success(), "pgbench has failed");
        // The server's count has those of the processes that have ended.
        sleep(Duration::from_secs(1));
        bytes = read_bytes(&server.0.id().to_string()).context("no count")?;
    }
    postgres::stop(server)?;
    Ok(Counted { reads: None, misses: (bytes - half) / PAGE_SIZE })
}

/// A program of many files, each of which includes large headers.
fn write_sources(dir: &Path) -> Result<()> {
    for header in 0..SOURCES {
        let mut text = "#pragma once\n".to_owned();
        (0..HEADER_LINES).for_each(|_| text += COMMENT);
        for i in 0..200 {
            text += &format!(
                "static inline int header_{header}_{i}(int x) {{ return x * {i} + {header}; }}\n"
            );
        }
        fs::write(dir.join(format!("header_{header}.h")), text)?;
    }
    for source in 0..SOURCES {
        let mut text = String::new();
        // The first headers are included everywhere, the others now and then.
        for header in (0..6).chain([source, (source * 7 + 3) % SOURCES]) {
            text += &format!("#include \"header_{header}.h\"\n");
        }
        for i in 0..FUNCTIONS {
            text += &format!(
                "int source_{source}_{i}(int x) {{ return header_0_{i}(x) + header_1_{i}(x); }}\n"
            );
        }
        fs::write(dir.join(format!("source_{source}.c")), text)?;
    }
    // The compiler itself is in the cache before the first group starts, or else it would be charged to that one.
    build(dir, 0)
}

/// Compiles all sources, twice.
fn compile(dir: &Path, _: f64) -> Result<Counted> {
    // This process's count has those of the compilers that have ended.
    let bytes = || read_bytes("self").context("no count");
    let mut half = 0;
    for _ in 0..2 {
        half = bytes()?;
        (0..SOURCES).try_for_each(|source| build(dir, source))?;
    }
    Ok(Counted { reads: None, misses: (bytes()? - half) / PAGE_SIZE })
}

/// Compiles a source.
fn build(dir: &Path, source: usize) -> Result<()> {
    let name = |ending: &str| dir.join(format!("source_{source}.{ending}"));
    let (to, from) = (name("o"), name("c"));
    let built = Command::new("cc").args(["-O0", "-g", "-c", "-o"]).arg(to).arg(from).status()?;
    ensure!(built.success(), "cc has failed");
    Ok(())
}
