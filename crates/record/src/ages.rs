//! The table of idle ages: one row per target and snapshot that has them.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Array, RecordBatch, UInt32Array, UInt64Array};
use arrow_schema::ArrowError;
use isotherm_core::{AGE_BINS, AgeHistogram, HugeAges, Nanos, PageAges, TargetId};

use crate::bad::{InvalidField, ensure};
use crate::lists::{Lists, batch, column, list, numbers, offsets, plain};

/// The ages of a target in the snapshot that ends at a time.
pub(crate) type AgeRow = ((Nanos, TargetId), Arc<PageAges>);

/// The counts without the empty bins at the end.
fn filled(h: &AgeHistogram) -> &[u32] {
    let len = h.0.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1);
    h.0.get(..len).unwrap_or_default()
}

type HistogramOf = fn(&PageAges) -> Option<&AgeHistogram>;

/// The columns of histograms. Those of huge pages are empty if there are none.
const HISTOGRAMS: [(&str, HistogramOf); 5] = [
    ("idle", |a| Some(&a.idle)),
    ("swapped", |a| Some(&a.swapped)),
    ("returned", |a| Some(&a.returned)),
    ("huge_idle", |a| a.huge.as_ref().map(|h| &h.idle)),
    ("huge_returned", |a| a.huge.as_ref().map(|h| &h.returned)),
];

pub(crate) fn from_ages(rows: &[AgeRow]) -> Result<RecordBatch, ArrowError> {
    let small = |of: fn(&PageAges) -> u32| {
        Arc::new(UInt32Array::from_iter_values(rows.iter().map(|(_, a)| of(a))))
    };
    let targets = UInt32Array::from_iter_values(rows.iter().map(|((_, id), _)| id.0));
    let mut columns = vec![
        plain("at_ns", false, numbers(rows.iter().map(|((at, _), _)| at.0))),
        plain("target_id", false, Arc::new(targets)),
        plain("since_ns", false, numbers(rows.iter().map(|(_, a)| a.since.0))),
        plain("begun_ns", false, numbers(rows.iter().map(|(_, a)| a.begun.0))),
        plain("sampling", false, small(|a| a.sampling)),
        plain("untouched", false, small(|a| a.untouched)),
        plain("unknown", false, small(|a| a.unknown)),
        plain("error_ms", false, small(|a| a.error_ms)),
    ];
    for (name, of) in HISTOGRAMS {
        let bins: Vec<&[u32]> =
            rows.iter().map(|(_, a)| of(a).map(filled).unwrap_or_default()).collect();
        let offsets = offsets(bins.iter().map(|b| b.len()))?;
        let values = UInt32Array::from_iter_values(bins.into_iter().flatten().copied());
        columns.push(list(name, false, &offsets, Arc::new(values))?);
    }
    batch(columns)
}

/// The rows of a frame, all of them valid. A row becomes ages only when its snapshot is read: a few KiB of packed rows are
/// gigabytes of ages.
#[derive(Default)]
pub(crate) struct AgeRows {
    columns: Option<AgeColumns>,
    /// number of the row
    places: HashMap<(Nanos, TargetId), usize>,
}

impl AgeRows {
    pub(crate) fn of(rows: &RecordBatch) -> Result<Self, InvalidField> {
        let columns = AgeColumns::of(rows)?;
        let place = |i| columns.row(i).map(|(key, _)| (key, i));
        let places = (0..rows.num_rows()).map(place).collect::<Result<_, _>>()?;
        Ok(AgeRows { columns: Some(columns), places })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether the snapshot that ends at `end` has ages.
    pub(crate) fn has(&self, end: Nanos) -> bool {
        self.places.keys().any(|(at, _)| *at == end)
    }

    /// Removes the ages of a target in the snapshot that ends at `end`.
    pub(crate) fn take(
        &mut self,
        end: Nanos,
        target: TargetId,
    ) -> Result<Option<PageAges>, InvalidField> {
        let place = self.places.remove(&(end, target));
        let row = place.zip(self.columns.as_ref()).map(|(i, columns)| columns.row(i));
        Ok(row.transpose()?.map(|(_, ages)| ages))
    }
}

/// The columns of a batch of rows.
struct AgeColumns {
    at: UInt64Array,
    target: UInt32Array,
    since: UInt64Array,
    begun: UInt64Array,
    sampling: UInt32Array,
    untouched: UInt32Array,
    unknown: UInt32Array,
    error_ms: UInt32Array,
    histograms: Vec<Lists<UInt32Array>>,
}

impl AgeColumns {
    fn of(rows: &RecordBatch) -> Result<Self, InvalidField> {
        let small = |name| column::<UInt32Array>(rows, name);
        let time = |name| column::<UInt64Array>(rows, name);
        let nulls = rows.columns().iter().map(|c| c.null_count()).sum::<usize>();
        ensure(nulls == 0, "an age is null")?;
        let histograms = HISTOGRAMS.iter().map(|(name, _)| Lists::of(rows, name));
        Ok(AgeColumns {
            at: time("at_ns")?,
            target: small("target_id")?,
            since: time("since_ns")?,
            begun: time("begun_ns")?,
            sampling: small("sampling")?,
            untouched: small("untouched")?,
            unknown: small("unknown")?,
            error_ms: small("error_ms")?,
            histograms: histograms.collect::<Result<_, _>>()?,
        })
    }

    fn row(&self, i: usize) -> Result<((Nanos, TargetId), PageAges), InvalidField> {
        let histogram = |k: usize| histogram(self.histograms.get(k).and_then(|l| l.row(i)));
        let [idle, swapped, returned, huge_idle, huge_returned] = [0, 1, 2, 3, 4].map(histogram);
        let huge = HugeAges { idle: huge_idle?, returned: huge_returned? };
        let ages = PageAges {
            since: Nanos(self.since.value(i)),
            begun: Nanos(self.begun.value(i)),
            sampling: self.sampling.value(i),
            idle: idle?,
            untouched: self.untouched.value(i),
            unknown: self.unknown.value(i),
            swapped: swapped?,
            returned: returned?,
            error_ms: self.error_ms.value(i),
            huge: (huge != HugeAges::default()).then(|| Box::new(huge)),
        };
        let at = Nanos(self.at.value(i));
        ensure(ages.begun <= ages.since && ages.since <= at, "ages end before they begin")?;
        Ok(((at, TargetId(self.target.value(i))), ages))
    }
}

fn histogram(bins: Option<&[u32]>) -> Result<AgeHistogram, InvalidField> {
    let mut h = AgeHistogram::default();
    let bins = bins.filter(|b| b.len() <= AGE_BINS);
    let bins = bins.ok_or(InvalidField::new("a histogram of ages has more bins than there are"))?;
    h.0.iter_mut().zip(bins).for_each(|(bin, n)| *bin = *n);
    Ok(h)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ages(seed: u32) -> PageAges {
        let bins =
            |n: usize| AgeHistogram(std::array::from_fn(|i| (i as u32 + seed) * u32::from(i < n)));
        PageAges {
            since: Nanos(7),
            begun: Nanos(3),
            sampling: 16,
            idle: bins(20),
            untouched: 5,
            unknown: 6,
            swapped: bins(AGE_BINS),
            returned: bins(0),
            error_ms: 900,
            huge: (seed > 1).then(|| Box::new(HugeAges { idle: bins(3), returned: bins(2) })),
        }
    }

    #[test]
    fn ages_are_read_as_they_were_written() {
        let rows: Vec<AgeRow> =
            (1..4).map(|i| ((Nanos(100), TargetId(i)), Arc::new(ages(i)))).collect();
        let mut read = AgeRows::of(&from_ages(&rows).unwrap()).unwrap();
        assert!(read.has(Nanos(100)) && !read.has(Nanos(99)));
        for ((at, id), ages) in rows {
            assert_eq!(read.take(at, id).unwrap().as_ref(), Some(&*ages));
            assert_eq!(read.take(at, id).unwrap(), None);
        }
        assert!(read.is_empty());
    }

    #[test]
    fn ages_that_cannot_be_are_refused() {
        let early = vec![((Nanos(6), TargetId(1)), Arc::new(ages(1)))];
        let read = AgeRows::of(&from_ages(&early).unwrap());
        assert!(read.is_err_and(|why| why.0.contains("before they begin")));
        assert!(histogram(Some(&[0; AGE_BINS + 1])).is_err());
    }
}
