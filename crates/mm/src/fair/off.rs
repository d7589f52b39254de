//! No policy: the highest zone is used first, until it reaches its low watermark. Linux before 3.12.

use super::{AfterFair, FairPass, FairPolicy, FairVerdict};
use crate::zone::Zone;

/// See [`super::Fair::Off`].
#[derive(Debug, Clone, Copy)]
pub struct Off;

impl FairPolicy for Off {
    fn has_fair_pass(&self) -> bool {
        false
    }

    fn judge(&self, _pass: &mut FairPass, _zone: &Zone, _local: bool) -> FairVerdict {
        FairVerdict::Take
    }

    fn after(&self, _pass: &FairPass, _nodes: usize) -> AfterFair {
        AfterFair { reset: false, rescan: false }
    }
}
