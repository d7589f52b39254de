//! The interface for monitors that read all memory: reads of whole page tables, and clears in long runs.

use std::time::Duration;

use crate::call::{Cost, OpsError, TargetId};
use crate::page_mask::PageMask;
use crate::range::{AddrRange, PAGE_SIZE};
use crate::time::Nanos;
use crate::unknown::Unknown;

/// Bytes that one page table maps, and the size of a huge page: 2 MiB.
pub const BLOCK_SIZE: u64 = 512 * PAGE_SIZE;

/// The accessed bits of a block: 2 MiB, aligned. Pages that were not asked for are in no set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Block {
    /// address of its first page
    pub start: u64,
    /// One entry maps the whole block, so that all its pages share one accessed bit.
    pub huge: bool,
    /// pages that are backed by memory of the target
    pub resident: PageMask,
    /// resident pages whose accessed bit is set
    pub young: PageMask,
    /// time of the read
    pub read_at: Nanos,
}

/// The result of clearing a block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cleared {
    /// address of its first page
    pub start: u64,
    /// see [`Block::huge`]
    pub huge: bool,
    /// Pages that were asked for, whose accessed bit is now clear, and whose next access will be visible.
    pub armed: PageMask,
    /// resident pages that were asked for and whose accesses cannot be observed; each reason occurs once
    pub hidden: Vec<(Unknown, PageMask)>,
    /// time when clearing ended
    pub cleared_at: Nanos,
}

impl Cleared {
    /// Moves the armed pages among `pages` to the hidden ones. Each reason has one entry, because results are
    /// stored, and a block may contain a hundred folios.
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

/// Reads all accessed bits, and clears them in long runs. Reading is cheap and clearing is expensive; the
/// longer a run, the lower the cost per page.
pub trait Survey {
    /// Appends the blocks of `ranges` that contain a resident page, in ascending order. The ranges are
    /// sorted, disjoint, page-aligned, and each within one mapping. A block that changed while it was read is
    /// omitted. Two ranges that meet within a block may return it twice.
    ///
    /// # Errors
    /// If the target is unknown, or reading has become impossible. A target that is gone has no blocks.
    fn survey(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        out: &mut Vec<Block>,
    ) -> Result<Cost, OpsError>;

    /// Whether the last call of [`Survey::survey`] ended early for a temporary reason: then a missing block means
    /// nothing.
    fn ended_early(&self) -> bool {
        false
    }

    /// Whether a page of `ranges` (same requirements) is young, by a [sample](sample_pages): other young pages
    /// are overlooked.
    ///
    /// # Errors
    /// As for [`Survey::survey`].
    fn probe(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        nth: u32,
    ) -> Result<(bool, Cost), OpsError> {
        let mut blocks = Vec::new();
        let cost = self.survey(target, ranges, &mut blocks)?;
        let sample = sample_pages(nth);
        Ok((blocks.iter().any(|b| !b.young.and(&sample).is_empty()), cost))
    }

    /// Clears the accessed bits that are set in `runs` (same requirements as above), with as few TLB shootdowns as
    /// possible. A clear may span old and absent pages, but never splits a huge page or a large folio. Appends the
    /// result of each block that contains a resident page, in ascending order.
    ///
    /// # Errors
    /// As for [`Survey::survey`].
    fn clear(
        &mut self,
        target: TargetId,
        runs: &[AddrRange],
        out: &mut Vec<Cleared>,
    ) -> Result<Cost, OpsError>;

    /// The pages of the block at `block` that are in swap; `None` if this cannot be known now but may be later. An
    /// operations set that never knows it reports none.
    ///
    /// # Errors
    /// As for [`Survey::survey`].
    fn swapped(&mut self, target: TargetId, block: u64) -> Result<Option<PageMask>, OpsError> {
        let _ = (target, block);
        Ok(Some(PageMask::default()))
    }

    /// The memory pressure on the target; `None` if not available.
    fn pressure(&mut self, target: TargetId) -> Option<Pressure> {
        let _ = target;
        None
    }
}

/// Number of samples that together are all pages of a block.
pub const BLOCK_SAMPLES: u32 = 8;

/// The pages of a block in its `nth` sample: 8 of each 64, whose entries share a cache line.
#[must_use]
pub fn sample_pages(nth: u32) -> PageMask {
    PageMask::of(512, |page| page % 64 / 8 == (nth % BLOCK_SAMPLES) as usize)
}

/// Memory pressure on a target: counters of its group, or of the machine, since they began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pressure {
    /// pages that reclaim has scanned; if that is not counted, the number of reclaim runs
    pub scanned: u64,
    /// pages that were reclaimed and faulted in again
    pub refaults: u64,
    /// refaults of private memory
    pub private_refaults: u64,
    /// faults that waited for a disk
    pub major_faults: u64,
    /// time in which some of its tasks waited for memory
    pub stalled: Duration,
    /// bytes that it may still allocate before its limit causes reclaim; `None` without a limit
    pub headroom: Option<u64>,
}

/// The pages of the block at `start` that lie in `ranges`, which are sorted; none ends before the block.
pub(crate) fn pages_in_block(start: u64, ranges: impl IntoIterator<Item = AddrRange>) -> PageMask {
    let block = AddrRange::new(start, start + BLOCK_SIZE);
    let page = |addr: u64| ((addr - start) / PAGE_SIZE) as usize;
    let inside = ranges.into_iter().map_while(|r| r.intersect(&block));
    inside
        .map(|r| PageMask::span(page(r.start), page(r.end)))
        .fold(PageMask::default(), |all, part| all.or(&part))
}

/// `blocks` with repeated reads of the same block combined into one.
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
    fn a_page_is_hidden_for_one_reason_and_a_reason_is_reported_once() {
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
