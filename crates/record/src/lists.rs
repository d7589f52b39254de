//! List columns: built from values and lengths, and split again.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, ListArray, PrimitiveArray, RecordBatch, StringArray,
    UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, Field, Schema};

use crate::bad::InvalidField;

/// A column with its name and type.
pub(crate) type NamedColumn = (Field, ArrayRef);

/// A record batch with these columns.
pub(crate) fn batch(columns: Vec<NamedColumn>) -> Result<RecordBatch, ArrowError> {
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
}

/// A column with one value per row.
pub(crate) fn plain(name: &str, nullable: bool, values: ArrayRef) -> NamedColumn {
    (Field::new(name, values.data_type().clone(), nullable), values)
}

/// An array of numbers.
pub(crate) fn numbers(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(values))
}

/// An array of strings.
pub(crate) fn words<'a>(values: impl Iterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

/// `name` as a shared string: equal names share one allocation.
pub(crate) fn shared(names: &mut HashSet<Arc<str>>, name: &str) -> Arc<str> {
    if let Some(known) = names.get(name) {
        return known.clone();
    }
    let new: Arc<str> = name.into();
    names.insert(new.clone());
    new
}

/// The offsets of lists with these lengths.
pub(crate) fn offsets(
    lengths: impl IntoIterator<Item = usize>,
) -> Result<OffsetBuffer<i32>, ArrowError> {
    OffsetBuffer::try_from_lengths(lengths)
        .map_err(|e| ArrowError::InvalidArgumentError(e.to_string()))
}

/// A column with one list per row.
pub(crate) fn list(
    name: &str,
    nullable: bool,
    offsets: &OffsetBuffer<i32>,
    values: ArrayRef,
) -> Result<NamedColumn, ArrowError> {
    let item = Arc::new(Field::new("item", values.data_type().clone(), nullable));
    Ok(plain(name, false, Arc::new(ListArray::try_new(item, offsets.clone(), values, None)?)))
}

/// The column `name`, which must be of type `T`.
pub(crate) fn column<T: Array + Clone + 'static>(
    batch: &RecordBatch,
    name: &str,
) -> Result<T, InvalidField> {
    batch.column_by_name(name).and_then(|c| c.as_any().downcast_ref::<T>()).cloned().ok_or_else(
        || InvalidField::because(format!("the column {name} is missing or of another type")),
    )
}

/// A list column as offsets and values, so that its type is checked only once.
pub(crate) struct Lists<T> {
    offsets: OffsetBuffer<i32>,
    pub values: T,
}

impl<T: Array + Clone + 'static> Lists<T> {
    pub(crate) fn of(batch: &RecordBatch, name: &str) -> Result<Self, InvalidField> {
        let lists: ListArray = column(batch, name)?;
        let values = lists.values().as_any().downcast_ref::<T>().cloned();
        let values = values.ok_or_else(|| {
            InvalidField::because(format!("the lists of {name} are of another type"))
        })?;
        Ok(Lists { offsets: lists.offsets().clone(), values })
    }

    /// The range in `values` of the list of `row`.
    pub(crate) fn bounds(&self, row: usize) -> Option<std::ops::Range<usize>> {
        let (from, to) = (self.offsets.get(row)?, self.offsets.get(row + 1)?);
        Some(usize::try_from(*from).ok()?..usize::try_from(*to).ok()?)
    }
}

impl<P: ArrowPrimitiveType> Lists<PrimitiveArray<P>> {
    /// The list of `row`; the values at nulls are arbitrary.
    pub(crate) fn row(&self, row: usize) -> Option<&[P::Native]> {
        self.values.values().get(self.bounds(row)?)
    }
}
