//! The evaluation on a tiny redis-server: a run, the same again, and another setup.

#![allow(clippy::unwrap_used)]

#[path = "../../crates/linux/tests/common/swap.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod alone;

use std::path::Path;
use std::process::{Command, Output};

use isotherm_evaluation::folder::{FolderSettings, PLAN_VERSION, ResultsFolder};
use isotherm_evaluation::locked;
use serde_json::{Value, json};

use self::alone::Alone;

/// Whether the test can run here. Where all tests must run, a missing requirement is a failure.
fn can_run() -> bool {
    let program = Path::new(env!("CARGO_BIN_EXE_evaluate")).with_file_name("isotherm");
    let lacks = [
        (!rustix::process::geteuid().is_root(), "root"),
        (!Path::new("/sys/class/zram-control").exists(), "zram"),
        (Command::new("redis-server").arg("--version").output().is_err(), "redis-server"),
        (!program.exists(), "isotherm beside it (cargo test --workspace)"),
    ];
    let lacking: Vec<&str> =
        lacks.into_iter().filter(|(is, _)| *is).map(|(_, what)| what).collect();
    let required = std::env::var_os("ISOTHERM_REQUIRE_ALL").is_some();
    assert!(lacking.is_empty() || !required, "the evaluation takes {}", lacking.join(", "));
    if !lacking.is_empty() {
        eprintln!("skipped the evaluation: it takes {}", lacking.join(", "));
    }
    lacking.is_empty()
}

fn evaluate(dir: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evaluate"));
    command.args(["--out", "runs", "--times", "1", "--size", "32", "--rate", "2000"]);
    command.args(["--configs", "prcl", "--workloads", "redis-together", "--json", "all.json"]);
    command.args(options).current_dir(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn all_runs(dir: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(dir.join("all.json")).unwrap()).unwrap()
}

/// What a run changes on the machine: swap, by device, and the setting of huge pages.
fn machine() -> (Vec<String>, String) {
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    let device = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let swaps = read("/proc/swaps").lines().filter_map(device).collect();
    (swaps, read("/sys/kernel/mm/transparent_hugepage/enabled"))
}

#[test]
fn a_run_is_made_once_and_puts_the_machine_back() {
    if !can_run() {
        return;
    }
    // A run makes swap of its own.
    let Some(_alone) = Alone::without_swap() else { return };
    let dir = tempfile::tempdir().unwrap();
    let before = machine();
    // Cold memory is paged out after 5 s.
    let times = ["--seconds", "12", "--lead-in", "4", "--slices", "12"];
    let done = evaluate(dir.path(), &times);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(machine(), before);

    let json = || all_runs(dir.path());
    let all = json();
    let figures = &all["runs"][0]["outcome"]["Ok"];
    let number = |path: &str| figures.pointer(path).and_then(Value::as_f64).unwrap_or(f64::NAN);
    assert!(number("/work/PerSecond") > 1000.0, "{all}");
    assert!(number("/latency/p99") >= number("/latency/p50"), "{all}");
    assert!(number("/own_cpu") > 0.0, "{all}");
    // The memory of real programs compresses as this does; little of it does less well.
    let held = number("/memory/held");
    assert!(held > f64::from(2 << 20), "{held} bytes went: {all}");
    let ratio = held / number("/memory/zram");
    assert!((2.0..3.7).contains(&ratio), "{ratio}: {all}");

    let again = evaluate(dir.path(), &times);
    assert!(text(&again.stderr).contains("1 runs, 1 of them are there"), "{}", text(&again.stderr));
    assert_eq!(json(), all, "nothing was run again");
    let other = evaluate(dir.path(), &["--seconds", "5"]);
    assert!(!other.status.success());
    assert!(text(&other.stderr).contains("with other settings"), "{}", text(&other.stderr));
}

/// isotherm works for half of the time, and its record comes to a good end.
#[test]
fn rec_is_held_against_its_own_slices_at_rest() {
    if !can_run() {
        return;
    }
    let Some(_alone) = Alone::without_swap() else { return };
    let dir = tempfile::tempdir().unwrap();
    let times = ["--configs", "rec", "--seconds", "2", "--lead-in", "2", "--slices", "4"];
    let done = evaluate(dir.path(), &times);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let all = all_runs(dir.path());
    let figures = &all["runs"][0]["outcome"]["Ok"];
    let sliced = &figures["sliced"];
    assert_eq!(sliced["pairs"].as_array().map(Vec::len), Some(2), "{all}");
    assert!(sliced["alone"].as_f64().unwrap() > 1000.0, "{all}");
    assert!(sliced["slowdown"]["error"].is_number(), "{all}");
    assert_eq!(figures["work"]["PerSecond"], sliced["watched"]);
    assert!(figures["seconds"].as_f64().unwrap() >= 9.0, "half of 2 s, and 4 slices of 2: {all}");
}

/// Without turns, each slice is a pair of its own: the program, and its twin without huge pages.
#[test]
fn a_kernel_and_a_counting_command_have_a_twin() {
    if !can_run() {
        return;
    }
    let Some(_alone) = Alone::without_swap() else { return };
    let dir = tempfile::tempdir().unwrap();
    let counter = "i=0; while :; do i=$((i + 1)); [ $((i % 1000)) -gt 0 ] || echo so far: $i; done";
    let counter =
        format!("name = 'counter'\ncommand = ['sh', '-c', '{counter}']\ncount = 'far:'\n");
    std::fs::write(dir.path().join("counter.toml"), counter).unwrap();
    let workloads = ["--configs", "thp", "--workloads", "dedup,counter.toml"];
    let done = evaluate(dir.path(), &[&workloads[..], &["--seconds", "4"]].concat());
    assert!(done.status.success(), "{}", text(&done.stderr));
    let all = all_runs(dir.path());
    for (i, name) in ["dedup", "counter"].iter().enumerate() {
        let run = &all["runs"][i];
        assert_eq!(run["workload"], *name, "{all}");
        let sliced = &run["outcome"]["Ok"]["sliced"];
        assert_eq!(sliced["pairs"].as_array().map(Vec::len), Some(2), "{all}");
        let [own, twin] = ["watched", "alone"].map(|key| sliced[key].as_f64().unwrap());
        assert!(own > 0.0 && twin > 0.0, "{all}");
    }
}

#[test]
fn a_folder_that_is_not_there_is_wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    let done = evaluate(dir.path(), &["--report", "none"]);
    assert_eq!(done.status.code(), Some(2));
    let said = text(&done.stderr);
    assert!(said.starts_with("evaluate: cannot read none/setup.json"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// Both options were ignored.
#[test]
fn a_report_is_of_the_named_workloads_and_configurations() {
    let results = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/measurements/data/programs");
    let report = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evaluate"));
        command.args(["--report", results]).args(options).output().unwrap()
    };
    let done = report(&["--workloads", "lu,duckdb", "--configs", "orig,rec"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let out = text(&done.stdout);
    let rows: Vec<&str> = out.lines().filter(|l| l.starts_with("lu ")).collect();
    assert!(rows.iter().any(|row| row.contains(" rec ")), "{out}");
    assert!(!rows.iter().any(|row| row.contains(" thp ")) && !out.contains("fft"), "{out}");
    let done = report(&["--workloads", "lu,nothing"]);
    assert_eq!(done.status.code(), Some(2));
    let said = text(&done.stderr);
    assert!(said.starts_with("evaluate: no run of nothing in "), "{said}");
}

/// The reader of the results, for example `head`, has seen enough.
#[test]
fn a_closed_pipe_is_no_error() {
    let results = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/measurements/data/programs");
    let report = |options: &[&str]| {
        let (closed, output) = std::io::pipe().unwrap();
        drop(closed);
        let mut command = Command::new(env!("CARGO_BIN_EXE_evaluate"));
        let done = command.args(["--report", results]).args(options).stdout(output).output();
        let done = done.unwrap();
        (done.status.code(), text(&done.stderr))
    };
    assert_eq!(report(&[]), (Some(0), String::new()));
    // Two bounds are broken, whoever reads of them.
    let (status, said) = report(&["--check"]);
    assert!(status == Some(1) && said.contains("bounds are broken"), "{said}");
}

/// The results of the same program without and with locks, by the limit; `None`: the run has failed.
fn locked_runs(dir: &Path, runs: &[(u64, [Option<f64>; 2])]) {
    let line = |(limit, locked, rate): (u64, bool, Option<f64>)| {
        let measured = |rate| json!({ "used": 1, "rate": rate, "faults": 1.0, "locked_bytes": 0 });
        let outcome =
            rate.map_or(json!({ "Err": "killed" }), |rate| json!({ "Ok": measured(rate) }));
        json!({
            "program": "sort", "swap": "zram", "limit": limit, "repetition": 0, "locked": locked,
            "outcome": outcome,
        })
    };
    let both = |&(limit, [orig, lock]): &(u64, [Option<f64>; 2])| {
        [(limit, false, orig), (limit, true, lock)].map(line)
    };
    let lines: Vec<String> = runs.iter().flat_map(both).map(|line| format!("{line}\n")).collect();
    std::fs::write(dir.join("locked.jsonl"), lines.concat()).unwrap();
}

#[test]
fn locked_runs_that_failed_do_not_pass_the_check() {
    let dir = tempfile::tempdir().unwrap();
    let check = |runs: &[(u64, [Option<f64>; 2])]| {
        locked_runs(dir.path(), runs);
        let mut command = Command::new(env!("CARGO_BIN_EXE_evaluate"));
        let done =
            command.args(["--locked", "--check", "--report"]).arg(dir.path()).output().unwrap();
        (done.status.code(), text(&done.stdout), text(&done.stderr))
    };
    let good = (90, [Some(10.0), Some(30.0)]);
    assert_eq!(check(&[good]).0, Some(0));
    let (status, out, err) = check(&[good, (70, [Some(10.0), None])]);
    assert_eq!(status, Some(1), "{out}");
    assert!(out.contains("failed: sort, zram, 70 %, with locks, 1: killed"), "{out}");
    assert!(out.contains("at worst: times as fast, at least 0.97: 0.00"), "{out}");
    assert!(err.contains("1 bounds are broken, 1 runs have failed"), "{err}");
    let (status, out, err) = check(&[(90, [None, None])]);
    assert_eq!(status, Some(1), "{out}");
    assert!(err.contains("0 bounds are broken, 2 runs have failed"), "{err}");
    let (status, _, err) = check(&[]);
    assert_eq!(status, Some(1), "{err}");
    assert!(err.contains("no bound was measured"), "{err}");
    std::fs::remove_file(dir.path().join("locked.jsonl")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_evaluate"));
    let none = command.args(["--locked", "--report"]).arg(dir.path()).output().unwrap();
    assert_eq!(none.status.code(), Some(2), "{}", text(&none.stderr));
}

/// Its runs have another size, as has the advice in the folder.
#[test]
fn locked_runs_of_another_setup_are_refused() {
    if !can_run() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let size = 128;
    let (version, seconds, lead_in, slices, rate, seed) = (PLAN_VERSION, 60, 15, 30, 120_000, 1);
    let setup = FolderSettings { version, size, seconds, lead_in, slices, rate, seed };
    ResultsFolder::<locked::LockedRun>::open(dir.path(), &setup).unwrap();
    // If it ran, it would fail at this name.
    let again = |size: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evaluate"));
        command.args(["--locked", "--workloads", "none", "--size", size, "--out"]);
        let done = command.arg(dir.path()).output().unwrap();
        (done.status.code(), text(&done.stderr))
    };
    let (status, said) = again("1024");
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("with other settings"), "{said}");
    let (status, said) = again("128");
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("no such program"), "{said}");
}

#[test]
fn who_names_others_is_not_given_those_of_before() {
    if !can_run() {
        return;
    }
    let Some(_alone) = Alone::without_swap() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("none.toml");
    std::fs::write(&file, "name = 'none'\ncommand = ['true']\n").unwrap();
    // Each once, of which none is redis.
    let done =
        evaluate(dir.path(), &["--workloads", "none.toml,none.toml", "--configs", "orig,orig"]);
    let said = text(&done.stderr);
    assert!(said.contains("1 runs, 0 of them are there"), "{said}");
    assert!(!said.contains("redis"), "{said}");
}

#[test]
fn pressure_does_not_keep_what_it_has_found() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evaluate"));
    let done = command.args(["--pressure", "--json", "all.json"]).output().unwrap();
    assert_eq!(done.status.code(), Some(2));
    let said = text(&done.stderr);
    assert!(said.contains("'--pressure' cannot be used with '--json"), "{said}");
}
