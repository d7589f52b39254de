//! Memory shared between nodes by weight: rules, measured weights, rounds of moving pages, and the kernel's policies
//! compared with the rule.

pub mod cases;
mod family;
mod hot;
pub mod keep;
pub mod probe;
pub mod rule;

use std::collections::BTreeMap;
use std::path::Path;

use crate::units::WeightList;

pub use family::{Family, MOST};
pub use hot::ranges as hot_ranges;

/// What weights are set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetTo {
    /// these
    Weights(BTreeMap<u32, u8>),
    /// those of the kernel
    Auto,
    /// those of nobody
    Default,
    /// those before
    Restore,
}

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
