//! `isotherm need` and `isotherm report need` on a workload with known truth.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::load::MIB;
use crate::run::{Recorder, needs_root, run_in, until};
use crate::workload::Running;

/// Every 32nd page of 96 MiB is hot.
const SCATTERED: &str = r#"
about = "hot pages among idle ones"
islands = 0
region = [{ name = "strewn", size = "96M" }]
phase = [{ name = "on", duration = "1s", access = [
    { region = "strewn", rate = 50, order = { strided = { stride = 32 } } },
] }]"#;

pub fn scattered() -> Running {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("strewn.toml");
    fs::write(&file, SCATTERED).unwrap();
    Running::start(file.to_str().unwrap(), &["--duration", "1h"])
}

/// 93 of 96 MiB are never touched: the pages between the hot ones, which no region shows. The program itself adds
/// some memory, most of it unknown or idle.
fn check_saved(need: &Value) {
    let row = &need["needs"][0];
    let figure =
        |of: &Value, key: &str| of[key].as_u64().unwrap_or_else(|| panic!("{key}: {need}"));
    let curve = row["curve"].as_array().unwrap();
    let five = curve.iter().find(|p| p["idle_ms"] == 5000.0);
    let five = five.unwrap_or_else(|| panic!("{need}"));
    assert!(figure(five, "saved_bytes") > 90 * MIB, "{need}");
    let kept = figure(five, "kept_bytes") - figure(row, "unknown_bytes");
    assert!((2 * MIB..=8 * MIB).contains(&kept), "{need}");
    let verdict = &row["verdict"];
    assert!(figure(&verdict["at"], "saved_bytes") > 88 * MIB, "{need}");
    let high = figure(verdict, "memory_high_bytes");
    assert!(high > figure(&verdict["at"], "kept_bytes"), "{need}");
}

#[test]
fn idle_pages_beside_hot_ones_can_be_given_up() {
    needs_root!();
    let mut running = scattered();
    let options = ["--monitor", "exposure", "--pid", &running.pid(), "--duration", "32s"];
    let metrics = ["--metrics", "m.prom", "--metrics-every", "1s"];
    let mut recorder = Recorder::start(&[&options[..], &metrics].concat());
    let idle = || {
        let text = fs::read_to_string(recorder.dir().join("m.prom")).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("isotherm_idle_bytes{age=\"10\"} "));
        line.and_then(|bytes| bytes.parse::<u64>().ok())
    };
    until("metrics of idle memory", || idle().is_some_and(|bytes| bytes > 88 * MIB));
    assert_eq!(recorder.wait().code(), Some(0), "{}", recorder.err());
    let dir = running.dir.path();
    fs::copy(recorder.record(), dir.join("isotherm.rec")).unwrap();
    let report = |args: &[&str]| {
        // Its libraries and its stack are touched now and then, and on a busy machine the record has 20 s of ages.
        let done = run_in(dir, &[&["report", "need", "--objective", "60"], args].concat());
        assert_eq!((done.status, done.err.as_str()), (0, ""));
        done
    };
    check_saved(&serde_json::from_str(report(&["--json"]).text()).unwrap());
    let text = report(&[]);
    for part in ["it needs", "can be given up", "memory.high", "idle for", "back a second"] {
        assert!(text.text().contains(part), "{part} is not in\n{}", text.text());
    }
    let picture = run_in(dir, &["report", "need", "--objective", "60", "-o", "need.png"]);
    assert_eq!(picture.status, 0, "{}", picture.err);
    assert!(fs::read(dir.join("need.png")).unwrap().starts_with(b"\x89PNG"));
    // Half a minute cannot show that no memory returns.
    let strict = run_in(dir, &["report", "need", "--objective", "0"]);
    let text = strict.text();
    assert!(text.contains("no answer: ") && text.contains("too short"), "{text}");
    assert!(!text.contains("it needs"), "{text}");
    let short = run_in(dir, &["report", "need", "--time", "0s..3s"]);
    assert!(short.text().contains("no answer: the record has no idle ages"), "{}", short.text());
    // The advice knows it as well.
    let advice = run_in(dir, &["report", "advice", "--window", "6s", "--json"]);
    let advice: Value = serde_json::from_str(advice.text()).unwrap();
    let all = &advice["sizing"][0];
    let figure = |key: &str| all[key].as_u64().unwrap();
    let high = figure("memory_high_bytes");
    assert!(high < 48 * MIB && figure("resident_bytes") > high + 64 * MIB, "{advice}");
    drop(recorder);
    running.end();
}

#[test]
fn a_running_process_is_watched_and_leaves_no_file() {
    needs_root!();
    let running = scattered();
    let dir = running.dir.path();
    let files = || fs::read_dir(dir).unwrap().count();
    let before = files();
    let pid = running.pid();
    let done = run_in(dir, &["need", "--pid", &pid, "--for", "32s", "--objective", "60", "--json"]);
    assert_eq!(done.status, 0, "{}", done.err);
    check_saved(&serde_json::from_str(done.text()).unwrap());
    assert_eq!(files(), before);
    let wrong = run_in(dir, &["need"]);
    assert_eq!(wrong.status, 2);
    assert!(wrong.err.contains("need watches running processes"), "{}", wrong.err);
}
