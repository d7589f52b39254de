//! The step before the wait: clears bits and notes touches, so that later touches can be observed.

use std::time::Duration;

use isotherm_core::{Action, AddrRange, OpsError, PAGE_SIZE, PageMask, Work};

use super::eligible::{Prepared, waits_for_touches};
use super::filter::rejects_within;
use super::pieces::{VisibleRange, visible_ranges};
use crate::ops::process::VaddrTarget;
use crate::ops::survey::{clear, read_blocks};
use crate::ops::vaddr::Vaddr;
use crate::sys::{Stopwatch, monotonic};
use crate::walker::{Plain, Span, pages_in_block};

/// Bytes to clear between two checks of the clock: at most 2 ms.
const CLEAR_STEP_BYTES: u64 = 16 << 20;
/// Bytes whose bits are read between two checks of the clock: at most a millisecond.
const READ_STEP_BYTES: u64 = 1 << 30;

/// Prepares as much as the budget is estimated to suffice for.
pub(super) fn prepare(ops: &mut Vaddr, work: &Work<'_>) -> Result<Prepared, OpsError> {
    let began = Stopwatch::start();
    let mut prepared = Prepared { upto: work.range.end, ..Prepared::default() };
    if waits_for_touches(work) {
        // If a filter rejects pages touched within a time, the action cannot select young pages. They are cleared
        // only if the monitor does not clear them, so that they have an age later.
        let process = ops.targets.get(work.target)?;
        let lately =
            |within: &Duration| process.cleared.is_some_and(|at| monotonic().since(at) < *within);
        match rejects_within(work.filters).filter(lately) {
            Some(within) => find_untouched(ops, work, within, &mut prepared, began)?,
            None => clear_young(ops, work, &mut prepared, began)?,
        }
    } else if !work.recheck.is_zero() && *work.action == Action::HugePage {
        note_young(ops, work, &mut prepared)?;
        prepared.waits = !prepared.young.is_empty();
    }
    prepared.took = began.elapsed();
    Ok(prepared)
}

/// Clears the young pages.
fn clear_young(
    ops: &mut Vaddr,
    work: &Work<'_>,
    prepared: &mut Prepared,
    began: Stopwatch,
) -> Result<(), OpsError> {
    let Vaddr { walker, targets, .. } = ops;
    let process = targets.get(work.target)?;
    let mut cleared = Vec::new();
    let armed = step_by_step(work, CLEAR_STEP_BYTES, prepared, began, |range, _| {
        let runs: Vec<AddrRange> = visible_ranges(process, range).iter().map(|r| r.range).collect();
        cleared.clear();
        clear(walker, process, &runs, &mut cleared)?;
        Ok(cleared.iter().map(|c| u64::from(c.armed.count()) * PAGE_SIZE).sum())
    })?;
    prepared.waits = armed > 0;
    Ok(())
}

/// Finds the memory that was not touched `within` this time. Accessed bits take 2 ns a page, and folios 60 times as
/// long: so the action reads the folios of this memory only.
fn find_untouched(
    ops: &mut Vaddr,
    work: &Work<'_>,
    within: Duration,
    prepared: &mut Prepared,
    began: Stopwatch,
) -> Result<(), OpsError> {
    let Vaddr { walker, targets, .. } = ops;
    let process = targets.get(work.target)?;
    let now = monotonic();
    prepared.untouched = Some(Vec::new());
    step_by_step(work, READ_STEP_BYTES, prepared, began, |range, prepared| {
        let Some(history) = &process.touched else { return Ok(0) };
        let spans = spans(process, range);
        let runs = prepared.untouched.get_or_insert_default();
        let mut bytes = 0;
        read_blocks(walker, process, &spans, |block| {
            let Some(span) = spans.get(block.span) else { return };
            let asked = pages_in_block(block.start, span.range);
            let idle = block.resident.without(&block.young).and(&asked);
            if !idle.is_empty() {
                let idle = idle.without(&history.recent(block.start, within, now));
                bytes += u64::from(idle.count()) * PAGE_SIZE;
                add_runs(runs, block.start, &idle);
            }
        })?;
        Ok(bytes)
    })?;
    Ok(())
}

/// Calls `each` for one step of the range after the other, while half of the time remains: it is reserved for the later
/// steps. `each` returns the number of bytes on which the action may act; more than the budget are not required.
fn step_by_step(
    work: &Work<'_>,
    step: u64,
    prepared: &mut Prepared,
    began: Stopwatch,
    mut each: impl FnMut(AddrRange, &mut Prepared) -> Result<u64, OpsError>,
) -> Result<u64, OpsError> {
    let range = AddrRange::new(work.range.start, prepared.upto);
    let (mut bytes, mut at) = (0, range.start);
    while at < range.end {
        let late = at > range.start && began.elapsed() >= work.budget.time / 2;
        if late || bytes >= work.budget.bytes {
            prepared.upto = at;
            break;
        }
        let end = range.end.min((at / step + 1) * step);
        bytes += each(AddrRange::new(at, end), prepared)?;
        at = end;
    }
    Ok(bytes)
}

/// Appends the runs of `pages` of the block at `start`. A run may continue the last one, so that no folio is divided.
fn add_runs(runs: &mut Vec<AddrRange>, start: u64, pages: &PageMask) {
    for page in pages.iter() {
        let at = start + page as u64 * PAGE_SIZE;
        match runs.last_mut() {
            Some(last) if last.end == at => last.end = at + PAGE_SIZE,
            _ => runs.push(AddrRange::new(at, at + PAGE_SIZE)),
        }
    }
}

/// The visible parts of `range`, to read their accessed bits.
fn spans(process: &VaddrTarget, range: AddrRange) -> Vec<Span> {
    let span = |r: &VisibleRange| Span { range: r.range, plain: Plain::Nowhere };
    visible_ranges(process, range).iter().map(span).collect()
}

/// Notes the pages that are young by now. They count as touched, even if another program clears them before
/// the end of the wait.
pub(super) fn note_young(
    ops: &mut Vaddr,
    work: &Work<'_>,
    prepared: &mut Prepared,
) -> Result<(), OpsError> {
    let Vaddr { walker, targets, .. } = ops;
    let process = targets.get(work.target)?;
    let range = AddrRange::new(work.range.start, prepared.upto);
    read_blocks(walker, process, &spans(process, range), |block| {
        if !block.young.is_empty() {
            let young = prepared.young.entry(block.start).or_default();
            *young = young.or(&block.young);
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::BLOCK_SIZE;

    #[test]
    fn runs_continue_in_the_next_block() {
        let mut runs = Vec::new();
        add_runs(&mut runs, 0, &PageMask::span(3, 5).or(&PageMask::span(510, 512)));
        add_runs(&mut runs, BLOCK_SIZE, &PageMask::span(0, 2).or(&PageMask::span(7, 8)));
        let pages = |r: &AddrRange| (r.start / PAGE_SIZE, r.end / PAGE_SIZE);
        assert_eq!(runs.iter().map(pages).collect::<Vec<_>>(), [(3, 5), (510, 514), (519, 520)]);
    }
}
