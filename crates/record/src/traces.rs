//! The table of sampled accesses to files: one row per interval.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch, UInt8Array, UInt32Array, UInt64Array};
use arrow_schema::ArrowError;
use isotherm_core::{CacheAccess, CacheAccessKind, CacheTrace, Nanos, TargetId};

use crate::bad::{InvalidField, ensure};
use crate::check;
use crate::lists::{Lists, batch, column, list, numbers, offsets, plain};

pub(crate) fn from_traces(all: &[CacheTrace]) -> Result<RecordBatch, ArrowError> {
    let files = offsets(all.iter().map(|t| t.pages.len()))?;
    let pages = || all.iter().flat_map(|t| &t.pages);
    let rows = offsets(all.iter().map(|t| t.accesses.len()))?;
    let accesses = || all.iter().flat_map(|t| &t.accesses);
    let small =
        |of: fn(&CacheAccess) -> u8| Arc::new(UInt8Array::from_iter_values(accesses().map(of)));
    let ids = UInt32Array::from_iter_values(pages().map(|(id, _)| id.0));
    let targets = UInt32Array::from_iter_values(accesses().map(|a| a.target.0));
    let sampling = UInt8Array::from_iter_values(all.iter().map(|t| t.sampling));
    batch(vec![
        plain("since_ns", false, numbers(all.iter().map(|t| t.since.0))),
        plain("until_ns", false, numbers(all.iter().map(|t| t.until.0))),
        plain("sampling", false, Arc::new(sampling)),
        plain("missing", false, numbers(all.iter().map(|t| t.missing))),
        list("file_id", false, &files, Arc::new(ids))?,
        list("file_pages", false, &files, numbers(pages().map(|(_, n)| *n)))?,
        list("target_id", false, &rows, Arc::new(targets))?,
        list("page", false, &rows, numbers(accesses().map(|a| a.page)))?,
        list("kind", false, &rows, small(|a| a.kind as u8))?,
        list("rarity", false, &rows, small(|a| a.rarity))?,
    ])
}

pub(crate) fn to_traces(batch: &RecordBatch) -> Result<Vec<CacheTrace>, InvalidField> {
    const UNEQUAL_LISTS: InvalidField =
        InvalidField::new("the lists of a trace are not of one length");
    let nulls = batch.columns().iter().map(|c| c.null_count()).sum::<usize>();
    ensure(nulls == 0, "a trace is null")?;
    let long = |name| column::<UInt64Array>(batch, name);
    let (since, until, missing) = (long("since_ns")?, long("until_ns")?, long("missing")?);
    let sampling: UInt8Array = column(batch, "sampling")?;
    let ids = Lists::<UInt32Array>::of(batch, "file_id")?;
    let sums = Lists::<UInt64Array>::of(batch, "file_pages")?;
    let targets = Lists::<UInt32Array>::of(batch, "target_id")?;
    let pages = Lists::<UInt64Array>::of(batch, "page")?;
    let kinds = Lists::<UInt8Array>::of(batch, "kind")?;
    let rarities = Lists::<UInt8Array>::of(batch, "rarity")?;
    let row = |i: usize| {
        let ids = ids.row(i).ok_or(UNEQUAL_LISTS)?;
        let sums = sums.row(i).filter(|sums| sums.len() == ids.len()).ok_or(UNEQUAL_LISTS)?;
        let targets = targets.row(i).ok_or(UNEQUAL_LISTS)?;
        let all = targets.len();
        let pages = pages.row(i).filter(|l| l.len() == all).ok_or(UNEQUAL_LISTS)?;
        let kinds = kinds.row(i).filter(|l| l.len() == all).ok_or(UNEQUAL_LISTS)?;
        let rarities = rarities.row(i).filter(|l| l.len() == all).ok_or(UNEQUAL_LISTS)?;
        let access = |((&target, &page), (&kind, &rarity)): ((&u32, &u64), (&u8, &u8))| {
            let kind = CacheAccessKind::ALL.get(usize::from(kind)).copied();
            let kind = kind.ok_or(InvalidField::new("an access is of an unknown kind"))?;
            Ok(CacheAccess { target: TargetId(target), page, kind, rarity })
        };
        let accesses = targets.iter().zip(pages).zip(kinds.iter().zip(rarities)).map(access);
        let trace = CacheTrace {
            since: Nanos(since.value(i)),
            until: Nanos(until.value(i)),
            sampling: sampling.value(i),
            pages: ids.iter().map(|id| TargetId(*id)).zip(sums.iter().copied()).collect(),
            missing: missing.value(i),
            accesses: accesses.collect::<Result<_, InvalidField>>()?,
        };
        check::trace(&trace).map(|()| trace)
    };
    (0..batch.num_rows()).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> CacheTrace {
        let access = |(page, kind)| CacheAccess { target: TargetId(2), page, kind, rarity: 5 };
        CacheTrace {
            since: Nanos(3),
            until: Nanos(9),
            sampling: 4,
            pages: vec![(TargetId(2), 800), (TargetId(3), 7)],
            missing: 1,
            accesses: (1_u64..).zip(CacheAccessKind::ALL).map(access).collect(),
        }
    }

    #[test]
    fn traces_are_read_as_they_were_written() {
        let all = [trace(), CacheTrace::default(), trace()];
        assert_eq!(to_traces(&from_traces(&all).unwrap()).unwrap(), all);
    }

    #[test]
    fn impossible_traces_are_refused() {
        let read = |t: CacheTrace| to_traces(&from_traces(&[t]).unwrap()).unwrap_err().0;
        assert!(read(CacheTrace { until: Nanos(2), ..trace() }).contains("before it begins"));
        assert!(read(CacheTrace { sampling: 40, ..trace() }).contains("sampling"));
        let mut common = trace();
        common.accesses[0].rarity = 3;
        assert!(read(common).contains("not in its sample"));
    }
}
