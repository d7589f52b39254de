use std::sync::Arc;

use isotherm_core::{Rate, RateSupport, RegionView, TargetId, UnknownPages};
use proptest::prelude::*;

use super::*;

const PAGE: u64 = 4096;

fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

fn region(start: u64, end: u64, hz: f32) -> RegionView {
    RegionView {
        range: AddrRange::new(start * PAGE, end * PAGE),
        accesses_bp: 0,
        age: seconds(1),
        rate: Rate { hz, low: hz, high: hz },
        touched_bp: 10_000,
        resident_bp: 10_000,
        unknown_bp: UnknownPages::default(),
        support: Some(RateSupport::MEASURED),
    }
}

fn column(at: u64, regions: &[(u64, u64, f32)]) -> HeatColumn {
    column_of(at, regions.iter().map(|&(a, b, hz)| region(a, b, hz)).collect())
}

fn column_of(at: u64, regions: Vec<RegionView>) -> HeatColumn {
    let view = TargetView {
        id: TargetId(0),
        ran: None,
        mappings: Arc::new(Vec::new()),
        left_out: 0,
        dirty: None,
        regions,
        ages: None,
    };
    HeatColumn::of(&view, seconds(at)..seconds(at + 1))
}

fn whole(from: u64, to: u64, rows: f64) -> Segment {
    Segment { range: AddrRange::new(from * PAGE, to * PAGE), rows: (0.0, rows) }
}

/// What a byte stands for, roughly.
fn hz(byte: u8) -> f64 {
    if byte <= 4 { 0.0 } else { 0.05 * 1e5f64.powf(f64::from(byte - 5) / 82.0) }
}

#[test]
fn a_hot_half_is_drawn_hot_and_what_is_not_mapped_is_not_drawn() {
    let rates = Rates::default();
    let columns = [column(0, &[(0, 4, 100.0), (4, 8, 0.0)]), column(1, &[(0, 4, 100.0)])];
    let cells = draw(&columns, &(seconds(0)..seconds(3)), &[whole(0, 8, 2.0)], (3, 2), &rates);
    assert!((hz(cells[0]) / 100.0 - 1.0).abs() < 0.2, "{cells:?}");
    assert_eq!((cells[1], cells[2], cells[3]), (4, cells[0], 0));
    assert_eq!(cells[4..], [NO_DATA, NO_DATA]);
}

/// Found by a review: the night between two recordings was hot.
#[test]
fn a_pause_has_no_data() {
    let (rates, mut pyramid) = (Rates::default(), Pyramid::default());
    for second in (0..10).chain(600..610) {
        pyramid.push(column(second, &[(0, 4, 100.0)]), &rates, MAX_RUNS);
    }
    pyramid.finish(&rates, MAX_RUNS);
    let time = seconds(0)..seconds(640);
    let columns = pyramid.columns(&time, seconds(10));
    let cells = draw(columns, &time, &[whole(0, 4, 1.0)], (64, 1), &rates);
    assert!(hz(cells[0]) > 50.0 && hz(cells[60]) > 50.0, "{cells:?}");
    assert!(cells[1..60].iter().all(|cell| *cell == NO_DATA), "{cells:?}");
}

/// Found by a review: a short part before a pause made all levels seem fine, and the hours after it were one column.
#[test]
fn what_follows_a_short_part_and_a_pause_has_fine_columns() {
    let (rates, mut pyramid) = (Rates::default(), Pyramid::default());
    for second in (0..10).chain(600..900) {
        pyramid.push(column(second, &[(0, 4, 100.0)]), &rates, MAX_RUNS);
    }
    for is_finished in [false, true] {
        let found = pyramid.columns(&(seconds(0)..seconds(900)), seconds(10));
        assert!(found.iter().all(|c| c.time.end - c.time.start <= seconds(10)), "{is_finished}");
        pyramid.finish(&rates, MAX_RUNS);
    }
}

#[test]
fn a_small_region_does_not_vanish_and_stays_in_its_segment() {
    let rates = Rates::default();
    let columns = [column(0, &[(0, 1000, 0.0), (5000, 5001, 200.0), (5001, 6000, 0.0)])];
    let low = Segment { range: AddrRange::new(0, 1000 * PAGE), rows: (0.0, 4.0) };
    let high = Segment { range: AddrRange::new(5000 * PAGE, 6000 * PAGE), rows: (4.0, 8.0) };
    let cells = draw(&columns, &(seconds(0)..seconds(1)), &[low, high], (1, 8), &rates);
    assert_eq!(cells[..4], [4; 4]);
    assert!(hz(cells[4]) > 150.0, "{cells:?}");
    assert_eq!(cells[5..], [4; 3]);
}

#[test]
fn coarse_columns_have_the_means_of_fine_ones() {
    let rates = Rates::default();
    let mut pyramid = Pyramid::default();
    for i in 0..64 {
        let hot = if i % 4 == 0 { 40.0 } else { 0.0 };
        pyramid.push(column(i, &[(0, 8, hot), (8, 16, 1.0)]), &rates, MAX_RUNS);
    }
    pyramid.finish(&rates, MAX_RUNS);
    let all = seconds(0)..seconds(64);
    let coarse = pyramid.columns(&all, seconds(16));
    assert_eq!(coarse.len(), 4);
    let cells = draw(coarse, &all, &[whole(0, 16, 2.0)], (4, 2), &rates);
    for pair in cells.chunks(2) {
        assert!((hz(pair[0]) / 10.0 - 1.0).abs() < 0.2, "{cells:?}");
        assert!((hz(pair[1]) - 1.0).abs() < 0.2, "{cells:?}");
    }
}

#[test]
fn no_column_is_wider_than_a_pixel_whatever_the_length_of_the_record() {
    let rates = Rates::default();
    for snapshots in [65, 255, 257, 1025, 4097] {
        let mut pyramid = Pyramid::default();
        for at in 0..snapshots {
            pyramid.push(column(at, &[(0, 10, 1.0)]), &rates, MAX_RUNS);
        }
        pyramid.finish(&rates, MAX_RUNS);
        let columns = pyramid.columns(&(seconds(0)..seconds(snapshots)), seconds(4));
        assert!(columns.iter().all(|c| c.time.end - c.time.start <= seconds(4)), "{snapshots}");
        assert_eq!(columns.len() as u64, snapshots.div_ceil(4));
    }
}

#[test]
fn the_newest_columns_are_found_before_their_level_is_complete() {
    let rates = Rates::default();
    let mut pyramid = Pyramid::default();
    for i in 0..70 {
        pyramid.push(column(i, &[(0, 8, 1.0)]), &rates, MAX_RUNS);
    }
    let all = seconds(0)..seconds(70);
    for pixel in [1, 4, 16, 64] {
        let found = pyramid.columns(&all, seconds(pixel));
        let mut times: Vec<_> = found.iter().map(|c| (c.time.start, c.time.end)).collect();
        times.sort();
        assert_eq!((times[0].0, times.last().unwrap().1), (seconds(0), seconds(70)), "{pixel}");
        assert!(times.windows(2).all(|w| w[0].1 == w[1].0), "{times:?}");
    }
}

#[test]
fn memory_is_given_up_evenly_or_from_the_oldest_on_and_all_time_stays_covered() {
    let rates = Rates::default();
    for keep in [Retention::Evenly, Retention::Newest] {
        let mut pyramid = Pyramid::default();
        for i in 0..1000 {
            pyramid.push(column(i, &[(0, 8, 1.0), (8, 12, i as f32)]), &rates, MAX_RUNS);
            // A column is 3 runs, and their allocation.
            while pyramid.bytes() > 50_000 {
                pyramid.shrink(keep);
            }
        }
        let found = pyramid.columns(&(seconds(0)..seconds(1000)), seconds(1));
        let covered: u64 = found.iter().map(|c| (c.time.end - c.time.start).as_secs()).sum();
        assert!((1000..1300).contains(&covered), "{keep:?}: {covered} s");
        let newest = found.iter().filter(|c| c.time.end > seconds(900)).count();
        assert_eq!(newest >= 15, keep == Retention::Newest, "{keep:?}: {newest}");
    }
}

#[test]
fn every_complete_column_can_be_given_up() {
    let rates = Rates::default();
    let mut pyramid = Pyramid::default();
    for i in 0..11 {
        // One of them is large. Its level is the largest for as long as it waits there.
        let regions = if i == 7 { 1000 } else { 2 };
        let regions: Vec<_> = (0..regions).map(|n| (n, n + 1, (n % 2) as f32)).collect();
        pyramid.push(column(i, &regions), &rates, MAX_RUNS);
    }
    let mut before = 0;
    while before != pyramid.bytes() {
        before = pyramid.bytes();
        pyramid.shrink(Retention::Newest);
    }
    assert!(pyramid.levels.iter().all(|level| level.columns.is_empty()));
    assert_eq!(pyramid.levels[0].waiting.len(), 3, "they are still to be joined");
}

#[test]
fn many_targets_share_the_memory_for_columns_that_wait() {
    let memory = 20 << 20;
    assert_eq!(Pyramid::max_runs(memory, 1), MAX_RUNS);
    for targets in [10, 25, 100, 400] {
        let runs = Pyramid::max_runs(memory, targets);
        assert!(targets * runs * LEVELS * (FAN - 1) * size_of::<StateRun>() < memory / 2);
        assert!(runs >= MIN_RUNS);
    }
}

/// As a heap that is paged out after a while.
#[test]
fn addresses_that_were_resident_for_a_short_time_are_found() {
    let rates = Rates::default();
    let mut pyramid = Pyramid::default();
    let absent = |a, b| RegionView { resident_bp: 0, ..region(a, b, 0.0) };
    for i in 0..64 {
        let heap = if i < 16 { region(0, 8, 100.0) } else { absent(0, 8) };
        let sparse = RegionView { resident_bp: 10, ..region(20, 24, 0.0) };
        let regions = vec![heap, absent(8, 20), sparse];
        pyramid.push(column_of(i, regions), &rates, MAX_RUNS);
    }
    pyramid.finish(&rates, MAX_RUNS);
    let mut found = Vec::new();
    pyramid.each_resident(|range| found.push((range.start / PAGE, range.end / PAGE)));
    assert_eq!(found, [(0, 8), (20, 24)]);
    // It is drawn hot while it was.
    let all = seconds(0)..seconds(64);
    let cells = draw(pyramid.columns(&all, seconds(16)), &all, &[whole(0, 8, 1.0)], (4, 1), &rates);
    assert!((hz(cells[0]) / 100.0 - 1.0).abs() < 0.2, "{cells:?}");
    assert_eq!(cells[1..], [1; 3]);
}

#[test]
fn a_column_has_a_limit_and_merging_paints_no_gap() {
    let regions: Vec<_> =
        (0..20_000).map(|i| (2 * i, 2 * i + 1 + i % 2, (i % 50) as f32)).collect();
    let column = column(0, &regions);
    let mut mapped = 0;
    column.each(&AddrRange::new(0, u64::MAX), |range, _| mapped += range.len() / PAGE);
    assert_eq!(mapped, 30_000);
}

proptest! {
    #[test]
    fn joined_columns_cover_what_their_parts_cover(cuts in prop::collection::vec(prop::collection::btree_set(0u64..200, 2..20), 1..5)) {
        let parts: Vec<HeatColumn> = cuts.iter().enumerate().map(|(i, cuts)| {
            let cuts: Vec<u64> = cuts.iter().copied().collect();
            let regions: Vec<_> = cuts.chunks_exact(2).map(|c| (c[0], c[1], c[0] as f32)).collect();
            column(i as u64, &regions)
        }).collect();
        let all = HeatColumn::join(&parts, &Rates::default(), MAX_RUNS);
        let at = |c: &HeatColumn, page: u64| {
            let mut found = false;
            c.each(&AddrRange::new(page * PAGE, (page + 1) * PAGE), |_, _| found = true);
            found
        };
        for page in 0..200 {
            prop_assert_eq!(at(&all, page), parts.iter().any(|p| at(p, page)));
        }
    }
}
