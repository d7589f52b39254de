//! How a kdamond is to monitor.

use std::time::Duration;

use isotherm_core::{Attrs, PAGE_SIZE};

use super::sysfs::{Bounds, Intervals, IntervalsGoal, MonitoringAttrs};

/// Attributes of a kdamond: those of [`Attrs`] that DAMON has, and some of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KdamondAttrs {
    /// intervals and bounds of the regions; the rest is as DAMON does it
    pub attrs: Attrs,
    /// have the kernel tune the intervals (Linux 6.15)
    pub intervals_goal: Option<IntervalsGoal>,
    /// bytes that one step of a physical address stands for (Linux 6.18)
    pub addr_unit: Option<u64>,
}

/// DAMON looks at one page of a region and clears it each sampling interval; it splits all regions
/// into two, or three if that shows nothing.
impl From<Attrs> for KdamondAttrs {
    fn from(attrs: Attrs) -> Self {
        let attrs = Attrs {
            min_region_size: PAGE_SIZE,
            window: PAGE_SIZE,
            split_parts: 2,
            clear_every: 1,
            split_uniform: true,
            extra_split: true,
            ..attrs
        };
        KdamondAttrs { attrs, intervals_goal: None, addr_unit: None }
    }
}

impl KdamondAttrs {
    pub(super) fn monitoring_attrs(&self) -> MonitoringAttrs {
        let Attrs { sample, aggr, update, min_regions, max_regions, .. } = self.attrs;
        MonitoringAttrs {
            intervals: Intervals {
                sample_us: micros(sample),
                aggr_us: micros(aggr),
                update_us: micros(update),
                intervals_goal: self.intervals_goal.clone(),
            },
            nr_regions: Bounds { min: min_regions.into(), max: max_regions.into() },
            probes: None,
        }
    }
}

fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
}
