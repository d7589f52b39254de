//! Many processes that touch little of their memory.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use isotherm_core::PAGE_SIZE;
use isotherm_linux::sys::Arena;

use crate::program::{ChildGuard, Helper, asked};

/// The argument with which this program starts itself as one of the processes.
const ARGUMENT: &str = "--be-one-of-them";
/// Number of touched pages.
const TOUCHED: u64 = 64;

/// Starts one of the processes, and waits until its memory exists.
pub fn start(bytes: u64) -> Result<ChildGuard> {
    Helper::again(ARGUMENT, [bytes.to_string()])?.ready()
}

/// Is one of the processes, if the command line asks for it: touches 256 KiB, one page every 200 ms. Otherwise does
/// nothing.
pub fn run_if_asked() -> Result<()> {
    let Some(mut words) = asked(ARGUMENT)? else { return Ok(()) };
    let pages = words.next().context("no size")?.parse::<u64>()? / PAGE_SIZE;
    let memory = Arena::map(pages * PAGE_SIZE)?;
    (0..pages).for_each(|page| memory.write(page));
    println!("ready");
    std::io::stdout().flush()?;
    loop {
        for page in 0..TOUCHED.min(pages) {
            memory.write(page);
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}
