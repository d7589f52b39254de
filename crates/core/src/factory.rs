//! Creation of a monitor by kind.

use crate::attrs::{Attrs, AttrsError, MonitorKind};
use crate::call::TargetId;
use crate::exposure::Exposure;
use crate::monitor::Monitor;
use crate::ops::{Look, Space};
use crate::page_scan::PageScan;
use crate::sampler::RegionSampler;

/// Creates the monitor that `attrs` select, for `targets`, which `ops` must know. It looks at no memory
/// before the first [`Source::step`](crate::Source::step).
///
/// # Errors
/// If `attrs` are invalid, or select a monitor that `ops` does not support.
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
