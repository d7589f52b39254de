//! The tracer that shortens transfers, on programs that handle short ones.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Runs `cat FILE` with shortened calls, and returns its outcome and the log. `None` without root.
fn cat(dir: &Path, plan: [&str; 5]) -> Option<(Output, String)> {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none(), "it requires root");
        eprintln!("skipped: it requires root");
        return None;
    }
    let log = dir.join("log");
    let mut command = Command::new(env!("CARGO_BIN_EXE_harden"));
    command.env("LC_ALL", "C");
    command.arg("shorten").arg(&log).args(plan).arg("cat").arg(dir.join("file"));
    Some((command.output().unwrap(), fs::read_to_string(&log).unwrap()))
}

fn folder() -> (tempfile::TempDir, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..1000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(dir.path().join("file"), &content).unwrap();
    (dir, content)
}

#[test]
fn a_program_that_heeds_short_transfers_loses_nothing() {
    let (dir, content) = folder();
    for call in ["read", "write"] {
        for part in ["one", "half", "all-but-one"] {
            let Some((done, log)) = cat(dir.path(), [call, part, "1", "1", "0"]) else { return };
            assert!(done.status.success() && done.stdout == content, "{call} {part}: {done:?}");
            let of = format!("<{}>", dir.path().join("file").display());
            let lines = log.lines().filter(|line| call == "write" || line.contains(&of)).count();
            assert!(lines >= if part == "one" { 1000 } else { 1 }, "{call} {part}: {log}");
        }
    }
}

/// As on a disk that gets full: a part is written, and then nothing more.
#[test]
fn the_call_that_continues_a_short_one_fails() {
    let (dir, content) = folder();
    let enospc = libc::ENOSPC.to_string();
    let Some((done, log)) = cat(dir.path(), ["write", "half", "1", "0", &enospc]) else { return };
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stderr).contains("No space left"), "{done:?}");
    assert_eq!(done.stdout, content[..content.len() / 2]);
    assert!(log.contains(&format!("error {enospc} (INJECTED)")), "{log}");
}

/// Compiled code relies on registers that the kernel does not change. This test runs itself with shortened calls.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_register_with_the_length_is_restored() {
    const INSIDE: &str = "ISOTHERM_TEST_SHORTENED";
    if std::env::var_os(INSIDE).is_some() {
        let bytes = [b'\n'; 100];
        let (done, length): (i64, usize);
        // SAFETY: it writes bytes that live until the call returns; the kernel changes no other register.
        unsafe {
            std::arch::asm!("syscall", inlateout("rax") libc::SYS_write => done, in("rdi") 1,
                in("rsi") bytes.as_ptr(), inlateout("rdx") bytes.len() => length,
                out("rcx") _, out("r11") _);
        }
        assert_eq!((done, length), (50, 100));
    } else if rustix::process::geteuid().is_root() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_harden"));
        command.arg("shorten").arg(dir.path().join("log")).args(["write", "half", "1", "1", "0"]);
        command.arg(std::env::current_exe().unwrap()).env(INSIDE, "1");
        let done = command.arg("the_register_with_the_length_is_restored").output().unwrap();
        let out = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && out.contains("1 passed"), "{done:?}");
    } else {
        eprintln!("skipped: tracing with a seccomp filter requires root");
        assert!(std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none());
    }
}
