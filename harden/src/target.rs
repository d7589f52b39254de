//! A process for the program to watch, which this program becomes.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Signal, set_parent_process_death_signal};

/// Memory of a target in bytes, and the part of it that the target keeps touching.
const MEMORY: usize = 8 << 20;
const HOT: usize = 1 << 20;
const PAGE: usize = 4096;

/// A running target, ended when dropped.
pub struct Target(Child);

impl Target {
    pub fn start() -> Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("target").stdin(Stdio::null()).stdout(Stdio::null());
        Ok(Target(command.spawn().context("cannot start a target")?))
    }

    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The work of the target. It ends with its parent.
pub fn touch() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut memory = vec![1_u8; MEMORY];
    loop {
        for byte in memory[..HOT].iter_mut().step_by(PAGE) {
            *byte = std::hint::black_box(byte.wrapping_add(1));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
