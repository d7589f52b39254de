//! The result of moving memory.

use std::collections::BTreeMap;

use serde::Serialize;

/// Pages that stayed on their node, by reason, in pages of 4 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct UnmovedPages {
    /// mapped by other processes too (EACCES)
    pub shared: u64,
    /// unmapped or swapped out in the meantime
    pub gone: u64,
    /// in use by the kernel or a device, or on no LRU list (EBUSY and others)
    pub busy: u64,
    /// the requested node is full
    pub no_room: u64,
    /// parts of large folios that lie only partly in the range
    pub partial: u64,
}

impl UnmovedPages {
    /// The sum over all reasons.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.shared + self.gone + self.busy + self.no_room + self.partial
    }
}

/// The placement before moving and the result, in pages of 4 KiB.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct MoveResult {
    /// pages that were checked
    pub pages: u64,
    /// pages of these in folios of more than one page
    pub in_folios: u64,
    /// pages on each node before moving
    pub found: BTreeMap<u32, u64>,
    /// pages for each node according to the rule
    pub asked: BTreeMap<u32, u64>,
    /// pages that were on another node than the rule requests
    pub misplaced: u64,
    /// misplaced pages that were moved
    pub moved: u64,
    /// misplaced pages that were not moved, by reason
    pub left: UnmovedPages,
}

impl std::ops::AddAssign<&MoveResult> for MoveResult {
    fn add_assign(&mut self, o: &MoveResult) {
        self.pages += o.pages;
        self.in_folios += o.in_folios;
        self.misplaced += o.misplaced;
        self.moved += o.moved;
        for (sum, part) in [(&mut self.found, &o.found), (&mut self.asked, &o.asked)] {
            part.iter().for_each(|(&node, &pages)| *sum.entry(node).or_default() += pages);
        }
        let (sum, part) = (&mut self.left, &o.left);
        sum.shared += part.shared;
        sum.gone += part.gone;
        sum.busy += part.busy;
        sum.no_room += part.no_room;
        sum.partial += part.partial;
    }
}
