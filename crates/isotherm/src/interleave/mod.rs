//! Memory shared between nodes by weight: rules, measured weights, rounds of moving pages, and the kernel's policies
//! compared with the rule.

pub mod cases;
mod family;
mod hot;
pub mod keep;
pub mod probe;
pub mod rule;

use std::path::Path;

use crate::units::WeightList;

pub use crate::units::SetTo;

pub use family::{Family, MOST};
pub use hot::ranges as hot_ranges;

/// Which nodes, and how much of each.
#[derive(Debug, Clone, Default)]
pub struct Chosen {
    /// nodes; empty: all with memory that the process may use
    pub nodes: Vec<u32>,
    /// their weights, in the same order; none: those of the machine, or else by the bandwidth that firmware reports
    pub weights: Option<WeightList>,
}

pub(crate) fn root() -> &'static Path {
    Path::new(crate::ROOT)
}
