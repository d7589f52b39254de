//! Selects the areas that get a panel, and their heights.

use isotherm_core::{AddrRange, TargetId};

use super::extent::{Extent, Span, join};
use super::{GridSize, Omitted};
use crate::names::{NameIndex, short};

/// Share of the resident bytes that the panels must show.
const MIN_SHOWN_SHARE: f64 = 0.99;
/// Gaps up to this size, in bytes, are drawn: they separate the parts of a library, and libraries.
pub const SMALL_GAP: u64 = 256 << 10;

/// An area to draw.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Area {
    pub target: TargetId,
    pub range: AddrRange,
    pub name: String,
    /// mean resident bytes, as a sum that cannot overflow
    pub resident: f64,
    pub hot: f64,
}

/// The areas that get a panel, from top to bottom, and the omitted ones.
pub(super) fn choose(extent: &Extent, max: usize) -> (Vec<Area>, Omitted) {
    let mut all = areas(extent);
    all.sort_by(|a, b| b.resident.total_cmp(&a.resident));
    let total: f64 = all.iter().map(|a| a.resident).sum();
    let mut shown = 0.0;
    let enough = all.iter().position(|a| {
        shown += a.resident;
        shown >= MIN_SHOWN_SHARE * total
    });
    let rest = all.split_off(enough.map_or(all.len(), |i| i + 1).min(max));
    all.sort_by_key(|a| (a.target, std::cmp::Reverse(a.range.start)));
    let sum = |of: fn(&Area) -> f64| rest.iter().map(of).sum::<f64>();
    let beyond = &extent.beyond;
    let resident = sum(|a| a.resident) + beyond.resident / extent.tally.seconds;
    let omitted = Omitted {
        areas: rest.len() + beyond.targets,
        resident_bytes: extent.options.missing.resident(resident as u64),
        hot_bytes: (sum(|a| a.hot) + beyond.hot / extent.tally.seconds) as u64,
    };
    (all, omitted)
}

/// Memory that was never resident separates areas, unless it is small compared to its neighbours: then a blank
/// stripe is clearer than one more panel.
fn areas(extent: &Extent) -> Vec<Area> {
    let near = |a: &Span, b: &Span| {
        let gap = b.range.start.saturating_sub(a.range.end);
        gap <= SMALL_GAP || gap <= (a.range.len() / 8).saturating_add(b.range.len() / 8)
    };
    let mut out = Vec::new();
    for (&target, spans) in &extent.targets {
        out.extend(join(spans.0.clone(), near).iter().map(|span| Area {
            target,
            range: span.range,
            name: name(span, &extent.names),
            resident: span.resident() / extent.tally.seconds,
            hot: span.hot / extent.tally.seconds,
        }));
    }
    out
}

/// The name with the most resident bytes, and the number of the other names.
fn name(span: &Span, names: &NameIndex) -> String {
    let most = span.names.iter().max_by(|a, b| a.1.total_cmp(b.1));
    let first = most.map_or("", |(&id, _)| short(names.get(id)));
    match span.names.len() {
        0 | 1 => first.to_owned(),
        n => format!("{first} + {} more", n - 1),
    }
}

/// The rows of each panel, in proportion to the square root of its size, so that a small panel stays visible
/// beside a large one. Their sum is at most the rows of the shape, unless the minimum heights require more.
pub(super) fn heights(sizes: &[u64], shape: &GridSize) -> Vec<usize> {
    let step = shape.step.max(1);
    let min = shape.min_rows.max(step).next_multiple_of(step);
    let spare = shape.rows.saturating_sub((min + shape.title_rows) * sizes.len());
    let roots: Vec<f64> = sizes.iter().map(|&s| (s as f64).sqrt()).collect();
    let total: f64 = roots.iter().sum::<f64>().max(1.0);
    roots.iter().map(|r| min + (spare as f64 * r / total) as usize / step * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Options;
    use crate::scene::{absent, mapping, region, snapshot, target};
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn extent(regions: Vec<(u64, u64)>) -> Extent {
        let mut e = Extent::new(Options::default());
        let maps = vec![mapping(0, 99 * MIB, "/a/b.so"), mapping(99 * MIB, 1000 * MIB, "")];
        let regions = regions.iter().map(|&(a, b)| region(a * MIB, b * MIB, 20.0)).collect();
        e.push(&snapshot(0, 1.0, vec![target(0, maps, regions)]));
        e
    }

    fn ranges(areas: &[Area]) -> Vec<(u64, u64)> {
        areas.iter().map(|a| (a.range.start / MIB, a.range.end / MIB)).collect()
    }

    #[test]
    fn a_gap_is_drawn_if_it_is_small_beside_its_neighbours() {
        assert_eq!(ranges(&areas(&extent(vec![(0, 80), (90, 170)]))), [(0, 170)]);
        assert_eq!(ranges(&areas(&extent(vec![(0, 40), (61, 100)]))), [(0, 40), (61, 100)]);
    }

    #[test]
    fn memory_that_was_never_resident_has_no_area() {
        let mut e = extent(vec![(0, 40)]);
        let gone = target(0, vec![], vec![absent(40 * MIB, 900 * MIB)]);
        e.push(&snapshot(1, 1.0, vec![gone]));
        assert_eq!(ranges(&areas(&e)), [(0, 40)]);
    }

    #[test]
    fn an_area_has_the_name_of_its_largest_mapping() {
        let areas = areas(&extent(vec![(90, 110), (300, 320)]));
        assert_eq!(areas[0].name, "anonymous + 1 more");
        assert_eq!(areas[1].name, "anonymous");
    }

    #[test]
    fn the_largest_areas_are_drawn_of_any_number_of_targets() {
        let maps = || vec![mapping(0, 1000 * MIB, "")];
        let of = |id, mib| target(id, maps(), vec![region(0, mib * MIB, 20.0)]);
        let mut views: Vec<_> = (0..20_000).map(|id| of(id, 1)).collect();
        views[400] = of(400, 900);
        let mut e = Extent::new(Options::default());
        e.push(&snapshot(0, 1.0, views));
        let (shown, omitted) = choose(&e, 8);
        assert!(shown.iter().any(|area| area.target == TargetId(400)));
        assert_eq!(shown.len() + omitted.areas, 20_000);
        assert_eq!(omitted.resident_bytes, Some((20_000 - shown.len() as u64) * MIB));
        assert_eq!(
            e.tally.basis(&e.options, &e.gate.found().unwrap()).resident_bytes,
            Some(20_899 * MIB)
        );
    }

    #[test]
    fn ninety_nine_percent_are_shown_from_the_top_down() {
        let e = extent(vec![(0, 100), (200, 300), (400, 401), (500, 501)]);
        let (shown, omitted) = choose(&e, 8);
        assert_eq!(ranges(&shown), [(200, 300), (0, 100)]);
        assert_eq!(
            omitted,
            Omitted { areas: 2, resident_bytes: Some(2 * MIB), hot_bytes: 2 * MIB }
        );
    }

    #[test]
    fn panels_are_at_most_as_many_as_wanted() {
        let e = extent((0..10).map(|i| (i * 50, i * 50 + 10)).collect());
        let (shown, omitted) = choose(&e, 8);
        assert_eq!((shown.len(), omitted.areas), (8, 2));
    }

    proptest! {
        #[test]
        fn panels_keep_their_minimum_and_the_whole(
            sizes in prop::collection::vec(1u64..1 << 50, 1..9), step in 1usize..3, title_rows in 0usize..9,
        ) {
            let shape = GridSize { step, title_rows, ..GridSize::picture() };
            let rows = heights(&sizes, &shape);
            prop_assert!(rows.iter().all(|r| *r >= shape.min_rows && r % step == 0));
            prop_assert!(rows.iter().sum::<usize>() + title_rows * rows.len() <= shape.rows);
            for (a, b) in sizes.iter().zip(&rows).zip(sizes.iter().zip(&rows).skip(1)) {
                prop_assert!((a.0 <= b.0) == (a.1 <= b.1) || a.1 == b.1);
            }
        }

        #[test]
        fn bytes_are_drawn_or_omitted(lens in prop::collection::vec(1u64..90, 1..10)) {
            let e = extent(lens.iter().enumerate().map(|(i, len)| (i as u64 * 100, i as u64 * 100 + len)).collect());
            let (shown, omitted) = choose(&e, 8);
            let drawn = shown.iter().map(|a| a.resident as u64).sum::<u64>();
            prop_assert_eq!(drawn + omitted.resident_bytes.unwrap_or(0), lens.iter().sum::<u64>() * MIB);
            prop_assert!(shown.len() == 8 || omitted.resident_bytes.unwrap_or(0) * 100 <= lens.iter().sum::<u64>() * MIB);
        }
    }
}
