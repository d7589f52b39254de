//! What earlier versions of the file lack, and what stands in its place when they are read.
//!
//! Version 2 told nothing of targets but their regions: there were four tables.
//!
//! Version 1 had one monitor, that of regions. It told neither of a snapshot's quality nor of what
//! looking cost the targets, and the rate of a region was that of all its pages.

use std::sync::Arc;

use arrow_array::{Float32Array, ListArray, RecordBatch, UInt16Array, UInt64Array, new_null_array};
use arrow_schema::{DataType, Schema, SchemaRef};
use isotherm_core::MonitorKind;

use crate::bad::Bad;
use crate::lists::{self, Lists, column, list, plain};

/// Numbers that version 2 has added to each snapshot, and what they were before.
const NUMBERS: [(&str, u64); 6] = [
    ("lost_ns", 0),
    ("monitor", MonitorKind::Regions as u64),
    ("budget_ppm", 10_000),
    ("max_clears", 0),
    ("interval_ns", 0),
    ("windows", 0),
];
/// Likewise, and there was none.
const NULLS: [(&str, DataType); 4] = [
    ("coverage_bp", DataType::UInt64),
    ("error_log2", DataType::Float32),
    ("stolen", DataType::UInt64),
    ("restraint", DataType::UInt64),
];

/// What the number called `name` was before version 2, which has added it.
pub(crate) fn added_in_2(name: &str) -> Option<u64> {
    NUMBERS.iter().find(|(added, _)| *added == name).map(|&(_, before)| before)
}

/// The columns of snapshots in version 1.
pub(crate) fn of_1(snapshots: &Schema) -> SchemaRef {
    let added = |name: &str| {
        name == "touched_bp" || added_in_2(name).is_some() || NULLS.iter().any(|n| n.0 == name)
    };
    let fields = snapshots.fields().iter().filter(|f| !added(f.name())).cloned();
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Snapshots of version 1 with the columns of this one, at the end.
pub(crate) fn from_1(batch: RecordBatch) -> Result<RecordBatch, Bad> {
    let rows = batch.num_rows();
    let mut columns: Vec<_> = batch
        .schema()
        .fields()
        .iter()
        .map(|f| f.as_ref().clone())
        .zip(batch.columns().to_vec())
        .collect();
    for (name, before) in NUMBERS {
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
