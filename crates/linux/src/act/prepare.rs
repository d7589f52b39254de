//! The step before the wait: clears bits and notes touches, so that later touches can be observed.

use isotherm_core::{Action, AddrRange, OpsError, PAGE_SIZE, Work};

use super::demote::split;
use super::eligible::{Prepared, waits_for_touches};
use super::filter::rejects_within;
use super::pieces::{VisibleRange, visible_ranges};
use crate::ops::survey::{clear, read_blocks};
use crate::ops::vaddr::Vaddr;
use crate::sys::{Stopwatch, monotonic};
use crate::walker::{Plain, Span};

/// Bytes to clear between two checks of the clock: at most 2 ms.
const CLEAR_STEP_BYTES: u64 = 16 << 20;

/// Prepares as much as the budget is estimated to suffice for.
pub(super) fn prepare(ops: &mut Vaddr, work: &Work<'_>) -> Result<Prepared, OpsError> {
    let began = Stopwatch::start();
    let mut prepared = Prepared { upto: work.range.end, ..Prepared::default() };
    if *work.action == Action::NoHugePage {
        split(ops, work, &mut prepared, began)?;
    }
    if waits_for_touches(work) {
        // If a filter rejects pages touched within a time, the action cannot select young pages. They are cleared
        // only if the monitor does not clear them, so that they have an age later.
        let process = ops.targets.get(work.target)?;
        let lately = |within| process.cleared.is_some_and(|at| monotonic().since(at) < within);
        if !rejects_within(work.filters).is_some_and(lately) {
            clear_young(ops, work, &mut prepared, began)?;
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
    let range = AddrRange::new(work.range.start, prepared.upto);
    let (mut armed, mut at) = (0, range.start);
    let mut cleared = Vec::new();
    while at < range.end {
        // Half of the time is reserved for the later steps.
        let late = at > range.start && began.elapsed() >= work.budget.time / 2;
        if late || armed >= work.budget.bytes {
            prepared.upto = at;
            break;
        }
        let end = range.end.min((at / CLEAR_STEP_BYTES + 1) * CLEAR_STEP_BYTES);
        let runs: Vec<AddrRange> =
            visible_ranges(process, AddrRange::new(at, end)).iter().map(|r| r.range).collect();
        cleared.clear();
        clear(walker, process, &runs, &mut cleared)?;
        armed += cleared.iter().map(|c| u64::from(c.armed.count()) * PAGE_SIZE).sum::<u64>();
        at = end;
    }
    prepared.waits = armed > 0;
    Ok(())
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
    let span = |r: &VisibleRange| Span { range: r.range, plain: Plain::Nowhere };
    let spans: Vec<Span> = visible_ranges(process, range).iter().map(span).collect();
    read_blocks(walker, process, &spans, |block| {
        if !block.young.is_empty() {
            let young = prepared.young.entry(block.start).or_default();
            *young = young.or(&block.young);
        }
    })?;
    Ok(())
}
