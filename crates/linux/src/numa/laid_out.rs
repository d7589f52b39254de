//! What has come of laying out memory.

use std::collections::BTreeMap;

use serde::Serialize;

/// Why pages stayed where they were, in pages of 4 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Left {
    /// mapped by other processes too (EACCES)
    pub shared: u64,
    /// gone meanwhile, unmapped or swapped out
    pub gone: u64,
    /// in use by the kernel or a device, or of no list (EBUSY and others)
    pub busy: u64,
    /// the node that they were to go to is full
    pub no_room: u64,
    /// parts of large folios that are not in the range whole
    pub partial: u64,
}

impl Left {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.shared + self.gone + self.busy + self.no_room + self.partial
    }
}

/// What was found, and what has come of it, in pages of 4 KiB.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct LaidOut {
    /// pages that were looked at
    pub pages: u64,
    /// of these, in folios of more than one page
    pub in_folios: u64,
    /// on each node, as found
    pub found: BTreeMap<u32, u64>,
    /// on each node, as the rule asks
    pub asked: BTreeMap<u32, u64>,
    /// elsewhere than the rule asks, as found
    pub misplaced: u64,
    /// of these, moved
    pub moved: u64,
    /// of these, not moved, and why
    pub left: Left,
}

impl std::ops::AddAssign<&LaidOut> for LaidOut {
    fn add_assign(&mut self, o: &LaidOut) {
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
