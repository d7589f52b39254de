//! Linux 3.17 (commits 4ffeaf3560a5 and f7b5d647946a): a zone with a used-up batch is marked. Batches are
//! reset if the pass skipped a marked zone. Machines with one node omit a pass that could not find anything
//! new.

use super::{AfterFair, FairPass, FairPolicy, FairVerdict};
use crate::zone::Zone;

/// See [`super::Fair::Landed`].
#[derive(Debug, Clone, Copy)]
pub struct Landed;

impl FairPolicy for Landed {
    fn judge(&self, pass: &mut FairPass, zone: &Zone, local: bool) -> FairVerdict {
        if !local {
            return FairVerdict::Stop;
        }
        if zone.depleted {
            pass.skipped += 1;
            return FairVerdict::Skip;
        }
        pass.charged += 1;
        FairVerdict::Take
    }

    fn after(&self, pass: &FairPass, nodes: usize) -> AfterFair {
        let reset = pass.skipped > 0;
        AfterFair { reset, rescan: reset || nodes > 1 }
    }

    fn charged(&self, zone: &mut Zone) {
        if zone.batch.read() <= 0 {
            zone.depleted = true;
        }
    }
}
