//! Demotion of huge pages. isotherm splits them before the wait for touches, because only small pages show
//! which part is in use. After the wait it pages out the untouched pages.

use isotherm_core::{Applied, BLOCK_SIZE, Budget, Failure, OpsError, Work};

use super::actions::{NoHugePage, PageOut};
use super::cursor::{Cursor, Next};
use super::eligible::{Eligible, Prepared};
use super::memory::ProcessMemory;
use super::operation::Operation;
use super::progress::{Failures, Reply, WorkProgress};
use super::walk::walk;
use crate::ops::vaddr::Vaddr;
use crate::sys::Stopwatch;

/// Splits as many huge pages as the budget allows, until half of the time has passed.
pub(super) fn split(
    ops: &mut Vaddr,
    work: &Work<'_>,
    prepared: &mut Prepared,
    began: Stopwatch,
) -> Result<(), OpsError> {
    let most = usize::try_from(work.budget.bytes / BLOCK_SIZE).unwrap_or(usize::MAX);
    let mut memory = ProcessMemory::of(ops, work.target)?;
    let mut cursor = Cursor::new(memory.process, &[work.range], work.range.end, NoHugePage.reads());
    'all: while let Next::Blocks(found) = cursor.next(&mut memory)? {
        for found in found.chunks(1) {
            if prepared.split.len() < most {
                let eligible = Eligible { process: memory.process, work, prepared, found };
                let huge = NoHugePage.select(&eligible, &mut Failures::default());
                prepared.split.extend(huge);
            }
            if prepared.split.len() >= most {
                let end = found.first().map(|found| found.block.start + BLOCK_SIZE);
                prepared.upto = end.map_or(work.range.end, |end| end.min(work.range.end));
                break 'all;
            }
        }
        if began.elapsed() >= work.budget.time / 2 {
            prepared.upto = cursor.position();
            break;
        }
    }
    // `demote` verifies after the wait which of them are split.
    NoHugePage.apply(&memory, &prepared.split).map(drop)
}

/// Counts the huge pages that were split, and pages out their cold pages.
pub(super) fn demote(
    ops: &mut Vaddr,
    work: &Work<'_>,
    prepared: &Prepared,
) -> Result<Applied, OpsError> {
    let mut progress = WorkProgress::new(work, prepared.took, None);
    let mut memory = ProcessMemory::of(ops, work.target)?;
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
        walk(&mut memory, &work, prepared, &page_out, &mut paged_out)?;
        had_room = paged_out.had_room();
    }
    // The splits count as done, but they are in vain as long as there is no room.
    let done = progress.end();
    let failure = if had_room { done.failure } else { Some(Failure::NoRoom) };
    Ok(Applied { failure, ..done })
}
