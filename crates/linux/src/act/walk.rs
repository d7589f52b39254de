//! Going through the memory of a work, within its budget.

use isotherm_core::{
    Action, AddrRange, Applied, BLOCK_SIZE, Budget, Failure, OpsError, PAGE_SIZE, Work,
};

use super::actions::{NoHugePage, PageOut, operation};
use super::cursor::{Cursor, Next};
use super::eligible::{Eligible, Prepared};
use super::memory::ProcessMemory;
use super::operation::Operation;
use super::progress::{Reply, WorkProgress};
use crate::ops::vaddr::Vaddr;

/// Does `work`, as far as it was prepared.
pub(super) fn perform(
    ops: &mut Vaddr,
    work: &Work<'_>,
    prepared: &Prepared,
) -> Result<Applied, OpsError> {
    let mut progress = WorkProgress::new(work, prepared.took, ops.page_times.of(work.action));
    let operation = operation(work.action)?;
    let Vaddr { walker, targets, .. } = ops;
    let mut memory = ProcessMemory { walker, process: targets.get(work.target)? };
    if *work.action != Action::NoHugePage {
        walk(&mut memory, work, prepared, &*operation, &mut progress)?;
        return Ok(progress.end());
    }
    demote(&mut memory, work, prepared, progress)
}

/// Acts on what `operation` selects, part by part, as long as the budget lasts.
fn walk(
    memory: &mut ProcessMemory<'_>,
    work: &Work<'_>,
    prepared: &Prepared,
    operation: &dyn Operation,
    progress: &mut WorkProgress,
) -> Result<(), OpsError> {
    let range = AddrRange::new(work.range.start, prepared.upto);
    let mut cursor = Cursor::new(memory.process, range, operation.reads());
    while !progress.is_over() {
        let found = match cursor.next(memory)? {
            Next::Found(found) => found,
            Next::End => {
                progress.reach(range.end);
                break;
            }
            Next::Gone => {
                progress.failures.add(Failure::Gone, range.len() / PAGE_SIZE);
                break;
            }
        };
        let process = &*memory.process;
        let eligible = Eligible { process, work, prepared: Some(prepared), found: &found };
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

/// Counts the huge pages that were split, and pages out what is cold of them.
fn demote(
    memory: &mut ProcessMemory<'_>,
    work: &Work<'_>,
    prepared: &Prepared,
    mut progress: WorkProgress,
) -> Result<Applied, OpsError> {
    let split = &prepared.split;
    for piece in split.chunks(1) {
        let verify = |block: &_, pages: &_| NoHugePage.verify(block, pages);
        let result = memory.verify(piece, Reply::Advised(Vec::new()), verify)?;
        progress.count(piece, &result);
    }
    progress.reach(prepared.upto);
    let mut had_room = true;
    if prepared.waits {
        let budget = Budget { bytes: split.len() as u64 * BLOCK_SIZE, ..work.budget };
        let work = Work { budget, ..work.clone() };
        let mut paged_out = WorkProgress::new(&work, prepared.took, None);
        let page_out = PageOut { within: Some(split) };
        walk(memory, &work, prepared, &page_out, &mut paged_out)?;
        had_room = paged_out.had_room();
    }
    // What was split is done, but it is in vain as long as there is no room.
    let done = progress.end();
    let failure = if had_room { done.failure } else { Some(Failure::NoRoom) };
    Ok(Applied { failure, ..done })
}
