//! The rules that every action obeys: the second look and the filters.

use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::{Action, AddrRange, Heat, PageMask, Work};

use super::filter::let_through;
use super::pieces::{BlockPieces, Piece};
use crate::ops::process::VaddrTarget;

/// The state of a work before the wait for touches.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    /// end of the prepared part of the range: the budget may not suffice for all
    pub upto: u64,
    pub took: Duration,
    /// the only memory that the filters may let through, in order; `None`: anywhere
    pub untouched: Option<Vec<AddrRange>>,
    /// whether the work has to wait for touches
    pub waits: bool,
    /// pages touched before the second look, by block
    pub young: HashMap<u64, PageMask>,
}

/// Whether pages that are touched from now on are to be left alone. A huge page can be split while it is in use.
pub(super) fn waits_for_touches(work: &Work<'_>) -> bool {
    let for_cold = work.action.prefers() == Some(Heat::Cold) && *work.action != Action::NoHugePage;
    !work.recheck.is_zero() && for_cold
}

/// A part of the memory of a work, just read.
pub(super) struct Eligible<'a> {
    pub process: &'a VaddrTarget,
    pub work: &'a Work<'a>,
    pub prepared: &'a Prepared,
    pub found: &'a [BlockPieces],
}

impl Eligible<'_> {
    /// The folios of the `wanted` blocks that the filters let through. Leaves out touched folios if the action
    /// is for cold memory.
    pub fn folios(&self, wanted: impl Fn(&BlockPieces) -> bool) -> Vec<Piece> {
        let cold_only = waits_for_touches(self.work);
        self.let_through(self.found.iter().filter(|found| wanted(found)).flat_map(|found| {
            let (mut folios, touched) = (found.pieces.clone(), self.touched(found));
            folios.retain(|folio| !cold_only || found.is_untouched(folio, &touched));
            folios
        }))
    }

    /// The `wanted` blocks that the filters let through, each as one piece. The second argument of `wanted` is
    /// the touched pages of the block.
    pub fn blocks(&self, wanted: impl Fn(&BlockPieces, &PageMask) -> bool) -> Vec<Piece> {
        let wanted =
            |found: &&BlockPieces| wanted(found, &found.block.young.or(&self.touched(found)));
        self.let_through(self.found.iter().filter(wanted).map(BlockPieces::as_piece))
    }

    /// Pages of the block that were touched before the second look.
    fn touched(&self, found: &BlockPieces) -> PageMask {
        self.prepared.young.get(&found.block.start).copied().unwrap_or_default()
    }

    fn let_through(&self, pieces: impl Iterator<Item = Piece>) -> Vec<Piece> {
        let mut pieces = pieces.collect();
        let_through(self.process, self.work.filters, &mut pieces);
        pieces
    }
}
