//! Measures bandwidth and latency of each node, and computes weights from them.

mod measuring;
mod results;

pub use measuring::{Measuring, ProbePlan, nodes_to_measure};
pub use results::{LatencyPoint, NodeFigures, Probed};
