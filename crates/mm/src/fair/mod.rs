//! Fair policies: in which zone of its own node a page is looked for first.
//!
//! Each is asked in a first pass over the zonelist, the *fair pass*; if that finds nothing, it says
//! whether batches are set anew and whether there is a second, plain pass before the slow path.

mod baseline;
mod landed;
mod node_lru;
mod off;
mod v1;

use serde::{Deserialize, Serialize};

use crate::rules::Rules;
use crate::zone::Zone;

pub use baseline::Baseline;
pub use landed::Landed;
pub use node_lru::NodeLru;
pub use off::Off;
pub use v1::V1;

/// What a policy says to a zone in the fair pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FairVerdict {
    /// if its watermark allows
    Take,
    /// not this time
    Skip,
    /// nor any behind it
    Stop,
}

/// What a fair pass has met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FairPass {
    /// zones passed over as their batch is used up
    pub skipped: u32,
    /// zones with some of their batch left
    pub charged: u32,
}

/// What follows a fair pass that has found nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AfterFair {
    /// batches of the zones of the node are set anew
    pub reset: bool,
    /// there is a plain pass before the slow path
    pub rescan: bool,
}

/// A fair policy.
pub trait FairPolicy: std::fmt::Debug + Send + Sync {
    /// Whether there is a fair pass at all.
    fn has_fair_pass(&self) -> bool {
        true
    }

    /// What to do with a zone, which may be local or not.
    fn judge(&self, pass: &mut FairPass, zone: &Zone, local: bool) -> FairVerdict;

    /// What follows if nothing was found, on a machine of so many nodes.
    fn after(&self, pass: &FairPass, nodes: usize) -> AfterFair;

    /// A page was taken from the zone, and its batch is charged.
    fn charged(&self, _zone: &mut Zone) {}
}

/// The policies that come with this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fair {
    /// the highest zone first, as before 3.12
    Off,
    /// as in 3.15
    Baseline,
    /// the patch of 2014-05-29
    V1,
    /// as in 3.17
    Landed,
    /// none, as lists are per node: 4.8
    NodeLru,
}

/// All of them.
pub const FAIR: [Fair; 5] = [Fair::Off, Fair::Baseline, Fair::V1, Fair::Landed, Fair::NodeLru];

impl Fair {
    /// The policy itself.
    #[must_use]
    pub fn policy(self) -> &'static dyn FairPolicy {
        match self {
            Fair::Off => &Off,
            Fair::Baseline => &Baseline,
            Fair::V1 => &V1,
            Fair::Landed => &Landed,
            Fair::NodeLru => &NodeLru,
        }
    }

    /// What to call it by.
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

    /// The one of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Fair> {
        FAIR.into_iter().find(|f| f.name() == name)
    }

    /// The other rules of the kernel that it is from.
    #[must_use]
    pub fn rules(self) -> Rules {
        match self {
            Fair::NodeLru => Rules::linux_4_8(),
            fair => Rules { fair, ..Rules::linux_3_15() },
        }
    }
}
