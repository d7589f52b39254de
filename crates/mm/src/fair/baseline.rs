//! Linux 3.15 (commit 3a025760fc15): local zones with some of their batch left; if there is none
//! that is above its low watermark, all batches are set anew, whatever the reason.

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
