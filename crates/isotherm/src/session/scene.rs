//! The state of a session, for its readers.

use isotherm_core::Snapshot;
use isotherm_core::scheme::Engine;

use super::attributions::Attributions;
use super::idle_ages::IdleAges;
use super::status::Status;
use crate::follow::Follower;

/// The state of a session, for metrics and for answers to requests.
pub struct Scene<'a> {
    /// the last snapshot
    pub snapshot: Option<&'a Snapshot>,
    /// the processes
    pub follower: &'a Follower,
    /// user, control group and name of each process
    pub attributions: &'a Attributions,
    /// idle ages of the targets
    pub ages: &'a IdleAges,
    /// duration and cost of watching
    pub status: &'a Status,
    /// the engine, if schemes are running
    pub engine: Option<&'a Engine>,
}
