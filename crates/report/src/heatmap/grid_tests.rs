use super::*;
use crate::columns::column_shares;
use crate::filter::RecordFilter;
use crate::heatmap::canvas::rows;
use crate::heatmap::{Cell, CellSupport};
use crate::scene::{absent, mapping, region, snapshot, target, unknown};
use isotherm_core::{AddrRange, RateSupport, RegionView, Unknown};
use proptest::prelude::*;
use std::time::Duration;

const SHAPE: GridSize =
    GridSize { columns: 4, rows: 8, title_rows: 0, min_rows: 2, max_panels: 8, step: 1 };

fn heatmap(
    options: Options,
    shape: &GridSize,
    snapshots: &[Snapshot],
) -> Result<Heatmap, FilterError> {
    let mut extent = Extent::new(options);
    snapshots.iter().for_each(|s| extent.push(s));
    let mut grid = Grid::new(extent, shape)?;
    snapshots.iter().for_each(|s| grid.push(s));
    Ok(grid.finish())
}

/// Snapshots of 1 s with these regions.
fn heap(regions: Vec<Vec<RegionView>>) -> Vec<Snapshot> {
    let map = || vec![mapping(0, 0x8000, "[heap]")];
    (0..).zip(regions).map(|(i, r)| snapshot(i, 1.0, vec![target(0, map(), r)])).collect()
}

fn column(map: &Heatmap, column: usize) -> Vec<Cell> {
    (0..map.panels[0].cells.rows()).map(|row| map.panels[0].cells.get(column, row)).collect()
}

#[test]
fn a_region_is_drawn_where_and_when_it_was() {
    let still = || vec![region(0, 0x8000, 0.0)];
    let hot =
        || vec![region(0, 0x2000, 0.0), region(0x2000, 0x4000, 50.0), region(0x4000, 0x8000, 0.0)];
    let map =
        heatmap(Options::default(), &SHAPE, &heap(vec![still(), still(), hot(), still()])).unwrap();
    let (zero, fifty) = (Cell::Rate(0.0), Cell::Rate(50.0));
    assert_eq!(column(&map, 1), [zero; 8]);
    assert_eq!(column(&map, 2), [zero, zero, fifty, fifty, zero, zero, zero, zero]);
    assert_eq!(column(&map, 3), [zero; 8]);
    assert_eq!((map.basis.from_ms, map.basis.to_ms), (0.0, 4000.0));
}

#[test]
fn the_hottest_region_wins_a_row_and_time_is_averaged() {
    let shape = GridSize { columns: 1, rows: 2, ..SHAPE };
    let island =
        vec![region(0, 0x1000, 0.0), region(0x1000, 0x1100, 60.0), region(0x1100, 0x8000, 0.0)];
    let rest = vec![region(0, 0x8000, 0.0)];
    let map = heatmap(Options::default(), &shape, &heap(vec![island, rest.clone(), rest])).unwrap();
    assert_eq!(column(&map, 0), [Cell::Rate(20.0), Cell::Rate(0.0)]);
}

#[test]
fn unknown_and_absent_are_no_rate() {
    let thin = RegionView { resident_bp: 2499, ..region(0x4000, 0x6000, 99.0) };
    let mut half = region(0x2000, 0x4000, 99.0);
    half.unknown_bp.0[Unknown::Shared.index()] = 5000;
    let regions = vec![
        unknown(0, 0x2000, Unknown::Kvm),
        half,
        thin,
        absent(0x6000, 0x7000),
        region(0x7000, 0x8000, 1.0),
    ];
    let map = heatmap(Options::default(), &SHAPE, &heap(vec![regions])).unwrap();
    let (u, a) = (Cell::Unknown, Cell::Absent);
    assert_eq!(column(&map, 0), [u, u, u, u, a, a, a, Cell::Rate(1.0)]);
}

/// A cell shows the support that held for most of the time for which the support is known.
#[test]
fn a_cell_has_the_support_of_most_of_its_rate() {
    let of = |support| vec![RegionView { support, ..region(0, 0x8000, 1.0) }];
    let some = |measured_bp, extended_bp| of(Some(RateSupport { measured_bp, extended_bp }));
    let support = |regions: Vec<Vec<RegionView>>| {
        let shape = GridSize { columns: 1, ..SHAPE };
        let map = heatmap(Options::default(), &shape, &heap(regions)).unwrap();
        map.panels[0].cells.support(0, 0)
    };
    assert_eq!(support(vec![of(None)]), CellSupport::NotSaid);
    assert_eq!(support(vec![of(None), of(None), some(9_000, 0)]), CellSupport::Measured);
    assert_eq!(support(vec![some(10_000, 0), some(0, 10_000)]), CellSupport::Extended);
    assert_eq!(support(vec![some(10_000, 0), some(5_000, 0)]), CellSupport::Measured);
    assert_eq!(support(vec![some(0, 10_000), some(0, 0)]), CellSupport::Old);
    let island = vec![
        region(0, 0x800, 9.0),
        RegionView { range: AddrRange::new(0x800, 0x8000), ..some(0, 0)[0] },
    ];
    assert_eq!(support(vec![island]), CellSupport::Measured, "the hottest one wins");
}

#[test]
fn time_and_addresses_can_be_narrowed() {
    let filter = RecordFilter {
        time: Some(Duration::from_secs(1)..Duration::from_secs(3)),
        addr: Some(AddrRange::new(0x2000, 0x6000)),
        ..RecordFilter::default()
    };
    let options = Options { filter, ..Options::default() };
    let snapshots = heap((1..5).map(|hz| vec![region(0, 0x8000, hz as f32)]).collect());
    let map = heatmap(options, &SHAPE, &snapshots).unwrap();
    assert_eq!(map.panels[0].range, AddrRange::new(0x2000, 0x6000));
    assert_eq!((map.basis.from_ms, map.basis.to_ms), (1000.0, 3000.0));
    let rates: Vec<Cell> = (0..4).map(|c| map.panels[0].cells.get(c, 0)).collect();
    assert_eq!(rates, [2.0, 2.0, 3.0, 3.0].map(Cell::Rate));
}

#[test]
fn a_target_is_drawn_only_while_it_lives_and_not_over_another() {
    let of =
        |id| target(id, vec![mapping(0, 0x8000, "")], vec![region(0, 0x8000, 1.0 + id as f32)]);
    let snapshots = [snapshot(0, 1.0, vec![of(0)]), snapshot(1, 1.0, vec![of(0), of(7)])];
    let map = heatmap(Options::default(), &GridSize { columns: 2, ..SHAPE }, &snapshots).unwrap();
    let cells: Vec<_> =
        map.panels.iter().map(|p| (p.target, p.cells.get(0, 0), p.cells.get(1, 0))).collect();
    assert_eq!(
        cells,
        [(0, Cell::Rate(1.0), Cell::Rate(1.0)), (7, Cell::Unmapped, Cell::Rate(8.0)),]
    );
}

#[test]
fn nothing_to_draw_is_an_error() {
    let snapshots = heap(vec![vec![absent(0, 0x8000)]]);
    let error = heatmap(Options::default(), &SHAPE, &snapshots).unwrap_err();
    assert!(matches!(error, FilterError::Addr { .. }), "{error}");
    assert_eq!(heatmap(Options::default(), &SHAPE, &[]).unwrap_err(), FilterError::Empty);
}

#[test]
fn json_has_a_row_for_each_address_and_a_column_for_each_time() {
    let map = heatmap(
        Options::default(),
        &SHAPE,
        &heap(vec![vec![
            unknown(0, 0x1000, Unknown::Dma),
            region(0x1000, 0x7000, 12.3456),
            absent(0x7000, 0x7800),
            region(0x7800, 0x8000, 0.0),
        ]]),
    );
    let v: serde_json::Value = serde_json::from_str(&crate::json(&map.unwrap()).unwrap()).unwrap();
    let cells = &v["panels"][0]["cells"];
    assert_eq!(v["schema_version"], 1);
    assert_eq!(v["panels"][0]["range"], serde_json::json!(["0x0", "0x8000"]));
    assert_eq!((&cells["columns"], &cells["rows"]), (&4.into(), &8.into()));
    assert_eq!(cells["states"][0], "uuuu");
    assert_eq!(cells["hz"][0][0], serde_json::Value::Null);
    assert!((cells["hz"][1][3].as_f64().unwrap() - 12.346).abs() < 1e-3);
    assert_eq!(cells["states"].as_array().unwrap().len(), 8);
    assert_eq!((&cells["support"][0], &cells["support"][1]), (&"....".into(), &"mmmm".into()));
}

proptest! {
    #[test]
    fn rows_tile_the_area(cuts in prop::collection::btree_set(0u64..100_000, 2..9), n in 1usize..50) {
        // Regions of at least two rows each neither overlap nor leave a row out.
        let area = AddrRange::new(0, 100_000);
        let cuts: Vec<u64> = cuts.into_iter().collect();
        for w in cuts.windows(2) {
            let r = rows(&AddrRange::new(w[0], w[1]), &area, n);
            prop_assert!(r.start < r.end && r.end <= n);
        }
        let wide: Vec<_> = (0..=4).map(|i| i * 25_000).collect();
        let mut next = 0;
        for w in wide.windows(2).filter(|_| n >= 8) {
            let r = rows(&AddrRange::new(w[0], w[1]), &area, n);
            prop_assert_eq!(r.start, next);
            next = r.end;
        }
        prop_assert!(n < 8 || next == n);
    }

    #[test]
    fn the_seconds_of_a_part_are_kept(start in 0u64..1_000_000, len in 1u64..1_000_000, columns in 1usize..2000) {
        let ms = Duration::from_micros;
        let shares = column_shares(&(ms(start)..ms(start + len)), &(ms(0)..ms(2_000_000)), columns);
        let sum: f32 = shares.iter().map(|s| s.1).sum();
        prop_assert!((sum - len as f32 / 1e6).abs() < 1e-3, "{} of {}", sum, len as f32 / 1e6);
        prop_assert!(shares.iter().all(|s| s.0 < columns && s.1 > 0.0));
    }

    #[test]
    fn no_region_falls_out_of_the_grid(
        regions in prop::collection::vec((any::<u64>(), any::<u64>(), any::<f32>(), 0u32..20_000), 1..20),
        columns in 1usize..20, rows in 1usize..20, from in 0u64..3000, len in 0u64..3000,
    ) {
        let regions: Vec<_> = regions
            .into_iter()
            .map(|(a, b, hz, bp)| RegionView { resident_bp: bp, ..region(a.min(b), a.max(b), hz) })
            .collect();
        let filter = RecordFilter {
            time: Some(Duration::from_millis(from)..Duration::from_millis(from + len)),
            ..RecordFilter::default()
        };
        let options = Options { filter, ..Options::default() };
        let shape = GridSize { columns, rows, ..SHAPE };
        let snapshots = heap(vec![regions.clone(), regions.clone(), regions]);
        if let Ok(map) = heatmap(options, &shape, &snapshots) {
            for p in &map.panels {
                prop_assert_eq!(p.cells.columns(), columns);
                prop_assert!(p.range.start < p.range.end);
            }
        }
    }
}
