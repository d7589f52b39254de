//! Linux 4.8 (commit e6cbd7f2efb4): lists are per node, so that pages age at the same speed in all its zones,
//! and no policy is necessary.

use super::{AfterFair, FairPass, FairPolicy, FairVerdict, Off};
use crate::zone::Zone;

/// See [`super::Fair::NodeLru`].
#[derive(Debug, Clone, Copy)]
pub struct NodeLru;

impl FairPolicy for NodeLru {
    fn has_fair_pass(&self) -> bool {
        Off.has_fair_pass()
    }

    fn judge(&self, pass: &mut FairPass, zone: &Zone, local: bool) -> FairVerdict {
        Off.judge(pass, zone, local)
    }

    fn after(&self, pass: &FairPass, nodes: usize) -> AfterFair {
        Off.after(pass, nodes)
    }
}
