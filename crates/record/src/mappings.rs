//! The table of mappings: one row per set.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::ArrowError;
use isotherm_core::{AddrRange, Mapping, MappingKind, TargetId, Unknown};

use crate::bad::{InvalidField, ensure};
use crate::check;
use crate::frame::MAX_PAYLOAD;
use crate::lists::{Lists, batch, column, list, numbers, offsets, plain, shared, words};

/// The mappings of one target. Sets are numbered in the order of their first use; a change creates a new set. A
/// snapshot names its sets, so that it cannot be combined with wrong ones if the frame with the right ones is
/// lost.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MappingSet {
    pub number: u64,
    pub target: TargetId,
    pub mappings: Arc<Vec<Mapping>>,
}

/// Maximal size of the names of a set, in bytes. The rest of a mapping has about 30.
const NAMES: usize = MAX_PAYLOAD / 2;

impl MappingSet {
    /// The memory that its mappings occupy, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        bytes(&self.mappings)
    }

    /// The names, or none of them if they are more than a frame can hold: a process chooses its own.
    fn names(&self) -> impl Iterator<Item = &str> {
        let fit = self.mappings.iter().map(|m| m.name.len()).sum::<usize>() <= NAMES;
        self.mappings.iter().map(move |m| if fit { &*m.name } else { "" })
    }
}

/// The memory that mappings occupy, in bytes: an upper bound, because they may share names.
pub(crate) fn bytes(mappings: &[Mapping]) -> usize {
    mappings.iter().map(|m| size_of::<Mapping>() + m.name.len()).sum()
}

pub(crate) fn from_sets(sets: &[MappingSet]) -> Result<RecordBatch, ArrowError> {
    let all = || sets.iter().flat_map(|s| s.mappings.iter());
    let rows = offsets(sets.iter().map(|s| s.mappings.len()))?;
    let targets = UInt32Array::from_iter_values(sets.iter().map(|s| s.target.0));
    let unknown = StringArray::from_iter(all().map(|m| m.unknown.map(Unknown::name)));
    batch(vec![
        plain("set", false, numbers(sets.iter().map(|s| s.number))),
        plain("target_id", false, Arc::new(targets)),
        list("start", false, &rows, numbers(all().map(|m| m.range.start)))?,
        list("end", false, &rows, numbers(all().map(|m| m.range.end)))?,
        list("kind", false, &rows, words(all().map(|m| m.kind.name())))?,
        list("name", false, &rows, words(sets.iter().flat_map(MappingSet::names)))?,
        list("unknown", true, &rows, Arc::new(unknown))?,
    ])
}

pub(crate) fn to_sets(batch: &RecordBatch) -> Result<Vec<MappingSet>, InvalidField> {
    let numbers: UInt64Array = column(batch, "set")?;
    let targets: UInt32Array = column(batch, "target_id")?;
    let mut columns = Columns::of(batch)?;
    let row = |(i, (number, target)): (usize, (&u64, &u32))| {
        let mappings = columns.row(i)?;
        check::mappings(&mappings)?;
        let mappings = Arc::new(mappings);
        Ok(MappingSet { number: *number, target: TargetId(*target), mappings })
    };
    numbers.values().iter().zip(targets.values()).enumerate().map(row).collect()
}

struct Columns {
    start: Lists<UInt64Array>,
    end: Lists<UInt64Array>,
    kind: Lists<StringArray>,
    name: Lists<StringArray>,
    unknown: Lists<StringArray>,
    /// one allocation per name, because a library has several mappings
    names: HashSet<Arc<str>>,
}

impl Columns {
    fn of(batch: &RecordBatch) -> Result<Self, InvalidField> {
        Ok(Columns {
            start: Lists::of(batch, "start")?,
            end: Lists::of(batch, "end")?,
            kind: Lists::of(batch, "kind")?,
            name: Lists::of(batch, "name")?,
            unknown: Lists::of(batch, "unknown")?,
            names: HashSet::new(),
        })
    }

    fn row(&mut self, row: usize) -> Result<Vec<Mapping>, InvalidField> {
        let places = self.start.bounds(row);
        let others = [
            self.end.bounds(row),
            self.kind.bounds(row),
            self.name.bounds(row),
            self.unknown.bounds(row),
        ];
        let uneven = "the lists of a set of mappings are not of one length";
        ensure(others.iter().all(|o| *o == places), uneven)?;
        let places: Range<usize> = places.ok_or(InvalidField::new(uneven))?;
        places
            .map(|at| self.mapping(at).ok_or(InvalidField::new("a mapping has an unknown word")))
            .collect()
    }

    fn mapping(&mut self, at: usize) -> Option<Mapping> {
        let (start, end) =
            (*self.start.values.values().get(at)?, *self.end.values.values().get(at)?);
        let kind = text(&self.kind.values, at)?;
        let unknown = match text(&self.unknown.values, at) {
            Some(name) => Some(Unknown::ALL.into_iter().find(|why| why.name() == name)?),
            None => None,
        };
        Some(Mapping {
            // not `AddrRange::new`, which would silently repair a range whose end precedes its start
            range: AddrRange { start, end },
            kind: MappingKind::ALL.into_iter().find(|k| k.name() == kind)?,
            name: shared(&mut self.names, text(&self.name.values, at)?),
            unknown,
        })
    }
}

/// The string at `at`, unless it is null.
fn text(strings: &StringArray, at: usize) -> Option<&str> {
    (at < strings.len() && strings.is_valid(at)).then(|| strings.value(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 20,000 mappings of a file with a path of 3.8 KB ended the recording.
    #[test]
    fn names_that_no_frame_can_hold_are_left_out() {
        let set = |name: &str| {
            let mapping = |at: u64| Mapping {
                range: AddrRange::new(at << 12, (at + 1) << 12),
                kind: MappingKind::File,
                name: name.into(),
                unknown: None,
            };
            let mappings = Arc::new((1..=20_000).map(mapping).collect());
            MappingSet { number: 1, target: TargetId(1), mappings }
        };
        for (len, kept) in [(512, 512), (3800, 0)] {
            let written = from_sets(&[set(&"n".repeat(len))]).unwrap();
            assert!(written.get_array_memory_size() < MAX_PAYLOAD);
            let read = to_sets(&written).unwrap();
            assert_eq!((read[0].mappings.len(), read[0].mappings[9].name.len()), (20_000, kept));
        }
    }
}
