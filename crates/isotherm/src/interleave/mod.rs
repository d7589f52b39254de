//! Memory that is interleaved over nodes by weight: the rule, measured weights, rounds of moving pages, and a
//! comparison of a process's memory with the rule.

mod error;
mod family;
mod hot;
pub mod keep;
mod nodes;
mod placement_round;
mod placement_text;
pub mod probe;
pub mod rule;
pub mod run;
mod verify;

use std::path::Path;

use crate::units::WeightList;

pub use crate::units::SetTo;

pub use error::InterleaveError;
pub use family::{MAX_FAMILY, ProcessTree, with_descendants};
pub use hot::ranges as hot_ranges;
pub use nodes::NodesOutput;
pub use placement_round::PlacementRound;
pub use placement_text::put_back_text;
pub use verify::{VerifyOutput, verify};

/// The nodes and weights that options choose.
#[derive(Debug, Clone, Default)]
pub struct ChosenLayout {
    /// nodes; empty: all nodes with memory that the process may use
    pub nodes: Vec<u32>,
    /// their weights, in the same order; `None`: the weights of the machine, or else weights by the bandwidth
    /// that firmware reports
    pub weights: Option<WeightList>,
}

pub(crate) fn root() -> &'static Path {
    Path::new(crate::ROOT)
}
