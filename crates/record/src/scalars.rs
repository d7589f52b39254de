//! The single values of a snapshot: its times, attributes and cost.

use std::time::Duration;

use isotherm_core::{Attrs, Cost, MonitorKind, Nanos, Snapshot};

use crate::bad::InvalidField;

/// Names of the columns with one number per snapshot.
pub(crate) const SCALARS: [&str; 24] = [
    "seq", "start_ns", "end_ns", "cpu_ns", "looks", "pages", "clears", "lost_ns", ATTRS[0],
    ATTRS[1], ATTRS[2], ATTRS[3], ATTRS[4], ATTRS[5], ATTRS[6], ATTRS[7], ATTRS[8], ATTRS[9],
    ATTRS[10], ATTRS[11], ATTRS[12], ATTRS[13], ATTRS[14], ATTRS[15],
];

/// Places of the number, the start and the end of a snapshot in [`SCALARS`].
pub(crate) const SEQ: usize = 0;
pub(crate) const START_INDEX: usize = 1;
pub(crate) const END_INDEX: usize = 2;

/// Names of the attributes, in the columns of snapshots and in the facts.
pub(crate) const ATTRS: [&str; 16] = [
    "sample_ns",
    "aggr_ns",
    "update_ns",
    "min_regions",
    "max_regions",
    "min_region_size",
    "window",
    "split_parts",
    "clear_every",
    "split_uniform",
    "extra_split",
    "monitor",
    "budget_ppm",
    "max_clears",
    "interval_ns",
    "windows",
];

/// The nanoseconds of a duration, if they fit in 64 bits.
pub(crate) fn nanos(d: Duration) -> Result<u64, InvalidField> {
    u64::try_from(d.as_nanos())
        .map_err(|_| InvalidField::because(format!("{d:?} is longer than 584 years")))
}

/// The values for [`ATTRS`], in the same order.
pub(crate) fn from_attrs(a: &Attrs) -> Result<[u64; 16], InvalidField> {
    Ok([
        nanos(a.sample)?,
        nanos(a.aggr)?,
        nanos(a.update)?,
        a.min_regions.into(),
        a.max_regions.into(),
        a.min_region_size,
        a.window,
        a.split_parts.into(),
        a.clear_every.into(),
        a.split_uniform.into(),
        a.extra_split.into(),
        a.monitor as u64,
        a.budget_ppm.into(),
        a.max_clears.into(),
        nanos(a.interval)?,
        a.windows.into(),
    ])
}

/// The attributes for the values of [`ATTRS`].
pub(crate) fn to_attrs(values: [u64; 16]) -> Result<Attrs, InvalidField> {
    const OUT_OF_RANGE: InvalidField = InvalidField::new("an attribute is out of range");
    let [sample, aggr, update, min, max, min_region_size, window, values @ ..] = values;
    let [parts, every, uniform, extra, monitor, budget, clears, interval, windows] = values;
    let small = |n: u64| u32::try_from(n).map_err(|_| OUT_OF_RANGE);
    let monitor = usize::try_from(monitor).ok().and_then(|i| MonitorKind::ALL.get(i));
    Ok(Attrs {
        sample: Duration::from_nanos(sample),
        aggr: Duration::from_nanos(aggr),
        update: Duration::from_nanos(update),
        min_regions: small(min)?,
        max_regions: small(max)?,
        min_region_size,
        window,
        split_parts: small(parts)?,
        clear_every: small(every)?,
        split_uniform: uniform != 0,
        extra_split: extra != 0,
        monitor: *monitor.ok_or(OUT_OF_RANGE)?,
        budget_ppm: small(budget)?,
        max_clears: small(clears)?,
        interval: Duration::from_nanos(interval),
        windows: windows != 0,
    })
}

/// The values for [`SCALARS`], in the same order.
pub(crate) fn from_snapshot(s: &Snapshot) -> Result<[u64; 24], InvalidField> {
    let c = &s.cost;
    let cost = [nanos(c.cpu)?, c.looks, c.pages, c.clears, nanos(c.lost)?];
    let all = [s.seq, s.start.0, s.end.0].into_iter().chain(cost).chain(from_attrs(&s.attrs)?);
    let mut values = [0; 24];
    values.iter_mut().zip(all).for_each(|(to, from)| *to = from);
    Ok(values)
}

/// A snapshot without targets from the values of [`SCALARS`].
pub(crate) fn to_snapshot(values: [u64; 24]) -> Result<Snapshot, InvalidField> {
    let [seq, start, end, cpu, looks, pages, clears, lost, attrs @ ..] = values;
    Ok(Snapshot {
        seq,
        start: Nanos(start),
        end: Nanos(end),
        attrs: to_attrs(attrs)?,
        cost: Cost {
            cpu: Duration::from_nanos(cpu),
            looks,
            pages,
            clears,
            lost: Duration::from_nanos(lost),
        },
        quality: None,
        targets: Vec::new(),
    })
}
