//! Measures bandwidth and latency of each node, and computes weights from them.

mod figures;
mod measuring;

pub use figures::{NodeFigures, Point, Probed};
pub use measuring::{Measuring, Plan};
