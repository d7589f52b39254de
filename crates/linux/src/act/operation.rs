//! The part of an action that differs from other actions: selecting pages, the system call, verifying it.

use isotherm_core::{OpsError, PageMask};

use super::cursor::WalkTarget;
use super::eligible::Eligible;
use super::memory::ProcessMemory;
use super::pieces::Piece;
use super::progress::{Failures, Reply};
use crate::walker::RawBlock;

/// An action on the pages of a process. The walk over the memory, the time and the budget are not part of it.
pub(super) trait Operation {
    /// Pages to act on between two readings of the clock. These should take at most a millisecond.
    fn step(&self) -> u64 {
        64
    }

    /// The memory to read for this action.
    fn reads(&self) -> WalkTarget {
        WalkTarget::Resident { blocks: 1 }
    }

    /// The pieces to act on. Counts the eligible pages that the action cannot handle in `refused`. Leaves out
    /// the pages that already are as the action would make them.
    fn select(&self, eligible: &Eligible<'_>, _refused: &mut Failures) -> Vec<Piece> {
        eligible.folios(|_| true)
    }

    /// Makes the system call for `pieces`, which are sorted by address.
    ///
    /// # Errors
    /// If the action can never work here. A target that has ended is no error: its pages are counted as failed.
    fn apply(&self, memory: &ProcessMemory<'_>, pieces: &[Piece]) -> Result<Reply, OpsError>;

    /// Whether the page tables show the result on these `pages` of a block. The walk calls this after
    /// [`Reply::Advised`] only. By default no page counts as done.
    fn verify(&self, _block: &RawBlock, _pages: &PageMask) -> bool {
        false
    }
}
