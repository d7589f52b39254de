//! How things are, for those who tell others.

use isotherm_core::Snapshot;
use isotherm_core::scheme::Engine;

use super::attributions::Attributions;
use super::status::Status;
use crate::follow::Follower;

/// How things are: for metrics and for who asks.
pub struct Scene<'a> {
    /// the last one
    pub snapshot: Option<&'a Snapshot>,
    /// the processes
    pub follower: &'a Follower,
    /// whose they are
    pub attributions: &'a Attributions,
    /// for how long, and what it costs
    pub status: &'a Status,
    /// where schemes are at work
    pub engine: Option<&'a Engine>,
}
