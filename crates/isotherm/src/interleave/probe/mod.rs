//! Bandwidth and latency of each node, measured; and the weights that follow.

mod figures;
mod measuring;

pub use figures::{NodeFigures, Point, Probed};
pub use measuring::{Measuring, Plan};
