//! Where a window stops, the next one begins.

use std::time::Duration;

use anyhow::Result;
use isotherm_core::{AddrRange, PAGE_SIZE};

use super::audit::AuditLine;
use super::run::{COLD_SECONDS, RunParameters};
use super::{BrokenBounds, swapped};
use crate::toucher::Toucher;

const PAGES: u64 = 12_345;
/// Quota per second, in bytes. The sizes of this run are no multiples of it.
const QUOTA: u64 = 2_345 * PAGE_SIZE;

/// Prints in which order a scheme acts.
pub fn resume(bounds: &mut BrokenBounds) -> Result<()> {
    println!(
        "| processes | windows | begin exactly where the one before stopped | pages gone over | twice | \
         left out | in swap |"
    );
    println!("|---|---|---|---|---|---|---|");
    [1, 2].iter().try_for_each(|&processes| row(processes, bounds))
}

fn row(processes: u64, bounds: &mut BrokenBounds) -> Result<()> {
    let mut targets = Vec::new();
    for _ in 0..processes {
        let mut target = Toucher::start(PAGES * PAGE_SIZE, Some(false))?;
        target.rest()?;
        targets.push(target);
    }
    let on: Vec<(i32, AddrRange)> = targets.iter().map(|t| (t.pid(), t.range())).collect();
    let windows = (processes * PAGES * PAGE_SIZE).div_ceil(QUOTA);
    let length = Duration::from_secs(windows + COLD_SECONDS + 4);
    let scheme = format!("quota = {{ bytes = {QUOTA} }}");
    let log = RunParameters { scheme: &scheme, on: &on, length, options: &[] }.run()?.log;
    let begun = log.chunk_by(|a, b| a.window == b.window).count();
    let follows = |a: &AuditLine, b: &AuditLine| {
        next(&on, a.pid, a.range().end) == Some((b.pid, b.range().start))
    };
    let pairs = || log.windows(2).filter_map(|pair| pair.first().zip(pair.last()));
    let exact = pairs().filter(|(a, b)| a.window != b.window && follows(a, b)).count();
    let astray = pairs().filter(|(a, b)| !follows(a, b)).count();
    let (mut twice, mut left_out, mut swapped) = (0, 0, 0);
    for &(pid, range) in &on {
        let times = times(&log, pid, range);
        twice += times.iter().filter(|&&n| n > 1).count();
        left_out += times.iter().filter(|&&n| n == 0).count();
        swapped += swapped::of_range(pid, range)? / PAGE_SIZE;
    }
    let pages: u64 = log.iter().map(|l| l.range().len() / PAGE_SIZE).sum();
    println!("| {processes} | {begun} | {exact} | {pages} | {twice} | {left_out} | {swapped} |");
    bounds.expect(exact + 1 == begun, || format!("of {begun} windows {exact} resume exactly"));
    bounds.expect(astray == 0, || format!("{astray} steps do not follow the one before"));
    bounds.expect(twice + left_out == 0, || format!("{twice} pages twice, {left_out} left out"));
    let all = processes * PAGES;
    bounds.expect(swapped == all, || format!("{swapped} of {all} pages are in swap"));
    Ok(())
}

/// The next address after the memory of `pid` up to `end`.
fn next(on: &[(i32, AddrRange)], pid: i32, end: u64) -> Option<(i32, u64)> {
    let at = on.iter().position(|(p, _)| *p == pid)?;
    if end < on.get(at)?.1.end {
        return Some((pid, end));
    }
    on.get(at + 1).map(|(pid, range)| (*pid, range.start))
}

/// How often each page of `range` was gone over.
fn times(log: &[AuditLine], pid: i32, range: AddrRange) -> Vec<u32> {
    let mut times = vec![0; usize::try_from(range.len() / PAGE_SIZE).unwrap_or(0)];
    for r in log.iter().filter(|l| l.pid == pid).filter_map(|l| l.range().intersect(&range)) {
        let page = |address: u64| usize::try_from((address - range.start) / PAGE_SIZE).unwrap_or(0);
        times[page(r.start)..page(r.end)].iter_mut().for_each(|n| *n += 1);
    }
    times
}
