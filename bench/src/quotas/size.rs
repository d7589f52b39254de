//! A quota of bytes.

use std::time::Duration;

use anyhow::Result;
use isotherm_core::PAGE_SIZE;

use super::audit::windows;
use super::run::{COLD_SECONDS, RunParameters};
use super::{BrokenBounds, swapped};
use crate::toucher::Toucher;

/// Quotas per second, in pages.
const QUOTAS: [u64; 3] = [256, 2049, 16_384];
/// So many, and half a one.
const WINDOWS: u64 = 6;

/// Prints how many bytes a scheme acts on.
pub fn size(bounds: &mut BrokenBounds) -> Result<()> {
    println!(
        "| quota in bytes a second | windows | of those, full to the byte | most in one | in all, by \
         the log | VmSwap | in swap by pagemap |"
    );
    println!("|---|---|---|---|---|---|---|");
    QUOTAS.iter().try_for_each(|&pages| row(pages * PAGE_SIZE, bounds))
}

fn row(quota: u64, bounds: &mut BrokenBounds) -> Result<()> {
    let mut target =
        Toucher::start(quota * WINDOWS + quota / 2 / PAGE_SIZE * PAGE_SIZE, Some(false))?;
    target.rest()?;
    let on = [(target.pid(), target.range())];
    let length = Duration::from_secs(WINDOWS + COLD_SECONDS + 4);
    let scheme = format!("quota = {{ bytes = {quota} }}");
    let ran = RunParameters { scheme: &scheme, on: &on, length, options: &[] }.run()?;
    let all = windows(&ran.log);
    let full = all.iter().filter(|w| w.applied == quota).count();
    let most = all.iter().map(|w| w.applied).max().unwrap_or_default();
    let logged: u64 = all.iter().map(|w| w.applied).sum();
    let by_count = swapped::of_process(target.pid())?;
    let by_table = swapped::of_range(target.pid(), target.range())?;
    println!("| {quota} | {} | {full} | {most} | {logged} | {by_count} | {by_table} |", all.len());
    // The last window has only the remaining memory.
    let sufficed = all.iter().filter(|w| w.so_far < target.range().len());
    let short = sufficed.filter(|w| w.applied != quota).count();
    bounds.expect(short == 0, || format!("{quota} bytes: {short} windows were not used up"));
    bounds.expect(most <= quota, || format!("{quota} bytes: {most} in a window"));
    bounds.expect(full as u64 >= WINDOWS, || format!("{quota} bytes: only {full} full windows"));
    let same = logged == by_count && logged == by_table;
    bounds.expect(same, || format!("{quota} bytes: log and kernel do not agree"));
    Ok(())
}
