//! The attacker model of `SECURITY.md`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::load::Load;
use crate::reclaim::Service;
use crate::run::{Recorder, copy_program, finish, needs_root, run_in};

const PAGE: &str = include_str!("../../../../SECURITY.md");

/// All sources below a folder.
fn sources(folder: &Path, out: &mut String) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, out);
        } else if entry.extension().is_some_and(|e| e == "rs") {
            out.push_str(&fs::read_to_string(entry).unwrap());
        }
    }
}

#[test]
fn each_claim_of_the_attacker_model_has_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = String::new();
    ["crates", "fuzz", "harden"].iter().for_each(|folder| sources(&root.join(folder), &mut all));
    let table = PAGE.split("## Attacker model").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() > 8, "{rows:?}");
    for row in rows {
        let tests = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test: {row}");
        for name in names {
            let is_test = all.contains(&format!("fn {name}("));
            let is_experiment = name.starts_with("harden run ");
            let is_scenario = name.strip_prefix("guests/run ").is_some_and(|scenario| {
                root.join("guests/scenarios").join(scenario).join("run").exists()
            });
            let exists = is_test || is_experiment || is_scenario;
            assert!(exists, "{name} does not exist: {row}");
        }
    }
}

/// It is root there, and the kernel says `nobody` to the service.
#[test]
fn root_of_another_user_namespace_may_not_ask() {
    needs_root!();
    let load = Load::start(16, 4);
    let service = Service::working(&["--pid", &load.pid().to_string(), "--dry-run"]);
    // As a user might do by mistake.
    for path in [".", "c", "c/sock"] {
        let path = service.dir.path().join(path);
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let program = service.dir.path().join("isotherm");
    copy_program(env!("CARGO_BIN_EXE_isotherm"), &program);
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user"]).arg(&program);
    command.args(["service", "stop", "--control", &service.socket()]);
    command.uid(65534).gid(65534).current_dir("/").stdin(Stdio::null());
    let refused = finish(&mut command);
    assert_eq!(refused.status, 1, "{}", refused.err);
    assert!(refused.err.contains("may not send requests"), "{}", refused.err);
    assert_eq!(service.status()["pid"], service.child.id(), "it runs on");
}

#[test]
fn a_record_can_be_read_by_its_owner_only() {
    needs_root!();
    let load = Load::start(16, 4);
    let mut recorder = Recorder::recording(&["--pid", &load.pid().to_string()]);
    recorder.stop();
    let mode = fs::metadata(recorder.record()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Found by an audit: `run --dry-run` printed command lines and names of mappings as they were.
#[test]
fn no_command_prints_a_name_that_steers_the_terminal() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    let program = dir.path().join("\u{1b}]0;x\u{7}\u{202e}");
    copy_program(std::env::current_exe().unwrap(), &program);
    let load = Load::by(&program, 32, 4);
    let pid = load.pid().to_string();
    let mut recorder = Recorder::recording(&["--pid", &pid]);
    let service = Service::working(&["--pid", &pid, "--dry-run"]);
    let status = service.asked(&["status"]);
    recorder.stop();
    let harmless = |args: &[&str], text: &str| {
        let steers = text.chars().any(|c| ['\u{1b}', '\u{7}', '\u{202e}'].contains(&c));
        assert!(!steers, "{args:?}: {text:?}");
    };
    harmless(&["status"], &(status.text().to_owned() + &service.err()));
    harmless(&["record"], &recorder.err());
    let run = ["run", "--dry-run", "--duration", "3s", "--pid", &pid, "--scheme-line"];
    let run = [&run[..], &["min max min max min max pageout"]].concat();
    let now = ["now", "--duration", "2s", "--pid", &pid];
    let need = ["need", "--for", "3s", "--pid", &pid];
    let reports = ["summary", "heatmap", "wss", "regions", "access", "need", "advice", "cgroups"];
    let reports = reports.into_iter().chain(["raw"]).map(|kind| ["report", kind, "-i", "a.rec"]);
    let reports: Vec<[&str; 4]> = reports.collect();
    let all = [&run, &now[..], &need[..]].into_iter().chain(reports.iter().map(|r| &r[..]));
    for args in all {
        let done = run_in(recorder.dir(), args);
        let text = String::from_utf8_lossy(&done.out).into_owned() + &done.err;
        harmless(args, &text);
        assert!(done.status == 0 || args[0] == "need", "{args:?}: {text}");
        assert!(args[0] != "run" || text.contains("]0;x"), "{text}");
    }
}
