//! Many processes that touch little of their memory.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use isotherm_core::PAGE_SIZE;
use isotherm_linux::sys::Arena;
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::program::Ended;

/// The argument with which this program starts itself as one of the processes.
const ARGUMENT: &str = "--be-one-of-them";
/// Number of touched pages.
const TOUCHED: u64 = 64;

/// The bytes of memory if this program was started as one of the processes.
pub fn asked() -> Result<Option<u64>> {
    let mut words = std::env::args().skip(1);
    Ok(match words.next().as_deref() == Some(ARGUMENT) {
        true => Some(words.next().context("no size")?.parse()?),
        false => None,
    })
}

/// Starts one of the processes, and waits until its memory exists.
pub fn start(bytes: u64) -> Result<Ended> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([ARGUMENT, &bytes.to_string()]).stdout(Stdio::piped());
    let mut child = Ended(command.spawn()?);
    let out = child.0.stdout.take().context("no standard output")?;
    BufReader::new(out).read_line(&mut String::new())?;
    Ok(child)
}

/// Is one of the processes: touches 256 KiB, one page every 200 ms.
pub fn touch_now_and_then(bytes: u64) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let memory = Arena::map(bytes)?;
    (0..bytes / PAGE_SIZE).for_each(|page| memory.write(page));
    println!("ready");
    std::io::stdout().flush()?;
    for page in (0..TOUCHED.min(bytes / PAGE_SIZE)).cycle() {
        memory.write(page);
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}
