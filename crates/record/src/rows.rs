//! Reads snapshots from a record, one row at a time, so that a frame is never in memory twice.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{
    Array, ArrowPrimitiveType, Float32Array, PrimitiveArray, RecordBatch, UInt16Array, UInt32Array,
    UInt64Array,
};
use isotherm_core::{
    AddrRange, DirtyBytes, Mapping, Nanos, Rate, RateSupport, RegionView, Snapshot, TargetId,
    TargetView, Unknown, UnknownPages,
};

use crate::bad::{InvalidField, ensure};
use crate::check;
use crate::columns::unknown_name;
use crate::lists::{Lists, column};
use crate::quality;
use crate::scalars::{self, END_INDEX, SCALARS, SEQ, START_INDEX};
use crate::versions::DIRTY_COLUMNS;

const SHORT_LISTS: &str = "the lists of a snapshot are not of one length";
const UNEQUAL_LISTS: InvalidField = InvalidField::new(SHORT_LISTS);

/// Returns the mappings of a set of a target, if the record has contained the set.
pub(crate) type FindSet<'a> = &'a dyn Fn(u64, TargetId) -> Option<Arc<Vec<Mapping>>>;

/// The rows of a frame of snapshots.
pub(crate) struct SnapshotRows {
    scalars: Vec<UInt64Array>,
    qualities: quality::QualityColumns,
    targets: Targets,
    regions: Regions,
    next: usize,
    len: usize,
}

struct Targets {
    id: Lists<UInt32Array>,
    ran_ns: Lists<UInt64Array>,
    left_out: Lists<UInt64Array>,
    dirty: [Lists<UInt64Array>; 2],
    mapping_set: Lists<UInt64Array>,
    regions: Lists<UInt32Array>,
}

struct Regions {
    start: Lists<UInt64Array>,
    end: Lists<UInt64Array>,
    accesses_bp: Lists<UInt16Array>,
    age_ns: Lists<UInt64Array>,
    rate_hz: Lists<Float32Array>,
    rate_low_hz: Lists<Float32Array>,
    rate_high_hz: Lists<Float32Array>,
    touched_bp: Lists<UInt16Array>,
    resident_bp: Lists<UInt16Array>,
    unknown_bp: Vec<Lists<UInt16Array>>,
    measured_bp: Lists<UInt16Array>,
    extended_bp: Lists<UInt16Array>,
}

/// The regions of one row.
struct Slices<'a> {
    start: &'a [u64],
    end: &'a [u64],
    accesses_bp: &'a [u16],
    age_ns: &'a [u64],
    rate_hz: &'a [f32],
    rate_low_hz: &'a [f32],
    rate_high_hz: &'a [f32],
    touched_bp: &'a [u16],
    resident_bp: &'a [u16],
    unknown_bp: [&'a [u16]; Unknown::ALL.len()],
    support: Vec<Option<RateSupport>>,
}

impl SnapshotRows {
    pub(crate) fn of(batch: &RecordBatch) -> Result<Self, InvalidField> {
        Ok(SnapshotRows {
            scalars: SCALARS.iter().map(|name| column(batch, name)).collect::<Result<_, _>>()?,
            qualities: quality::QualityColumns::of(batch)?,
            targets: Targets::of(batch)?,
            regions: Regions::of(batch)?,
            next: 0,
            len: batch.num_rows(),
        })
    }

    /// The next snapshot, checked, and the sets of mappings that it uses.
    pub(crate) fn next(
        &mut self,
        find: FindSet<'_>,
    ) -> Option<Result<(Snapshot, Vec<u64>), InvalidField>> {
        let row = self.next;
        self.next += 1;
        (row < self.len).then(|| self.snapshot(row, find))
    }

    /// The number and the end of the next snapshot.
    pub(crate) fn peek(&self) -> Option<(u64, Nanos)> {
        let at = |column: usize| self.scalars.get(column)?.values().get(self.next).copied();
        Some((at(SEQ)?, Nanos(at(END_INDEX)?)))
    }

    /// The end of the last snapshot, and the time from the start of the first one until then.
    pub(crate) fn span(&self) -> Option<(Nanos, Duration)> {
        let start = Nanos(*self.scalars.get(START_INDEX)?.values().first()?);
        let end = Nanos(*self.scalars.get(END_INDEX)?.values().last()?);
        Some((end, end.since(start)))
    }

    /// Skips the next snapshot without reading it.
    pub(crate) fn skip(&mut self) {
        self.next += 1;
    }

    fn snapshot(
        &self,
        row: usize,
        find: FindSet<'_>,
    ) -> Result<(Snapshot, Vec<u64>), InvalidField> {
        let mut values = [0; SCALARS.len()];
        for (value, column) in values.iter_mut().zip(&self.scalars) {
            *value = *column.values().get(row).ok_or(UNEQUAL_LISTS)?;
        }
        let mut snapshot = scalars::to_snapshot(values)?;
        snapshot.quality = self.qualities.row(row)?;
        let slices = self.regions.row(row)?;
        let mut free = 0;
        let sets = self.targets.mapping_set.row(row).ok_or(UNEQUAL_LISTS)?;
        for i in 0..sets.len() {
            let (target, regions) = self.targets.view(row, i, find)?;
            snapshot.targets.push(TargetView { regions: slices.views(free, regions)?, ..target });
            free += regions;
        }
        let whole = self.targets.all_of(row, sets.len()) && free == slices.start.len();
        ensure(whole, SHORT_TARGETS)?;
        check::snapshot(&snapshot)?;
        Ok((snapshot, sets.to_vec()))
    }
}

const SHORT_TARGETS: &str = "the regions of a snapshot do not add up to those of its targets";

impl Targets {
    fn of(batch: &RecordBatch) -> Result<Self, InvalidField> {
        Ok(Targets {
            id: Lists::of(batch, "target_id")?,
            ran_ns: Lists::of(batch, "ran_ns")?,
            left_out: Lists::of(batch, "left_out")?,
            dirty: [Lists::of(batch, DIRTY_COLUMNS[0])?, Lists::of(batch, DIRTY_COLUMNS[1])?],
            mapping_set: Lists::of(batch, "mapping_set")?,
            regions: Lists::of(batch, "regions")?,
        })
    }

    /// Whether every list of `row` has `len` targets.
    fn all_of(&self, row: usize, len: usize) -> bool {
        let bounds = [
            self.id.bounds(row),
            self.ran_ns.bounds(row),
            self.left_out.bounds(row),
            self.dirty[0].bounds(row),
            self.dirty[1].bounds(row),
            self.regions.bounds(row),
        ];
        bounds.into_iter().flatten().all(|b| b.len() == len)
    }

    /// The `i`th target of `row` without its regions, and the number of its regions.
    fn view(
        &self,
        row: usize,
        i: usize,
        find: FindSet<'_>,
    ) -> Result<(TargetView, usize), InvalidField> {
        let id = TargetId(nth(&self.id, row, i)?);
        let set = nth(&self.mapping_set, row, i)?;
        let [dirty, writeback] = &self.dirty;
        let dirty = match (nth_known(dirty, row, i)?, nth_known(writeback, row, i)?) {
            (Some(dirty), Some(writeback)) => Some(DirtyBytes { dirty, writeback }),
            (None, None) => None,
            _ => {
                return Err(InvalidField::new(
                    "a target has dirty bytes without those under writeback, or the reverse",
                ));
            }
        };
        let mappings =
            find(set, id).ok_or(InvalidField::new("the mappings of a snapshot are missing"))?;
        let target = TargetView {
            id,
            ran: nth_known(&self.ran_ns, row, i)?.map(Duration::from_nanos),
            mappings,
            left_out: nth(&self.left_out, row, i)?,
            dirty,
            regions: Vec::new(),
            ages: None,
        };
        Ok((target, nth(&self.regions, row, i)? as usize))
    }
}

impl Regions {
    fn of(batch: &RecordBatch) -> Result<Self, InvalidField> {
        let unknown = Unknown::ALL.iter().map(|&why| Lists::of(batch, &unknown_name(why)));
        Ok(Regions {
            start: Lists::of(batch, "start")?,
            end: Lists::of(batch, "end")?,
            accesses_bp: Lists::of(batch, "accesses_bp")?,
            age_ns: Lists::of(batch, "age_ns")?,
            rate_hz: Lists::of(batch, "rate_hz")?,
            rate_low_hz: Lists::of(batch, "rate_low_hz")?,
            rate_high_hz: Lists::of(batch, "rate_high_hz")?,
            touched_bp: Lists::of(batch, "touched_bp")?,
            resident_bp: Lists::of(batch, "resident_bp")?,
            unknown_bp: unknown.collect::<Result<_, _>>()?,
            measured_bp: Lists::of(batch, "measured_bp")?,
            extended_bp: Lists::of(batch, "extended_bp")?,
        })
    }

    /// The support of each rate of the regions in `row`, if the record contains it.
    fn supports(&self, row: usize) -> Result<Vec<Option<RateSupport>>, InvalidField> {
        let of = |lists: &Lists<UInt16Array>| -> Result<UInt16Array, InvalidField> {
            let there = |b: &Range<usize>| b.start <= b.end && b.end <= lists.values.len();
            let bounds = lists.bounds(row).filter(there).ok_or(UNEQUAL_LISTS)?;
            Ok(lists.values.slice(bounds.start, bounds.len()))
        };
        let (measured, extended) = (of(&self.measured_bp)?, of(&self.extended_bp)?);
        ensure(measured.len() == extended.len(), SHORT_LISTS)?;
        let both = |(measured, extended): (Option<u16>, Option<u16>)| match (measured, extended) {
            (Some(measured), Some(extended)) => {
                Ok(Some(RateSupport { measured_bp: measured.into(), extended_bp: extended.into() }))
            }
            (None, None) => Ok(None),
            _ => Err(InvalidField::new("a region has only some of its columns of support")),
        };
        measured.iter().zip(&extended).map(both).collect()
    }

    fn row(&self, row: usize) -> Result<Slices<'_>, InvalidField> {
        let start = self.start.row(row).ok_or(UNEQUAL_LISTS)?;
        let mut unknown_bp = [&[] as &[u16]; Unknown::ALL.len()];
        for (slice, lists) in unknown_bp.iter_mut().zip(&self.unknown_bp) {
            *slice = as_long(lists, row, start)?;
        }
        Ok(Slices {
            start,
            end: as_long(&self.end, row, start)?,
            accesses_bp: as_long(&self.accesses_bp, row, start)?,
            age_ns: as_long(&self.age_ns, row, start)?,
            rate_hz: as_long(&self.rate_hz, row, start)?,
            rate_low_hz: as_long(&self.rate_low_hz, row, start)?,
            rate_high_hz: as_long(&self.rate_high_hz, row, start)?,
            touched_bp: as_long(&self.touched_bp, row, start)?,
            resident_bp: as_long(&self.resident_bp, row, start)?,
            unknown_bp,
            support: self.supports(row)?,
        })
    }
}

impl Slices<'_> {
    /// `len` regions, starting with number `from`.
    fn views(&self, from: usize, len: usize) -> Result<Vec<RegionView>, InvalidField> {
        let to = from.checked_add(len).filter(|&to| to <= self.start.len());
        let to = to.ok_or(InvalidField::new(SHORT_TARGETS))?;
        (from..to).map(|i| self.view(i).ok_or(UNEQUAL_LISTS)).collect()
    }

    fn view(&self, i: usize) -> Option<RegionView> {
        let mut unknown_bp = UnknownPages::default();
        for (bp, column) in unknown_bp.0.iter_mut().zip(&self.unknown_bp) {
            *bp = (*column.get(i)?).into();
        }
        Some(RegionView {
            // not `AddrRange::new`, which would silently repair a range whose end precedes its start
            range: AddrRange { start: *self.start.get(i)?, end: *self.end.get(i)? },
            accesses_bp: (*self.accesses_bp.get(i)?).into(),
            age: Duration::from_nanos(*self.age_ns.get(i)?),
            rate: Rate {
                hz: *self.rate_hz.get(i)?,
                low: *self.rate_low_hz.get(i)?,
                high: *self.rate_high_hz.get(i)?,
            },
            touched_bp: (*self.touched_bp.get(i)?).into(),
            resident_bp: (*self.resident_bp.get(i)?).into(),
            unknown_bp,
            support: *self.support.get(i)?,
        })
    }
}

fn nth<P: ArrowPrimitiveType>(
    lists: &Lists<PrimitiveArray<P>>,
    row: usize,
    i: usize,
) -> Result<P::Native, InvalidField> {
    lists.row(row).and_then(|values| values.get(i)).copied().ok_or(UNEQUAL_LISTS)
}

/// The same, if it is not null.
fn nth_known(
    lists: &Lists<UInt64Array>,
    row: usize,
    i: usize,
) -> Result<Option<u64>, InvalidField> {
    let value = nth(lists, row, i)?;
    let place = lists.bounds(row).ok_or(UNEQUAL_LISTS)?.start + i;
    Ok(lists.values.is_valid(place).then_some(value))
}

/// The list of `row`, if it has the same length as `other`.
fn as_long<'a, P: ArrowPrimitiveType>(
    lists: &'a Lists<PrimitiveArray<P>>,
    row: usize,
    other: &[u64],
) -> Result<&'a [P::Native], InvalidField> {
    lists.row(row).filter(|values| values.len() == other.len()).ok_or(UNEQUAL_LISTS)
}
