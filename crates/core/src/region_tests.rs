//! The kernel's vectors (`mm/damon/tests/core-kunit.h`, `vaddr-kunit.h`) and properties.

use proptest::prelude::*;
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::attrs::Attrs;
use crate::range::join_touching;

fn region(start: u64, end: u64, accesses_bp: u32, age: u32) -> Region {
    Region { accesses_bp, age, ..Region::new(AddrRange::new(start, end)) }
}

fn ranges(regions: &[Region]) -> Vec<(u64, u64)> {
    regions.iter().map(|r| (r.range.start, r.range.end)).collect()
}

#[test]
fn merge_two_weighs_by_size() {
    let mut left = region(0, 100, 10, 9);
    merge_two(&mut left, &region(100, 300, 20, 21));
    assert_eq!((left.range, left.accesses_bp, left.age), (AddrRange::new(0, 300), 16, 17));
}

/// A region of `pages` pages after one look at a page of it, which was accessed or not.
fn looked_at(start: u64, pages: u64, young: u32) -> Region {
    let mut r = region(start, start + pages * PAGE_SIZE, 0, 0);
    r.tally.add(&Seen { pages: 1, present: 1, young, ..Seen::default() }, Nanos(0), 1);
    r
}

#[test]
fn within_an_interval_the_bigger_region_speaks() {
    let (small, big) = (looked_at(0, 1, 1), looked_at(PAGE_SIZE, 99, 0));
    let mut merged = small.clone();
    merge_two(&mut merged, &big);
    assert_eq!(merged.tally.accesses_bp(), 0);
    let mut merged = looked_at(0, 99, 0);
    merge_two(&mut merged, &looked_at(99 * PAGE_SIZE, 1, 1));
    assert_eq!(merged.tally.accesses_bp(), 0);
}

#[test]
fn regions_without_looks_merge_as_unobserved() {
    let unseen = region(3 * PAGE_SIZE, 4 * PAGE_SIZE, 0, 9);
    let mut seen = looked_at(0, 3, 1);
    seen.conclude();
    let mut regions = vec![seen, unseen];
    merge_regions(&mut regions, ANY_DIFFERENCE - 1, u64::MAX);
    assert_eq!(regions.len(), 2);
    merge_regions(&mut regions, ANY_DIFFERENCE, u64::MAX);
    let shares = &regions[0].shares;
    assert_eq!((regions.len(), shares.visible, shares.young), (1, 0.75, 0.75));
    assert_eq!(shares.unknown[Unknown::Unseen.index()], 0.25);
}

#[test]
fn an_unobserved_region_has_age_zero() {
    let mut r = region(0, PAGE_SIZE, 700, 5);
    r.conclude();
    assert_eq!(r.accesses_bp, 700, "what was known stays");
    r.restart(4096);
    assert_eq!((r.age, r.last_accesses_bp), (0, 700));
}

#[test]
fn merge_regions_of() {
    let starts = [0, 100, 114, 122, 130, 156, 170, 184, 230];
    let ends = [100, 112, 122, 130, 156, 170, 184, 230, 10170];
    let accesses = [0, 0, 10, 10, 20, 30, 1, 2, 5];
    let mut regions: Vec<_> = (0..9).map(|i| region(starts[i], ends[i], accesses[i], 0)).collect();
    merge_regions(&mut regions, 9, 9999);
    let want = [(0, 112), (114, 130), (130, 156), (156, 170), (170, 230), (230, 10170)];
    assert_eq!(ranges(&regions), want);
}

#[test]
fn split_regions_of_makes_at_most_the_parts() {
    for (size, parts, want) in [(22, 2, 2), (220, 4, 4)] {
        for seed in 0..100 {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut regions = vec![region(0, size, 0, 0)];
            split_regions(&mut regions, SplitPlan::All(parts), 0, 1, |_| false, &mut rng);
            assert!(regions.len() <= want, "{regions:?}");
            assert_eq!(regions.first().map(|r| r.range.start), Some(0));
            assert_eq!(regions.last().map(|r| r.range.end), Some(size));
        }
    }
}

#[test]
fn a_split_copies_the_rates() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut regions = vec![region(0, 1000, 42, 10)];
    regions[0].last_accesses_bp = 15;
    split_regions(&mut regions, SplitPlan::All(2), 0, 1, |_| false, &mut rng);
    assert_eq!(regions.len(), 2);
    for r in &regions {
        assert_eq!((r.accesses_bp, r.last_accesses_bp, r.age), (42, 15, 10));
    }
}

#[test]
fn split_above_half_progresses() {
    // 6 of at most 10: every second one is split, and the next turn begins one further.
    assert_eq!(SplitPlan::new(6, 0, 10, 2, 0), SplitPlan::EveryNth { nth: 2, offset: 0 });
    assert_eq!(SplitPlan::new(6, 0, 10, 2, 1), SplitPlan::EveryNth { nth: 2, offset: 1 });
    assert_eq!(SplitPlan::new(10, 0, 10, 2, 0), SplitPlan::None);
    // Three parts when nothing new was found and there is room for it, else two.
    assert_eq!(SplitPlan::new(3, 3, 10, 2, 0), SplitPlan::All(3));
    assert_eq!(SplitPlan::new(4, 4, 10, 2, 0), SplitPlan::All(2));
}

#[test]
fn set_regions_keeps_valid_regions() {
    let old = [region(4, 16, 7, 3), region(24, 32, 8, 4)];
    let new = set_regions(&old, &[AddrRange::new(8, 28)]);
    assert_eq!(ranges(&new), [(8, 16), (16, 24), (24, 28)]);
    assert_eq!(new.iter().map(|r| r.age).collect::<Vec<_>>(), [3, 0, 4]);
}

#[test]
fn apply_min_nr_regions_vectors() {
    for (total, unit, min, limit, count) in
        [(10, 1, 10, 1, 10), (10, 1, 15, 1, 10), (10, 2, 2, 6, 2), (10, 2, 10, 2, 5)]
    {
        assert_eq!(size_limit(total, min, unit), limit);
        let mut regions = vec![region(0, total, 0, 0)];
        apply_min_nr_regions(&mut regions, limit, unit);
        assert_eq!(regions.len(), count);
        assert!(regions.iter().all(|r| r.range.len() <= limit));
    }
}

#[test]
fn update_monitoring_result() {
    // (sample, aggr) in us; from 10/1000, 15 of 100 accesses at an age of 20.
    let attrs = |sample, aggr| Attrs {
        sample: Duration::from_micros(sample),
        aggr: Duration::from_micros(aggr),
        ..Attrs::default()
    };
    let old = attrs(10, 1000);
    let convert = |nr: u32, age, new: &Attrs| {
        (new.nr_accesses(nr * 10_000 / old.samples()), old.convert_age(age, new))
    };
    assert_eq!(convert(15, 20, &attrs(100, 10_000)), (15, 2));
    assert_eq!(convert(15, 2, &attrs(1, 1000)), (150, 2));
    assert_eq!(convert(150, 2, &attrs(1, 100)), (150, 20));
}

#[test]
fn ageing() {
    let aged = |last, now| {
        let mut r = [Region { last_accesses_bp: last, ..region(0, 1, now, 5) }];
        age_regions(&mut r, 10);
        r[0].age
    };
    assert_eq!(aged(50, 60), 6);
    assert_eq!(aged(50, 61), 0);
    assert_eq!(aged(0, 5), 0, "untouched to touched restarts, however little");
    assert_eq!(aged(0, 0), 6);
}

#[test]
fn evenly_split_vectors() {
    assert_eq!(evenly_split(AddrRange::new(0, 100), 10, 1).len(), 10);
    let parts = evenly_split(AddrRange::new(0, 59), 5, 1);
    let ends: Vec<_> = parts.iter().map(|r| r.end).collect();
    assert_eq!(ends, [11, 22, 33, 44, 59]);
    assert_eq!(evenly_split(AddrRange::new(4, 6), 1, 1), [AddrRange::new(4, 6)]);
}

fn sorted_regions() -> impl Strategy<Value = Vec<Region>> {
    prop::collection::vec((0u64..20, 1u64..200, 0u32..10_000, 0u32..50), 1..40).prop_map(|parts| {
        let mut at = 0;
        parts
            .into_iter()
            .map(|(gap, len, accesses, age)| {
                let start = at + gap * PAGE_SIZE;
                at = start + len * PAGE_SIZE;
                region(start, at, accesses, age)
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn merging_and_splitting_keep_the_join_touching(
        mut regions in sorted_regions(), threshold in 0u32..10_000, limit in 1u64..1000,
        parts in 2u32..6, seed: u64,
    ) {
        let before = join_touching(regions.iter().map(|r| r.range));
        let most = regions.iter().map(|r| r.range.len()).max().unwrap().max(limit * PAGE_SIZE);
        merge_regions(&mut regions, threshold, limit * PAGE_SIZE);
        prop_assert_eq!(&join_touching(regions.iter().map(|r| r.range)), &before);
        prop_assert!(regions.iter().all(|r| r.range.len() <= most));
        let count = regions.len();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        split_regions(&mut regions, SplitPlan::All(parts), 0, PAGE_SIZE, |_| false, &mut rng);
        prop_assert_eq!(&join_touching(regions.iter().map(|r| r.range)), &before);
        prop_assert!(regions.len() <= count * parts as usize);
        prop_assert!(regions.iter().all(|r| !r.range.is_empty() && r.range.start % PAGE_SIZE == 0));
    }

    #[test]
    fn a_plan_never_goes_above_the_maximum(
        count in 1usize..3000, last in 0usize..3000, max in 3usize..3000, parts in 2u32..16, turn: u16,
    ) {
        let plan = SplitPlan::new(count, last, max, parts, turn.into());
        let after: usize = (0..count).map(|i| plan.parts_of(i) as usize).sum();
        prop_assert!(after <= max.max(count));
    }

    #[test]
    fn set_regions_covers_exactly_the_areas(old in sorted_regions(), areas in sorted_regions()) {
        let areas = join_touching(areas.iter().map(|r| r.range));
        let new = set_regions(&old, &areas);
        prop_assert_eq!(join_touching(new.iter().map(|r| r.range)), areas);
    }

    #[test]
    fn a_window_lies_in_its_region(start in 0u64..1 << 30, pages in 1u64..5000, order in 0u32..10, seed: u64) {
        let range = AddrRange::new(start * PAGE_SIZE, (start + pages) * PAGE_SIZE);
        let size = PAGE_SIZE << order;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let w = window_around(random_page(range, &mut rng), range, size);
        prop_assert_eq!(w.intersect(&range), Some(w));
        prop_assert!(!w.is_empty() && w.len() <= size && w.start / size == (w.end - 1) / size);
    }
}

#[test]
fn late_accesses_are_not_cold() {
    let mut tally = Tally::default();
    let untouched = Seen { pages: 16, present: 16, ..Seen::default() };
    tally.add(&untouched, Nanos(0), 1);
    assert_eq!(tally.accesses_bp(), 0);
    tally.add(&Seen { later: 3, ..untouched }, Nanos(0), 1);
    assert_eq!((tally.accesses_bp(), tally.young), (1, 0));
}
