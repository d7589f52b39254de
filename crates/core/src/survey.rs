//! The seam of those monitors that read everything: accessed bits of whole page tables, and clears
//! in long runs.

use std::time::Duration;

use crate::call::{Cost, OpsError, TargetId};
use crate::page_mask::PageMask;
use crate::range::{AddrRange, PAGE_SIZE};
use crate::time::Nanos;
use crate::unknown::Unknown;

/// What one page table maps, and a huge page: 2 MiB.
pub const BLOCK_SIZE: u64 = 512 * PAGE_SIZE;

/// The accessed bits of a block: 2 MiB, from a multiple of that on. Pages that were not asked for are
/// in no set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Block {
    /// address of its first page
    pub start: u64,
    /// One entry maps all of it, so that there is one bit for all its pages.
    pub huge: bool,
    /// pages with memory of the target behind them
    pub resident: PageMask,
    /// those of them whose accessed bit is set
    pub young: PageMask,
    /// when it was read
    pub read_at: Nanos,
}

/// What has come of clearing a block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cleared {
    /// address of its first page
    pub start: u64,
    /// see [`Block::huge`]
    pub huge: bool,
    /// Pages that were asked for, whose accessed bit is clear now, and which will show when they are
    /// accessed.
    pub armed: PageMask,
    /// resident pages that were asked for and whose accesses cannot be seen, each reason once
    pub hidden: Vec<(Unknown, PageMask)>,
    /// when clearing ended
    pub cleared_at: Nanos,
}

impl Cleared {
    /// Moves those of `pages` that are armed to what is hidden: each reason is told once, as what is told
    /// is kept, and a block may have a hundred folios.
    pub fn hide(&mut self, why: Unknown, pages: &PageMask) {
        let pages = pages.and(&self.armed);
        if pages.is_empty() {
            return;
        }
        self.armed = self.armed.without(&pages);
        match self.hidden.iter_mut().find(|(other, _)| *other == why) {
            Some((_, of)) => *of = of.or(&pages),
            None => self.hidden.push((why, pages)),
        }
    }
}

/// Reads all accessed bits, and clears them in long runs. Reading is cheap, clearing is dear, and the
/// longer a run the cheaper each page of it.
pub trait Survey {
    /// Appends the blocks of `ranges` (sorted, disjoint, page-aligned, each within one mapping) in
    /// which anything is resident, in ascending order; of those that changed while they were read
    /// there is none. Two ranges that meet within a block may give it twice.
    ///
    /// # Errors
    /// If the target is unknown, or reading has become impossible. A target that is gone has no
    /// blocks.
    fn survey(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        out: &mut Vec<Block>,
    ) -> Result<Cost, OpsError>;

    /// Clears the accessed bits that are set in each of `runs` (as above), with as few TLB shootdowns
    /// as can be: over old and absent pages, never splitting a huge page or a large folio. Appends what
    /// has come of each block in which anything is resident, in ascending order.
    ///
    /// # Errors
    /// As above.
    fn clear(
        &mut self,
        target: TargetId,
        runs: &[AddrRange],
        out: &mut Vec<Cleared>,
    ) -> Result<Cost, OpsError>;

    /// What memory pressure does to the target, if that can be told.
    fn pressure(&mut self, target: TargetId) -> Option<Pressure> {
        let _ = target;
        None
    }
}

/// Memory pressure on a target: what its group, or the machine, has seen since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pressure {
    /// pages that reclaim has looked at; where that is not counted, how often it had to
    pub scanned: u64,
    /// pages that were reclaimed, and wanted again
    pub refaults: u64,
    /// of these, the ones of no file
    pub private_refaults: u64,
    /// faults that had to wait for a disk
    pub major_faults: u64,
    /// time in which some of its tasks waited for memory
    pub stalled: Duration,
    /// bytes that it may still allocate before its limit makes it reclaim, if there is one
    pub headroom: Option<u64>,
}

/// `blocks` with those made one that are the same block.
pub(crate) fn one_each(blocks: &[Block]) -> impl Iterator<Item = Block> + '_ {
    blocks.chunk_by(|a, b| a.start == b.start).filter_map(|same| {
        same.iter().copied().reduce(|a, b| Block {
            resident: a.resident.or(&b.resident),
            young: a.young.or(&b.young),
            ..a
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_hidden_for_one_reason_and_a_reason_is_told_once() {
        let mut cleared = Cleared { armed: PageMask::span(0, 100), ..Cleared::default() };
        for folio in 0..10 {
            cleared.hide(Unknown::Shared, &PageMask::span(folio * 4, folio * 4 + 2));
        }
        cleared.hide(Unknown::Unseen, &PageMask::span(0, 8));
        cleared.hide(Unknown::Dma, &PageMask::span(0, 8));
        let hidden: Vec<(Unknown, u32)> =
            cleared.hidden.iter().map(|(why, pages)| (*why, pages.count())).collect();
        assert_eq!(hidden, [(Unknown::Shared, 20), (Unknown::Unseen, 4)]);
        assert_eq!(cleared.armed.count(), 76);
    }
}
