//! `isotherm whatif` on a record of a simulated machine, whose accesses are known.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use isotherm_core::{AddrRange, Attrs, Exposure, Nanos, Snapshot};
use isotherm_record::{FileEndReason, Limits, RecordingHeader, TargetInfo, Writer};
use isotherm_sim::{Machine, MappingSpec, Ops, TouchPattern, run};
use serde_json::Value;
use tempfile::TempDir;

use crate::load::MIB;
use crate::run::{Done, run_in};

const DOCUMENTED: &str = include_str!("../../../../docs/abi/testing/whatif.md");
const BASE: u64 = 0x7f00_0000_0000;

fn mib(at: u64, len: u64) -> AddrRange {
    AddrRange::new(BASE + at * MIB, BASE + (at + len) * MIB)
}

/// Records 90 s of 32 MiB: 8 are hot, 8 are touched at 0.05 Hz, 16 are never touched.
fn record(path: &Path, change: impl Fn(&mut Snapshot)) {
    let mut machine = Machine::new(3);
    let target = machine.spawn();
    machine.map(target, mib(0, 32), MappingSpec::anonymous()).unwrap();
    machine.touch(target, mib(0, 8), TouchPattern::Poisson { hz: 20.0 }).unwrap();
    machine.touch(target, mib(8, 8), TouchPattern::Poisson { hz: 0.05 }).unwrap();
    let ops = Ops::new(machine);
    let mut monitor = Exposure::new(ops.clone(), Attrs::default(), &[target], 1).unwrap();
    let facts = RecordingHeader::new("0.1.0", Attrs::default(), Nanos(0));
    let mut writer = Writer::create(path, &facts, Limits::default()).unwrap();
    let command = "/usr/bin/server".into();
    let _ = writer.target(TargetInfo { id: target, pid: Some(7), command }).unwrap();
    for s in run(&mut monitor, &ops, Nanos(90_000_000_000)).unwrap() {
        let mut s = Snapshot::clone(&s);
        change(&mut s);
        let _ = writer.snapshot(&s).unwrap();
    }
    writer.finish(FileEndReason::Stopped, "").unwrap();
}

fn recorded() -> TempDir {
    let dir = TempDir::new().unwrap();
    record(&dir.path().join("isotherm.rec"), |_| {});
    dir
}

fn played(dir: &TempDir, args: &[&str]) -> Done {
    let done = run_in(dir.path(), &[&["whatif"], args].concat());
    assert_eq!((done.status, done.err.as_str()), (0, ""));
    done
}

fn figure(of: &Value, key: &str) -> f64 {
    of[key].as_f64().unwrap_or_else(|| panic!("{key}: {of}"))
}

#[test]
fn idle_memory_is_saved_and_touched_memory_returns() {
    let dir = recorded();
    let settings = ["--min-age", "10s", "--min-age", "40s", "--pages", "--quota", "none"];
    let json = played(&dir, &[&settings[..], &["--json"]].concat()).json();
    let rows = json["settings"].as_array().unwrap();
    let [early, late] = rows.as_slice() else { panic!("{json}") };
    let saved = |row| figure(row, "saved_bytes") / MIB as f64;
    let back = |row| figure(row, "returned_bytes_per_second") / 4096.0;
    // Of the slow pages, exp(-0.05 x T) are idle for T.
    assert!((18.5..21.5).contains(&saved(early)), "{json}");
    assert!((16.0..17.5).contains(&saved(late)), "{json}");
    assert!(back(early) > 4.0 * back(late) && back(late) > 1.0, "{json}");
    let waiting = figure(early, "waiting_percent");
    assert!((waiting - back(early) * 20e-6 * 100.0).abs() < 1e-6, "{json}");
    assert!(early["is_best"] == true && late["is_best"] == true, "{json}");
    let text = played(&dir, &settings);
    for part in ["server", "* min-age 10 s", "back a second", "quota full", "min-age 40 s"] {
        assert!(text.text().contains(part), "{part} is not in\n{}", text.text());
    }
    let again = played(&dir, &settings);
    assert_eq!(again.out, text.out, "the same each time");
}

#[test]
fn schemes_limits_tiers_and_sweeps_are_played_side_by_side() {
    let dir = recorded();
    fs::write(dir.path().join("cold.txt"), "4K null 0 0 20s null pageout\n").unwrap();
    let settings = [
        "isotherm.rec",
        "--scheme",
        "cold.txt",
        "--limit",
        "20M",
        "--tiers",
        "12M:80ns,64M:250ns",
        "--sweep",
        "min-age=5s..40s",
        "--pages",
    ];
    let json = played(&dir, &[&settings[..], &["--json"]].concat()).json();
    let rows = json["settings"].as_array().unwrap();
    let named = |name: &str| {
        let row = rows.iter().find(|row| row["name"].as_str().unwrap().contains(name));
        row.unwrap_or_else(|| panic!("{name}: {json}"))
    };
    assert_eq!(rows.len(), 16, "13 of the sweep");
    let saved = |name| figure(named(name), "saved_bytes") / MIB as f64;
    assert!((14.5..16.5).contains(&saved("cold.txt")), "{json}");
    assert!((11.0..13.0).contains(&saved("limit")), "{json}");
    let access = figure(named("tiers"), "access_ns");
    assert!((80.0..90.0).contains(&access), "{json}");
    let of_sweep: Vec<f64> =
        rows.iter().skip(1).take(13).map(|r| figure(r, "saved_bytes")).collect();
    assert!(of_sweep.first() > of_sweep.last(), "{of_sweep:?}");
    // A picture of the front, and of one setting over time.
    for more in [&settings[..], &["isotherm.rec", "--limit", "20M"]] {
        played_to_file(&dir, more);
    }
    let text = played(&dir, &["--limit", "20M"]);
    assert!(text.text().contains("over time"), "{}", text.text());
}

fn played_to_file(dir: &TempDir, settings: &[&str]) {
    let done = run_in(dir.path(), &[&["whatif"], settings, &["-o", "a.png"]].concat());
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(fs::read(dir.path().join("a.png")).unwrap().starts_with(b"\x89PNG"));
    fs::remove_file(dir.path().join("a.png")).unwrap();
}

#[test]
fn unplayable_records_are_refused_with_a_reason() {
    let dir = recorded();
    let text = played(&dir, &["--min-age", "10min", "--min-age", "10s"]);
    assert!(text.text().contains("no figures: the record is too short"), "{}", text.text());
    record(&dir.path().join("old.rec"), |s| s.targets.iter_mut().for_each(|t| t.ages = None));
    let text = run_in(dir.path(), &["whatif", "old.rec", "--min-age", "10s"]);
    assert_eq!((text.status, text.err.as_str()), (1, ""), "no setting has figures");
    assert!(!text.text().contains("saved:"), "{}", text.text());
    for more in [&["-o", "none.png"][..], &["-o", "none.json", "--json"]] {
        let done = run_in(dir.path(), &[&["whatif", "old.rec", "--min-age", "10s"], more].concat());
        assert_eq!(done.status, 1, "{more:?}");
        let said = "is not written, because no setting has figures: min-age 10 s: the record has no idle ages";
        assert!(done.err.contains(said), "{}", done.err);
        assert!(!dir.path().join(more[1]).exists(), "{more:?}");
    }
    let picture = ["whatif", "--min-age", "10min", "--min-age", "10s", "-o", "one.png"];
    let done = run_in(dir.path(), &picture);
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(
        done.err.contains("min-age 10 min is not in the picture: the record is too"),
        "{}",
        done.err
    );
    assert!(text.text().contains("no figures: the record has no idle ages"), "{}", text.text());
    let file = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    file("cold.txt", "4K null 0 0 20s null cold\n");
    file(
        "marks.toml",
        "[[scheme]]\nname = 'x'\naction = 'pageout'\n[scheme.watermarks]\nmetric = 'free'\n\
                        high = '50%'\nmid = '40%'\nlow = '20%'\n",
    );
    for (args, status, said) in [
        (&["--scheme", "cold.txt"][..], 2, "cold cannot be played"),
        (&["--scheme", "marks.toml"], 2, "--memory"),
        (&["--scheme", "none.toml"], 1, "none.toml"),
        (&["--min-age", "10s", "--quota", "2s/1s"], 2, "quota"),
        (
            &["--limit", "20M", "--pages"],
            2,
            "--pages, --quota and --quota-size belong to --min-age",
        ),
        (&["--scheme", "cold.txt", "--quota", "1ms/1s"], 2, "add --min-age"),
        (&["--tiers", "64G"], 2, "64G:80ns"),
        (&["--sweep", "age=1s..2s"], 2, "min-age=FROM..TO"),
        (&["nowhere.rec"], 1, "nowhere.rec"),
        (&["--target", "nobody"], 1, "no target matches"),
        (&["--time", "1h..2h"], 1, "no snapshot"),
    ] {
        let done = run_in(dir.path(), &[&["whatif"], args].concat());
        assert_eq!(done.status, status, "{args:?}: {}", done.err);
        assert!(done.err.contains(said), "{args:?}: {}", done.err);
    }
    let marks = played(&dir, &["--scheme", "marks.toml", "--memory", "50M", "--json"]).json();
    assert_eq!(marks["settings"][0]["refused"], Value::Null);
}

/// All keys of a value.
fn keys(value: &Value, found: &mut HashSet<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            found.insert(key.clone());
            keys(value, found);
        }),
        Value::Array(list) => list.iter().for_each(|value| keys(value, found)),
        _ => {}
    }
}

#[test]
fn each_key_is_documented() {
    let dir = recorded();
    let args = ["--min-age", "10s", "--tiers", "12M:80ns,64M:250ns", "--json"];
    let mut found = HashSet::new();
    keys(&played(&dir, &args).json(), &mut found);
    let documented: HashSet<&str> = DOCUMENTED.split('`').skip(1).step_by(2).collect();
    let missing: Vec<_> = found.iter().filter(|key| !documented.contains(key.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
