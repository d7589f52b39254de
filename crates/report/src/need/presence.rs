//! When targets were there, and how much memory they had at most.

use std::collections::BTreeMap;
use std::sync::Arc;

use isotherm_core::{AddrRange, MappingKind, Nanos, PAGE_SIZE, TargetView};

use crate::pieces::each_piece;

/// The time of a target in a record.
#[derive(Debug, Clone, Default)]
pub(super) struct Presence {
    since: Nanos,
    until: Nanos,
    /// in swap or evicted, by the last ages
    swapped: u64,
    /// the most memory, resident, in swap or evicted
    most: u64,
    /// resident memory of files and shared memory by name, with the last ages
    files: BTreeMap<Arc<str>, u64>,
}

impl Presence {
    pub fn new(since: Nanos) -> Self {
        Presence { since, until: since, ..Presence::default() }
    }

    /// Adds a snapshot that ended at `end`, with `resident` bytes.
    pub fn see(&mut self, view: &TargetView, resident: u64, end: Nanos) {
        if let Some(ages) = &view.ages {
            self.swapped = ages.swapped.total() * PAGE_SIZE;
            self.files = files(view);
        }
        self.until = end;
        self.most = self.most.max(resident + self.swapped);
    }
}

fn files(view: &TargetView) -> BTreeMap<Arc<str>, u64> {
    let mut files: BTreeMap<Arc<str>, u64> = BTreeMap::new();
    each_piece(view, AddrRange::new(0, u64::MAX), |piece, mapping| {
        let mapping = mapping.and_then(|i| view.mappings.get(i));
        if let Some(m) = mapping.filter(|m| m.kind == MappingKind::File) {
            *files.entry(Arc::clone(&m.name)).or_default() += piece.resident_bytes();
        }
    });
    files
}

/// The bytes of files and shared memory that may count more than once, because several targets map something of the
/// same name. The largest of them is left out, because it counts once in any case.
pub(super) fn counted_again<'a>(presences: impl Iterator<Item = &'a Presence>) -> u64 {
    let mut of: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (name, bytes) in presences.flat_map(|p| &p.files) {
        let (all, most) = of.entry(name).or_default();
        (*all, *most) = (*all + bytes, (*most).max(*bytes));
    }
    of.values().map(|(all, most)| all - most).sum()
}

/// The most memory in bytes that targets had at once, each with the most that it had at any time.
pub(super) fn most_at_once<'a>(presences: impl Iterator<Item = &'a Presence>) -> u64 {
    // At the same time, the end of one (false) comes before the begin of another.
    let mut changes: Vec<(Nanos, bool, u64)> =
        presences.flat_map(|p| [(p.since, true, p.most), (p.until, false, p.most)]).collect();
    changes.sort_unstable();
    let (mut now, mut most) = (0_u64, 0);
    for (_, begins, bytes) in changes {
        now = if begins { now + bytes } else { now.saturating_sub(bytes) };
        most = most.max(now);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_one_after_the_other_are_not_added_up() {
        let of = |since, until, most| Presence {
            since: Nanos(since),
            until: Nanos(until),
            most,
            ..Presence::default()
        };
        let all = [of(0, 100, 10), of(0, 50, 30), of(50, 80, 25), of(60, 70, 7)];
        assert_eq!(most_at_once(all.iter()), 10 + 25 + 7);
        assert_eq!(most_at_once(all[..2].iter()), 40);
        assert_eq!(most_at_once([].iter()), 0);
    }
}
