//! `isotherm lab workload`: it makes the described accesses, and a monitor reports the same of it as of this
//! workload on the simulated machine.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, Attrs, MonitorKind, Snapshot, TargetId};
use isotherm_sim::workload::{Named, Schedule, Workload, WorkloadLayout, play};
use isotherm_sim::{Accuracy, AccuracyBuilder, GroundTruth, MachineKind, ScoreStatistics};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::kill_on_drop::KillOnDrop;
use crate::run::{Record, Recorder, isotherm, needs_root, run_in, until, wait};

const SMALL: &str = r#"
about = "a little of everything"
region = [
    { name = "paced", size = "8M" },
    { name = "in order", size = "4M" },
    { name = "sparse", size = "8M" },
    { name = "skewed", size = "8M" },
    { name = "moving", size = "8M" },
    { name = "max", size = "4M" },
]
phase = [
    { name = "on", duration = "1500ms", access = [
        { region = "paced", rate = 20, threads = 2 },
        { region = "in order", rate = 4, order = "sequential", op = "write" },
        { region = "sparse", rate = 50, order = { strided = { stride = 16 } } },
        { region = "skewed", rate = 10, order = { zipf = { exponent = 1, block = "1M" } } },
        { region = "moving", rate = 50, order = { moving = { window = "2M", every = "500ms" } } },
        { region = "max", rate = "max" },
    ] },
    { name = "off", duration = "500ms" },
]"#;

/// Every 16th page is hot.
const SCATTERED: &str = r#"
about = "hot pages among cold ones"
islands = 0
region = [{ name = "strewn", size = "32M" }]
phase = [{ name = "on", duration = "1s", access = [
    { region = "strewn", rate = 200, order = { strided = { stride = 16 } } },
] }]"#;

/// The named workload with a quarter of its memory, because an unoptimized program needs time to touch it.
fn ladder() -> String {
    include_str!("../../../sim/workloads/rate-ladder.toml").replace("\"8M\"", "\"2M\"")
}

/// `isotherm lab workload` once its memory exists; killed when dropped.
pub struct Running {
    process: KillOnDrop,
    pub dir: TempDir,
    ready: serde_json::Value,
}

impl Running {
    pub fn start(name: &str, options: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("small.toml"), SMALL).unwrap();
        fs::write(dir.path().join("ladder.toml"), ladder()).unwrap();
        fs::write(dir.path().join("strewn.toml"), SCATTERED).unwrap();
        let mut command = isotherm(["lab", "workload", name, "--truth", "truth.json"]);
        command.args(options).current_dir(dir.path());
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap();
        Running { process: KillOnDrop(process), dir, ready }
    }

    pub fn pid(&self) -> String {
        self.process.id().to_string()
    }

    fn proc(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.pid()).join(name)
    }

    /// Its memory.
    pub fn memory(&self) -> AddrRange {
        let at = |key: &str| self.ready[key].as_u64().unwrap();
        AddrRange::new(at("start"), at("end"))
    }

    /// Bytes of its memory that are in swap.
    pub fn swapped(&self) -> u64 {
        smaps(&self.proc("smaps"), self.memory(), "Swap:")
    }

    pub fn end(&mut self) -> GroundTruth {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        self.truth()
    }

    /// The truth, once it has ended by itself.
    fn truth(&mut self) -> GroundTruth {
        assert_eq!(wait(&mut self.process).code(), Some(0));
        let text = fs::read_to_string(self.dir.path().join("truth.json")).unwrap();
        let truth: GroundTruth = serde_json::from_str(&text).unwrap();
        truth.checked().unwrap()
    }
}

/// Touches of a region of a truth, and the maximum number of its pages that were touched in an interval.
fn touched(truth: &GroundTruth, name: &str) -> (u64, u64) {
    let parts = truth.stretches.iter().enumerate().filter(|(_, s)| s.name == name);
    let most = |i: usize| truth.intervals.iter().map(|v| v.touched[i]).max().unwrap();
    parts.fold((0, 0), |(touches, pages), (i, _)| (touches + truth.touches(i), pages + most(i)))
}

#[test]
fn the_workload_counts_its_touches() {
    let mut running = Running::start("small.toml", &["--seed", "3"]);
    assert_eq!(running.ready["pid"].as_u64(), Some(running.process.id().into()));
    let memory = running.memory();
    let truth = running.truth();
    assert_eq!((truth.seed, truth.machine), (3, MachineKind::Real));
    let ends = [truth.stretches[0].start, truth.stretches.last().unwrap().end];
    assert_eq!(ends, [memory.start, memory.end]);
    // It never makes more touches than planned. How many fewer depends on the load of the machine.
    for (name, planned, pages) in [
        ("paced", 2048 * 30, 2048),
        ("in order", 1024 * 6, 1024),
        ("sparse", 128 * 75, 128),
        ("skewed", 2048 * 15, 2048),
        ("moving", 512 * 75, 1536),
    ] {
        let (touches, most) = touched(&truth, name);
        assert!((planned / 10..=planned).contains(&touches), "{name}: {touches} of {planned}");
        assert!((pages / 5..=pages).contains(&most), "{name}: {most} pages of {pages}");
    }
    let (max, pages) = touched(&truth, "max");
    assert!(max > 1024 * 5 && pages == 1024, "{max} touches of {pages} pages");
    assert!(touched(&truth, "island").0 > 256 * 10);
    assert_eq!(touched(&truth, "cold"), (0, 0));
    // Only the islands in the last phase.
    let (last, before) = truth.intervals.split_last().unwrap();
    assert_eq!((last.phase.as_str(), before.len()), ("off", 3));
    let still = |i: &usize| truth.stretches[*i].name == "island" || last.touches[*i] == 0;
    assert!((0..truth.stretches.len()).all(|i| still(&i)), "{last:?}");
}

#[test]
fn a_signal_ends_it_with_a_truth() {
    let mut running = Running::start("small.toml", &["--duration", "1h"]);
    let truth = running.end();
    assert!(truth.intervals.len() < 60);
}

/// The sum of a field of smaps over the mappings in a range, in bytes.
fn smaps(path: &Path, range: AddrRange, field: &str) -> u64 {
    let (mut inside, mut sum) = (false, 0);
    for line in fs::read_to_string(path).unwrap().lines() {
        let first = line.split([' ', '-']).next().unwrap();
        if let (false, Ok(start)) = (first.ends_with(':'), u64::from_str_radix(first, 16)) {
            inside = range.contains(start);
        } else if let (true, Some(rest)) = (inside, line.strip_prefix(field)) {
            sum += rest.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
        }
    }
    sum
}

#[test]
fn memory_is_backed_as_the_workload_defines() {
    let small = Running::start("small.toml", &["--duration", "1h"]);
    let (memory, path) = (small.memory(), small.proc("smaps"));
    assert_eq!(smaps(&path, memory, "Rss:"), memory.len());
    assert_eq!(smaps(&path, memory, "AnonHugePages:"), 0);
    drop(small);
    let huge = Running::start("thp", &["--duration", "1h"]);
    let there = smaps(&huge.proc("smaps"), huge.memory(), "AnonHugePages:");
    let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap();
    let never = enabled.contains("[never]");
    assert!(never || (300 << 20..=384 << 20).contains(&there), "{} MiB", there >> 20);
}

/// Another program can read its counters while it runs.
#[test]
fn its_counts_can_be_read_while_it_runs() {
    let mut running = Running::start("small.toml", &["--duration", "1h"]);
    let at = |key: &str| running.ready["counts"][key].as_u64().unwrap();
    let (start, length) = (at("start"), at("end") - at("start"));
    let memory = fs::File::open(running.proc("mem")).unwrap();
    let sum = || -> u64 {
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        memory.read_exact_at(&mut bytes, start).unwrap();
        bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).sum()
    };
    let before = sum();
    until("touches", || sum() > before);
    let last = sum();
    let truth = running.end();
    assert_eq!(length, 8 * truth.stretches.len() as u64);
    let all: u64 = (0..truth.stretches.len()).map(|i| truth.touches(i)).sum();
    assert!(all >= last, "{all} after {last}");
}

#[test]
fn shared_memory_is_mapped_twice_while_it_runs() {
    let mut running = Running::start("fork", &["--duration", "1h"]);
    let child = running.ready["child"].as_u64().unwrap();
    let path = PathBuf::from(format!("/proc/{child}"));
    let rss = smaps(&path.join("smaps"), running.memory(), "Rss:");
    assert_eq!(rss, 128 << 20, "the child has what is shared, and nothing else of it");
    let (all, half) = (running.memory(), 64 << 20);
    let ours = smaps(&running.proc("smaps"), all, "Pss:");
    assert!(ours.abs_diff(all.len() - half) < 1 << 20, "{} of {}", ours >> 20, all.len() >> 20);
    running.end();
    until("the end of the child", || !path.exists());
}

#[test]
fn an_unknown_workload_is_reported() {
    let dir = TempDir::new().unwrap();
    let run = |args: &[&str]| run_in(dir.path(), &[&["lab", "workload"], args].concat());
    let list = run(&["--list"]);
    assert_eq!((list.status, list.text().lines().count()), (0, 11));
    let none = run(&["no-such-thing"]);
    assert_eq!(none.status, 1);
    assert!(
        none.err.contains("hot-warm-cold") && none.err.contains("No such file"),
        "{}",
        none.err
    );
    fs::write(dir.path().join("bad.toml"), SMALL.replace("threads", "thread")).unwrap();
    for (args, said) in [
        (&["bad.toml"][..], "unknown field `thread`"),
        (&["zipf", "--duration", "24h"], "shorter --duration"),
        (&["zipf", "--duration", "0"], "duration"),
        (&[], "NAME|FILE"),
    ] {
        let done = run(args);
        assert_eq!(done.status, 2, "{args:?}: {}", done.err);
        assert!(done.err.contains(said) && done.out.is_empty(), "{args:?}: {}", done.err);
    }
    let done = run(&["small", "--truth", "/no/such/directory/truth.json"]);
    assert_eq!(done.status, 1);
    fs::write(dir.path().join("big.toml"), "#".repeat(1 << 20) + SMALL).unwrap();
    assert!(run(&["big.toml"]).err.contains("longer than 1 MiB"));
}

const LENGTH: Duration = Duration::from_secs(10);

/// The accuracy of a monitor: medians over snapshots, because memory of a process that waits for a CPU looks
/// cold. Each machine is compared with its own truth, because a busy one touches less than planned.
#[derive(Debug)]
struct Right {
    hot_precision: f64,
    hot_recall: f64,
    cold_precision: f64,
    cold_recall: f64,
}

impl Right {
    fn all(&self) -> [f64; 4] {
        [self.hot_precision, self.hot_recall, self.cold_precision, self.cold_recall]
    }
}

fn right(snapshots: &[Arc<Snapshot>], target: TargetId, truth: &GroundTruth) -> Right {
    let mut builder = AccuracyBuilder::new(truth, target);
    snapshots.iter().for_each(|s| builder.push(s));
    let Accuracy { hot, cold, .. } = builder.finish();
    let median = |f: ScoreStatistics| f.median.unwrap_or(0.0);
    Right {
        hot_precision: median(hot.precision),
        hot_recall: median(hot.recall),
        cold_precision: median(cold.precision),
        cold_recall: median(cold.recall),
    }
}

fn on_the_real_machine(name: &str) -> Right {
    let mut running = Running::start(name, &["--duration", "1h"]);
    let (pid, seconds) = (running.pid(), LENGTH.as_secs().to_string());
    let default = ["--sample", "20ms", "--aggr", "400ms"];
    let options = ["--pid", &pid, "--duration", &seconds, "--seed", "1"];
    let mut recorder = Recorder::start(&[&options[..], &default].concat());
    assert_eq!(recorder.wait().code(), Some(0), "{}", recorder.err());
    let record = Record::read(&recorder.record());
    right(&record.snapshots, record.targets[0].id, &running.end())
}

fn on_the_simulated_machine(name: &str) -> Right {
    let named = Named::find(name).map(|n| n.workload());
    let w = named.unwrap_or_else(|| Workload::parse(&ladder())).unwrap();
    let schedule = Schedule::new(&w, &WorkloadLayout::new(&w, 1), Some(LENGTH)).unwrap();
    let attrs = Attrs { monitor: MonitorKind::Regions, ..Attrs::default() };
    let played = play((name, &w), &schedule, 1, attrs).unwrap();
    right(&played.snapshots, played.target, &played.truth)
}

/// Maximum difference of shares. By the bench `accuracy`, precision and recall of hot memory, and precision
/// of cold memory, are 0.95 or more on both machines. Recall of cold memory is about 0.8, because the region
/// around an island is warm. The size of that region depends on random looks, and recall differs by 0.05
/// between machines. This is twice that, for a machine with other work.
const APART: f64 = 0.1;
const TRIES: usize = 5;

#[test]
fn the_simulated_machine_shows_the_same_as_the_real_one() {
    needs_root!();
    for name in ["hot-warm-cold", "ladder.toml"] {
        let simulated = on_the_simulated_machine(name);
        assert!(simulated.hot_precision > 0.9 && simulated.hot_recall > 0.9, "{simulated:.3?}");
        let alike = |real: &Right| {
            let pairs = real.all().into_iter().zip(simulated.all());
            pairs.map(|(a, b)| (a - b).abs()).all(|apart| apart <= APART)
        };
        // If others take the CPUs, a monitor is too late to observe anything, so it may try again.
        let mut tries = Vec::new();
        while tries.len() < TRIES && !tries.last().is_some_and(alike) {
            tries.push(on_the_real_machine(name));
        }
        assert!(tries.last().is_some_and(alike), "{name}: {tries:.3?}, {simulated:.3?}");
    }
}

#[test]
fn a_recording_is_scored_against_the_truth() {
    needs_root!();
    let mut running = Running::start("ladder.toml", &["--duration", "1h"]);
    let mut recorder = Recorder::start(&["--pid", &running.pid(), "--duration", "5s"]);
    assert_eq!(recorder.wait().code(), Some(0), "{}", recorder.err());
    let truth = running.end();
    let dir = running.dir.path();
    fs::copy(recorder.record(), dir.join("isotherm.rec")).unwrap();
    let run = |args: &[&str]| run_in(dir, &[&["report", "accuracy"], args].concat());

    let json = run(&["--truth", "truth.json", "--json"]);
    let json: serde_json::Value = serde_json::from_str(json.text()).unwrap();
    let record = Record::read(&recorder.record());
    let mut builder = AccuracyBuilder::new(&truth, record.targets[0].id);
    record.snapshots.iter().for_each(|s| builder.push(s));
    let here = builder.finish();
    assert!(here.snapshots > 4, "{here:?}");
    assert_eq!(json["snapshots"].as_u64(), Some(here.snapshots as u64));
    let recall = json["hot"]["recall"]["run"].as_f64().unwrap();
    assert!((recall - here.hot.recall.run.unwrap()).abs() < 1e-9, "{recall}");
    assert_eq!(json["schema_version"], 1);
    let documented = include_str!("../../../../docs/abi/testing/accuracy.md");
    for key in json.as_object().unwrap().keys() {
        assert!(documented.contains(&format!("`{key}`")), "{key} is not documented");
    }
    let rows = documented.lines().filter(|l| l.starts_with("| `"));
    for name in rows.flat_map(|l| l.split('|').nth(1).unwrap().split('`').skip(1).step_by(2)) {
        assert!(json.get(name).is_some(), "{name} is documented, and not there");
    }
    let text = run(&["--truth", "truth.json"]);
    for part in ["workload ladder.toml", "precision", "recall", "cold"] {
        assert!(text.text().contains(part), "{part} is not in {}", text.text());
    }

    for (args, said) in [
        (&["--truth", "isotherm.rec"][..], "not the truth of a workload"),
        (&["--truth", "none.json"], "cannot read none.json"),
        (&["--truth", "truth.json", "--target", "redis"], "no target matches"),
        (&["--truth", "truth.json", "--input", "none.rec"], "none.rec"),
    ] {
        let done = run(args);
        assert_eq!((done.status, done.out.len()), (1, 0), "{args:?}");
        assert!(done.err.contains(said), "{args:?}: {}", done.err);
    }
    // Another process has no memory there.
    let mut elsewhere = truth.clone();
    elsewhere.stretches.truncate(1);
    (elsewhere.stretches[0].start, elsewhere.stretches[0].end) = (4096, 8192);
    elsewhere.intervals.clear();
    fs::write(dir.join("elsewhere.json"), serde_json::to_string(&elsewhere).unwrap()).unwrap();
    assert!(run(&["--truth", "elsewhere.json"]).err.contains("of another process"));
    let other = fs::read_to_string(dir.join("truth.json")).unwrap();
    let mut other: GroundTruth = serde_json::from_str(&other).unwrap();
    other.intervals.clear();
    fs::write(dir.join("other.json"), serde_json::to_string(&other).unwrap()).unwrap();
    assert!(run(&["--truth", "other.json"]).err.contains("from the time of the truth"));
}
