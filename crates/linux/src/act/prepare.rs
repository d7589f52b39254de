//! What comes before the wait: bits are cleared, and noted, so that it shows what is touched.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::time::Duration;

use isotherm_core::{Action, AddrRange, BLOCK_SIZE, Heat, OpsError, PAGE_SIZE, PageMask, Work};

use super::filter::let_through;
use super::pieces::{Found, Next, next, spans, stretches};
use crate::ops::process::Process;
use crate::ops::survey::{clear, read_blocks};
use crate::ops::vaddr::Vaddr;
use crate::sys::{Advice, Stopwatch, advise_all};
use crate::walker::{Plain, Reader};

/// Cleared between two looks at the clock: 2 ms at most.
const PART: u64 = 16 << 20;
/// Blocks that are read between two looks at the clock.
const AT_ONCE: u32 = 256;

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
    /// pages that were touched before the last look, by block
    pub young: HashMap<u64, PageMask>,
}

impl Prepared {
    /// Pages of the block from `start` on that were touched before the last look.
    pub fn touched(&self, start: u64) -> PageMask {
        self.young.get(&start).copied().unwrap_or_default()
    }
}

/// Whether what is touched from now on is to be let alone.
pub(super) fn waits_for_touches(work: &Work<'_>) -> bool {
    !work.recheck.is_zero() && work.action.prefers() == Some(Heat::Cold)
}

/// Prepares as much as the budget may be enough for.
pub(super) fn prepare(ops: &mut Vaddr, work: &Work<'_>) -> Result<Prepared, OpsError> {
    let began = Stopwatch::start();
    let mut prepared = Prepared { upto: work.range.end, ..Prepared::default() };
    if *work.action == Action::NoHugePage {
        split(ops, work, &mut prepared, began)?;
    }
    if waits_for_touches(work) {
        clear_young(ops, work, &mut prepared, began)?;
    } else if !work.recheck.is_zero() && *work.action == Action::HugePage {
        note_young(ops, work, &mut prepared)?;
        prepared.waits = !prepared.young.is_empty();
    }
    prepared.took = began.elapsed();
    Ok(prepared)
}

/// Clears what is young.
fn clear_young(
    ops: &mut Vaddr,
    work: &Work<'_>,
    prepared: &mut Prepared,
    began: Stopwatch,
) -> Result<(), OpsError> {
    let Vaddr { walker, targets, .. } = ops;
    let process = targets.get(work.target)?;
    let range = AddrRange::new(work.range.start, prepared.upto);
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

/// Notes what is young by now: it counts as touched, also if somebody else clears it before the end of the
/// wait.
pub(super) fn note_young(
    ops: &mut Vaddr,
    work: &Work<'_>,
    prepared: &mut Prepared,
) -> Result<(), OpsError> {
    let Vaddr { walker, targets, .. } = ops;
    let process = targets.get(work.target)?;
    let range = AddrRange::new(work.range.start, prepared.upto);
    let spans = spans(&stretches(process, range), Plain::Nowhere);
    read_blocks(walker, process, &spans, |block| {
        if !block.young.is_empty() {
            let young = prepared.young.entry(block.start).or_default();
            *young = young.or(&block.young);
        }
    })?;
    Ok(())
}

/// Splits huge pages, by advice on a part of each.
fn split(
    ops: &mut Vaddr,
    work: &Work<'_>,
    prepared: &mut Prepared,
    began: Stopwatch,
) -> Result<(), OpsError> {
    let most = work.budget.bytes / BLOCK_SIZE;
    let split = &mut prepared.split;
    prepared.upto = each_block(ops, work, began, |process, found| {
        if found.block.huge && (split.len() as u64) < most {
            let mut huge = found.pieces.clone();
            let_through(process, work.filters, &mut huge);
            split.extend(huge.first().map(|p| p.start));
        }
        (split.len() as u64) < most
    })?;
    let process = ops.targets.get(work.target)?;
    let first = |&start: &u64| AddrRange::new(start, start + PAGE_SIZE);
    let firsts: Vec<AddrRange> = prepared.split.iter().map(first).collect();
    advise_all(process.pidfd.as_fd(), &firsts, Advice::Cold);
    Ok(())
}

/// Goes over the blocks of `work` as long as more is wanted and half of the time has not passed; returns
/// how far it has got.
fn each_block(
    ops: &mut Vaddr,
    work: &Work<'_>,
    began: Stopwatch,
    mut wants_more: impl FnMut(&Process, &Found) -> bool,
) -> Result<u64, OpsError> {
    let Vaddr { walker, targets, .. } = ops;
    let process = targets.get(work.target)?;
    let stretches = stretches(process, work.range);
    let spans = spans(&stretches, Plain::Huge);
    let mut reader = Reader::new(&spans).at_most(AT_ONCE);
    while let Next::Found(found) = next(walker, process, &mut reader, &stretches)? {
        for found in &found {
            if !wants_more(process, found) {
                return Ok(work.range.end.min(found.block.start + BLOCK_SIZE));
            }
        }
        if began.elapsed() >= work.budget.time / 2 {
            return Ok(reader.position().unwrap_or(work.range.end));
        }
    }
    Ok(work.range.end)
}
