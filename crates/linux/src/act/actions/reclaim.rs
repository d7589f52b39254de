//! Actions on folios: paging them out and in, moving them in the LRU lists, counting them.

use isotherm_core::{Failure, OpsError, PageMask};

use crate::act::cursor::WalkTarget;
use crate::act::eligible::Eligible;
use crate::act::memory::ProcessMemory;
use crate::act::operation::Operation;
use crate::act::pieces::{Piece, pages_of};
use crate::act::progress::{Failures, Reply, StepResult};
use crate::act::swap_space::SwapSpace;
use crate::sys::MemoryAdvice;
use crate::walker::RawBlock;

/// Moves pages to swap, or writes them back and drops them.
pub(super) struct PageOut;

impl Operation for PageOut {
    /// Pages out only as much as fits in swap: without room the kernel would split large folios in vain.
    fn apply(&self, memory: &ProcessMemory<'_>, pieces: &[Piece]) -> Result<Reply, OpsError> {
        let needed: u64 = pieces.iter().filter(|p| p.swaps).map(Piece::bytes).sum();
        if needed > 0 && !SwapSpace::now().has(needed) {
            return Ok(Reply::Counted(StepResult::of(0, pages_of(pieces), Failure::NoRoom)));
        }
        Ok(Reply::Advised(memory.advise(pieces, MemoryAdvice::PageOut)))
    }

    fn verify(&self, block: &RawBlock, pages: &PageMask) -> bool {
        block.resident.and(pages).is_empty()
    }
}

/// Has the kernel read in absent pages.
pub(super) struct WillNeed;

impl Operation for WillNeed {
    fn reads(&self) -> WalkTarget {
        WalkTarget::Absent
    }

    /// The kernel begins to read all pages at once. Then isotherm waits for each page. The advice alone only fills
    /// caches, which page tables do not show: the same memory would be read ahead repeatedly.
    fn apply(&self, memory: &ProcessMemory<'_>, pieces: &[Piece]) -> Result<Reply, OpsError> {
        let mut refused = memory.advise(pieces, MemoryAdvice::WillNeed);
        if let Err(why) = memory.touch(pieces) {
            refused.extend(pieces.iter().map(|p| (p.range(), why)));
        }
        Ok(Reply::Advised(refused))
    }

    fn verify(&self, block: &RawBlock, pages: &PageMask) -> bool {
        pages.without(&block.resident).is_empty()
    }
}

/// Moves pages down the LRU lists: clears their accessed bits and puts them on the inactive list.
pub(super) struct Cold;

impl Operation for Cold {
    fn step(&self) -> u64 {
        512
    }

    fn apply(&self, memory: &ProcessMemory<'_>, pieces: &[Piece]) -> Result<Reply, OpsError> {
        Ok(Reply::Advised(memory.advise(pieces, MemoryAdvice::Cold)))
    }

    fn verify(&self, block: &RawBlock, pages: &PageMask) -> bool {
        block.young.and(pages).is_empty()
    }
}

/// Moves pages up the LRU lists.
pub(super) struct LruPrio;

impl Operation for LruPrio {
    fn step(&self) -> u64 {
        256
    }

    /// Refuses large folios: the effect of two reads on them is not known.
    fn select(&self, eligible: &Eligible<'_>, refused: &mut Failures) -> Vec<Piece> {
        let (small, large): (Vec<_>, Vec<_>) =
            eligible.folios(|_| true).into_iter().partition(|p| p.pages == 1);
        refused.add(Failure::Refused, pages_of(&large));
        small
    }

    /// The first read makes an inactive page referenced, the second makes it active.
    fn apply(&self, memory: &ProcessMemory<'_>, pieces: &[Piece]) -> Result<Reply, OpsError> {
        let all = pages_of(pieces);
        let twice = [0; 2].map(|_| memory.touch(pieces));
        let least = twice.into_iter().try_fold(all, |least, touched| Ok(least.min(touched?)));
        Ok(Reply::Counted(match least {
            Ok(touched) => StepResult::of(touched, all - touched, Failure::Gone),
            Err(why) => StepResult::of(0, all, why),
        }))
    }
}

/// Only counts.
pub(super) struct Stat;

impl Operation for Stat {
    fn step(&self) -> u64 {
        512
    }

    fn apply(&self, _: &ProcessMemory<'_>, pieces: &[Piece]) -> Result<Reply, OpsError> {
        Ok(Reply::Counted(StepResult::of(pages_of(pieces), 0, Failure::Busy)))
    }
}
