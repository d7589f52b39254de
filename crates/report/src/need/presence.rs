//! When targets were there, and how much memory they had at most.

use std::collections::BTreeMap;
use std::sync::Arc;

use isotherm_core::{AddrRange, MappingKind, Nanos, PAGE_SIZE, TargetView};

use crate::pieces::each_piece;

/// Length of a [`Span`] at most, in ns. Spans end at full minutes of the clock, so that those of several targets cover the
/// same time.
const MAX_SPAN: u64 = 60_000_000_000;

/// The time of a target in a record.
#[derive(Debug, Clone, Default)]
pub(super) struct Presence {
    /// in order, without gaps
    spans: Vec<Span>,
    /// resident memory of files and shared memory by name, with the last ages
    files: BTreeMap<Arc<str>, u64>,
}

/// The most memory of a target in a part of its time, in bytes: resident, in swap or evicted.
#[derive(Debug, Clone, Copy)]
struct Span {
    since: Nanos,
    until: Nanos,
    most: u64,
}

impl Presence {
    pub fn new(since: Nanos) -> Self {
        Presence { spans: vec![Span { since, until: since, most: 0 }], ..Presence::default() }
    }

    /// Adds a snapshot that ended at `end`, with `resident` bytes.
    pub fn see(&mut self, view: &TargetView, resident: u64, end: Nanos) {
        // Memory in swap is known in snapshots with ages only: until the next one, it may return, and is resident then.
        let swapped = view.ages.as_ref().map_or(0, |ages| ages.swapped.total() * PAGE_SIZE);
        let now = resident + swapped;
        match self.spans.last_mut() {
            Some(last) if last.until.0 / MAX_SPAN == end.0 / MAX_SPAN => {
                (last.until, last.most) = (end, last.most.max(now));
            }
            last => {
                let since = last.map_or(end, |last| last.until);
                self.spans.push(Span { since, until: end, most: now });
            }
        }
        if view.ages.is_some() {
            self.files = files(view);
        }
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

/// The most memory in bytes that targets had at once, each with the most that it had within a minute.
pub(super) fn most_at_once<'a>(presences: impl Iterator<Item = &'a Presence>) -> u64 {
    // At the same time, the end of one (false) comes before the begin of another.
    let mut changes: Vec<(Nanos, bool, u64)> = presences
        .flat_map(|p| &p.spans)
        .filter(|s| s.since < s.until)
        .flat_map(|s| [(s.since, true, s.most), (s.until, false, s.most)])
        .collect();
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
    use isotherm_core::PageAges;

    use super::*;
    use crate::scene::target;

    const S: u64 = 1_000_000_000;

    fn of(spans: &[(u64, u64, u64)]) -> Presence {
        let span = |&(since, until, most)| Span { since: Nanos(since), until: Nanos(until), most };
        Presence { spans: spans.iter().map(span).collect(), ..Presence::default() }
    }

    #[test]
    fn targets_one_after_the_other_are_not_added_up() {
        let all =
            [of(&[(0, 100, 10)]), of(&[(0, 50, 30)]), of(&[(50, 80, 25)]), of(&[(60, 70, 7)])];
        assert_eq!(most_at_once(all.iter()), 10 + 25 + 7);
        assert_eq!(most_at_once(all[..2].iter()), 40);
        assert_eq!(most_at_once([].iter()), 0);
    }

    /// Snapshots come each second. One target has its peak in the first minute, the other in the third.
    #[test]
    fn peaks_of_different_times_are_not_added_up() {
        let presence = |peak: u64| {
            let mut presence = Presence::new(Nanos(0));
            for s in 1..=240 {
                let bytes = if (s - 1) / 60 == peak { 1000 } else { 100 };
                presence.see(&target(0, vec![], vec![]), bytes, Nanos(s * S - 1));
            }
            presence
        };
        let both = [presence(0), presence(2)];
        assert_eq!(both[0].spans.len(), 4, "not a span for each snapshot");
        assert_eq!(both.iter().map(|p| most_at_once([p].into_iter())).sum::<u64>(), 2000);
        assert_eq!(most_at_once(both.iter()), 1100);
    }

    /// 500 of 1000 pages are in swap at the time of the ages, and all are touched before the next ones.
    #[test]
    fn memory_that_returns_from_swap_counts_once() {
        let mut presence = Presence::new(Nanos(0));
        for s in 1..=90 {
            let mut view = target(0, vec![], vec![]);
            let mut ages = PageAges::default();
            ages.swapped.add(10_000, if s == 30 { 500 } else { 0 });
            view.ages = (s % 30 == 0).then(|| Arc::new(ages));
            let resident = if s <= 30 { 500 } else { 1000 };
            presence.see(&view, resident * PAGE_SIZE, Nanos(s * S));
        }
        assert_eq!(most_at_once([&presence].into_iter()), 1000 * PAGE_SIZE);
    }
}
