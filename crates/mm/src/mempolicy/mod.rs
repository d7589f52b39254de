//! Memory policies: which node a page comes from. The rules of mm/mempolicy.c.
//!
//! Weighted interleave has three rules. A page that is touched gets its node from its place in the
//! address space alone ([`static_node`], [`Weights::node`]). These do not depend on [`crate::Memory`]
//! and hold for a real machine as well.

mod bandwidth;
mod weights;

pub use bandwidth::{WEIGHTINESS, bandwidth_of, weights_from_bandwidth};
pub use weights::{MAX_WEIGHTS, Weights, WeightsError, interleave_index, static_node};
