//! All scenarios on all kernels that are to be had; and what is left of a guest when we are killed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use isotherm_guests::qemu;
use isotherm_guests::suite::{self, Asked};
use isotherm_guests::table;

/// Nothing takes as long, not even kernels that must be fetched before.
const PATIENCE: Duration = Duration::from_secs(600);

/// Whether guests can run here. Where all tests must run, lacking QEMU is a failure.
fn qemu_or_skip(test: &str) -> bool {
    let here = qemu::is_here();
    assert!(here || std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none(), "{test} takes QEMU");
    if !here {
        eprintln!("skipped {test}: it takes qemu-system-x86_64");
    }
    here
}

#[test]
fn every_scenario_holds_on_its_kernels() {
    if !qemu_or_skip("every_scenario_holds_on_its_kernels") {
        return;
    }
    let mut table = table::head();
    let row = |outcome: &table::Outcome| table += &outcome.lines();
    let all_ok = suite::run(&Asked::default(), row, |text| eprintln!("{text}"));
    println!("{table}");
    assert!(all_ok.unwrap(), "\n{table}");
}

/// The process of QEMU that is a child of `pid`.
fn qemu_of(pid: u32) -> Option<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let children: String =
        tasks.flatten().map(|t| read(&t.path().join("children")) + " ").collect();
    let mut pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    pids.find(|pid| read(Path::new(&format!("/proc/{pid}/comm"))).starts_with("qemu"))
}

/// Whether it still executes anything: not gone, and not waiting to be reaped.
fn runs(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|l| l.starts_with("State:") && !l.contains('Z') && !l.contains('X'))
}

fn until<T>(what: &str, mut get: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(got) = get() {
            return got;
        }
        assert!(begin.elapsed() < PATIENCE, "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn no_guest_outlives_us() {
    if !qemu_or_skip("no_guest_outlives_us") {
        return;
    }
    let mut guests = Command::new(env!("CARGO_BIN_EXE_guests"))
        .args(["run", "--kernel", "6.12", "record"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let qemu = until("QEMU", || {
        assert_eq!(guests.try_wait().unwrap(), None, "it ended before");
        qemu_of(guests.id())
    });
    assert!(runs(qemu));
    guests.kill().unwrap();
    guests.wait().unwrap();
    until("the end of QEMU", || (!runs(qemu)).then_some(()));
}
