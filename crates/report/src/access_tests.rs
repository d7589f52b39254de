use super::*;
use crate::row::RegionState;
use crate::scene::{mapping, region, snapshot, target, unknown};
use isotherm_core::{RegionView, Unknown};

const KIB64: u64 = 64 << 10;

/// In pages of 64 KiB: 1 hot in a.so, 2 warm in the heap, 4 cold and 3 unknown in nameless memory.
fn one(seq: u64) -> Arc<Snapshot> {
    let at = |i: u64| i * KIB64;
    let maps = vec![
        mapping(0, at(1), "/usr/lib/a.so"),
        mapping(at(1), at(3), "[heap]"),
        mapping(at(3), at(10), ""),
    ];
    let regions = vec![
        region(0, at(1), 40.0),
        region(at(1), at(3), 2.0),
        RegionView { age: Duration::from_secs(90), ..region(at(3), at(7), 0.0) },
        unknown(at(7), at(10), Unknown::Shared),
    ];
    Arc::new(snapshot(seq, 1.0, vec![target(0, maps, regions)]))
}

fn access(choice: Choice) -> Result<AccessReport, AccessError> {
    let mut builder = AccessBuilder::new(Options::default(), choice);
    (10..15).for_each(|seq| builder.push(&one(seq)));
    builder.finish()
}

/// Sizes in pages of 64 KiB, which distinguish the regions.
fn sizes(choice: Choice) -> Vec<u64> {
    access(choice).unwrap().regions.iter().map(|r| r.size_bytes / KIB64).collect()
}

#[test]
fn a_snapshot_is_chosen_by_number_or_time() {
    let seq = |pick| access(Choice { pick, ..Choice::default() }).map(|a| a.seq);
    let s = Duration::from_secs;
    assert_eq!(seq(Pick::Last), Ok(14));
    assert_eq!(seq(Pick::Number(12)), Ok(12));
    assert_eq!(seq(Pick::At(s(1))), Ok(11), "an interval holds its begin, not its end");
    let error = |pick| seq(pick).unwrap_err().to_string();
    assert!(error(Pick::Number(3)).contains("choose one from 10 to 14"));
    assert!(error(Pick::At(s(9))).contains("choose a time from 0 s to 5 s"));
}

#[test]
fn regions_come_in_the_order_asked() {
    let sorted = |sort, reverse| sizes(Choice { sort, reverse, ..Choice::default() });
    assert_eq!(sorted(SortBy::Address, false), [1, 2, 4, 3]);
    assert_eq!(sorted(SortBy::Address, true), [3, 4, 2, 1]);
    assert_eq!(sorted(SortBy::Size, false), [4, 3, 2, 1]);
    assert_eq!(sorted(SortBy::Rate, false), [1, 2, 4, 3]);
    assert_eq!(sorted(SortBy::Age, false), [4, 3, 1, 2]);
    assert_eq!(sorted(SortBy::Heat, false), [1, 2, 4, 3]);
    assert_eq!(sorted(SortBy::Heat, true), [3, 4, 2, 1]);
}

#[test]
fn regions_are_chosen_by_their_figures() {
    let base = Choice::default;
    assert_eq!(sizes(Choice { size: Some(2 * KIB64..4 * KIB64), ..base() }), [2, 3]);
    assert_eq!(sizes(Choice { rate: Some(2.0..f64::INFINITY), ..base() }), [1, 2]);
    let age = Some(Duration::from_secs(61)..Duration::MAX);
    assert_eq!(sizes(Choice { age, ..base() }), [4]);
    for (pattern, found) in [
        ("heap", vec![2]),
        ("[heap]", vec![2]),
        ("*.so", vec![1]),
        ("a.so", vec![1]),
        ("a.*", vec![]),
        ("anonymous", vec![4, 3]),
    ] {
        assert_eq!(sizes(Choice { mapping: Some(pattern.into()), ..base() }), found, "{pattern}");
    }
}

#[test]
fn the_basis_is_that_of_all_memory_in_the_snapshot() {
    let a = access(Choice { size: Some(0..1), ..Choice::default() }).unwrap();
    assert_eq!((a.regions.len(), a.nr_regions), (0, 4));
    assert_eq!((a.basis.unknown_bytes, a.basis.resident_bytes), (3 * KIB64, Some(10 * KIB64)));
    assert_eq!((a.basis.from_ms, a.basis.to_ms, a.basis.snapshots), (4000.0, 5000.0, 1));
    let states: Vec<RegionState> =
        access(Choice::default()).unwrap().regions.iter().map(|r| r.state).collect();
    assert_eq!(
        states,
        [RegionState::Hot, RegionState::Warm, RegionState::Cold, RegionState::Unknown]
    );
}
