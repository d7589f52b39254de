//! All scenarios on all available kernels; which guests are ended, and which are not; and what remains
//! of a guest when we are killed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use isotherm_guests::lab::Lab;
use isotherm_guests::scenario::Scenario;
use isotherm_guests::suite::{self, RunOptions};
use isotherm_guests::table::{self, ScenarioRow, Verdict};
use isotherm_guests::watch::SILENCE;
use isotherm_guests::{guest, qemu};

/// No scenario takes as long, even on a slow machine.
const TIMEOUT: Duration = Duration::from_secs(3600);

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
    let row = |outcome: &ScenarioRow| table += &outcome.lines();
    // `make guests` tries the others, too.
    let few = RunOptions { few: true, ..RunOptions::default() };
    let all_ok = suite::run(&few, row, |text| eprintln!("{text}"));
    println!("{table}");
    assert!(all_ok.unwrap(), "\n{table}");
}

/// Runs a folder of `tests/limits` in a guest, whose files go to `dir`; it may use CPU time of `silence`
/// without a heartbeat.
fn limited(name: &str, dir: &Path, silence: Duration) -> anyhow::Result<ScenarioRow> {
    on_kernel("6.12", name, dir, silence)
}

fn on_kernel(
    series: &str,
    name: &str,
    dir: &Path,
    silence: Duration,
) -> anyhow::Result<ScenarioRow> {
    let lab = Lab::open()?;
    let kernel = lab.fetched(series, |_| {})?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/limits").join(name);
    let scenario = Scenario { silence, ..Scenario::read(&folder)? };
    guest::run(&lab, &scenario, &kernel, dir, |_| {})
}

/// Why it failed, if it did.
fn why(outcome: &ScenarioRow) -> String {
    match &outcome.verdict {
        Verdict::Failed(why) => why.join("; "),
        Verdict::Ok | Verdict::NotTried(_) => String::new(),
    }
}

/// Heartbeats of a guest whose files went to `dir`.
fn beats(dir: &Path) -> u64 {
    std::fs::metadata(dir.join(qemu::HEARTBEAT)).map_or(0, |beats| beats.len())
}

#[test]
fn a_script_that_hangs_is_ended_by_the_clock_of_its_guest() {
    if !qemu_or_skip("a_script_that_hangs_is_ended_by_the_clock_of_its_guest") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let outcome = limited("asleep", dir.path(), SILENCE).unwrap();
    assert_eq!(outcome.scenario, "asleep");
    assert_eq!(why(&outcome), "it has not ended within 5 s of the guest's clock");
    assert_eq!(outcome.seen, ["it sleeps"]);
}

#[test]
fn a_guest_whose_kernel_warns_has_failed() {
    if !qemu_or_skip("a_guest_whose_kernel_warns_has_failed") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let outcome = limited("warns", dir.path(), SILENCE).unwrap();
    let warning = "WARNING: CPU: 0 PID: 1 at mm/memory.c:1 one+0x1/0x2";
    assert_eq!(why(&outcome), format!("the kernel says: {warning}"));
    assert_eq!(outcome.seen, ["it warns"]);
}

#[test]
fn a_guest_that_hangs_is_ended_by_the_cpu_time_of_its_emulator() {
    if !qemu_or_skip("a_guest_that_hangs_is_ended_by_the_cpu_time_of_its_emulator") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let outcome = limited("deaf", dir.path(), SILENCE / 10).unwrap();
    assert_eq!(outcome.scenario, "deaf");
    let why = why(&outcome);
    assert!(why.contains("it hangs: no heartbeat while the emulator used 30 s"), "{why}");
    assert!(beats(dir.path()) >= 3, "{why}");
    let text = std::fs::read_to_string(dir.path().join(qemu::TEXT)).unwrap();
    assert!(text.contains("it loops"), "{text}");
}

/// A value that is missing, or there twice, must not become a 0 that every comparison holds for.
#[test]
fn a_comparison_that_is_none_ends_a_script() {
    if !qemu_or_skip("a_comparison_that_is_none_ends_a_script") {
        return;
    }
    for (series, said) in [("6.1", "guest-tool: json"), ("6.12", "sh: invalid number")] {
        let dir = tempfile::tempdir().unwrap();
        let outcome = on_kernel(series, "empty", dir.path(), SILENCE).unwrap();
        let why = why(&outcome);
        assert!(why.contains("on standard error: ") && why.contains(said), "{series}: {why}");
    }
}

/// The emulator is stopped for longer than the script may take.
#[test]
fn a_guest_that_is_slow_is_not_ended() {
    if !qemu_or_skip("a_guest_that_is_slow_is_not_ended") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join(qemu::TEXT);
    let outcome = std::thread::scope(|scope| {
        let guest = scope.spawn(|| limited("slow", dir.path(), SILENCE));
        let begins = || {
            assert!(!guest.is_finished(), "it ended before");
            let text = std::fs::read_to_string(&text).unwrap_or_default();
            text.contains("it begins").then_some(())
        };
        until("the script", begins);
        let qemu = pid_with(dir.path()).expect("QEMU writes there").to_string();
        let signal = |name: &str| {
            let sent = Command::new("kill").args([name, &qemu]).status().unwrap();
            assert!(sent.success(), "{name}");
        };
        signal("-STOP");
        std::thread::sleep(Duration::from_secs(12));
        signal("-CONT");
        guest.join().unwrap().unwrap()
    });
    assert_eq!(outcome.verdict, Verdict::Ok);
    assert!(outcome.took > Duration::from_secs(12), "{:?}", outcome.took);
    assert!((5..=8).contains(&beats(dir.path())), "{} heartbeats", beats(dir.path()));
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

/// The process that has a path in its arguments.
fn pid_with(path: &Path) -> Option<u32> {
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|p| p.file_name().to_str()?.parse().ok());
    let path = path.to_str()?;
    pids.find(|pid| {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains(path)
    })
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
        assert!(begin.elapsed() < TIMEOUT, "{what} does not come");
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
