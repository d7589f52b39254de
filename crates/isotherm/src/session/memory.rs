//! Memory of a target by its heat.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use isotherm_core::{HeatBytes, TargetView, Thresholds, Unknown};
use serde::Serialize;

/// Memory of a target, in bytes.
#[derive(Debug, Default, Serialize)]
pub struct BytesByHeat {
    /// resident
    pub resident: u64,
    /// touched at 10 Hz or more
    pub hot: u64,
    /// neither hot nor cold
    pub warm: u64,
    /// untouched for 5 s or more
    pub cold: u64,
    /// accesses cannot be observed
    pub unknown: u64,
    /// unknown memory by reason; only reasons that occur
    pub unknown_by: BTreeMap<&'static str, u64>,
}

impl BytesByHeat {
    /// The memory of one target, by the default thresholds.
    pub fn of(view: &TargetView) -> Self {
        let HeatBytes { hot, warm, cold, unknown, .. } = view.bytes(&Thresholds::default());
        let mut unknown_by = BTreeMap::new();
        for region in &view.regions {
            for why in Unknown::ALL {
                let bytes = region.unknown_bytes(why);
                if bytes > 0 {
                    *unknown_by.entry(why.name()).or_default() += bytes;
                }
            }
        }
        BytesByHeat { resident: hot + warm + cold + unknown, hot, warm, cold, unknown, unknown_by }
    }
}

impl AddAssign<&BytesByHeat> for BytesByHeat {
    fn add_assign(&mut self, o: &BytesByHeat) {
        self.resident += o.resident;
        self.hot += o.hot;
        self.warm += o.warm;
        self.cold += o.cold;
        self.unknown += o.unknown;
        for (why, bytes) in &o.unknown_by {
            *self.unknown_by.entry(why).or_default() += bytes;
        }
    }
}
