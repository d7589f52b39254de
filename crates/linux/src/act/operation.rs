//! What each action has to say: which pages it is for, the system call, and whether that has worked.

use isotherm_core::{OpsError, PageMask};

use super::cursor::Reads;
use super::eligible::Eligible;
use super::memory::ProcessMemory;
use super::pieces::Piece;
use super::progress::{Failures, Reply};
use crate::walker::RawBlock;

/// An action on the pages of a process. The walk over its memory is not part of it, nor are time and budget.
pub(super) trait Operation {
    /// Pages that it acts on between two looks at the clock: what takes a millisecond at most.
    fn step(&self) -> u64 {
        64
    }

    /// Which memory is read for it.
    fn reads(&self) -> Reads {
        Reads::Resident { blocks: 1 }
    }

    /// The pieces to act on. Eligible pages that it cannot act on are counted in `refused`; those that are
    /// already as wanted are just left out.
    fn select(&self, eligible: &Eligible<'_>, _refused: &mut Failures) -> Vec<Piece> {
        eligible.folios(|_| true)
    }

    /// Makes the system call for these pieces, which are sorted.
    ///
    /// # Errors
    /// If that can never work. A target that has ended is counted.
    fn apply(&self, memory: &ProcessMemory<'_>, pieces: &[Piece]) -> Result<Reply, OpsError>;

    /// Whether the page tables show that it was done to these `pages` of a block: asked about
    /// [`Reply::Advised`]. An action that does not answer has done nothing.
    fn verify(&self, _block: &RawBlock, _pages: &PageMask) -> bool {
        false
    }
}
