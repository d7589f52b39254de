//! What a snapshot has one of: its times, its attributes, its cost.

use std::time::Duration;

use isotherm_core::{Attrs, Cost, Nanos, Snapshot};

use crate::bad::Bad;

/// Names of the columns with one number for each snapshot.
pub(crate) const SCALARS: [&str; 18] = [
    "seq", "start_ns", "end_ns", "cpu_ns", "looks", "pages", "clears", ATTRS[0], ATTRS[1],
    ATTRS[2], ATTRS[3], ATTRS[4], ATTRS[5], ATTRS[6], ATTRS[7], ATTRS[8], ATTRS[9], ATTRS[10],
];

/// Names of the attributes, in the columns of snapshots and in the facts.
pub(crate) const ATTRS: [&str; 11] = [
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
];

/// Nanoseconds of a duration, if they fit.
pub(crate) fn nanos(d: Duration) -> Result<u64, Bad> {
    u64::try_from(d.as_nanos()).map_err(|_| Bad::because(format!("{d:?} is longer than 584 years")))
}

/// The values behind [`ATTRS`].
pub(crate) fn from_attrs(a: &Attrs) -> Result<[u64; 11], Bad> {
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
    ])
}

/// The attributes behind the values of [`ATTRS`].
pub(crate) fn to_attrs(values: [u64; 11]) -> Result<Attrs, Bad> {
    let [sample, aggr, update, min, max, min_region_size, window, parts, every, uniform, extra] =
        values;
    let small = |n: u64| u32::try_from(n).map_err(|_| Bad::new("an attribute is out of range"));
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
    })
}

/// The values behind [`SCALARS`].
pub(crate) fn from_snapshot(s: &Snapshot) -> Result<[u64; 18], Bad> {
    let cost = [nanos(s.cost.cpu)?, s.cost.looks, s.cost.pages, s.cost.clears];
    let all = [s.seq, s.start.0, s.end.0].into_iter().chain(cost).chain(from_attrs(&s.attrs)?);
    let mut values = [0; 18];
    values.iter_mut().zip(all).for_each(|(to, from)| *to = from);
    Ok(values)
}

/// A snapshot without targets from the values of [`SCALARS`].
pub(crate) fn to_snapshot(values: [u64; 18]) -> Result<Snapshot, Bad> {
    let [seq, start, end, cpu, looks, pages, clears, attrs @ ..] = values;
    Ok(Snapshot {
        seq,
        start: Nanos(start),
        end: Nanos(end),
        attrs: to_attrs(attrs)?,
        cost: Cost { cpu: Duration::from_nanos(cpu), looks, pages, clears },
        targets: Vec::new(),
    })
}
