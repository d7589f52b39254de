//! The memory of a target: giving advice on it, reading it, and verifying the result.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;

use isotherm_core::{
    AddrRange, BLOCK_SIZE, Failure, OpsError, PageMask, TargetId, align_down, join_touching,
};

use super::pieces::{Piece, pages_of};
use super::progress::{Reply, StepResult};
use crate::ops::process::VaddrTarget;
use crate::ops::survey::read_blocks;
use crate::ops::vaddr::Vaddr;
use crate::sys::{MemoryAdvice, advise_all, touch};
use crate::walker::{Plain, RawBlock, Span, Walker, pages_in_block};

/// A target, and the reader of its page tables.
pub(super) struct ProcessMemory<'a> {
    pub walker: &'a mut Walker,
    pub process: &'a mut VaddrTarget,
}

impl<'a> ProcessMemory<'a> {
    pub fn of(ops: &'a mut Vaddr, target: TargetId) -> Result<Self, OpsError> {
        let Vaddr { walker, targets, .. } = ops;
        Ok(ProcessMemory { walker, process: targets.get(target)? })
    }

    /// Gives advice on `pieces`, adjacent ones as one range; returns the ranges that the kernel refused.
    pub fn advise(&self, pieces: &[Piece], advice: MemoryAdvice) -> Vec<(AddrRange, Failure)> {
        let ranges = join_touching(pieces.iter().map(Piece::range));
        let refused = advise_all(self.process.pidfd.as_fd(), &ranges, advice);
        let of = |(i, e): (usize, io::Error)| Some((*ranges.get(i)?, failure(&e, advice)));
        refused.into_iter().filter_map(of).collect()
    }

    /// Reads a byte of each of `pieces`; returns how many bytes it could read.
    pub fn touch(&self, pieces: &[Piece]) -> Result<u64, Failure> {
        let pages: Vec<u64> = pieces.iter().map(|p| p.start).collect();
        // Only while it has not ended is the pid its own.
        if self.process.has_ended() {
            return Err(Failure::Gone);
        }
        touch(self.process.pid, &pages).map_err(|e| failure(&e, MemoryAdvice::WillNeed))
    }

    /// Reads the page tables of `pieces` again, unless the kernel has counted, and counts the pieces that
    /// `is_done` accepts.
    pub fn verify(
        &mut self,
        pieces: &[Piece],
        reply: Reply,
        is_done: impl Fn(&RawBlock, &PageMask) -> bool,
    ) -> Result<StepResult, OpsError> {
        let refused = match reply {
            Reply::Counted(result) => return Ok(result),
            Reply::Advised(refused) => refused,
        };
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else {
            return Ok(StepResult::default());
        };
        let range = AddrRange::new(first.start, last.range().end);
        let (span, mut blocks) = ([Span { range, plain: Plain::Nowhere }], HashMap::new());
        let is_same = read_blocks(self.walker, self.process, &span, |block| {
            blocks.insert(block.start, *block);
        })?;
        if !is_same {
            return Ok(StepResult::of(0, pages_of(pieces), Failure::Gone));
        }
        Ok(count(pieces, &blocks, &refused, is_done))
    }
}

/// Counts the pieces that `is_done` accepts in `blocks`. The other pieces were busy, or `refused`.
fn count(
    pieces: &[Piece],
    blocks: &HashMap<u64, RawBlock>,
    refused: &[(AddrRange, Failure)],
    is_done: impl Fn(&RawBlock, &PageMask) -> bool,
) -> StepResult {
    let mut result = StepResult::default();
    for piece in pieces {
        let start = align_down(piece.start, BLOCK_SIZE);
        // A block without resident pages is not in `blocks`.
        let block = blocks.get(&start).copied().unwrap_or_default();
        match refused.iter().find(|(range, _)| range.contains(piece.start)) {
            Some((_, why)) => result.failures.add(*why, piece.pages.into()),
            None if is_done(&block, &pages_in_block(start, piece.range())) => {
                result.pages += u64::from(piece.pages);
            }
            None => result.failures.add(Failure::Busy, piece.pages.into()),
        }
    }
    result
}

/// The reason for an error number.
fn failure(e: &io::Error, advice: MemoryAdvice) -> Failure {
    match e.raw_os_error() {
        Some(libc::ENOMEM) if advice == MemoryAdvice::Collapse => Failure::NoRoom,
        Some(libc::ENOMEM | libc::ESRCH | libc::EFAULT) => Failure::Gone,
        Some(libc::EPERM | libc::EACCES) => Failure::Refused,
        Some(libc::EINVAL) if advice == MemoryAdvice::Collapse => Failure::Refused,
        // Locked since, or pinned.
        _ => Failure::Busy,
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::PAGE_SIZE;

    use super::*;

    fn page(n: u64) -> Piece {
        Piece { start: n * PAGE_SIZE, pages: 1, young: false, swaps: true, area: 0 }
    }

    #[test]
    fn results_count_successes_and_failures_by_reason() {
        let pieces: Vec<Piece> = (0..10).map(page).collect();
        let refused = [(AddrRange::new(8 * PAGE_SIZE, 10 * PAGE_SIZE), Failure::Gone)];
        let block = RawBlock { resident: PageMask::span(0, 3), ..RawBlock::default() };
        let gone = |b: &RawBlock, pages: &PageMask| b.resident.and(pages).is_empty();
        let result = count(&pieces, &HashMap::from([(0, block)]), &refused, gone);
        assert_eq!(result.pages, 5);
        assert_eq!(result.failures.0, [(Failure::Busy, 3), (Failure::Gone, 2)]);
        let result = count(&pieces, &HashMap::new(), &[], gone);
        assert_eq!((result.pages, result.failures.0.len()), (10, 0), "nothing is resident");
    }
}
