//! Swap in compressed memory, made for a bench and taken away again.

use std::fs::{read_to_string, write};
use std::process::Command;

use anyhow::{Context, Result, ensure};

const CONTROL: &str = "/sys/class/zram-control";

/// A zram device that is swapped to; switched off and removed when dropped.
#[derive(Debug)]
pub struct Swap {
    number: u32,
}

impl Swap {
    /// Makes one of `bytes`, used before all other swap.
    ///
    /// # Errors
    /// If the kernel has no zram, or refuses.
    pub fn start(bytes: u64) -> Result<Self> {
        let number = read_to_string(format!("{CONTROL}/hot_add")).with_context(|| {
            format!("there is no {CONTROL}: load the module (modprobe zram), and run as root")
        })?;
        let swap = Swap { number: number.trim().parse()? };
        let size = format!("/sys/block/zram{}/disksize", swap.number);
        write(&size, bytes.to_string()).with_context(|| format!("cannot write {size}"))?;
        run("mkswap", &["--quiet", &swap.device()])?;
        run("swapon", &["--priority", "32767", &swap.device()])?;
        Ok(swap)
    }

    fn device(&self) -> String {
        format!("/dev/zram{}", self.number)
    }

    /// What to type if this process was killed before it could clean up.
    #[must_use]
    pub fn how_to_remove(&self) -> String {
        let (device, number) = (self.device(), self.number);
        format!("swapoff {device}; echo {number} > {CONTROL}/hot_remove")
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = run("swapoff", &[&self.device()]);
        if write(format!("{CONTROL}/hot_remove"), self.number.to_string()).is_err() {
            eprintln!("the swap of this bench is still there: {}", self.how_to_remove());
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let done = Command::new(program).args(arguments).output();
    let done = done.with_context(|| format!("cannot run {program}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{program} {}: {}", arguments.join(" "), said.trim());
    Ok(())
}
