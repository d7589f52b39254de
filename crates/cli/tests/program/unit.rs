//! The systemd units: how exposed their services are, and whether they permit all that the services call.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::load::Load;
use crate::run::{finish, has_or_skip, root_or_skip};

const RECLAIM: &[&str] = &["isotherm-reclaim.service"];
const AGENT: &[&str] = &["isotherm-agent.service"];
const AGENT_S3: &[&str] = &["isotherm-agent.service", "isotherm-agent-s3.conf"];
/// The units, and their maximum exposure by `systemd-analyze security`, in tenths.
const UNITS: [(&[&str], u32); 3] = [(RECLAIM, 25), (AGENT, 25), (AGENT_S3, 25)];

/// A unit, and the file that changes it.
fn unit(names: &[&str]) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    names.iter().map(|name| fs::read_to_string(folder.join(name)).unwrap() + "\n").collect()
}

fn has(test: &str, tool: &str) -> bool {
    has_or_skip(Command::new(tool).arg("--version").output().is_ok(), test, tool)
}

#[test]
fn the_services_are_hardly_exposed() {
    if !has("the_services_are_hardly_exposed", "systemd-analyze") {
        return;
    }
    let dir = TempDir::new().unwrap();
    for (names, most) in UNITS {
        let path = dir.path().join(names[0]);
        fs::write(&path, unit(names)).unwrap();
        let mut security = Command::new("systemd-analyze");
        security.args(["security", "--offline=true", "--no-pager"]);
        security.arg(format!("--threshold={most}")).arg(path);
        let done = finish(&mut security);
        assert_eq!(done.status, 0, "{names:?}: {}{}", done.text(), done.err);
        assert!(done.text().contains("Overall exposure level"), "{}", done.text());
    }
}

/// Found by an audit: `ProtectSystem=strict` leaves /proc and /sys writable. A service of uid 0 could change the program
/// that the kernel executes at a core dump.
#[test]
fn the_services_may_not_write_settings_of_the_kernel() {
    let damon = "-/sys/kernel/mm/damon -/sys/kernel/tracing/instances";
    let units: [(&[&str], &[&str]); 3] = [(RECLAIM, &[damon]), (AGENT, &[]), (AGENT_S3, &[])];
    for (names, writable) in units {
        let unit = unit(names);
        let values =
            |key: &str| unit.lines().filter_map(|line| line.strip_prefix(key)).collect::<Vec<_>>();
        assert_eq!(values("ProtectSystem="), ["strict"], "{names:?}");
        assert_eq!(values("ProtectKernelTunables="), ["yes"], "{names:?}");
        assert_eq!(values("ProtectControlGroups="), ["yes"], "{names:?}");
        assert_eq!(values("ReadWritePaths="), writable, "{names:?}");
    }
}

/// The sets of system calls that systemd knows, by their names.
fn sets() -> BTreeMap<String, Vec<String>> {
    let done = finish(Command::new("systemd-analyze").args(["syscall-filter", "--no-pager"]));
    let mut sets = BTreeMap::new();
    let mut name = String::new();
    for line in done.text().lines() {
        let word = line.trim();
        if line.starts_with('@') {
            name = word.to_owned();
        } else if !word.is_empty() && !word.starts_with('#') {
            sets.entry(name.clone()).or_insert_with(Vec::new).push(word.to_owned());
        }
    }
    sets
}

fn expand(word: &str, sets: &BTreeMap<String, Vec<String>>, out: &mut BTreeSet<String>) {
    match sets.get(word) {
        Some(members) => members.iter().for_each(|member| expand(member, sets, out)),
        None => drop(out.insert(word.to_owned())),
    }
}

/// The system calls that the unit permits.
fn permitted(unit: &str) -> BTreeSet<String> {
    let sets = sets();
    let mut permitted = BTreeSet::new();
    expand("@default", &sets, &mut permitted);
    for filter in unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let mut named = BTreeSet::new();
        let (words, removes) = match filter.strip_prefix('~') {
            Some(words) => (words, true),
            None => (filter, false),
        };
        words.split(' ').for_each(|word| expand(word, &sets, &mut named));
        if removes {
            permitted.retain(|call| !named.contains(call));
        } else {
            permitted.extend(named);
        }
    }
    permitted
}

/// The system calls of a service with these options.
fn calls_with(command: &str, options: &[&str]) -> BTreeSet<String> {
    let dir = TempDir::new().unwrap();
    let table = dir.path().join("calls");
    let load = Load::start(16, 4);
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-U", "name", "-o"]).arg(&table).arg(env!("CARGO_BIN_EXE_isotherm"));
    strace.args([command, "--control", "c", "--pid", &load.pid().to_string()]).args(options);
    // Of the bucket of the agent: no process listens there.
    for (name, value) in [("ACCESS_KEY_ID", "x"), ("SECRET_ACCESS_KEY", "x"), ("REGION", "x")] {
        strace.env(format!("AWS_{name}"), value);
    }
    strace.env("AWS_ENDPOINT", "http://127.0.0.1:9").env("AWS_ALLOW_HTTP", "true");
    let done = finish(strace.current_dir(dir.path()));
    assert_eq!(done.status, 0, "{options:?}: {}", done.err);
    let table = fs::read_to_string(table).unwrap();
    let is_name = |line: &&str| {
        line.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let names = table.lines().map(str::trim).filter(|line| !line.is_empty()).filter(is_name);
    names.filter(|name| !["syscall", "total"].contains(name)).map(str::to_owned).collect()
}

#[test]
fn the_units_permit_every_call_of_the_services_and_no_dangerous_one() {
    const NAME: &str = "the_units_permit_every_call_of_the_services_and_no_dangerous_one";
    if !root_or_skip(NAME) || !has(NAME, "systemd-analyze") || !has(NAME, "strace") {
        return;
    }
    for (names, _) in UNITS {
        let permitted = permitted(&unit(names));
        for call in
            ["ptrace", "process_vm_writev", "mount", "swapon", "setuid", "chown", "init_module"]
        {
            assert!(!permitted.contains(call), "{names:?} permits {call}");
        }
    }
    let check = |names: &[&str], command: &str, options: &[&str]| {
        let calls = calls_with(command, options);
        assert!(calls.contains("execve") && calls.len() > 30, "{calls:?}");
        let permitted = permitted(&unit(names));
        let refused: Vec<&String> = calls.difference(&permitted).collect();
        assert!(refused.is_empty(), "{names:?}, {options:?}: it does not permit {refused:?}");
    };
    // A row is written, and sent, after a minute.
    let agent: [(&[&str], &str); 2] = [(AGENT, "lake"), (AGENT_S3, "s3://bucket/rows")];
    std::thread::scope(|scope| {
        for (names, lake) in agent {
            let options = ["--duration", "65s", "--spool", "spool", "--lake", lake];
            scope.spawn(move || check(names, "agent", &options));
        }
        for options in [
            &["--metrics", "m.prom", "--log", "log", "--children"][..],
            &["--stacks", "--metrics", "127.0.0.1:0", "--goal", "refault=0.2%"],
            &["--pages", "--dry-run"],
        ] {
            let quick = ["--min-age", "100ms", "--duration", "2s"];
            check(RECLAIM, "reclaim", &[&quick, options].concat());
        }
    });
}
