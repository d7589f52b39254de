//! A recorder without work uses almost no CPU time, and reacts at once when there is work.

#![allow(clippy::undocumented_unsafe_blocks, reason = "ptrace, on a child of ours")]

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use isotherm_linux::sys;
use isotherm_record::FileEndReason;
use rustix::process::Signal;

use crate::kill_on_drop::KillOnDrop;
use crate::run::{Record, Recorder, needs_root, snapshots, until};

/// Ended when dropped.
pub struct Sleeping(pub KillOnDrop);

impl Sleeping {
    pub fn of(child: Child) -> Self {
        Sleeping(KillOnDrop(child))
    }

    fn start() -> Self {
        Sleeping::of(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

/// The number of times that it went to sleep.
fn wakeups(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}

#[test]
fn an_idle_recorder_wakes_up_eight_times_a_second_at_most() {
    needs_root!();
    const TIME: Duration = Duration::from_secs(6);
    let target = Sleeping::start();
    let pid = target.pid();
    let common = ["--monitor", "exposure", "--pid", &pid];
    for options in [common.to_vec(), [&common[..], &["--children"]].concat()] {
        let mut recorder = Recorder::recording(&options);
        // The first reads are closer to each other.
        std::thread::sleep(Duration::from_secs(3));
        let (before, begin) = (wakeups(recorder.pid()), Instant::now());
        std::thread::sleep(TIME);
        let (woken, time) = (wakeups(recorder.pid()) - before, begin.elapsed());
        // A process that never sleeps never wakes up.
        assert!(woken > 0, "{options:?}: it has not slept in {time:?}");
        assert!(woken as f64 <= 8.0 * time.as_secs_f64(), "{options:?}: {woken} in {time:?}");
        let record = recorder.stop();
        let watched = record.snapshots.iter().filter(|s| !s.targets.is_empty()).count();
        assert!(watched >= 2, "{options:?}: {watched} snapshots");
    }
}

/// The system calls of one thread, by number, for some time and until there are enough.
fn system_calls(pid: u32, time: Duration, is_enough: impl Fn() -> bool) -> BTreeMap<i64, u64> {
    let pid = i32::try_from(pid).unwrap();
    let none = std::ptr::null_mut::<libc::c_void>();
    let wait = || {
        let mut status = 0;
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, libc::__WALL) }, pid);
        assert!(libc::WIFSTOPPED(status), "it has ended: {status:x}");
        status
    };
    let go_on = |how, signal: i32| unsafe { libc::ptrace(how, pid, none, i64::from(signal)) };
    let good = i64::from(libc::PTRACE_O_TRACESYSGOOD);
    assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, none, good) }, 0);
    assert_eq!(go_on(libc::PTRACE_INTERRUPT, 0), 0);
    wait();
    let begin = Instant::now();
    let mut calls = BTreeMap::new();
    while begin.elapsed() < time || !is_enough() {
        assert_eq!(go_on(libc::PTRACE_SYSCALL, 0), 0);
        let status = wait();
        if libc::WSTOPSIG(status) != libc::SIGTRAP | 0x80 {
            continue;
        }
        let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
        let (size, to) = (size_of_val(&info), &raw mut info);
        assert!(unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, pid, size, to) } > 0);
        if info.op == libc::PTRACE_SYSCALL_INFO_ENTRY {
            let number = unsafe { info.u.entry.nr };
            *calls.entry(i64::try_from(number).unwrap()).or_default() += 1;
        }
    }
    assert_eq!(go_on(libc::PTRACE_DETACH, 0), 0);
    calls
}

/// From one snapshot to the next it reads everything, looks for processes, and asks for memory pressure.
#[test]
fn an_idle_look_makes_few_system_calls() {
    needs_root!();
    let target = Sleeping::start();
    let options = ["--monitor", "exposure", "--pid", &target.pid()];
    let mut recorder = Recorder::recording(&options);
    std::thread::sleep(Duration::from_secs(3));
    let path = recorder.record();
    let begin = sys::monotonic();
    // A busy machine delays looks.
    let are_enough = || snapshots(&path).filter(|s| s.end > begin).count() >= 5;
    let calls = system_calls(recorder.pid(), Duration::from_secs(6), are_enough);
    let end = sys::monotonic();
    let record = recorder.stop();
    let ends = record.snapshots.iter().map(|s| s.end);
    let looks = ends.filter(|&at| begin <= at && at < end).count() as u64;
    let all: u64 = calls.values().sum();
    let of = |number: i64| calls.get(&number).copied().unwrap_or_default();
    assert!(looks >= 5, "{looks} looks: {calls:?}");
    assert!(all <= 45 * looks, "{all} in {looks} looks: {calls:?}");
    // It opens files of /proc now and then, not at each look.
    let opened = of(libc::SYS_openat);
    assert!(opened <= 8 * looks, "{opened} files opened in {looks} looks: {calls:?}");
    let waited = of(libc::SYS_ppoll) + of(libc::SYS_clock_nanosleep);
    assert!(waited > looks / 2, "{waited} waits in {looks} looks: {calls:?}");
}

/// No work is due for many seconds. It still reacts to events at once.
#[test]
fn requests_during_a_long_pause_are_answered_at_once() {
    needs_root!();
    const AT_ONCE: Duration = Duration::from_secs(30);
    // After the first round the next one is 100 s away.
    let pause = ["--monitor", "exposure", "--interval", "400s"];
    let begin = |target: &Sleeping, more: &[&str]| {
        let pid = target.pid();
        let options = [&pause[..], &["--pid", &pid], more].concat();
        let recorder = Recorder::start(&options);
        recorder.until_recording();
        std::thread::sleep(Duration::from_millis(500));
        recorder
    };
    let ends_at_once = |mut recorder: Recorder, since: Instant| {
        assert_eq!(recorder.wait().code(), Some(0), "{}", recorder.err());
        assert!(since.elapsed() < AT_ONCE, "after {:?}", since.elapsed());
        recorder.err()
    };
    let mut target = Sleeping::start();
    let recorder = begin(&target, &[]);
    let since = Instant::now();
    target.0.kill().unwrap();
    target.0.wait().unwrap();
    assert!(ends_at_once(recorder, since).contains("all targets have ended"));

    let target = Sleeping::start();
    let recorder = begin(&target, &[]);
    let since = Instant::now();
    recorder.signal(Signal::TERM);
    assert!(ends_at_once(recorder, since).contains("stopped by SIGTERM"));

    let since = Instant::now();
    let recorder = begin(&target, &["--duration", "2s"]);
    assert!(ends_at_once(recorder, since).contains("--duration is over"));
}

/// A shell that starts its child when no work has been due for seconds.
#[test]
fn a_child_that_comes_late_is_followed() {
    needs_root!();
    let words = ["sleep 3", "sleep 1000 & echo $!", "wait"].join("; ");
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", &words]).stdout(std::process::Stdio::null()).spawn().unwrap();
    let shell = Sleeping::of(shell);
    let mut recorder = Recorder::recording(&["--pid", &shell.pid(), "--children"]);
    let children = || {
        let path = format!("/proc/{0}/task/{0}/children", shell.pid());
        fs::read_to_string(path).unwrap_or_default().trim().to_owned()
    };
    let comm = |pid: &str| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    until("the child", || comm(&children()).contains("1000"));
    let child: u32 = children().parse().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    recorder.signal(Signal::TERM);
    recorder.wait();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(i32::try_from(child).unwrap()).unwrap(),
        Signal::KILL,
    )
    .unwrap();
    let record = Record::read(&recorder.record());
    assert_eq!(record.end.as_ref().unwrap().why, FileEndReason::Stopped);
    assert!(record.pids().contains(&child), "{child} is not among {:?}", record.pids());
    assert!(record.snapshots_of(child) > 0, "no snapshot has it");
}
