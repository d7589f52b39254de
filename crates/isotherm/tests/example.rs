//! The example of the README, on a real process.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// In the process that [`load`] starts, this touches 32 MiB until it is killed; in an ordinary test run, nothing.
#[test]
fn obey() {
    if std::env::var_os("ISOTHERM_TEST_LOAD").is_none() {
        return;
    }
    let mut memory = vec![0u8; 32 << 20];
    loop {
        memory.iter_mut().step_by(4096).for_each(|byte| *byte = byte.wrapping_add(1));
        std::hint::black_box(&memory);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn load() -> Killed {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "obey"]).env("ISOTHERM_TEST_LOAD", "1").stdout(Stdio::null());
    Killed(command.spawn().unwrap())
}

#[test]
fn hot_memory_of_a_process_is_printed() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none(), "it requires root");
        println!("skipped hot_memory_of_a_process_is_printed: it requires root to watch a process");
        return;
    }
    let load = load();
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().with_file_name("examples").join("watch_pid");
    let mut command = Command::new(program);
    command.arg(load.0.id().to_string()).stdout(Stdio::piped());
    let mut example = Killed(command.spawn().unwrap());
    let out = BufReader::new(example.0.stdout.take().unwrap());
    // Other memory is hot too: the stack, and what the allocator keeps.
    let is_load = |line: &String| {
        let (range, hz) = line.split_once(' ').unwrap();
        let (from, to) = range.split_once("..").unwrap();
        let addr = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
        assert!(hz.ends_with(" Hz"), "{line}");
        addr(to) - addr(from) >= 16 << 20
    };
    assert!(out.lines().map(Result::unwrap).any(|line| is_load(&line)), "it ended without it");
}
