//! The zone and the node of physical memory.

use std::sync::Arc;

use isotherm_core::AddrRange;

use super::RamRange;
use crate::proc::{MemoryBlock, Zone};

/// Cuts `ram` (sorted, disjoint) at the borders of zones. The spans of zones may overlap, as on machines that
/// interleave nodes or have hot-plugged memory. There the memory block decides; `block` returns it by its
/// number. If the block has no zone, the smallest span decides. Memory in no zone is left out, because the
/// kernel does not use it.
pub(super) fn attribute(
    ram: &[AddrRange],
    zones: &[Zone],
    block_size: Option<u64>,
    mut block: impl FnMut(u64) -> MemoryBlock,
) -> Vec<RamRange> {
    let spans: Vec<Span<'_>> = zones.iter().filter_map(Span::of).collect();
    let mut borders: Vec<u64> = spans.iter().flat_map(|s| [s.range.start, s.range.end]).collect();
    borders.sort_unstable();
    let mut out = Stretches::default();
    for &range in ram {
        for piece in cut(range, &borders) {
            let mut here: Vec<&Span<'_>> =
                spans.iter().filter(|s| s.range.contains(piece.start)).collect();
            here.sort_by_key(|s| s.range.len());
            match (&*here, block_size) {
                ([], _) => {}
                ([span], _) | ([span, ..], None) => out.push(piece, span),
                (spans @ [smallest, ..], Some(size)) => {
                    for (number, part) in blocks(piece, size) {
                        let block = block(number);
                        out.push(part, spans.iter().find(|s| s.fits(&block)).unwrap_or(smallest));
                    }
                }
            }
        }
    }
    out.0
}

struct Span<'a> {
    range: AddrRange,
    node: u32,
    zone: &'a str,
}

impl<'a> Span<'a> {
    fn of(zone: &'a Zone) -> Option<Self> {
        Some(Span { range: zone.span()?, node: zone.node, zone: &zone.name })
    }

    fn fits(&self, block: &MemoryBlock) -> bool {
        block.nodes.contains(&self.node) && block.zone.as_deref().is_none_or(|z| z == self.zone)
    }
}

/// `range`, cut at those of `borders` (sorted) that lie within it.
fn cut(range: AddrRange, borders: &[u64]) -> impl Iterator<Item = AddrRange> {
    let first = borders.partition_point(|&b| b <= range.start);
    let inside = borders.get(first..).unwrap_or_default().iter().copied();
    let ends = inside.take_while(move |&b| b < range.end).chain([range.end]);
    ends.scan(range.start, |start, end| Some(AddrRange::new(std::mem::replace(start, end), end)))
        .filter(|piece| !piece.is_empty())
}

/// `range`, cut at multiples of `size`, each with its number.
fn blocks(range: AddrRange, size: u64) -> impl Iterator<Item = (u64, AddrRange)> {
    let numbers = range.start / size..range.end.div_ceil(size);
    numbers.filter_map(move |n| {
        let block = AddrRange::new(n * size, n.saturating_add(1).saturating_mul(size));
        Some((n, block.intersect(&range)?))
    })
}

#[derive(Default)]
struct Stretches(Vec<RamRange>);

impl Stretches {
    /// Adds a piece. Extends the last one if the zone is the same.
    fn push(&mut self, range: AddrRange, span: &Span<'_>) {
        match self.0.last_mut() {
            Some(last)
                if last.range.end == range.start
                    && last.node == span.node
                    && &*last.zone == span.zone =>
            {
                last.range.end = range.end;
            }
            _ => self.0.push(RamRange { range, node: span.node, zone: Arc::from(span.zone) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::parse_zoneinfo;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn zone(node: u32, name: &str, start_mib: u64, mib: u64) -> Zone {
        let (start, pages) = (start_mib << 8, mib << 8);
        let text = format!(
            "Node {node}, zone {name}\n pages free 1\n min 1\n low 1\n high 1\n spanned {pages}\n \
             present {pages}\n managed {pages}\n start_pfn: {start}\n"
        );
        parse_zoneinfo(&text).unwrap().zones.remove(0)
    }

    fn reported(stretches: &[RamRange]) -> Vec<(u32, &str, u64, u64)> {
        let reported = |s: &RamRange| (s.range.start / MIB, s.range.end / MIB);
        stretches.iter().map(|s| (s.node, &*s.zone, reported(s).0, reported(s).1)).collect()
    }

    fn ram(pieces: &[(u64, u64)]) -> Vec<AddrRange> {
        pieces.iter().map(|(a, b)| AddrRange::new(a * MIB, b * MIB)).collect()
    }

    #[test]
    fn interleaved_nodes_are_distinguished_by_block() {
        let zones = [zone(0, "Normal", 0, 512), zone(1, "Normal", 128, 512)];
        let node =
            |n: u64| MemoryBlock { nodes: vec![(n % 2) as u32], zone: Some("Normal".into()) };
        let got = attribute(&ram(&[(0, 500), (520, 700)]), &zones, Some(128 * MIB), node);
        let want = [
            (0, "Normal", 0, 128),
            (1, "Normal", 128, 256),
            (0, "Normal", 256, 384),
            (1, "Normal", 384, 500),
            (1, "Normal", 520, 640),
        ];
        assert_eq!(reported(&got), want, "the last 60 MiB are in no zone");
    }

    #[test]
    fn a_movable_block_within_normal_memory() {
        let zones = [zone(0, "Normal", 0, 1024), zone(0, "Movable", 256, 128)];
        let block = |n: u64| {
            let zone = if n == 2 { "Movable" } else { "Normal" };
            MemoryBlock { nodes: vec![0], zone: Some(zone.into()) }
        };
        let ram = ram(&[(0, 1024)]);
        let want = [(0, "Normal", 0, 256), (0, "Movable", 256, 384), (0, "Normal", 384, 1024)];
        assert_eq!(reported(&attribute(&ram, &zones, Some(128 * MIB), block)), want);
        let unknown = |_| MemoryBlock::default();
        assert_eq!(reported(&attribute(&ram, &zones, Some(128 * MIB), unknown)), want);
        assert_eq!(reported(&attribute(&ram, &zones, None, unknown)), want, "the smallest span");
    }

    proptest! {
        /// Every byte of RAM in a zone is in one stretch, and the zone of that stretch spans it.
        #[test]
        fn stretches_tile_the_span_of_zones(
            cuts in prop::collection::btree_set(0u64..2000, 0..16),
            spans in prop::collection::vec((0u32..3, 0u64..2000, 1u64..1000), 0..6),
        ) {
            let cuts: Vec<u64> = cuts.into_iter().collect();
            let pieces: Vec<_> = cuts.chunks_exact(2).map(|c| (c[0], c[1])).collect();
            let ram = ram(&pieces);
            let zones: Vec<Zone> =
                spans.iter().map(|&(node, at, len)| zone(node, "Normal", at, len)).collect();
            let block = |n: u64| MemoryBlock { nodes: vec![(n % 3) as u32], zone: None };
            let got = attribute(&ram, &zones, Some(128 * MIB), block);
            prop_assert!(got.is_sorted_by(|a, b| a.range.end <= b.range.start));
            for mib in 0..3100 {
                let holds = |r: &AddrRange| r.contains(mib * MIB);
                let on = |node| zones.iter().filter(move |z| z.node == node);
                let spanned = |s: &&RamRange| on(s.node).any(|z| z.span().is_some_and(|r| holds(&r)));
                let stretch = got.iter().find(|s| holds(&s.range));
                let want = ram.iter().any(holds) && zones.iter().any(|z| z.span().is_some_and(|r| holds(&r)));
                prop_assert_eq!(stretch.is_some(), want);
                prop_assert!(stretch.is_none_or(|s| spanned(&s)));
            }
        }
    }
}
