use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{Attrs, Cost, Nanos, PAGE_SIZE, Rate, RateSupport, TargetView, UnknownPages};

use super::*;
use crate::ground_truth::{IntervalTruth, Stretch, testing};

const TARGET: TargetId = TargetId(3);
const SECOND: u64 = 1_000_000_000;

/// Blocks of 2 MiB side by side over one second, in each of which each `stride`-th page is touched
/// so often in it.
fn truth(blocks: &[(u64, u64)]) -> GroundTruth {
    let stretches: Vec<Stretch> =
        (0..).zip(blocks).map(|(i, &(stride, _))| testing::block(i, stride)).collect();
    let pages = || stretches.iter().map(Stretch::pages);
    let touches = pages().zip(blocks).map(|(pages, &(_, hz))| pages * hz).collect();
    let interval = IntervalTruth {
        start_ns: 0,
        end_ns: SECOND,
        phase: String::new(),
        touches,
        touched: pages().collect(),
        idle: vec![0; stretches.len()],
    };
    testing::truth(stretches, vec![interval])
}

/// A region from block to block, whose touched share of 10,000 is touched at this rate, within a
/// fifth.
fn region(from: u64, to: u64, hz: f32, touched_bp: u32) -> RegionView {
    RegionView {
        range: AddrRange::new(from * BLOCK_SIZE, to * BLOCK_SIZE),
        accesses_bp: 0,
        age: Duration::ZERO,
        rate: Rate { hz, low: hz * 0.8, high: hz * 1.2 },
        touched_bp,
        resident_bp: 10_000,
        unknown_bp: UnknownPages::default(),
        support: Some(RateSupport::MEASURED),
    }
}

fn scored(truth: &GroundTruth, regions: Vec<RegionView>) -> BlockScores {
    let view = TargetView {
        id: TARGET,
        ran: None,
        mappings: Arc::default(),
        left_out: 0,
        dirty: None,
        regions,
        ages: None,
    };
    let snapshot = Snapshot {
        seq: 0,
        start: Nanos(0),
        end: Nanos(SECOND),
        attrs: Attrs::default(),
        cost: Cost::default(),
        quality: None,
        targets: vec![view],
    };
    block_scores(truth, &snapshot, TARGET).unwrap()
}

#[test]
fn correct_scores_have_no_error() {
    let truth = truth(&[(1, 50), (1, 2), (1, 0)]);
    let regions = vec![region(0, 1, 50.0, 10_000), region(1, 2, 2.0, 10_000), region(2, 3, 0.0, 0)];
    let s = scored(&truth, regions);
    assert!(s.log2_error.unwrap() < 1e-6 && s.correlation.unwrap() > 0.9999, "{s:?}");
    assert_eq!((s.hot.real, s.hot.both, s.hot.reported), (BLOCK_SIZE, BLOCK_SIZE, BLOCK_SIZE));
    assert_eq!((s.warm.real, s.warm.both, s.warm.reported), (BLOCK_SIZE, BLOCK_SIZE, BLOCK_SIZE));
    assert_eq!(s.intervals, (2, 2), "one of the three is not touched");
}

/// Each sixteenth page at 512 Hz is 32 Hz in the mean, and an interval is of those pages.
#[test]
fn a_touched_share_is_spread_over_its_block() {
    let truth = truth(&[(16, 512), (1, 0)]);
    let sparse = scored(&truth, vec![region(0, 1, 512.0, 625), region(1, 2, 0.0, 0)]);
    assert!(sparse.log2_error.unwrap() < 1e-6, "{sparse:?}");
    assert_eq!((sparse.hot.both, sparse.intervals), (BLOCK_SIZE, (1, 1)));
    let mean = scored(&truth, vec![region(0, 1, 32.0, 10_000), region(1, 2, 0.0, 0)]);
    assert!(mean.log2_error.unwrap() < 1e-6, "{mean:?}");
    assert_eq!(mean.intervals, (1, 0), "the mean is not the rate of what is touched");
}

/// 512 pages at 2 Hz share one bit, which is set 1024 times a second; of half of it the same is known.
#[test]
fn a_huge_page_has_one_rate() {
    let mut truth = truth(&[(1, 2), (1, 2), (1, 0)]);
    truth.stretches[0].end -= PAGE_SIZE;
    truth.stretches[1].start -= PAGE_SIZE;
    truth.stretches.iter_mut().skip(1).for_each(|s| s.huge = true);
    assert_eq!(truth.huge_pages(), [AddrRange::new(BLOCK_SIZE, 3 * BLOCK_SIZE)]);
    let regions =
        |hz| vec![region(0, 1, 2.0, 10_000), region(1, 2, hz, 10_000), region(2, 3, 0.0, 0)];
    let right = scored(&truth, regions(1024.0));
    assert_eq!(right.intervals, (2, 2), "{right:?}");
    assert!(right.log2_error.unwrap() < 0.1, "rates above 1000 Hz are taken for that: {right:?}");
    let of_pages = scored(&truth, regions(2.0));
    assert_eq!(of_pages.intervals, (2, 1), "{of_pages:?}");
    assert!(of_pages.log2_error.unwrap() > 2.0, "{of_pages:?}");
}

/// The first page and each sixteenth from there on: which ones a region has is known to the page.
#[test]
fn a_region_that_ends_between_touched_pages_has_none_of_them() {
    let truth = truth(&[(16, 512), (1, 0)]);
    let intervals = |first: u64, end: u64, hz: f32| {
        let range = AddrRange::new(first * PAGE_SIZE, end * PAGE_SIZE);
        scored(&truth, vec![RegionView { range, ..region(0, 2, hz, 625) }]).intervals
    };
    assert_eq!(intervals(497, 1024, 0.0), (0, 0), "the last one is the 496th");
    assert_eq!((intervals(496, 1024, 0.0), intervals(496, 1024, 512.0)), ((1, 0), (1, 1)));
}

#[test]
fn a_region_over_two_kinds_of_blocks_is_wrong_about_both() {
    let truth = truth(&[(1, 64), (1, 1)]);
    let s = scored(&truth, vec![region(0, 2, 8.0, 10_000)]);
    assert!((s.log2_error.unwrap() - 3.0).abs() < 1e-6, "a factor of eight each: {s:?}");
    assert_eq!(s.correlation, None);
    assert_eq!((s.hot.recall(), s.warm.precision()), (Some(0.0), Some(0.5)));
}

/// 12 Hz is within 1.5 times the threshold; what no region has is taken for untouched; rates beyond
/// .1 and 1000 Hz are taken for these.
#[test]
fn bounds() {
    let near_hot = scored(&truth(&[(1, 12)]), vec![region(0, 1, 9.0, 10_000)]);
    assert_eq!((near_hot.hot.left_out, near_hot.hot.real), (BLOCK_SIZE, 0));
    let missing = scored(&truth(&[(1, 1000)]), vec![]);
    assert!((missing.log2_error.unwrap() - 10_000f64.log2()).abs() < 1e-6, "{missing:?}");
    let beyond = scored(&truth(&[(1, 4000)]), vec![region(0, 1, 2000.0, 10_000)]);
    assert!(beyond.log2_error.unwrap() < 1e-6, "{beyond:?}");
}
