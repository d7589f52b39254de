//! The tables of sampled page faults, and of the code that their stacks lie in.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::{Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::ArrowError;
use isotherm_core::{AddrRange, CodeMapping, Fault, FaultKind, Nanos, TargetId};

use crate::bad::{InvalidField, ensure};
use crate::check;
use crate::lists::{Lists, batch, column, list, numbers, offsets, plain, shared, words};

pub(crate) fn from_faults(all: &[Fault]) -> Result<RecordBatch, ArrowError> {
    let small = |of: fn(&Fault) -> u32| Arc::new(UInt32Array::from_iter_values(all.iter().map(of)));
    let rows = offsets(all.iter().map(|f| f.frames.len()))?;
    let frames = numbers(all.iter().flat_map(|f| f.frames.iter().copied()));
    batch(vec![
        plain("at_ns", false, numbers(all.iter().map(|f| f.at.0))),
        plain("target_id", false, small(|f| f.target.0)),
        plain("kind", false, words(all.iter().map(|f| f.kind.name()))),
        plain("tid", false, small(|f| f.tid)),
        plain("thread", false, words(all.iter().map(|f| &*f.thread))),
        plain("start", false, numbers(all.iter().map(|f| f.range.start))),
        plain("end", false, numbers(all.iter().map(|f| f.range.end))),
        plain("weight", false, numbers(all.iter().map(|f| f.weight))),
        list("frames", false, &rows, frames)?,
    ])
}

pub(crate) fn to_faults(batch: &RecordBatch) -> Result<Vec<Fault>, InvalidField> {
    no_nulls(batch)?;
    let small = |name| column::<UInt32Array>(batch, name);
    let long = |name| column::<UInt64Array>(batch, name);
    let word = |name| column::<StringArray>(batch, name);
    let (at, weight) = (long("at_ns")?, long("weight")?);
    let (target, tid) = (small("target_id")?, small("tid")?);
    let (kind, thread) = (word("kind")?, word("thread")?);
    let (start, end) = (long("start")?, long("end")?);
    let frames = Lists::<UInt64Array>::of(batch, "frames")?;
    let (mut names, mut stacks) = (HashSet::new(), HashSet::<Arc<[u64]>>::new());
    let row = |i| {
        let kind = FaultKind::ALL.into_iter().find(|k| k.name() == kind.value(i));
        let stack = frames.row(i).ok_or(InvalidField::new("the frames of a fault are missing"))?;
        let known = stacks.get(stack).cloned();
        let fault = Fault {
            target: TargetId(target.value(i)),
            at: Nanos(at.value(i)),
            kind: kind.ok_or(InvalidField::new("a fault is of an unknown kind"))?,
            tid: tid.value(i),
            thread: shared(&mut names, thread.value(i)),
            range: AddrRange { start: start.value(i), end: end.value(i) },
            weight: weight.value(i),
            frames: known.unwrap_or_else(|| stack.into()),
        };
        stacks.insert(Arc::clone(&fault.frames));
        check::fault(&fault).map(|()| fault)
    };
    (0..batch.num_rows()).map(row).collect()
}

/// The code of a target, from a time on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CodeSet {
    pub target: TargetId,
    pub code: Arc<Vec<CodeMapping>>,
}

pub(crate) fn from_code(sets: &[CodeSet]) -> Result<RecordBatch, ArrowError> {
    let targets = UInt32Array::from_iter_values(sets.iter().map(|s| s.target.0));
    let rows = offsets(sets.iter().map(|s| s.code.len()))?;
    let all = || sets.iter().flat_map(|s| s.code.iter());
    batch(vec![
        plain("target_id", false, Arc::new(targets)),
        list("start", false, &rows, numbers(all().map(|c| c.range.start)))?,
        list("end", false, &rows, numbers(all().map(|c| c.range.end)))?,
        list("offset", false, &rows, numbers(all().map(|c| c.offset)))?,
        list("path", false, &rows, words(all().map(|c| &*c.path)))?,
        list("build_id", false, &rows, words(all().map(|c| &*c.build_id)))?,
    ])
}

pub(crate) fn to_code(batch: &RecordBatch) -> Result<Vec<CodeSet>, InvalidField> {
    const SHORT_LISTS: &str = "the lists of the code of a target are not of one length";
    const UNEQUAL_LISTS: InvalidField = InvalidField::new(SHORT_LISTS);
    no_nulls(batch)?;
    let target: UInt32Array = column(batch, "target_id")?;
    let long = |name| Lists::<UInt64Array>::of(batch, name);
    let word = |name| Lists::<StringArray>::of(batch, name);
    let (start, end, offset) = (long("start")?, long("end")?, long("offset")?);
    let (path, build_id) = (word("path")?, word("build_id")?);
    let mut names = HashSet::new();
    let set = |row: usize| {
        let numbers = [&start, &end, &offset].map(|l| l.row(row).unwrap_or_default());
        let [starts, ends, offsets] = numbers;
        let (paths, ids) =
            (path.bounds(row).ok_or(UNEQUAL_LISTS)?, build_id.bounds(row).ok_or(UNEQUAL_LISTS)?);
        let lengths = [starts.len(), ends.len(), offsets.len(), paths.len(), ids.len()];
        ensure(lengths.iter().all(|&n| n == lengths[0]), SHORT_LISTS)?;
        let fits = paths.end <= path.values.len() && ids.end <= build_id.values.len();
        ensure(fits, SHORT_LISTS)?;
        let numbers = starts.iter().zip(ends).zip(offsets);
        let code =
            numbers.zip(paths.zip(ids)).map(|(((&start, &end), &offset), (path_at, id_at))| {
                CodeMapping {
                    range: AddrRange { start, end },
                    offset,
                    path: shared(&mut names, path.values.value(path_at)),
                    build_id: shared(&mut names, build_id.values.value(id_at)),
                }
            });
        let code: Vec<CodeMapping> = code.collect();
        check::code(&code)?;
        Ok(CodeSet { target: TargetId(target.value(row)), code: Arc::new(code) })
    };
    (0..batch.num_rows()).map(set).collect()
}

fn no_nulls(batch: &RecordBatch) -> Result<(), InvalidField> {
    let lists = batch.columns().iter().filter_map(|c| c.as_any().downcast_ref());
    let items = lists.map(|l: &arrow_array::ListArray| l.values().null_count()).sum::<usize>();
    let nulls = batch.columns().iter().map(|c| c.null_count()).sum::<usize>() + items;
    ensure(nulls == 0, "a field of a fault or of its code is null")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(kind: FaultKind) -> Fault {
        Fault {
            target: TargetId(3),
            at: Nanos(u64::MAX),
            kind,
            tid: 7,
            thread: "worker".into(),
            range: AddrRange::new(0x1000, 0x2000),
            weight: 64,
            frames: [0x4000, 0x4010].into(),
        }
    }

    fn code() -> CodeMapping {
        CodeMapping {
            range: AddrRange::new(0x4000, 0x8000),
            offset: 0x1000,
            path: "/usr/bin/a b".into(),
            build_id: "0123abcd".into(),
        }
    }

    #[test]
    fn faults_are_read_as_they_were_written() {
        let all: Vec<Fault> = FaultKind::ALL.map(fault).into();
        let read = to_faults(&from_faults(&all).unwrap()).unwrap();
        assert_eq!(read, all);
        assert!(Arc::ptr_eq(&read[0].frames, &read[4].frames), "equal stacks are kept once");
    }

    #[test]
    fn code_is_read_as_it_was_written() {
        let set = |id, code| CodeSet { target: TargetId(id), code: Arc::new(code) };
        let later = CodeMapping { range: AddrRange::new(0x9000, 0xa000), ..code() };
        let all = [set(1, vec![code(), later]), set(2, vec![]), set(3, vec![code()])];
        assert_eq!(to_code(&from_code(&all).unwrap()).unwrap(), all);
    }

    #[test]
    fn impossible_faults_are_refused() {
        let read = |f: Fault| to_faults(&from_faults(&[f]).unwrap()).map(drop);
        let minor = || fault(FaultKind::Minor);
        assert_eq!(read(minor()), Ok(()));
        let long = Fault { thread: "x".repeat(65).into(), ..minor() };
        assert!(read(long).unwrap_err().0.contains("name of a thread"));
        let deep = Fault { frames: vec![0; 1025].into(), ..minor() };
        assert!(read(deep).unwrap_err().0.contains("more frames"));
        let back = Fault { range: AddrRange { start: 2, end: 1 }, ..minor() };
        assert!(read(back).unwrap_err().0.contains("ends before"));
        let read = |all: Vec<CodeMapping>| {
            let set = CodeSet { target: TargetId(1), code: Arc::new(all) };
            to_code(&from_code(&[set]).unwrap()).map(drop)
        };
        assert!(read(vec![code(), code()]).unwrap_err().0.contains("overlap"));
        let long = CodeMapping { path: "x".repeat(4200).into(), ..code() };
        assert!(read(vec![long]).unwrap_err().0.contains("path"));
        let no_id = CodeMapping { build_id: "no id".into(), ..code() };
        assert!(read(vec![no_id]).unwrap_err().0.contains("build id"));
    }
}
