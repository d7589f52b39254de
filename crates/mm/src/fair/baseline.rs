//! Linux 3.15 (commit 3a025760fc15): uses local zones with a remaining batch. If none of them is above its
//! low watermark, it resets all batches, for any reason.

use super::{AfterFair, FairPass, FairPolicy, FairVerdict};
use crate::zone::Zone;

/// See [`super::Fair::Baseline`].
#[derive(Debug, Clone, Copy)]
pub struct Baseline;

impl FairPolicy for Baseline {
    fn judge(&self, pass: &mut FairPass, zone: &Zone, local: bool) -> FairVerdict {
        if !local {
            return FairVerdict::Skip;
        }
        if zone.batch.read() <= 0 {
            pass.skipped += 1;
            return FairVerdict::Skip;
        }
        pass.charged += 1;
        FairVerdict::Take
    }

    fn after(&self, _pass: &FairPass, _nodes: usize) -> AfterFair {
        AfterFair { reset: true, rescan: true }
    }
}
