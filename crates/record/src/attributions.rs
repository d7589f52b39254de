//! The table of attributions: one row per attribution of a target.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::{Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::ArrowError;
use isotherm_core::{Attribution, Nanos, TargetId};

use crate::bad::{InvalidField, ensure};
use crate::check;
use crate::lists::{batch, column, numbers, plain, shared, words};

pub(crate) fn from_attributions(all: &[Attribution]) -> Result<RecordBatch, ArrowError> {
    let targets = UInt32Array::from_iter_values(all.iter().map(|a| a.target.0));
    batch(vec![
        plain("at_ns", false, numbers(all.iter().map(|a| a.at.0))),
        plain("target_id", false, Arc::new(targets)),
        plain("comm", false, words(all.iter().map(|a| &*a.comm))),
        plain("cgroup", false, words(all.iter().map(|a| &*a.cgroup))),
        plain("swapped", false, numbers(all.iter().map(|a| a.swapped))),
        plain("major_faults", false, numbers(all.iter().map(|a| a.major_faults))),
    ])
}

pub(crate) fn to_attributions(batch: &RecordBatch) -> Result<Vec<Attribution>, InvalidField> {
    let at: UInt64Array = column(batch, "at_ns")?;
    let target: UInt32Array = column(batch, "target_id")?;
    let comm: StringArray = column(batch, "comm")?;
    let cgroup: StringArray = column(batch, "cgroup")?;
    let swapped: UInt64Array = column(batch, "swapped")?;
    let major_faults: UInt64Array = column(batch, "major_faults")?;
    let nulls = batch.columns().iter().map(|c| c.null_count()).sum::<usize>();
    ensure(nulls == 0, "a field of a target's attribution is null")?;
    let mut names = HashSet::new();
    let row = |i| {
        let a = Attribution {
            target: TargetId(target.value(i)),
            at: Nanos(at.value(i)),
            comm: shared(&mut names, comm.value(i)),
            cgroup: shared(&mut names, cgroup.value(i)),
            swapped: swapped.value(i),
            major_faults: major_faults.value(i),
        };
        check::attribution(&a).map(|()| a)
    };
    (0..batch.num_rows()).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_nothing_has_are_refused() {
        let read = |comm: usize, cgroup: usize| {
            let a = Attribution {
                target: TargetId(0),
                at: Nanos(u64::MAX),
                comm: "x".repeat(comm).into(),
                cgroup: "/".repeat(cgroup).into(),
                swapped: u64::MAX,
                major_faults: u64::MAX,
            };
            let rows = [a.clone(), a];
            to_attributions(&from_attributions(&rows).unwrap()).map(|read| assert_eq!(read, rows))
        };
        assert_eq!(read(64, 4096), Ok(()));
        assert!(read(65, 1).unwrap_err().0.contains("name of a program"));
        assert!(read(1, 4097).unwrap_err().0.contains("path of a control group"));
    }
}
