//! Which mappings cannot be observed, and the reason.

use isotherm_core::{AddrRange, Mapping, MappingKind, Unknown};

use crate::proc::Holdings;

/// `vm_flags` of the kernel: unchanged on x86-64 since 4.x.
const VM_PFNMAP: u64 = 0x400;
const VM_LOCKED: u64 = 0x2000;
const VM_IO: u64 = 0x4000;
const VM_HUGETLB: u64 = 0x40_0000;
const VM_MIXEDMAP: u64 = 0x1000_0000;

/// The reason why an area with these `vm_flags` cannot be observed, if any.
pub fn by_flags(flags: u64) -> Option<Unknown> {
    [
        (VM_HUGETLB, Unknown::Hugetlb),
        (VM_LOCKED, Unknown::Mlocked),
        (VM_PFNMAP | VM_IO | VM_MIXEDMAP, Unknown::Special),
    ]
    .into_iter()
    .find_map(|(mask, why)| (flags & mask != 0).then_some(why))
}

/// The mapping that contains `addr`; `mappings` are sorted and disjoint.
pub fn mapping_at(mappings: &[Mapping], addr: u64) -> Option<&Mapping> {
    let i = mappings.partition_point(|m| m.range.end <= addr);
    mappings.get(i).filter(|m| m.range.contains(addr))
}

/// Marks each mapping with the reason why it cannot be observed, if any. A hidden part of a mapping becomes a
/// mapping of its own.
pub fn annotate(
    mappings: Vec<Mapping>,
    flags: &[Option<u64>],
    before: &[Mapping],
    holdings: &Holdings,
) -> Vec<Mapping> {
    let (hides_all, hidden) = (holdings.hides_all(), holdings.ranges());
    let flags = flags.iter().copied().chain(std::iter::repeat(None));
    let marked = mappings.into_iter().zip(flags).map(|(mut m, flags)| {
        m.unknown = match (m.kind, flags) {
            (MappingKind::Special, _) => Some(Unknown::Special),
            _ if hides_all.is_some() => hides_all,
            (_, Some(flags)) => by_flags(flags),
            // The kernel returns no flags while the process changes its mappings: the previous reason stays
            // valid. For a new mapping, isotherm does not know yet whether it can be observed.
            (_, None) => match mapping_at(before, m.range.start) {
                Some(b) if b.range.start == m.range.start && b.kind == m.kind => b.unknown,
                _ => Some(Unknown::Unseen),
            },
        };
        m
    });
    marked.flat_map(|m| cut_out(m, &hidden)).collect()
}

fn cut_out(mapping: Mapping, hidden: &[AddrRange]) -> Vec<Mapping> {
    let mut out = Vec::new();
    let part = |start, end, unknown| Mapping {
        range: AddrRange::new(start, end),
        unknown,
        ..mapping.clone()
    };
    let mut at = mapping.range.start;
    for h in hidden.iter().filter_map(|h| h.intersect(&mapping.range)) {
        let h = AddrRange::new(h.start.max(at), h.end);
        if at < h.start {
            out.push(part(at, h.start, mapping.unknown));
        }
        if !h.is_empty() {
            out.push(part(h.start, h.end, mapping.unknown.or(Some(Unknown::Dma))));
        }
        at = at.max(h.end);
    }
    if at < mapping.range.end {
        out.push(part(at, mapping.range.end, mapping.unknown));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, kind: MappingKind) -> Mapping {
        Mapping { range: AddrRange::new(start, end), kind, name: "".into(), unknown: None }
    }

    fn reasons(mappings: &[Mapping]) -> Vec<(u64, Option<Unknown>)> {
        mappings.iter().map(|m| (m.range.start, m.unknown)).collect()
    }

    #[test]
    fn flags() {
        assert_eq!(by_flags(0x8_0000_0073), None);
        assert_eq!(by_flags(0x2073), Some(Unknown::Mlocked));
        assert_eq!(by_flags(0x40_0073), Some(Unknown::Hugetlb));
        assert_eq!(by_flags(0x4400), Some(Unknown::Special));
    }

    #[test]
    fn unreported_pages_keep_their_state() {
        use MappingKind::{Anonymous, Special};
        let maps =
            vec![mapping(0, 10, Anonymous), mapping(10, 20, Anonymous), mapping(30, 40, Special)];
        let locked = Mapping { unknown: Some(Unknown::Mlocked), ..mapping(0, 8, Anonymous) };
        let before = [locked, mapping(10, 20, Anonymous)];
        let out = annotate(maps, &[None, None, Some(0)], &before, &Holdings::default());
        let want = [(0, Some(Unknown::Mlocked)), (10, None), (30, Some(Unknown::Special))];
        assert_eq!(reasons(&out), want);
    }

    /// Once isotherm tried to act on 300 KiB of huge pages of hugetlb. The process that had just mapped them was
    /// busy, so the kernel returned no flags, and the mapping counted as an ordinary one.
    #[test]
    fn pages_that_were_never_reported_are_unknown() {
        use MappingKind::{Anonymous, File};
        let maps = vec![mapping(0, 10, File), mapping(10, 20, Anonymous), mapping(20, 30, File)];
        // Something else was at 10 before.
        let before = [mapping(8, 12, Anonymous), mapping(20, 30, Anonymous)];
        let out = annotate(maps, &[None, None, None], &before, &Holdings::default());
        let unseen = Some(Unknown::Unseen);
        assert_eq!(reasons(&out), [(0, unseen), (10, unseen), (20, unseen)]);
    }

    #[test]
    fn a_virtual_machine_hides_everything() {
        let holdings = Holdings::of(Some(Unknown::Kvm), Vec::new());
        let maps = vec![mapping(0, 10, MappingKind::Anonymous), mapping(20, 30, MappingKind::File)];
        let out = annotate(maps, &[Some(0), Some(0)], &[], &holdings);
        assert!(out.iter().all(|m| m.unknown == Some(Unknown::Kvm)));
    }

    #[test]
    fn fixed_buffers_are_cut_out() {
        let ranges = vec![AddrRange::new(2, 4), AddrRange::new(3, 5), AddrRange::new(9, 12)];
        let holdings = Holdings::of(None, ranges);
        let out = annotate(vec![mapping(0, 10, MappingKind::Heap)], &[Some(0)], &[], &holdings);
        let dma = Some(Unknown::Dma);
        assert_eq!(reasons(&out), [(0, None), (2, dma), (4, dma), (5, None), (9, dma)]);
        assert_eq!(out.last().map(|m| m.range.end), Some(10));
    }
}
