//! Snapshots to be written to a record: columns that grow row by row.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Float32Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, PrimitiveArray, RecordBatch, UInt16Array, UInt64Array};
use arrow_schema::ArrowError;
use isotherm_core::{RegionView, Snapshot, TargetView, Unknown};

use crate::bad::InvalidField;
use crate::lists::{NamedColumn, batch, list, numbers, offsets, plain};
use crate::quality::{self, Qualities};
use crate::scalars::{self, SCALARS, nanos};
use crate::versions;

/// Bytes of a row, a target and a region in the columns.
const ROW_BYTES: usize = SCALARS.len() * 8 + quality::ROW_BYTES;
const TARGET_ROW_BYTES: usize = 4 + 9 + 8 + 2 * 9 + 8 + 4;
const REGION: usize = 8 + 8 + 8 + 3 * 4 + 3 * 2 + 2 * Unknown::ALL.len() + 2 * 3;

/// Bytes of `s` in the columns.
pub(crate) fn bytes_of(s: &Snapshot) -> usize {
    ROW_BYTES + s.targets.len() * TARGET_ROW_BYTES + s.nr_regions() * REGION
}

/// The name of the column for a reason why pages are unknown.
pub(crate) fn unknown_name(why: Unknown) -> String {
    format!("unknown_{}_bp", why.name())
}

/// Snapshots that are not written yet, as columns.
#[derive(Default)]
pub(crate) struct SnapshotColumns {
    rows: Vec<[u64; SCALARS.len()]>,
    qualities: Qualities,
    targets: Targets,
    regions: Regions,
    bytes: usize,
}

#[derive(Default)]
struct Targets {
    in_row: Vec<usize>,
    id: Vec<u32>,
    ran_ns: Vec<Option<u64>>,
    left_out: Vec<u64>,
    dirty: Vec<Option<u64>>,
    writeback: Vec<Option<u64>>,
    mapping_set: Vec<u64>,
    regions: Vec<u32>,
}

#[derive(Default)]
struct Regions {
    in_row: Vec<usize>,
    start: Vec<u64>,
    end: Vec<u64>,
    accesses_bp: Vec<u16>,
    age_ns: Vec<u64>,
    rate_hz: Vec<f32>,
    rate_low_hz: Vec<f32>,
    rate_high_hz: Vec<f32>,
    touched_bp: Vec<u16>,
    resident_bp: Vec<u16>,
    unknown_bp: [Vec<u16>; Unknown::ALL.len()],
    measured_bp: Vec<Option<u16>>,
    extended_bp: Vec<Option<u16>>,
}

impl SnapshotColumns {
    /// Bytes of all snapshots held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Number of snapshots held.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Appends `s`, whose targets use `sets`. After an error, all snapshots held are dropped.
    pub(crate) fn push(&mut self, s: &Snapshot, sets: &[u64]) -> Result<(), InvalidField> {
        let appended = self.append(s, sets);
        if appended.is_err() {
            *self = SnapshotColumns::default();
        }
        appended
    }

    fn append(&mut self, s: &Snapshot, sets: &[u64]) -> Result<(), InvalidField> {
        self.rows.push(scalars::from_snapshot(s)?);
        self.qualities.push(s.quality.as_ref());
        self.targets.in_row.push(s.targets.len());
        self.regions.in_row.push(s.nr_regions());
        for (target, &set) in s.targets.iter().zip(sets) {
            self.targets.push(target, set)?;
            target.regions.iter().try_for_each(|r| self.regions.push(r))?;
        }
        self.bytes += bytes_of(s);
        Ok(())
    }

    /// Takes all snapshots out. Without snapshots, the batch still has all columns with their types.
    pub(crate) fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        let held = std::mem::take(self);
        let mut columns = Vec::new();
        for (i, name) in SCALARS.iter().enumerate() {
            columns.push(plain(name, false, numbers(held.rows.iter().map(|row| row[i]))));
        }
        held.qualities.columns(&mut columns);
        held.targets.columns(&mut columns)?;
        held.regions.columns(&mut columns)?;
        batch(columns)
    }
}

impl Targets {
    fn push(&mut self, t: &TargetView, set: u64) -> Result<(), InvalidField> {
        let too_many = |_| InvalidField::new("a target has more regions than can be counted");
        self.id.push(t.id.0);
        self.ran_ns.push(t.ran.map(nanos).transpose()?);
        self.left_out.push(t.left_out);
        self.dirty.push(t.dirty.map(|d| d.dirty));
        self.writeback.push(t.dirty.map(|d| d.writeback));
        self.mapping_set.push(set);
        self.regions.push(u32::try_from(t.regions.len()).map_err(too_many)?);
        Ok(())
    }

    fn columns(self, out: &mut Vec<NamedColumn>) -> Result<(), ArrowError> {
        let rows = offsets(self.in_row)?;
        out.push(list("target_id", false, &rows, array::<UInt32Type>(self.id))?);
        out.push(list("ran_ns", true, &rows, Arc::new(UInt64Array::from(self.ran_ns)))?);
        out.push(list("left_out", false, &rows, array::<UInt64Type>(self.left_out))?);
        for (name, values) in versions::DIRTY_COLUMNS.into_iter().zip([self.dirty, self.writeback])
        {
            out.push(list(name, true, &rows, Arc::new(UInt64Array::from(values)))?);
        }
        out.push(list("mapping_set", false, &rows, array::<UInt64Type>(self.mapping_set))?);
        out.push(list("regions", false, &rows, array::<UInt32Type>(self.regions))?);
        Ok(())
    }
}

impl Regions {
    fn push(&mut self, r: &RegionView) -> Result<(), InvalidField> {
        self.start.push(r.range.start);
        self.end.push(r.range.end);
        self.accesses_bp.push(share(r.accesses_bp)?);
        self.age_ns.push(nanos(r.age)?);
        self.rate_hz.push(r.rate.hz);
        self.rate_low_hz.push(r.rate.low);
        self.rate_high_hz.push(r.rate.high);
        self.touched_bp.push(share(r.touched_bp)?);
        self.resident_bp.push(share(r.resident_bp)?);
        for (column, &bp) in self.unknown_bp.iter_mut().zip(&r.unknown_bp.0) {
            column.push(share(bp)?);
        }
        self.measured_bp.push(r.support.map(|s| share(s.measured_bp)).transpose()?);
        self.extended_bp.push(r.support.map(|s| share(s.extended_bp)).transpose()?);
        Ok(())
    }

    fn columns(self, out: &mut Vec<NamedColumn>) -> Result<(), ArrowError> {
        let rows = offsets(self.in_row)?;
        let supports = versions::SUPPORT
            .into_iter()
            .zip([self.measured_bp, self.extended_bp])
            .map(|(name, values)| list(name, true, &rows, Arc::new(UInt16Array::from(values))));
        let supports = supports.collect::<Result<Vec<_>, _>>()?;
        let mut push = |name: &str, values| -> Result<(), ArrowError> {
            out.push(list(name, false, &rows, values)?);
            Ok(())
        };
        push("start", array::<UInt64Type>(self.start))?;
        push("end", array::<UInt64Type>(self.end))?;
        push("accesses_bp", array::<UInt16Type>(self.accesses_bp))?;
        push("age_ns", array::<UInt64Type>(self.age_ns))?;
        push("rate_hz", array::<Float32Type>(self.rate_hz))?;
        push("rate_low_hz", array::<Float32Type>(self.rate_low_hz))?;
        push("rate_high_hz", array::<Float32Type>(self.rate_high_hz))?;
        push("touched_bp", array::<UInt16Type>(self.touched_bp))?;
        push("resident_bp", array::<UInt16Type>(self.resident_bp))?;
        for (why, values) in Unknown::ALL.into_iter().zip(self.unknown_bp) {
            push(&unknown_name(why), array::<UInt16Type>(values))?;
        }
        out.extend(supports);
        Ok(())
    }
}

fn array<T: ArrowPrimitiveType>(values: Vec<T::Native>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(values.into(), None))
}

fn share(bp: u32) -> Result<u16, InvalidField> {
    u16::try_from(bp).map_err(|_| InvalidField::new("a share of a region is above one"))
}
