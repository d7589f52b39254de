//! What of a part of memory may be acted on at all: the rules that no action can leave out.

use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::{Heat, PageMask, Work};

use super::filter::let_through;
use super::pieces::{Found, Piece};
use crate::ops::process::Process;

/// What was found out before the wait for touches.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    /// It was done up to here, as there is no budget for more.
    pub upto: u64,
    pub took: Duration,
    /// Somebody may be touching what was prepared.
    pub waits: bool,
    /// huge pages that are to be small ones by now
    pub split: Vec<Piece>,
    /// pages that were touched before the last look, by block
    pub young: HashMap<u64, PageMask>,
}

/// Whether what is touched from now on is to be let alone.
pub(super) fn waits_for_touches(work: &Work<'_>) -> bool {
    !work.recheck.is_zero() && work.action.prefers() == Some(Heat::Cold)
}

/// A part of the memory of a work, as it was just read.
pub(super) struct Eligible<'a> {
    pub process: &'a Process,
    pub work: &'a Work<'a>,
    pub prepared: &'a Prepared,
    pub found: &'a [Found],
}

impl Eligible<'_> {
    /// Folios of the blocks that are `wanted`. Those that were touched are left out, where the action is for
    /// what is not touched, and those that a filter holds back.
    pub fn folios(&self, wanted: impl Fn(&Found) -> bool) -> Vec<Piece> {
        let cold_only = waits_for_touches(self.work);
        self.let_through(self.found.iter().filter(|found| wanted(found)).flat_map(|found| {
            let mut folios = found.pieces.clone();
            if cold_only {
                folios.retain(|folio| found.is_untouched(folio, &self.touched(found)));
            }
            folios
        }))
    }

    /// The blocks that are `wanted`, knowing which of their pages were touched: each as one piece. Only filters
    /// hold these back.
    pub fn blocks(&self, wanted: impl Fn(&Found, &PageMask) -> bool) -> Vec<Piece> {
        let wanted = |found: &&Found| wanted(found, &found.block.young.or(&self.touched(found)));
        self.let_through(self.found.iter().filter(wanted).map(Found::as_piece))
    }

    /// Pages of the block that were touched before the last look.
    fn touched(&self, found: &Found) -> PageMask {
        self.prepared.young.get(&found.block.start).copied().unwrap_or_default()
    }

    fn let_through(&self, pieces: impl Iterator<Item = Piece>) -> Vec<Piece> {
        let mut pieces = pieces.collect();
        let_through(self.process, self.work.filters, &mut pieces);
        pieces
    }
}
