//! Experiments on simulated machines. One folder each.

pub mod fairzone;
pub mod interleave;
