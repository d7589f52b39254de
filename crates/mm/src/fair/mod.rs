//! Fair policies: which zone of the local node is used first for a page.
//!
//! A policy is consulted in a first pass over the zonelist, the *fair pass*. If this pass finds no zone, the
//! policy decides whether batches are reset, and whether a second, normal pass precedes the slow path.

mod baseline;
mod landed;
mod off;
mod v1;

use serde::{Deserialize, Serialize};

use crate::rules::Rules;
use crate::zone::Zone;

pub use baseline::Baseline;
pub use landed::Landed;
pub use off::Off;
pub use v1::V1;

/// The decision of a policy about a zone in the fair pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FairVerdict {
    /// use it if its watermark permits
    Take,
    /// skip it
    Skip,
    /// skip it and all later zones
    Stop,
}

/// The observations of a fair pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FairPass {
    /// zones skipped because their batch is used up
    pub skipped: u32,
    /// zones with a remaining batch
    pub charged: u32,
}

/// The actions after a fair pass that found no zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AfterFair {
    /// reset the batches of the node's zones
    pub reset: bool,
    /// make a normal pass before the slow path
    pub rescan: bool,
}

/// The interface of fair policies.
pub trait FairPolicy: std::fmt::Debug + Send + Sync {
    /// Whether there is a fair pass.
    fn has_fair_pass(&self) -> bool {
        true
    }

    /// Decides about a zone, which may be local or remote.
    fn judge(&self, pass: &mut FairPass, zone: &Zone, local: bool) -> FairVerdict;

    /// The actions after a fair pass that found no zone, on a machine with `nodes` nodes.
    fn after(&self, pass: &FairPass, nodes: usize) -> AfterFair;

    /// Called after a page was allocated from the zone and charged to its batch.
    fn charged(&self, _zone: &mut Zone) {}
}

/// The policies in this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Fair {
    /// no policy: the highest zone first, before Linux 3.12
    Off,
    /// the policy of Linux 3.15
    Baseline,
    /// the patch of 2014-05-29
    V1,
    /// the policy of Linux 3.17
    Landed,
    /// no policy: lists are per node, so pages age at the same speed in all its zones. Linux 4.8 (commit e6cbd7f2efb4)
    NodeLru,
}

/// All policies.
pub const FAIR: [Fair; 5] = [Fair::Off, Fair::Baseline, Fair::V1, Fair::Landed, Fair::NodeLru];

impl Fair {
    /// The implementation.
    #[must_use]
    pub fn policy(self) -> &'static dyn FairPolicy {
        match self {
            Fair::Off | Fair::NodeLru => &Off,
            Fair::Baseline => &Baseline,
            Fair::V1 => &V1,
            Fair::Landed => &Landed,
        }
    }

    /// The name of the policy.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Fair::Off => "off",
            Fair::Baseline => "baseline",
            Fair::V1 => "v1",
            Fair::Landed => "landed",
            Fair::NodeLru => "node-lru",
        }
    }

    /// The rules of the kernel that the policy is from.
    #[must_use]
    pub fn rules(self) -> Rules {
        match self {
            Fair::NodeLru => Rules::linux_4_8(),
            fair => Rules { fair, ..Rules::linux_3_15() },
        }
    }
}
