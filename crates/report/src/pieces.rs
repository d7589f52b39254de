//! Regions cut at the borders of mappings.

use isotherm_core::{AddrRange, RegionView, TargetView};

/// Calls `each` for every part of a region that is within `clip` and in one mapping (its index) or in none. A
/// part has the shares of the region, so its bytes are in proportion to its size.
pub fn each_piece(
    view: &TargetView,
    clip: AddrRange,
    mut each: impl FnMut(&RegionView, Option<usize>),
) {
    for region in &view.regions {
        if let Some(range) = region.range.intersect(&clip) {
            let each = |range, mapping| each(&RegionView { range, ..*region }, mapping);
            cut(range, &view.mappings, |m| m.range, each);
        }
    }
}

/// Calls `each` for every part of `range` that is in one of the ascending, disjoint `spans` (its index) or in none.
pub(crate) fn cut<T>(
    range: AddrRange,
    spans: &[T],
    range_of: impl Fn(&T) -> AddrRange,
    mut each: impl FnMut(AddrRange, Option<usize>),
) {
    let first = spans.partition_point(|span| range_of(span).end <= range.start);
    let mut at = range.start;
    for (i, span) in spans.iter().enumerate().skip(first) {
        let rest = AddrRange::new(at, range.end);
        let Some(inside) = range_of(span).intersect(&rest) else { break };
        if at < inside.start {
            each(AddrRange::new(at, inside.start), None);
        }
        each(inside, Some(i));
        at = inside.end;
    }
    if at < range.end {
        each(AddrRange::new(at, range.end), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene;
    use proptest::prelude::*;

    fn pieces(view: &TargetView, clip: AddrRange) -> Vec<(AddrRange, Option<usize>)> {
        let mut out = vec![];
        each_piece(view, clip, |r, m| out.push((r.range, m)));
        out
    }

    #[test]
    fn a_region_is_cut_at_mappings_and_gaps() {
        let maps = vec![scene::mapping(0x2000, 0x3000, "/a"), scene::mapping(0x3000, 0x5000, "/b")];
        let view = scene::target(0, maps, vec![scene::region(0x1000, 0x6000, 1.0)]);
        let r = AddrRange::new;
        assert_eq!(
            pieces(&view, r(0, u64::MAX)),
            [
                (r(0x1000, 0x2000), None),
                (r(0x2000, 0x3000), Some(0)),
                (r(0x3000, 0x5000), Some(1)),
                (r(0x5000, 0x6000), None),
            ]
        );
        assert_eq!(
            pieces(&view, r(0x2800, 0x3800)),
            [(r(0x2800, 0x3000), Some(0)), (r(0x3000, 0x3800), Some(1)),]
        );
    }

    proptest! {
        #[test]
        fn pieces_tile_the_clipped_region(
            cuts in prop::collection::btree_set(0u64..1000, 0..20), a in 0u64..1000, b in 0u64..1000,
            from in 0u64..1000, to in 0u64..1000,
        ) {
            let cuts: Vec<u64> = cuts.into_iter().collect();
            let maps = cuts.chunks_exact(2).map(|c| scene::mapping(c[0], c[1], "/x")).collect();
            let view = scene::target(0, maps, vec![scene::region(a, b.max(a), 1.0)]);
            let clip = AddrRange::new(from, to);
            let all = pieces(&view, clip);
            let whole = AddrRange::new(a, b).intersect(&clip);
            prop_assert_eq!(all.first().map(|p| p.0.start), whole.map(|w| w.start));
            prop_assert_eq!(all.last().map(|p| p.0.end), whole.map(|w| w.end));
            prop_assert!(all.windows(2).all(|w| w[0].0.end == w[1].0.start));
            for (r, m) in all {
                match m {
                    Some(i) => prop_assert_eq!(view.mappings[i].range.intersect(&r), Some(r)),
                    None => prop_assert!(view.mappings.iter().all(|m| m.range.intersect(&r).is_none())),
                }
            }
        }
    }
}
