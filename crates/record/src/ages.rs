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

pub(crate) fn to_ages(
    rows: &RecordBatch,
) -> Result<HashMap<(Nanos, TargetId), PageAges>, InvalidField> {
    let small = |name| column::<UInt32Array>(rows, name);
    let time = |name| column::<UInt64Array>(rows, name);
    let nulls = rows.columns().iter().map(|c| c.null_count()).sum::<usize>();
    ensure(nulls == 0, "an age is null")?;
    let (at, since, begun) = (time("at_ns")?, time("since_ns")?, time("begun_ns")?);
    let (target, sampling) = (small("target_id")?, small("sampling")?);
    let (untouched, unknown, error_ms) =
        (small("untouched")?, small("unknown")?, small("error_ms")?);
    let lists = HISTOGRAMS
        .iter()
        .map(|(name, _)| Lists::<UInt32Array>::of(rows, name))
        .collect::<Result<Vec<_>, _>>()?;
    let row = |i: usize| {
        let histogram = |k: usize| histogram(lists.get(k).and_then(|l| l.row(i)));
        let [idle, swapped, returned, huge_idle, huge_returned] = [0, 1, 2, 3, 4].map(histogram);
        let huge = HugeAges { idle: huge_idle?, returned: huge_returned? };
        let ages = PageAges {
            since: Nanos(since.value(i)),
            begun: Nanos(begun.value(i)),
            sampling: sampling.value(i),
            idle: idle?,
            untouched: untouched.value(i),
            unknown: unknown.value(i),
            swapped: swapped?,
            returned: returned?,
            error_ms: error_ms.value(i),
            huge: (huge != HugeAges::default()).then(|| Box::new(huge)),
        };
        let at = Nanos(at.value(i));
        ensure(ages.begun <= ages.since && ages.since <= at, "ages end before they begin")?;
        Ok(((at, TargetId(target.value(i))), ages))
    };
    (0..rows.num_rows()).map(row).collect()
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
        let read = to_ages(&from_ages(&rows).unwrap()).unwrap();
        assert_eq!(read.len(), 3);
        rows.iter().for_each(|(key, ages)| assert_eq!(read.get(key), Some(&**ages)));
    }

    #[test]
    fn ages_that_cannot_be_are_refused() {
        let early = vec![((Nanos(6), TargetId(1)), Arc::new(ages(1)))];
        assert!(to_ages(&from_ages(&early).unwrap()).unwrap_err().0.contains("before they begin"));
        assert!(histogram(Some(&[0; AGE_BINS + 1])).is_err());
    }
}
