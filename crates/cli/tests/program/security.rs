//! The attacker model of `SECURITY.md`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::load::Load;
use crate::reclaim::Service;
use crate::run::{Recorder, copy_program, finish, needs_root};

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
            assert!(is_test || is_experiment, "{name} does not exist: {row}");
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
