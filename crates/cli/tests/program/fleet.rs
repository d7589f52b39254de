//! `isotherm lab fleet` and `isotherm fleet report`.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::python::python_with;
use crate::run::isotherm;

const HOSTS: i64 = 8;

/// A directory with a lake and its truth, and the search path of a Python with DuckDB.
struct Fleet {
    dir: TempDir,
    path: OsString,
}

impl Fleet {
    fn new() -> Option<Self> {
        let python = python_with("duckdb", "duckdb==2.0.1")?;
        let mut path = python.parent().unwrap_or(Path::new("")).as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        Some(Fleet { dir: TempDir::new().unwrap(), path })
    }

    fn with_lake() -> Option<Self> {
        Fleet::simulated(HOSTS, 3)
    }

    fn simulated(hosts: i64, days: u32) -> Option<Self> {
        let fleet = Fleet::new()?;
        let (hosts, days) = (hosts.to_string(), days.to_string());
        let args =
            ["lab", "fleet", "--hosts", &hosts, "--days", &days, "--lake", "lake", "--truth", "t"];
        let done = isotherm(args).current_dir(&fleet.dir).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        Some(fleet)
    }

    fn command(&self, lake: &str, more: &[&str]) -> Command {
        let mut command = isotherm(["fleet", "report", "--lake", lake]);
        command.args(more).current_dir(&self.dir).env("PATH", &self.path);
        command
    }

    fn report(&self, more: &[&str]) -> Vec<u8> {
        let done = self.command("lake", more).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        done.stdout
    }

    /// The message of a report that fails with a status.
    fn failure(&self, lake: &str, more: &[&str], status: i32) -> String {
        failure(&mut self.command(lake, more), status)
    }
}

fn failure(command: &mut Command, status: i32) -> String {
    let Output { status: found, stdout, stderr } = command.output().unwrap();
    let text = String::from_utf8(stderr).unwrap();
    assert_eq!(found.code(), Some(status), "{text}");
    assert!(stdout.is_empty() && text.starts_with("isotherm: "), "{text}");
    assert!(!text.contains("Traceback"), "{text}");
    text
}

#[test]
fn a_report_answers_every_question() {
    let Some(fleet) = Fleet::with_lake() else { return };
    let report: Value = serde_json::from_slice(&fleet.report(&["--json", "--age", "10m"])).unwrap();
    let answers = &report["answers"];
    let documented = include_str!("../../../../docs/abi/testing/fleet-report.md");
    let objects = answers.as_object().unwrap().values().filter_map(|rows| rows.get(0));
    for key in objects.chain([&report]).flat_map(|object| object.as_object().unwrap().keys()) {
        assert!(documented.contains(&format!("`{key}`")), "{key}");
    }
    let rows = |name: &str| answers[name].as_array().unwrap();
    let bytes = |row: &Value, key: &str| row[key].as_i64().unwrap();
    assert_eq!(report["schema_version"], 1);
    assert_eq!(i64::try_from(rows("hosts").len()), Ok(HOSTS));
    assert_eq!(rows("cold").len(), 3 * rows("savings").len());
    for row in rows("cold") {
        let parts = ["hot_bytes", "warm_bytes", "cold_bytes", "unknown_bytes"];
        let sum: i64 = parts.iter().map(|key| bytes(row, key)).sum();
        // Each part of each group is rounded down.
        assert!((0..=4 * HOSTS).contains(&(bytes(row, "resident_bytes") - sum)), "{row}");
    }
    for row in rows("limits") {
        assert!(bytes(row, "smallest_limit_bytes") <= bytes(row, "peak_bytes"), "{row}");
        assert!(bytes(row, "worst_day_refault_ppm") <= 2000, "{row}");
    }
}

/// Twelve services, at four ages: the same seed gives the same lake, so the errors are the same each time.
#[test]
fn savings_and_returns_are_the_truth_within_a_tenth() {
    let Some(fleet) = Fleet::simulated(50, 1) else { return };
    let dir = fleet.dir.path();
    let ages = ["2m", "10m", "30m", "1h"];
    for age in ages {
        fs::write(dir.join(age), fleet.report(&["--json", "--age", age])).unwrap();
    }
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/fleet_accuracy.py");
    let done = Command::new("python3").arg(check).arg("t").args(ages).current_dir(dir).output();
    let Output { status, stdout, stderr } = done.unwrap();
    let [said, failed] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(status.success(), "{said}{failed}");
    assert!(said.contains("of 48 services and ages"), "{said}");
}

#[test]
fn a_report_has_text_and_a_page() {
    let Some(fleet) = Fleet::with_lake() else { return };
    let text = String::from_utf8(fleet.report(&["--html", "page.html"])).unwrap();
    for part in ["8 hosts", "Cold memory by service", "Smallest memory limits", "New images"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let page = fs::read_to_string(fleet.dir.path().join("page.html")).unwrap();
    assert_eq!((page.matches("<section>").count(), page.matches("</section>").count()), (5, 5));
    assert!(page.matches("<svg").count() >= 5 && page.contains("prefers-color-scheme: dark"));
    for outside in ["http:", "https:", "src=", "<script", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
}

/// As `make demo-fleet` does it, with fewer hosts.
#[test]
fn the_demo_ends_with_a_page() {
    let Some(python) = python_with("duckdb", "duckdb==2.0.1") else { return };
    // The Python of the system is in no environment: the demo would install another DuckDB from PyPI.
    let Some(venv) = python.parent().and_then(Path::parent) else { return };
    let dir = TempDir::new().unwrap();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/fleet");
    let done = Command::new(demo)
        .args([Path::new(env!("CARGO_BIN_EXE_isotherm")), venv])
        .args(["12", "3"])
        .env("DEMO_OUT", dir.path())
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    assert!(String::from_utf8(done.stdout).unwrap().contains("12 hosts"));
    let page = fs::read_to_string(dir.path().join("fleet.html")).unwrap();
    assert_eq!(page.matches("<section>").count(), 5);
    assert!(page.contains("12 hosts") && page.ends_with("</html>\n"));
}

/// As a compaction leaves it that broke off: whole files, and one without its end.
#[test]
fn a_copy_that_is_not_finished_does_not_count() {
    let Some(fleet) = Fleet::with_lake() else { return };
    let before: Value = serde_json::from_slice(&fleet.report(&["--json"])).unwrap();
    let lake = fleet.dir.path().join("lake");
    let aside = lake.join(".date=2026-01-05.new");
    fs::create_dir(&aside).unwrap();
    let day = fs::read_dir(lake.join("date=2026-01-05")).unwrap().next().unwrap().unwrap().path();
    fs::copy(&day, aside.join("part-0001.parquet")).unwrap();
    fs::write(aside.join("part-0002.parquet"), "PAR1").unwrap();
    let after: Value = serde_json::from_slice(&fleet.report(&["--json"])).unwrap();
    assert_eq!(before["answers"], after["answers"]);
}

#[test]
fn bad_lakes_are_named() {
    let Some(fleet) = Fleet::new() else { return };
    let dir = fleet.dir.path();
    assert!(fleet.failure("none", &[], 1).contains("none is not a folder"));
    fs::create_dir(dir.join("empty")).unwrap();
    assert!(fleet.failure("empty", &[], 1).contains("empty has no Parquet files"));
    fs::create_dir(dir.join("text")).unwrap();
    fs::write(dir.join("text/rows.parquet"), "minutes").unwrap();
    let said = fleet.failure("text", &[], 1);
    assert!(said.contains("cannot read the lake text") && said.contains("rows.parquet"), "{said}");
    fs::create_dir(dir.join("other")).unwrap();
    let write = "import duckdb; duckdb.sql(\"COPY (SELECT now() AS minute) TO 'other/a.parquet'\")";
    let python = Command::new("python3")
        .args(["-c", write])
        .current_dir(dir)
        .env("PATH", &fleet.path)
        .status();
    assert!(python.unwrap().success());
    let said = fleet.failure("other", &[], 1);
    assert!(said.contains("no column host, cgroup") && said.contains("lake.md"), "{said}");
}

#[test]
fn wrong_options_and_missing_programs_have_a_remedy() {
    let Some(fleet) = Fleet::with_lake() else { return };
    let said = fleet.failure("lake", &["--age", "3m"], 2);
    assert!(said.contains("--age") && said.contains("2m, 5m"), "{said}");
    assert!(fleet.failure("lake", &["--master", "spark://x:7077"], 2).contains("--engine spark"));
    let said = fleet.failure("lake", &["--html", "no/page.html"], 1);
    assert!(said.contains("cannot write no/page.html"), "{said}");
    let modules = fleet.dir.path().join("modules");
    fs::create_dir(&modules).unwrap();
    for (module, engine) in [("duckdb", "duckdb"), ("pyspark", "spark")] {
        fs::write(modules.join(format!("{module}.py")), "raise ImportError").unwrap();
        let mut command = fleet.command("lake", &["--engine", engine]);
        let said = failure(command.env("PYTHONPATH", &modules), 1);
        assert!(said.contains(&format!("-m pip install {module}")), "{said}");
    }
    let mut command = fleet.command("lake", &[]);
    assert!(failure(command.env("PATH", "/nowhere"), 1).contains("install Python 3.9"));
    let lab = ["lab", "fleet", "--hosts", "1", "--days", "1", "--lake", "lake"];
    let said = failure(isotherm(lab).current_dir(&fleet.dir), 1);
    assert!(said.contains("not empty"), "{said}");
}
