//! The patch of 2014-05-29, "Reset fair zone allocation policy only when batch counts are expired".
//!
//! Batches are reset only if no zone has a remaining batch. However, this includes zones that cannot be used:
//! remote zones, and zones whose reserve excludes every request. DMA is such a zone: its batch is never used,
//! so batches are never reset.

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
        // This precedes the test for locality, which is the flaw of the patch.
        pass.charged += 1;
        if local { FairVerdict::Take } else { FairVerdict::Skip }
    }

    fn after(&self, pass: &FairPass, _nodes: usize) -> AfterFair {
        AfterFair { reset: pass.charged == 0, rescan: true }
    }
}
