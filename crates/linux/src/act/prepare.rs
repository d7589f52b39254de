//! What comes before the wait: bits are cleared, and noted, so that it shows what is touched.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use isotherm_core::{Action, AddrRange, BLOCK_SIZE, Heat, OpsError, PAGE_SIZE, PageMask, Work};

use super::filter::lets_through;
use super::pieces::{Found, Next, next, spans, stretches};
use crate::ops::survey::clear;
use crate::ops::vaddr::Vaddr;
use crate::sys::{Advice, advise_all};
use crate::walker::Reader;

/// Cleared between two looks at the clock: 2 ms at most.
const PART: u64 = 16 << 20;

/// What was found out before the wait.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    /// It was done up to here, as there is no budget for more.
    pub upto: u64,
    pub took: Duration,
    /// Somebody may be touching what was prepared.
    pub waits: bool,
    /// huge pages that are to be small ones by now, by their address
    pub split: Vec<u64>,
    /// pages that were young, by block, where that counts as a touch
    pub young: HashMap<u64, PageMask>,
}

/// Prepares as much as the budget may be enough for.
pub(super) fn prepare(ops: &mut Vaddr, work: &Work<'_>) -> Result<Prepared, OpsError> {
    let began = Instant::now();
    let mut prepared = Prepared { upto: work.range.end, ..Prepared::default() };
    let mut looked = work.range;
    if *work.action == Action::NoHugePage {
        looked = split(ops, work, &mut prepared)?;
    }
    if work.recheck.is_zero() {
    } else if work.action.prefers() == Some(Heat::Cold) {
        clear_young(ops, work, looked, &mut prepared, began)?;
    } else if *work.action == Action::HugePage {
        note_young(ops, work, &mut prepared)?;
    }
    prepared.took = began.elapsed();
    Ok(prepared)
}

/// Clears what is young in `range`.
fn clear_young(
    ops: &mut Vaddr,
    work: &Work<'_>,
    range: AddrRange,
    prepared: &mut Prepared,
    began: Instant,
) -> Result<(), OpsError> {
    let Vaddr { walker, targets, .. } = ops;
    let process = targets.get(work.target)?;
    let (mut armed, mut at) = (0, range.start);
    let mut cleared = Vec::new();
    while at < range.end {
        // Half of the time is for what comes after.
        let late = at > range.start && began.elapsed() >= work.budget.time / 2;
        if late || armed >= work.budget.bytes {
            prepared.upto = at;
            break;
        }
        let end = range.end.min((at / PART + 1) * PART);
        let runs: Vec<AddrRange> =
            stretches(process, AddrRange::new(at, end)).iter().map(|s| s.range).collect();
        cleared.clear();
        clear(walker, process, &runs, &mut cleared)?;
        armed += cleared.iter().map(|c| u64::from(c.armed.count()) * PAGE_SIZE).sum::<u64>();
        at = end;
    }
    prepared.waits = armed > 0;
    Ok(())
}

/// Notes what is young, as it counts as touched.
fn note_young(ops: &mut Vaddr, work: &Work<'_>, prepared: &mut Prepared) -> Result<(), OpsError> {
    each_found(ops, work, work.range, |found| {
        if !found.block.huge && !found.block.young.is_empty() {
            prepared.young.insert(found.block.start, found.block.young);
        }
        prepared.young.len() as u64 * BLOCK_SIZE < work.budget.bytes
    })?;
    prepared.waits = !prepared.young.is_empty();
    Ok(())
}

/// Splits huge pages, by advice on a part of each; returns up to where.
fn split(ops: &mut Vaddr, work: &Work<'_>, prepared: &mut Prepared) -> Result<AddrRange, OpsError> {
    let most = work.budget.bytes / BLOCK_SIZE;
    let mut range = work.range;
    if most == 0 {
        prepared.upto = range.start;
        return Ok(AddrRange::new(range.start, range.start));
    }
    each_found(ops, work, work.range, |found| {
        let mut pieces = found.pieces.iter().filter(|_| found.block.huge);
        if pieces.any(|p| lets_through(work.filters, p, None)) {
            prepared.split.push(found.block.start);
        }
        let full = prepared.split.len() as u64 == most;
        if full {
            range.end = found.block.start + BLOCK_SIZE;
        }
        !full
    })?;
    prepared.upto = range.end;
    let process = ops.targets.get(work.target)?;
    let first = |&start: &u64| AddrRange::new(start, start + PAGE_SIZE);
    let firsts: Vec<AddrRange> = prepared.split.iter().map(first).collect();
    advise_all(process.pidfd.as_fd(), &firsts, Advice::Cold);
    Ok(range)
}

/// Reads `range`, block by block, as long as more is wanted.
fn each_found(
    ops: &mut Vaddr,
    work: &Work<'_>,
    range: AddrRange,
    mut wants_more: impl FnMut(&Found) -> bool,
) -> Result<(), OpsError> {
    let Vaddr { walker, targets, .. } = ops;
    let process = targets.get(work.target)?;
    let stretches = stretches(process, range);
    let spans = spans(&stretches);
    let mut reader = Reader::new(&spans);
    while let Next::Found(found) = next(walker, process, &mut reader, &stretches)? {
        if !found.iter().all(&mut wants_more) {
            break;
        }
    }
    Ok(())
}
