//! How a monitor is chosen.

use crate::attrs::{Attrs, AttrsError, MonitorKind};
use crate::call::TargetId;
use crate::exposure::Exposure;
use crate::monitor::Monitor;
use crate::ops::{Look, Space};
use crate::page_scan::PageScan;
use crate::sampler::RegionSampler;

/// The monitor of `targets`, which `ops` must know, that `attrs` ask for. Nothing is looked at before
/// the first [`Source::step`](crate::Source::step).
///
/// # Errors
/// If `attrs` make no sense, or ask for a monitor that `ops` does not suit.
pub fn watch<'a, O: Space + Look + 'a>(
    ops: O,
    attrs: Attrs,
    targets: &[TargetId],
    seed: u64,
) -> Result<Box<dyn Monitor<Ops = O> + 'a>, AttrsError> {
    Ok(match attrs.monitor {
        MonitorKind::Exposure => Box::new(Exposure::new(ops, attrs, targets, seed)?),
        MonitorKind::Regions => Box::new(RegionSampler::new(ops, attrs, targets, seed)?),
        MonitorKind::Pages => Box::new(PageScan::new(ops, attrs, targets, seed)?),
    })
}
