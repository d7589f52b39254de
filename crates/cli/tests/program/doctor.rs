//! `isotherm system doctor`.

use std::process::Command;

use crate::run::{Done, finish, isotherm, needs_root};

#[test]
fn all_is_well_here() {
    needs_root!();
    let done = finish(&mut isotherm(["system", "doctor"]));
    assert_eq!((done.status, done.err.as_str()), (0, ""), "{}", done.text());
    for way in ["bpf", "bpf-probe", "bpf-iter", "clear_refs", "smaps"] {
        assert!(done.text().contains(&format!("ok      way to look: {way}\n")), "{}", done.text());
    }
    assert!(done.text().contains("way to look: page_idle\n"), "{}", done.text());
    assert!(!done.text().contains("FAILS"), "{}", done.text());

    // its short name, which help does not list
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

/// Runs the command without any capability.
fn powerless(args: &[&str]) -> Done {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all", env!("CARGO_BIN_EXE_isotherm")]);
    let dir = tempfile::TempDir::new().unwrap();
    finish(command.args(args).current_dir(dir.path()))
}

#[test]
fn a_missing_field_is_named() {
    needs_root!();
    let done = powerless(&["system", "doctor"]);
    // Root without capabilities owns its own files, so smaps works for its own processes.
    assert_eq!(done.status, 0);
    for name in ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_NICE", "CAP_SYS_PTRACE", "run as root"] {
        assert!(done.text().contains(name), "{name} is not in {}", done.text());
    }
    assert!(done.text().contains("note    way to look: bpf\n"), "{}", done.text());
    assert!(done.text().contains("ok      way to look: smaps\n"), "{}", done.text());

    // Its advice is that of docs/reference/permissions.md.
    let setcap = "setcap cap_bpf,cap_perfmon,cap_sys_nice,cap_sys_ptrace+ep";
    assert!(done.text().contains(setcap), "{}", done.text());
    assert!(include_str!("../../../../docs/reference/permissions.md").contains(setcap));

    let json = powerless(&["system", "doctor", "--json"]).json();
    let findings = json["findings"].as_array().unwrap();
    let ways = findings.iter().filter(|f| f["what"] == "way to look");
    let limited: Vec<_> = ways.filter(|f| f["state"] == "limited").collect();
    assert!(limited.len() >= 4 && limited.iter().all(|f| f["advice"].is_string()), "{json}");

    let me = std::process::id().to_string();
    let done = powerless(&["record", "--pid", &me, "--look", "bpf", "--duration", "1s"]);
    assert_eq!(done.status, 1);
    assert!(done.err.contains("lacks CAP_BPF") && done.err.contains("run as root"), "{}", done.err);
}
