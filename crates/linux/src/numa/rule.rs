//! The node of a piece according to weights.

use isotherm_core::PAGE_SIZE;
use isotherm_mm::mempolicy::{NodeWeights, interleave_index};

use super::pieces::MovablePiece;

/// The node on which the kernel would have placed a piece of the mapping at `area`.
#[must_use]
pub fn node_of(weights: &NodeWeights, area: u64, piece: MovablePiece) -> u32 {
    let page = piece.start.saturating_sub(area) / PAGE_SIZE;
    weights.node(interleave_index(area / PAGE_SIZE, page, piece.order))
}
