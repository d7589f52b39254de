//! The quality of a snapshot: columns that are null if the monitor does not report it.

use std::sync::Arc;

use arrow_array::{Array, Float32Array, RecordBatch, UInt64Array};
use isotherm_core::{Quality, Restraint};

use crate::bad::InvalidField;
use crate::lists::{NamedColumn, column, plain};

/// Bytes per row.
pub(crate) const ROW_BYTES: usize = 4 * 9;

const RESTRAINTS: [Restraint; 3] = [Restraint::None, Restraint::ShortRuns, Restraint::ReadOnly];

/// Qualities to be written to a record.
#[derive(Default)]
pub(crate) struct Qualities(Vec<Option<Quality>>);

impl Qualities {
    pub(crate) fn push(&mut self, quality: Option<&Quality>) {
        self.0.push(quality.copied());
    }

    pub(crate) fn columns(self, out: &mut Vec<NamedColumn>) {
        let numbers = |value: fn(&Quality) -> u64| -> Arc<dyn Array> {
            Arc::new(UInt64Array::from_iter(self.0.iter().map(|q| q.as_ref().map(value))))
        };
        let errors = self.0.iter().map(|q| q.as_ref()?.error_log2);
        out.push(plain("coverage_bp", true, numbers(|q| q.coverage_bp.into())));
        out.push(plain("error_log2", true, Arc::new(Float32Array::from_iter(errors))));
        out.push(plain("stolen", true, numbers(|q| q.externally_cleared)));
        out.push(plain("restraint", true, numbers(|q| q.restraint as u64)));
    }
}

/// The quality columns of a record.
pub(crate) struct QualityColumns {
    coverage_bp: UInt64Array,
    error_log2: Float32Array,
    stolen: UInt64Array,
    restraint: UInt64Array,
}

impl QualityColumns {
    pub(crate) fn of(batch: &RecordBatch) -> Result<Self, InvalidField> {
        Ok(QualityColumns {
            coverage_bp: column(batch, "coverage_bp")?,
            error_log2: column(batch, "error_log2")?,
            stolen: column(batch, "stolen")?,
            restraint: column(batch, "restraint")?,
        })
    }

    /// The quality of the snapshot in `row`, which must exist.
    pub(crate) fn row(&self, row: usize) -> Result<Option<Quality>, InvalidField> {
        let number = |column: &UInt64Array| column.is_valid(row).then(|| column.value(row));
        let Some(coverage) = number(&self.coverage_bp) else {
            return Ok(None);
        };
        let missing = || InvalidField::new("a snapshot has only some of its columns of quality");
        let restraint = usize::try_from(number(&self.restraint).ok_or_else(missing)?);
        let restraint = restraint.ok().and_then(|i| RESTRAINTS.get(i));
        let wrong = |_| InvalidField::new("a snapshot covers more than there is");
        Ok(Some(Quality {
            coverage_bp: u32::try_from(coverage).map_err(wrong)?,
            error_log2: self.error_log2.is_valid(row).then(|| self.error_log2.value(row)),
            externally_cleared: number(&self.stolen).ok_or_else(missing)?,
            restraint: *restraint
                .ok_or(InvalidField::new("a snapshot knows an unknown restraint"))?,
        }))
    }
}
