//! Where a piece belongs by weight.

use isotherm_core::PAGE_SIZE;
use isotherm_mm::mempolicy::{Weights, interleave_index};

use super::pieces::Piece;

/// The node of a piece in the mapping that begins at `area`: as the kernel would have placed it.
#[must_use]
pub fn node_of(weights: &Weights, area: u64, piece: Piece) -> u32 {
    let page = piece.start.saturating_sub(area) / PAGE_SIZE;
    weights.node(interleave_index(area / PAGE_SIZE, page, piece.order))
}
