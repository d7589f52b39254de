//! The walk over the memory of a work.

use isotherm_core::{AddrRange, Applied, Failure, OpsError, PAGE_SIZE, Work};

use super::actions::operation;
use super::cursor::{Cursor, Next};
use super::eligible::{Eligible, Prepared};
use super::memory::ProcessMemory;
use super::operation::Operation;
use super::progress::WorkProgress;
use crate::ops::vaddr::Vaddr;

/// Performs the prepared part of `work`.
pub(super) fn perform(
    ops: &mut Vaddr,
    work: &Work<'_>,
    prepared: &Prepared,
) -> Result<Applied, OpsError> {
    let mut progress = WorkProgress::new(work, prepared.took, ops.page_times.of(work.action));
    let operation = operation(work.action)?;
    let mut memory = ProcessMemory::of(ops, work.target)?;
    walk(&mut memory, work, prepared, &*operation, &mut progress)?;
    Ok(progress.end())
}

/// Reads the memory part by part, and acts on the pages that `operation` selects, until the budget is used.
pub(super) fn walk(
    memory: &mut ProcessMemory<'_>,
    work: &Work<'_>,
    prepared: &Prepared,
    operation: &dyn Operation,
    progress: &mut WorkProgress,
) -> Result<(), OpsError> {
    let range = AddrRange::new(work.range.start, prepared.upto);
    let parts = prepared.untouched.clone().unwrap_or_else(|| vec![range]);
    let mut cursor = Cursor::new(memory.process, &parts, range.end, operation.reads());
    while !progress.is_over() {
        let found = match cursor.next(memory)? {
            Next::Blocks(found) => found,
            Next::End => {
                progress.reach(range.end);
                break;
            }
            Next::Gone => {
                progress.failures.add(Failure::Gone, range.len() / PAGE_SIZE);
                break;
            }
        };
        let eligible = Eligible { process: memory.process, work, prepared, found: &found };
        let pieces = operation.select(&eligible, &mut progress.failures);
        let mut rest = &pieces[..];
        while let Some((step, later)) = progress.next_step(rest, operation.step()) {
            let reply = operation.apply(memory, step)?;
            let result =
                memory.verify(step, reply, |block, pages| operation.verify(block, pages))?;
            progress.count(step, &result);
            rest = later;
        }
        if rest.is_empty() {
            progress.reach(cursor.position());
        }
    }
    Ok(())
}
