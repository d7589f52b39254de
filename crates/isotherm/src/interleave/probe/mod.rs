//! Measures bandwidth and latency of each node, and computes weights from them.

mod measuring;
mod results;

pub use measuring::{Measuring, Plan, nodes_to_measure};
pub use results::{NodeFigures, Point, Probed};
