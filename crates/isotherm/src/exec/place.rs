//! Where advised memory lies in this run of a program.

use isotherm_core::{AddrRange, Mapping, MappingKind, PAGE_SIZE};
use isotherm_linux::inject::InjectedCall;
use isotherm_report::mapping_name;

use super::advice::{AdvisedMapping, MappingPart, RangeAction};

/// A mapping may correspond to the recorded one if their lengths differ by at most one in this many bytes.
const TOLERANCE: u64 = 16;

/// Bytes of shared memory that a process reads at once to lock them: some milliseconds from a disk.
const LOCK_STEP_BYTES: usize = 1 << 20;

/// The mapping of this run that corresponds to each mapping of the advice, where there is one: the one of the same
/// name that is nearest in length. `known` are mappings that were found before.
pub(super) fn place(
    advised: &[AdvisedMapping],
    known: &[Option<AddrRange>],
    live: &[Mapping],
) -> Vec<Option<AddrRange>> {
    let live = joined(live);
    let mut taken: Vec<AddrRange> = known.iter().flatten().copied().collect();
    let mut found = Vec::new();
    for (i, mapping) in advised.iter().enumerate() {
        let before = known.get(i).copied().flatten();
        let place = before.or_else(|| nearest(mapping, &live, &taken));
        taken.extend(place.filter(|_| before.is_none()));
        found.push(place);
    }
    found
}

fn nearest(
    advised: &AdvisedMapping,
    live: &[(Live<'_>, AddrRange)],
    taken: &[AddrRange],
) -> Option<AddrRange> {
    let differs = |range: &AddrRange| range.len().abs_diff(advised.bytes);
    let fits = |range: &AddrRange| {
        differs(range) <= advised.bytes / TOLERANCE
            && taken.iter().all(|t| t.intersect(range).is_none())
    };
    let same_name = live.iter().filter(|(live, _)| live.name == advised.name);
    // The first of several that differ equally: both lists are in the order of addresses.
    same_name.map(|(_, range)| *range).filter(fits).min_by_key(differs)
}

/// The properties that mappings have in common if the kernel would join them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Live<'a> {
    name: &'a str,
    kind: MappingKind,
}

/// Joins adjacent mappings of anonymous memory, because a lock divides a mapping.
fn joined(live: &[Mapping]) -> Vec<(Live<'_>, AddrRange)> {
    let mut all: Vec<(Live<'_>, AddrRange)> = Vec::new();
    for mapping in live {
        let is = Live { name: mapping_name(mapping), kind: mapping.kind };
        match all.last_mut() {
            Some((last, range))
                if *last == is
                    && is.kind != MappingKind::File
                    && range.end == mapping.range.start =>
            {
                range.end = mapping.range.end;
            }
            _ => all.push((is, mapping.range)),
        }
    }
    all
}

/// The requests for a mapping that lies at `range` in this run, joined where they are adjacent. Anonymous memory
/// grows downwards, so its parts keep their distance from the end; all other memory keeps it from the beginning.
pub(super) fn requests(mapping: &AdvisedMapping, range: AddrRange) -> Vec<InjectedCall> {
    let shift = match mapping.name.as_str() {
        "anonymous" | "[stack]" => range.len().cast_signed() - mapping.bytes.cast_signed(),
        _ => 0,
    };
    let at = |part: &MappingPart| {
        let start = range.start.saturating_add_signed(shift).saturating_add(part.offset);
        let part = AddrRange::new(start, start.saturating_add(part.bytes)).intersect(&range)?;
        (part.start.is_multiple_of(PAGE_SIZE) && part.end.is_multiple_of(PAGE_SIZE)).then_some(part)
    };
    let of = |action| {
        let mut all: Vec<AddrRange> =
            mapping.parts.iter().filter(|p| p.action == action).filter_map(at).collect();
        all.sort_by_key(|r| r.start);
        all.dedup_by(|next, last| {
            let adjoins = last.end >= next.start;
            if adjoins {
                last.end = last.end.max(next.end);
            }
            adjoins
        });
        all
    };
    let huge = of(RangeAction::Hugepage).into_iter().map(InjectedCall::HugePages);
    let locks = of(RangeAction::Lock).into_iter();
    if mapping.is_shared() {
        // Other processes access it, perhaps without this one ever doing so.
        return huge.chain(locks.flat_map(steps).map(InjectedCall::LockNow)).collect();
    }
    huge.chain(locks.map(InjectedCall::Lock)).collect()
}

/// The pieces of a range for which a process waits at once.
fn steps(range: AddrRange) -> impl Iterator<Item = AddrRange> {
    let starts = (range.start..range.end).step_by(LOCK_STEP_BYTES);
    starts.map(move |start| AddrRange::new(start, (start + LOCK_STEP_BYTES as u64).min(range.end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(start: u64, end: u64, kind: MappingKind, name: &str) -> Mapping {
        Mapping {
            range: AddrRange::new(start << 12, end << 12),
            kind,
            name: name.into(),
            unknown: None,
        }
    }

    fn advised(name: &str, pages: u64, parts: &[(RangeAction, u64, u64)]) -> AdvisedMapping {
        let part = |&(action, offset, pages): &(RangeAction, u64, u64)| MappingPart {
            action,
            offset: offset << 12,
            bytes: pages << 12,
            rate_hz: 1.0,
        };
        AdvisedMapping {
            name: name.to_owned(),
            bytes: pages << 12,
            parts: parts.iter().map(part).collect(),
        }
    }

    fn pages(range: AddrRange) -> (u64, u64) {
        (range.start >> 12, range.end >> 12)
    }

    #[test]
    fn a_mapping_is_found_by_name_and_length() {
        use MappingKind::{Anonymous, File, Heap};
        let live = [
            live(10, 42, Heap, "[heap]"),
            live(100, 140, Anonymous, ""),
            live(200, 232, Anonymous, ""),
            live(300, 332, Anonymous, ""),
            // Divided by a lock.
            live(400, 410, Anonymous, ""),
            live(410, 464, Anonymous, ""),
            live(500, 516, File, "/bin/a"),
            live(516, 532, File, "/bin/a"),
        ];
        let names = [
            ("anonymous", 32),
            ("anonymous", 33),
            ("anonymous", 64),
            ("[heap]", 33),
            ("/bin/a", 16),
        ];
        let advised: Vec<_> = names.iter().map(|(name, n)| advised(name, *n, &[])).collect();
        let found = place(&advised, &[], &live);
        let found: Vec<_> = found.into_iter().map(|r| r.map(pages)).collect();
        let expected = [(200, 232), (300, 332), (400, 464), (10, 42), (500, 516)];
        assert_eq!(found, expected.map(Some));
    }

    #[test]
    fn what_is_too_short_so_far_is_not_there_yet() {
        let advised = [advised("[heap]", 32, &[])];
        let at = |end| place(&advised, &[], &[live(0, end, MappingKind::Heap, "[heap]")])[0];
        assert_eq!((at(20), at(31).map(pages)), (None, Some((0, 31))));
        let known = [Some(AddrRange::new(0, 31 << 12))];
        assert_eq!(place(&advised, &known, &[]), known, "it was found before");
    }

    #[test]
    fn parts_lie_at_their_distance_from_the_end_that_does_not_move() {
        use RangeAction::{Hugepage, Lock};
        let parts = [(Lock, 30, 2), (Lock, 0, 1), (Lock, 1, 2), (Hugepage, 8, 4)];
        let of = |name: &str, start: u64, end: u64| {
            requests(&advised(name, 32, &parts), AddrRange::new(start << 12, end << 12))
                .into_iter()
                .map(|r| match r {
                    InjectedCall::Lock(r) => ('l', pages(r)),
                    InjectedCall::HugePages(r) => ('h', pages(r)),
                    InjectedCall::LockNow(r) => ('n', pages(r)),
                    InjectedCall::Unlock(r) => ('u', pages(r)),
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(
            of("[heap]", 100, 132),
            [('h', (108, 112)), ('l', (100, 103)), ('l', (130, 132))]
        );
        assert_eq!(
            of("[heap]", 100, 131),
            [('h', (108, 112)), ('l', (100, 103)), ('l', (130, 131))]
        );
        let shared = of("/dev/zero (deleted)", 100, 132);
        assert_eq!(shared, [('h', (108, 112)), ('n', (100, 103)), ('n', (130, 132))]);
        // It begins a page lower, or a page higher, than in the record.
        assert_eq!(
            of("anonymous", 99, 132),
            [('h', (108, 112)), ('l', (100, 103)), ('l', (130, 132))]
        );
        assert_eq!(
            of("anonymous", 101, 132),
            [('h', (108, 112)), ('l', (101, 103)), ('l', (130, 132))]
        );
    }
}
