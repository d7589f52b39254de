//! `isotherm doctor`.

use std::process::Command;

use crate::run::{Done, finish, isotherm, root_or_skip};

#[test]
fn all_is_well_here() {
    if !root_or_skip("all_is_well_here") {
        return;
    }
    let done = finish(&mut isotherm(["doctor"]));
    assert_eq!((done.status, done.err.as_str()), (0, ""), "{}", done.text());
    assert!(done.text().contains("ok      reading page tables by BPF"), "{}", done.text());
    assert!(!done.text().contains("FAILS"), "{}", done.text());

    let done = finish(&mut isotherm(["doctor", "--json"]));
    assert_eq!(done.status, 0);
    let json = done.json();
    assert_eq!(json["schema_version"], 1);
    let findings = json["findings"].as_array().unwrap();
    assert!(findings.len() >= 5, "{json}");
    for finding in findings {
        assert!(["works", "limited"].contains(&finding["state"].as_str().unwrap()), "{finding}");
        assert!(!finding["what"].as_str().unwrap().is_empty());
        assert!(!finding["detail"].as_str().unwrap().is_empty());
    }
}

/// Runs it without any capability.
fn powerless(args: &[&str]) -> Done {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all", env!("CARGO_BIN_EXE_isotherm")]);
    let dir = tempfile::TempDir::new().unwrap();
    finish(command.args(args).current_dir(dir.path()))
}

#[test]
fn what_is_missing_is_named() {
    if !root_or_skip("what_is_missing_is_named") {
        return;
    }
    let done = powerless(&["doctor"]);
    assert_eq!(done.status, 1);
    for name in [
        "CAP_BPF",
        "CAP_PERFMON",
        "CAP_SYS_NICE",
        "CAP_SYS_PTRACE",
        "CAP_DAC_READ_SEARCH",
        "run as root",
    ] {
        assert!(done.text().contains(name), "{name} is not in {}", done.text());
    }
    assert!(done.text().contains("FAILS   reading page tables by BPF"), "{}", done.text());

    let json = powerless(&["doctor", "--json"]).json();
    let findings = json["findings"].as_array().unwrap();
    let failed: Vec<_> = findings.iter().filter(|f| f["state"] == "fails").collect();
    assert!(!failed.is_empty() && failed.iter().all(|f| f["advice"].is_string()), "{json}");

    let me = std::process::id().to_string();
    let done = powerless(&["record", "--pid", &me, "--duration", "1s"]);
    assert_eq!(done.status, 1);
    assert!(done.err.contains("lacks CAP_BPF") && done.err.contains("run as root"), "{}", done.err);
}
