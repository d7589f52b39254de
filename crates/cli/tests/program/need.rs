//! `isotherm need` and `isotherm report need` on a workload with known truth.

use std::fs;

use serde_json::Value;

use crate::load::MIB;
use crate::run::{Recorder, root_or_skip, run_in};
use crate::workload::Running;

/// Of 32 MiB, 30 are never touched: the pages between the hot ones, which no region shows.
fn check_saved(need: &Value) {
    let row = &need["needs"][0];
    let curve = row["curve"].as_array().unwrap();
    let five = curve.iter().find(|p| p["idle_ms"] == 5000.0).unwrap();
    let saved = five["saved_bytes"].as_u64().unwrap();
    assert!((28 * MIB..=32 * MIB).contains(&saved), "{need}");
    let kept = five["kept_bytes"].as_u64().unwrap();
    assert!((2 * MIB..=8 * MIB).contains(&kept), "{need}");
    let verdict = &row["verdict"];
    assert!(verdict["at"]["saved_bytes"].as_u64().unwrap() > 26 * MIB, "{need}");
    assert!(verdict["memory_high_bytes"].as_u64() > verdict["at"]["kept_bytes"].as_u64(), "{need}");
}

#[test]
fn idle_pages_beside_hot_ones_can_be_given_up() {
    if !root_or_skip("idle_pages_beside_hot_ones_can_be_given_up") {
        return;
    }
    let mut running = Running::start("strewn.toml", &["--duration", "1h"]);
    let mut recorder = Recorder::start(&["--pid", &running.pid(), "--duration", "32s"]);
    assert_eq!(recorder.wait().code(), Some(0), "{}", recorder.err());
    let dir = running.dir.path();
    fs::copy(recorder.record(), dir.join("isotherm.rec")).unwrap();
    let report = |args: &[&str]| {
        // Its libraries and its stack are touched now and then.
        let done = run_in(dir, &[&["report", "need", "--objective", "20"], args].concat());
        assert_eq!((done.status, done.err.as_str()), (0, ""));
        done
    };
    check_saved(&serde_json::from_str(report(&["--json"]).text()).unwrap());
    let text = report(&[]);
    for part in ["it needs", "can be given up", "memory.high", "idle for", "back a second"] {
        assert!(text.text().contains(part), "{part} is not in\n{}", text.text());
    }
    let picture = run_in(dir, &["report", "need", "--objective", "20", "-o", "need.png"]);
    assert_eq!(picture.status, 0, "{}", picture.err);
    assert!(fs::read(dir.join("need.png")).unwrap().starts_with(b"\x89PNG"));
    // Half a minute says nothing of what comes back within a day.
    let strict = run_in(dir, &["report", "need", "--objective", "0"]);
    assert!(strict.text().contains("it needs") || strict.text().contains("no answer"));
    let short = run_in(dir, &["report", "need", "--time", "0s..3s"]);
    assert!(short.text().contains("no answer: the record has no idle ages"), "{}", short.text());
    // The advice knows it as well.
    let advice = run_in(dir, &["report", "advice", "--window", "6s", "--json"]);
    let advice: Value = serde_json::from_str(advice.text()).unwrap();
    let high = advice["sizing"][0]["memory_high_bytes"].as_u64().unwrap();
    assert!(high < 12 * MIB, "{advice}");
    drop(recorder);
    running.end();
}

#[test]
fn a_running_process_is_watched_and_leaves_no_file() {
    if !root_or_skip("a_running_process_is_watched_and_leaves_no_file") {
        return;
    }
    let running = Running::start("strewn.toml", &["--duration", "1h"]);
    let dir = running.dir.path();
    let files = || fs::read_dir(dir).unwrap().count();
    let before = files();
    let pid = running.pid();
    let done = run_in(dir, &["need", "--pid", &pid, "--for", "32s", "--objective", "20", "--json"]);
    assert_eq!(done.status, 0, "{}", done.err);
    check_saved(&serde_json::from_str(done.text()).unwrap());
    assert_eq!(files(), before);
    let wrong = run_in(dir, &["need"]);
    assert_eq!(wrong.status, 2);
    assert!(wrong.err.contains("need watches running processes"), "{}", wrong.err);
}
