//! Residency of a tree of many files: `isotherm files` compared with vmtouch, on the same pages.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use isotherm_bench::{program, usage};
use rustix::fs::{Advice, fadvise};
use serde_json::Value;

/// Measures how long vmtouch and isotherm need to count the cached pages of a tree, alternately.
#[derive(Parser)]
struct Options {
    /// number of files
    #[arg(long, default_value_t = 100_000)]
    files: u64,
    /// size of all files in MiB; every fourth file is cached in part only, every tenth not at all
    #[arg(long, default_value_t = 10 << 10)]
    mib: u64,
    /// files in each folder
    #[arg(long, default_value_t = 500)]
    folder: u64,
    /// runs of each program, alternately
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// create small files until the machine has so many inodes in memory; one in four has a page
    #[arg(long, default_value_t = 0)]
    inodes: u64,
    /// then list all files of the machine in as many rounds, and watch them for so many seconds, with an output each second
    #[arg(long, default_value_t = 0)]
    watch: u64,
    /// create the tree in this folder
    #[arg(long, default_value = ".")]
    within: PathBuf,
    /// the program [default: that next to this one]
    #[arg(long)]
    isotherm: Option<PathBuf>,
}

const PAGE: u64 = 4096;

/// Maximum time of a listing of the machine, and maximum CPU time of an output each second.
const MAX_LISTING: Duration = Duration::from_secs(1);
const MAX_CPU_PERCENT: f64 = 0.5;

fn main() -> Result<ExitCode> {
    let o = Options::parse();
    let isotherm = o.isotherm.clone().map_or_else(program::beside, Ok)?;
    let dir = tempfile::tempdir_in(&o.within)?;
    let empty = tempfile::tempdir_in(&o.within)?;
    create(dir.path(), &o)?;
    println!("{} files, {} MiB, {} in a folder", o.files, o.mib, o.folder);
    println!("{} inodes in memory, of all file systems", inodes()?);
    println!("{:<22} {:>9} {:>9} {:>10} {:>10}", "", "s", "CPU s", "peak MiB", "pages");
    let (mut by_vmtouch, mut by_isotherm, mut of_empty) = (Vec::new(), Vec::new(), Vec::new());
    let vmtouch = |root: &Path| run(Command::new("vmtouch").arg(root), vmtouch_pages);
    by_vmtouch.push(vmtouch(dir.path())?);
    for _ in 0..o.rounds {
        for (root, runs) in [(dir.path(), &mut by_isotherm), (empty.path(), &mut of_empty)] {
            let mut command = Command::new(&isotherm);
            command.arg("files").arg(root).args(["--json", "--limit", "1"]);
            runs.push(run(&mut command, isotherm_pages)?);
        }
        by_vmtouch.push(vmtouch(dir.path())?);
    }
    // The kernel may evict pages in the meantime: then both runs of vmtouch around a run differ,
    // too.
    let same = by_isotherm.iter().zip(by_vmtouch.windows(2)).filter(|(own, around)| {
        let pages = || around.iter().map(|run| run.3);
        pages().min() <= Some(own.3) && Some(own.3) <= pages().max()
    });
    println!(
        "the same pages as vmtouch before or after it, or between: {} of {} runs",
        same.count(),
        o.rounds
    );
    let vmtouch = show("vmtouch", &mut by_vmtouch);
    let own = show("isotherm files", &mut by_isotherm);
    // What each run requires: it loads BPF programs, and visits all inodes of the file system.
    show("  of an empty folder", &mut of_empty);
    println!(
        "vmtouch takes {:.1} times as long, and {:.1} times the CPU time",
        vmtouch.0 / own.0,
        vmtouch.1 / own.1
    );
    let holds = o.watch == 0 || {
        add_inodes(&dir.path().join("inodes"), o.inodes)?;
        // Not one bound only if the other one is broken.
        list_all(&isotherm, o.rounds)? & watch(&isotherm, o.watch)?
    };
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The number of inodes in memory.
fn inodes() -> Result<u64> {
    let inodes = std::fs::read_to_string("/proc/sys/fs/inode-nr")?;
    Ok(inodes.split_whitespace().next().context("no number")?.parse()?)
}

fn add_inodes(root: &Path, wanted: u64) -> Result<()> {
    const FOLDER: u64 = 500;
    for i in 0..wanted.saturating_sub(inodes()?) {
        let folder = root.join((i / FOLDER).to_string());
        if i % FOLDER == 0 {
            std::fs::create_dir_all(&folder)?;
        }
        let content: &[u8] = if i % 4 == 0 { &[7] } else { &[] };
        std::fs::write(folder.join(i.to_string()), content)?;
    }
    Ok(())
}

/// Prints the time to list all files of the machine once.
fn list_all(isotherm: &Path, rounds: usize) -> Result<bool> {
    let mut runs = Vec::new();
    for _ in 0..rounds {
        let mut command = Command::new(isotherm);
        runs.push(run(command.args(["files", "--json", "--limit", "10"]), isotherm_pages)?);
    }
    println!("{} inodes", inodes()?);
    let (time, _) = show("all files", &mut runs);
    Ok(time <= MAX_LISTING.as_secs_f64())
}

/// Prints the CPU time of `isotherm files --watch` after its first output.
fn watch(isotherm: &Path, seconds: u64) -> Result<bool> {
    let mut command = Command::new(isotherm);
    command.args(["files", "--watch", "--interval", "1s", "--json"]);
    let begin = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let mut next =
        || -> Result<Value> { Ok(serde_json::from_str(&lines.next().context("it has ended")??)?) };
    let files = next()?.pointer("/total/files").and_then(Value::as_u64);
    let first = begin.elapsed();
    let pid = i32::try_from(child.id())?;
    let (begin, before) = (Instant::now(), usage::of(pid)?.cpu);
    let mut oldest = [0; 2];
    while begin.elapsed() < Duration::from_secs(seconds) {
        let line = next()?;
        for (oldest, key) in oldest.iter_mut().zip(["listed_ms_ago", "read_ms_ago"]) {
            *oldest = line.get(key).and_then(Value::as_u64).unwrap_or(0).max(*oldest);
        }
    }
    let used = (usage::of(pid)?.cpu - before).as_secs_f64() / begin.elapsed().as_secs_f64();
    child.kill()?;
    child.wait()?;
    println!(
        "watch: {} cached files, first output after {:.2} s, then {:.2} % of a CPU for {seconds} s; oldest listing {:.0} s, oldest figures of the first files {:.1} s",
        files.unwrap_or(0),
        first.as_secs_f64(),
        used * 100.0,
        oldest[0] as f64 / 1e3,
        oldest[1] as f64 / 1e3
    );
    Ok(used * 100.0 <= MAX_CPU_PERCENT)
}

/// A file has content, since a hole has no pages to count.
fn create(root: &Path, o: &Options) -> Result<()> {
    let pages = (o.mib << 20) / PAGE / o.files.max(1);
    ensure!(pages > 0, "--mib is too small: less than a page for each file");
    let content = vec![7; usize::try_from(pages * PAGE)?];
    for i in 0..o.files {
        let folder = root.join((i / o.folder).to_string());
        if i % o.folder == 0 {
            std::fs::create_dir(&folder)?;
        }
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(folder.join(i.to_string()))?;
        file.write_all_at(&content, 0)?;
    }
    // Until they are on the disk, pages cannot leave the cache.
    ensure!(Command::new("sync").arg("-f").arg(root).status()?.success(), "sync has failed");
    for i in (0..o.files).filter(|i| i % 4 == 0 || i % 10 == 0) {
        let file = File::open(root.join((i / o.folder).to_string()).join(i.to_string()))?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
        fadvise(&file, 0, None, Advice::Random)?;
        if i % 10 != 0 {
            (0..pages).step_by(3).try_for_each(|page| file.read_exact_at(&mut [0], page * PAGE))?;
        }
    }
    Ok(())
}

/// Seconds, CPU seconds, peak MiB and counted pages.
type Run = (f64, f64, f64, u64);

fn run(command: &mut Command, pages: fn(&str) -> Option<u64>) -> Result<Run> {
    let name = command.get_program().display().to_string();
    let mut output = tempfile::NamedTempFile::new()?;
    command.stdout(output.reopen()?).stderr(Stdio::inherit());
    let used = usage::run(command).with_context(|| format!("cannot run {name}"))?;
    ensure!(used.status.success(), "{name} has failed");
    let mut text = String::new();
    std::io::Read::read_to_string(output.as_file_mut(), &mut text)?;
    let pages = pages(&text).with_context(|| format!("{name} printed {text:?}"))?;
    Ok((
        used.time.as_secs_f64(),
        used.cpu.as_secs_f64(),
        used.peak_rss as f64 / (1 << 20) as f64,
        pages,
    ))
}

/// `Resident Pages: 12/34  ...`
fn vmtouch_pages(text: &str) -> Option<u64> {
    text.split_once("Resident Pages: ")?.1.split_once('/')?.0.parse().ok()
}

fn isotherm_pages(text: &str) -> Option<u64> {
    let found: Value = serde_json::from_str(text).ok()?;
    Some(found.get("total")?.get("resident_bytes")?.as_u64()? / PAGE)
}

/// Prints the run of median time.
fn show(name: &str, runs: &mut [Run]) -> (f64, f64) {
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (time, cpu, mib, pages) = runs.get(runs.len() / 2).copied().unwrap_or_default();
    println!("{name:<22} {time:>9.3} {cpu:>9.3} {mib:>10.1} {pages:>10}");
    (time, cpu)
}
