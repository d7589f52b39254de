//! Differences of earlier versions of the file, and the values that replace missing data.
//!
//! Version 7 did not contain the dirty bytes of files.
//!
//! Version 6 had no traces of accesses to files: there were eight tables.
//!
//! Version 5 had neither page faults nor code: there were six tables.
//!
//! Version 4 had no idle ages: there were five tables.
//!
//! Version 3 did not contain the support of a region's rate, and had no unknown page cache whose reads cannot
//! be observed.
//!
//! Version 2 had no attributions: there were four tables.
//!
//! Version 1 had only the monitor of regions. It contained neither the quality of a snapshot nor the cost of
//! looking for the targets, and the rate of a region was the rate of all its pages.

use std::sync::Arc;

use arrow_array::{
    Array, Float32Array, ListArray, RecordBatch, UInt16Array, UInt64Array, new_null_array,
};
use arrow_schema::{DataType, Schema, SchemaRef};
use isotherm_core::MonitorKind;

use crate::bad::InvalidField;
use crate::lists::{self, Lists, NamedColumn, column, list, plain};

/// Numbers that version 2 has added to each snapshot, with their values for version 1.
const ADDED_NUMBERS: [(&str, u64); 6] = [
    ("lost_ns", 0),
    ("monitor", MonitorKind::Regions as u64),
    ("budget_ppm", 10_000),
    ("max_clears", 0),
    ("interval_ns", 0),
    ("windows", 0),
];
/// Columns that version 2 has added to each snapshot, which are null for version 1.
const NULLS: [(&str, DataType); 4] = [
    ("coverage_bp", DataType::UInt64),
    ("error_log2", DataType::Float32),
    ("stolen", DataType::UInt64),
    ("restraint", DataType::UInt64),
];

/// Columns that version 4 has added, with one value per region; null for earlier versions.
pub(crate) const SUPPORT: [&str; 2] = ["measured_bp", "extended_bp"];

/// Column that version 4 has added, with a share per region; 0 for earlier versions.
pub(crate) const CACHE_COLUMN: &str = "unknown_cache_bp";

/// Columns that version 8 has added, with one value per target; null for earlier versions.
pub(crate) const DIRTY_COLUMNS: [&str; 2] = ["dirty", "writeback"];

/// The value for version 1 of the number `name`; none if version 2 has not added it.
pub(crate) fn added_in_2(name: &str) -> Option<u64> {
    ADDED_NUMBERS.iter().find(|(added, _)| *added == name).map(|&(_, before)| before)
}

/// The columns of snapshots in versions 4 to 7.
pub(crate) fn of_7(snapshots: &Schema) -> SchemaRef {
    without(snapshots, |name| DIRTY_COLUMNS.contains(&name))
}

/// The columns of snapshots in versions 2 and 3.
pub(crate) fn of_3(snapshots: &Schema) -> SchemaRef {
    without(&of_7(snapshots), |name| SUPPORT.contains(&name) || name == CACHE_COLUMN)
}

fn without(snapshots: &Schema, left_out: impl Fn(&str) -> bool) -> SchemaRef {
    let fields = snapshots.fields().iter().filter(|f| !left_out(f.name())).cloned();
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The columns of snapshots in version 1.
pub(crate) fn of_1(snapshots: &Schema) -> SchemaRef {
    let added = |name: &str| {
        name == "touched_bp" || added_in_2(name).is_some() || NULLS.iter().any(|n| n.0 == name)
    };
    without(&of_3(snapshots), added)
}

/// Converts snapshots of an earlier version to the current columns; new columns are at the end.
pub(crate) fn upgraded(version: u16, batch: RecordBatch) -> Result<RecordBatch, InvalidField> {
    match version {
        1 => from_7(from_3(from_1(batch)?)?),
        2..=3 => from_7(from_3(batch)?),
        4..=7 => from_7(batch),
        _ => Ok(batch),
    }
}

fn columns_of(batch: &RecordBatch) -> Vec<NamedColumn> {
    let fields = batch.schema().fields().iter().map(|f| f.as_ref().clone()).collect::<Vec<_>>();
    fields.into_iter().zip(batch.columns().to_vec()).collect()
}

fn from_7(batch: RecordBatch) -> Result<RecordBatch, InvalidField> {
    let mut columns = columns_of(&batch);
    let targets: ListArray = column(&batch, "target_id")?;
    for name in DIRTY_COLUMNS {
        let none = new_null_array(&DataType::UInt64, targets.values().len());
        columns.push(list(name, true, targets.offsets(), none)?);
    }
    Ok(lists::batch(columns)?)
}

fn from_3(batch: RecordBatch) -> Result<RecordBatch, InvalidField> {
    let mut columns = columns_of(&batch);
    let rates: ListArray = column(&batch, "rate_hz")?;
    let nothing = Arc::new(UInt16Array::from_value(0, rates.values().len()));
    columns.push(list(CACHE_COLUMN, false, rates.offsets(), nothing)?);
    for name in SUPPORT {
        let none = new_null_array(&DataType::UInt16, rates.values().len());
        columns.push(list(name, true, rates.offsets(), none)?);
    }
    Ok(lists::batch(columns)?)
}

fn from_1(batch: RecordBatch) -> Result<RecordBatch, InvalidField> {
    let rows = batch.num_rows();
    let mut columns = columns_of(&batch);
    for (name, before) in ADDED_NUMBERS {
        columns.push(plain(name, false, Arc::new(UInt64Array::from_value(before, rows))));
    }
    for (name, kind) in NULLS {
        columns.push(plain(name, true, new_null_array(&kind, rows)));
    }
    let rates: ListArray = column(&batch, "rate_hz")?;
    let touched = |hz: &f32| if *hz > 0.0 { 10_000 } else { 0 };
    let values = Lists::<Float32Array>::of(&batch, "rate_hz")?.values;
    let values = UInt16Array::from_iter_values(values.values().iter().map(touched));
    columns.push(list("touched_bp", false, rates.offsets(), Arc::new(values))?);
    Ok(lists::batch(columns)?)
}
