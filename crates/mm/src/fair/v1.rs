//! The patch of 2014-05-29, "Reset fair zone allocation policy only when batch counts are expired".
//!
//! Batches are set anew only if no zone has any left. But zones count that cannot be taken: remote
//! ones, and those whose reserve keeps everybody out. DMA is such a zone: its batch is never used,
//! so no batch is ever set anew.

use super::{AfterFair, FairPass, FairPolicy, FairVerdict};
use crate::zone::Zone;

/// See [`super::Fair::V1`].
#[derive(Debug, Clone, Copy)]
pub struct V1;

impl FairPolicy for V1 {
    fn judge(&self, pass: &mut FairPass, zone: &Zone, local: bool) -> FairVerdict {
        if zone.batch.read() <= 0 {
            pass.skipped += 1;
            return FairVerdict::Skip;
        }
        // Before the test for locality: the flaw.
        pass.charged += 1;
        if local { FairVerdict::Take } else { FairVerdict::Skip }
    }

    fn after(&self, pass: &FairPass, _nodes: usize) -> AfterFair {
        AfterFair { reset: pass.charged == 0, rescan: true }
    }
}
