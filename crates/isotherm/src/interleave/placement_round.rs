//! A round of placing pages, in the forms that `isotherm interleave apply` prints.

use isotherm_core::AddrRange;
use isotherm_linux::numa::MoveResult;
use isotherm_mm::mempolicy::NodeWeights;
use isotherm_report::bytes;
use serde::Serialize;

use super::placement_text;
use super::rule::{self, WeightsSource};

/// The result of a round: `docs/abi/testing/interleave.md`.
#[derive(Serialize)]
pub struct PlacementRound<'a> {
    schema_version: u32,
    pid: i32,
    weights: Vec<NodeWeight>,
    weights_from: &'static str,
    /// size of the hot memory; `None` if all memory was placed
    hot_bytes: Option<u64>,
    /// number of the round, from 1
    round: u32,
    #[serde(flatten)]
    laid_out: &'a MoveResult,
    #[serde(skip)]
    weights_text: String,
    #[serde(skip)]
    hot_regions: usize,
}

#[derive(Serialize)]
struct NodeWeight {
    node: u32,
    weight: u8,
}

impl<'a> PlacementRound<'a> {
    /// Round number `round` of process `pid`; `hot`: the memory that was placed, `None`: all.
    #[must_use]
    pub fn new(
        pid: i32,
        round: u32,
        (weights, from): (&NodeWeights, WeightsSource),
        hot: Option<&[AddrRange]>,
        laid_out: &'a MoveResult,
    ) -> Self {
        let weight = |&(node, weight): &(u32, u8)| NodeWeight { node, weight };
        PlacementRound {
            schema_version: 1,
            pid,
            weights: weights.nodes().iter().map(weight).collect(),
            weights_from: from.text(),
            hot_bytes: hot.map(|hot| hot.iter().map(AddrRange::len).sum()),
            round,
            laid_out,
            weights_text: rule::text(weights),
            hot_regions: hot.map_or(0, <[AddrRange]>::len),
        }
    }

    /// The round as text.
    #[must_use]
    pub fn text(&self) -> String {
        let of = match self.hot_bytes {
            None => "all private memory".to_owned(),
            Some(hot) => format!("{} in {} hot regions", bytes(hot), self.hot_regions),
        };
        let again = if self.round > 1 { format!(" (round {})", self.round) } else { String::new() };
        format!(
            "process {}, {of}, by the weights {} ({}){again}:\n  {}\n  pages before, and requested: {}\n",
            self.pid,
            self.weights_text,
            self.weights_from,
            placement_text::laid_out(self.laid_out),
            placement_text::found_of_asked(&self.laid_out.found, &self.laid_out.asked),
        )
    }
}
