use super::*;
use crate::filter::Options;
use crate::scene::{absent, mapping, region, snapshot, target, unknown};
use isotherm_core::scheme::parse;
use isotherm_core::{AddrRange, Missing, Nanos, PageAges, RegionView, Unknown};
use proptest::prelude::*;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const BASE: u64 = 0x7f00_0000_0000;

fn advise(record: &[Snapshot], wishes: AdviceThresholds) -> Advice {
    let record: Vec<Arc<Snapshot>> = record.iter().cloned().map(Arc::new).collect();
    let mut scope = AdviceScope::new(Options::default());
    record.iter().for_each(|s| scope.push(s));
    let mut builder = AdviceBuilder::new(scope, wishes).unwrap();
    record.iter().for_each(|s| builder.push(s));
    builder.finish()
}

fn at(from: u64, to: u64, of: RegionView) -> RegionView {
    RegionView { range: AddrRange::new(BASE + from * MIB, BASE + to * MIB), ..of }
}

fn idle(from: u64, to: u64, seconds: u64) -> RegionView {
    RegionView { age: Duration::from_secs(seconds), ..at(from, to, region(0, 0, 0.0)) }
}

fn touched(from: u64, to: u64, hz: f32) -> RegionView {
    at(from, to, region(0, 0, hz))
}

/// 100 snapshots of a second: 4 MiB at 100 Hz, 12 MiB at 50 Hz, 2 MiB at 1 Hz, 6 MiB never touched,
/// 4 MiB that are touched 5 times each 40 s, 4 MiB unknown, 4 MiB absent.
fn steady() -> Vec<Snapshot> {
    let second = |s: u64| {
        let seldom = match s % 40 {
            0 => touched(24, 28, 5.0),
            since => idle(24, 28, since),
        };
        let regions = vec![
            touched(0, 4, 100.0),
            touched(4, 16, 50.0),
            touched(16, 18, 1.0),
            idle(18, 24, s + 1),
            seldom,
            at(28, 32, unknown(0, 0, Unknown::Shared)),
            at(32, 36, absent(0, 0)),
        ];
        let maps = vec![mapping(BASE - MIB, BASE + 64 * MIB, "")];
        snapshot(s, 1.0, vec![target(0, maps, regions)])
    };
    (0..100).map(second).collect()
}

/// Found by a review: 300 short processes before a database left no room for it.
#[test]
fn targets_that_have_ended_make_room() {
    let of = |id| {
        let maps = vec![mapping(BASE - MIB, BASE + 64 * MIB, "")];
        target(id, maps, vec![touched(0, 4, 100.0), idle(4, 64, 1)])
    };
    let later = (1..100).map(|s| snapshot(s, 1.0, vec![of(300)]));
    let first = snapshot(0, 1.0, (0..256).map(of).collect());
    let record: Vec<Snapshot> = std::iter::once(first).chain(later).collect();
    let advice = advise(&record, AdviceThresholds::default());
    assert_eq!(advice.targets_left_out, 0);
    assert!(advice.ranges.iter().any(|range| range.target == TargetId(300).0));
}

fn of(a: &Advice, action: AdvisedAction) -> Vec<(u64, u64)> {
    let own = a.ranges.iter().filter(|r| r.action == action);
    own.map(|r| ((r.range.start - BASE) / MIB, (r.range.end - BASE) / MIB)).collect()
}

fn wishes(min_age: u64, window: u64) -> AdviceThresholds {
    let [min_age, window] = [min_age, window].map(Duration::from_secs);
    AdviceThresholds { min_age, window, ..AdviceThresholds::default() }
}

#[test]
fn the_hottest_are_locked_as_far_as_the_limit_goes() {
    let a = advise(&steady(), AdviceThresholds::default());
    assert_eq!(of(&a, AdvisedAction::Lock), [(0, 8)]);
    let lock = &a.actions[0];
    // All touches: 4 x 100 + 12 x 50 + 2 x 1, and three snapshots of 4 x 5.
    let all = 400.0 + 600.0 + 2.0 + 4.0 * 5.0 * 3.0 / 100.0;
    assert!((lock.access_percent - 600.0 / all * 100.0).abs() < 1e-6, "{lock:?}");
    assert_eq!((lock.size_bytes, lock.ranges, &lock.scheme), (8 * MIB, 1, &None));
    let row = &a.ranges[0];
    assert_eq!((row.offset_bytes, &*row.mapping, row.idle_since_ms), (MIB, "anonymous", None));
    assert_eq!(row.call, "mlock((char *)base + 0x100000, 0x800000);");
    assert!((row.rate_hz - 75.0).abs() < 1e-6 && (row.hot_percent - 100.0).abs() < 1e-6);
    let all =
        advise(&steady(), AdviceThresholds { lock_limit: 1 << 40, ..AdviceThresholds::default() });
    assert_eq!(of(&all, AdvisedAction::Lock), [(0, 16)]);
    assert!(
        of(
            &advise(&steady(), AdviceThresholds { lock_limit: 0, ..AdviceThresholds::default() }),
            AdvisedAction::Lock
        )
        .is_empty()
    );
}

#[test]
fn ranges_of_very_different_rates_are_locked_separately() {
    let mut record = steady();
    for s in &mut record {
        s.targets[0].regions[0] = touched(0, 4, 1000.0);
    }
    let a =
        advise(&record, AdviceThresholds { lock_limit: 1 << 40, ..AdviceThresholds::default() });
    assert_eq!(of(&a, AdvisedAction::Lock), [(0, 4), (4, 16)]);
}

/// As a program that passes through its memory once in four seconds.
#[test]
fn memory_that_is_touched_from_time_to_time_but_always_again_is_locked() {
    let mut record = steady();
    for (s, snapshot) in record.iter_mut().enumerate() {
        let hz = if s % 4 == 0 { 3.0 } else { 0.0 };
        snapshot.targets[0].regions[0] = touched(0, 4, hz);
    }
    let locked = |hot_hz| {
        let record: Vec<Arc<Snapshot>> = record.iter().cloned().map(Arc::new).collect();
        let thresholds = isotherm_core::Thresholds { hot_hz, ..Default::default() };
        let mut scope = AdviceScope::new(Options { thresholds, ..Options::default() });
        record.iter().for_each(|s| scope.push(s));
        let wishes = AdviceThresholds { lock_limit: 1 << 40, ..AdviceThresholds::default() };
        let mut builder = AdviceBuilder::new(scope, wishes).unwrap();
        record.iter().for_each(|s| builder.push(s));
        of(&builder.finish(), AdvisedAction::Lock)
    };
    assert_eq!(locked(0.5), [(4, 16), (16, 18), (0, 4)], "the hottest first");
    assert_eq!(locked(0.9), [(4, 16), (16, 18)]);
}

#[test]
fn memory_of_which_few_pages_are_touched_is_not_locked() {
    let mut record = steady();
    for s in &mut record {
        s.targets[0].regions[0] = RegionView { touched_bp: 4_000, ..touched(0, 4, 100.0) };
    }
    assert_eq!(of(&advise(&record, AdviceThresholds::default()), AdvisedAction::Lock), [(4, 12)]);
}

#[test]
fn whole_huge_pages_that_are_hot_and_full_are_made() {
    assert_eq!(
        of(&advise(&steady(), AdviceThresholds::default()), AdvisedAction::Hugepage),
        [(0, 16)]
    );
    let mut record = steady();
    for s in &mut record {
        let regions = &mut s.targets[0].regions;
        // The first MiB is half as full, and so its huge page is not; the second one is cold in part.
        regions[0] = RegionView { touched_bp: 8_000, ..touched(0, 1, 100.0) };
        regions.insert(1, touched(1, 5, 100.0));
        regions[2] = touched(5, 16, 50.0);
        regions.insert(3, touched(16, 17, 50.0));
        regions[4] = touched(17, 18, 1.0);
    }
    assert_eq!(
        of(&advise(&record, AdviceThresholds::default()), AdvisedAction::Hugepage),
        [(2, 16)]
    );
}

#[test]
fn idle_memory_is_paged_out_and_returning_memory_read_first() {
    let a = advise(&steady(), wishes(15, 60));
    assert_eq!(of(&a, AdvisedAction::Pageout), [(18, 24)]);
    assert_eq!(of(&a, AdvisedAction::Cold), [(24, 28)], "idle for the last 19 s");
    let row = |action| a.ranges.iter().find(|r| r.action == action).unwrap();
    assert_eq!(row(AdvisedAction::Pageout).idle_since_ms, Some(0.0));
    assert_eq!(row(AdvisedAction::Pageout).returns, 0);
    // After 40 s and 80 s; at the begin nothing had been idle.
    assert_eq!((row(AdvisedAction::Cold).returns, a.block_bytes), (2 * 4 * 16, 65536));
    assert_eq!(row(AdvisedAction::Cold).idle_since_ms, Some(81_000.0));
    assert!(row(AdvisedAction::Cold).call.ends_with("0x400000, MADV_COLD);"));
    let a = advise(&steady(), wishes(30, 60));
    assert!(of(&a, AdvisedAction::Cold).is_empty());
    assert_eq!(a.unknown_bytes_at_end, 4 * MIB);
}

#[test]
fn a_limit_is_working_set_plus_unknown_plus_headroom() {
    let a = advise(&steady(), wishes(30, 20));
    let [s] = &a.sizing[..] else { panic!("one target has one row: {:?}", a.sizing) };
    assert_eq!((s.target, s.resident_bytes, s.unknown_bytes), (None, Some(32 * MIB), 4 * MIB));
    // Hot and warm 18, unknown 4; and 4 more for 20 s of each 40.
    let needed = [s.needed_p50_bytes, s.needed_p95_bytes, s.needed_max_bytes].map(|n| n / MIB);
    assert_eq!(needed, [22, 26, 26]);
    // 26 MiB and 10 % are 28.6.
    assert_eq!((s.memory_high_bytes, s.memory_max_bytes), (Some(29 * MIB), Some(29 * MIB)));
    assert_eq!((s.window_ms, s.measured_ms), (20_000.0, 80_000.0));
    // 4 MiB came back at 40 s and at 80 s, after 39 s.
    let row = |seconds: u64| s.idle.iter().find(|r| r.idle_ms == seconds as f64 * 1e3).unwrap();
    let minutes = |seconds: f64| seconds / 60.0;
    for (step, from) in [(5, 4.0), (20, 19.0), (30, 29.0)] {
        let wanted = 8.0 * MIB as f64 / minutes(100.0 - from);
        assert!((row(step).returned_bytes_per_min - wanted).abs() < 1.0, "{step}: {:?}", row(step));
    }
    assert_eq!(row(60).returned_bytes_per_min, 0.0);
    assert_eq!(row(60).idle_bytes, 6 * MIB);
    assert!((s.returned_bytes_per_min - row(20).returned_bytes_per_min).abs() < 1e-9);
    assert!(s.idle.iter().all(|r| r.idle_ms <= 100_000.0), "no longer than the record");
}

/// As in a recording of another tool, where all memory of the regions may be resident.
#[test]
fn memory_whose_residency_is_missing_is_not_called_resident() {
    let record: Vec<Arc<Snapshot>> = steady().into_iter().map(Arc::new).collect();
    let missing = Missing { residency: true, ..Missing::default() };
    let mut scope = AdviceScope::new(Options { missing, ..Options::default() });
    record.iter().for_each(|s| scope.push(s));
    let mut builder = AdviceBuilder::new(scope, wishes(15, 20)).unwrap();
    record.iter().for_each(|s| builder.push(s));
    let a = builder.finish();
    assert!(a.ranges.iter().all(|r| r.resident_bytes.is_none()) && !a.ranges.is_empty());
    assert!(a.actions.iter().all(|row| row.resident_bytes.is_none()));
    assert_eq!(a.sizing[0].resident_bytes, None);
    let text = crate::advice_text(&a, 1);
    for part in
        ["resident at the end ?,", "    6.0 MiB, idle for", "does not show how much is resident"]
    {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn targets_are_distinguished_and_added_up() {
    let second = |s: u64| {
        let maps = || vec![mapping(BASE, BASE + 64 * MIB, "/data")];
        let one = target(0, maps(), vec![touched(0, 4, 50.0), idle(4, 8, s + 1)]);
        let two = target(7, maps(), vec![idle(0, 8, s + 1)]);
        let late = target(9, maps(), vec![touched(0, 1, 1.0)]);
        let mut all = vec![one, two];
        all.extend((s > 98).then_some(late));
        snapshot(s, 1.0, all)
    };
    let record: Vec<Snapshot> = (0..100).map(second).collect();
    let a = advise(&record, wishes(30, 20));
    let needed: Vec<_> = a.sizing.iter().map(|s| (s.target, s.needed_max_bytes / MIB)).collect();
    assert_eq!(needed, [(None, 5), (Some(0), 4), (Some(7), 0), (Some(9), 0)]);
    assert_eq!(a.sizing[3].memory_high_bytes, None, "not there for long enough");
    let cold: Vec<_> = a.ranges.iter().filter(|r| r.action == AdvisedAction::Pageout).collect();
    let rows: Vec<_> = cold.iter().map(|r| (r.target, r.size_bytes / MIB)).collect();
    assert_eq!(rows, [(7, 8), (0, 4)]);
    assert!(of(&a, AdvisedAction::Hugepage).is_empty(), "it is a file");
    assert_eq!(a.targets.len(), 3);
}

#[test]
fn mappings_of_the_kernel_get_no_advice() {
    let mut record = steady();
    for s in &mut record {
        let maps = Arc::make_mut(&mut s.targets[0].mappings);
        maps[0].kind = isotherm_core::MappingKind::Special;
    }
    let a = advise(&record, wishes(15, 20));
    assert!(a.ranges.is_empty() && a.sizing[0].needed_max_bytes > 0, "{:?}", a.ranges);
}

/// A database with a hot page in each region, of which 24 MiB are idle; and a short-lived copy of it, as for a dump.
#[test]
fn a_target_without_ages_does_not_hide_those_of_the_others() {
    let seconds = |s: u64| Nanos(1_000_000_000_000 + s * 1_000_000_000);
    let of = |id| target(id, vec![mapping(BASE, BASE + 32 * MIB, "")], vec![touched(0, 32, 50.0)]);
    let ten_seconds = |seq: u64| {
        let (since, begun) = (seconds(seq * 10), seconds(0));
        let mut ages = PageAges { since, begun, sampling: 1, ..PageAges::default() };
        ages.idle.add(0, (8 * MIB / 4096) as u32);
        ages.idle.add((seq + 1) * 10_000, (24 * MIB / 4096) as u32);
        let mut views = vec![of(0)];
        views[0].ages = Some(Arc::new(ages));
        views.extend((10..12).contains(&seq).then(|| of(1)));
        snapshot(seq, 10.0, views)
    };
    let a = advise(&(0..20).map(ten_seconds).collect::<Vec<_>>(), wishes(30, 20));
    let [all, database, copy] = &a.sizing[..] else { panic!("{:?}", a.sizing) };
    let needed = |s: &Sizing| [s.needed_p50_bytes, s.needed_max_bytes].map(|n| n / MIB);
    assert_eq!([needed(all), needed(database), needed(copy)], [[8, 40], [8, 8], [0, 0]]);
    assert_eq!([all, database, copy].map(|s| s.by_page_ages), [true, true, false]);
    assert_eq!((all.without_ages_bytes, database.without_ages_bytes), (32 * MIB, 0));
    let text = crate::advice_text(&a, 1);
    for part in ["counted by page\n", "counted by page; all memory of targets that have ended"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

/// Two targets of 64 MiB need all of it in turns, and 8 MiB otherwise.
#[test]
fn limits_of_several_targets_are_of_the_same_time() {
    let seconds = |s: u64| Nanos(1_000_000_000_000 + s * 1_000_000_000);
    let ten_seconds = |seq: u64| {
        let of = |id: u32| {
            let mut view =
                target(id, vec![mapping(BASE, BASE + 64 * MIB, "")], vec![touched(0, 64, 50.0)]);
            let (since, begun) = (seconds(seq * 10), seconds(0));
            let mut ages = PageAges { since, begun, sampling: 1, ..PageAges::default() };
            let idle = if seq / 10 % 2 == u64::from(id) { 0 } else { 56 };
            ages.idle.add(0, ((64 - idle) * MIB / 4096) as u32);
            ages.idle.add((seq + 1) * 10_000, (idle * MIB / 4096) as u32);
            view.ages = Some(Arc::new(ages));
            view
        };
        snapshot(seq, 10.0, vec![of(0), of(1)])
    };
    let a = advise(&(0..40).map(ten_seconds).collect::<Vec<_>>(), wishes(30, 20));
    let [all, first, second] = &a.sizing[..] else { panic!("{:?}", a.sizing) };
    assert_eq!([all, first, second].map(|s| s.needed_max_bytes / MIB), [72, 64, 64]);
}

#[test]
fn a_window_longer_than_half_of_the_record_is_that_half() {
    let a = advise(&steady()[..40], AdviceThresholds::default());
    assert_eq!(a.sizing[0].window_ms, 20_000.0);
}

#[test]
fn schemes_are_read_by_the_engine() {
    for min_age in [Duration::from_millis(1500), Duration::from_secs(30), Duration::ZERO] {
        let a = advise(&steady(), AdviceThresholds { min_age, ..AdviceThresholds::default() });
        let lines: Vec<String> = a.actions.iter().filter_map(|r| r.scheme.clone()).collect();
        let schemes = parse(&lines.join("\n"), Duration::from_millis(100)).unwrap();
        assert_eq!(schemes.len(), 3);
        assert!(*schemes[1].pattern.age.start() <= min_age.max(Duration::from_millis(1)));
    }
}

#[test]
fn the_text_recommends_actions() {
    let text = crate::advice_text(&advise(&steady(), wishes(15, 20)), 1);
    for part in [
        "8.0 MiB of 8.0 MiB allowed, with 59.8 % of all touches",
        "anonymous (65.0 MiB from 0x7efffff00000): 8.0 MiB at offset 0x100000",
        "madvise((char *)base + 0x1300000, 0x600000, MADV_PAGEOUT);",
        "never came back",
        "no advice on 4.0 MiB that cannot be observed",
        "memory.high 29.0 MiB",
        "counted by region",
        "4K null  null 0.1Hz  15s null  pageout",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let short = crate::advice_text(&advise(&steady()[..10], AdviceThresholds::default()), 1);
    assert!(short.contains("the record is shorter than 30 s"), "{short}");
}

/// Memory that is big, in many regions, up to the last address: blocks grow, and miss nothing.
#[test]
fn more_memory_has_bigger_blocks() {
    const TIB: u64 = 1 << 40;
    const TOP: u64 = u64::MAX << 20;
    const END: u64 = u64::MAX << 12;
    let second = |s: u64| {
        let idle =
            |from, to| RegionView { age: Duration::from_secs(s + 1), ..region(from, to, 0.0) };
        let page = |i: u64| (i * TIB / 500) & !4095;
        let below = (0..500).map(|i| idle(page(i), page(i + 1)));
        let regions = below.chain([idle(TOP, END)]).collect();
        let maps = vec![mapping(0, TIB, ""), mapping(TOP, END, "[vsyscall]")];
        snapshot(s, 1.0, vec![target(0, maps, regions)])
    };
    let a = advise(&(0..40).map(second).collect::<Vec<_>>(), AdviceThresholds::default());
    assert_eq!(a.block_bytes, 64 * MIB);
    let whole = (TIB & !4095) + (END - TOP);
    assert_eq!(a.ranges.iter().map(|r| r.size_bytes).sum::<u64>(), whole);
}

/// A region of some pages in one of the states that there are.
fn any_region() -> impl Strategy<Value = (u64, u8, u64)> {
    (1u64..200, 0u8..6, 0u64..100)
}

fn made(pages: &[(u64, u8, u64)]) -> Vec<RegionView> {
    let mut from = BASE;
    let region = |&(pages, state, age): &(u64, u8, u64)| {
        let to = from + pages * 4096;
        let r = match state {
            0 => region(from, to, 80.0),
            1 => region(from, to, 0.5),
            2 => unknown(from, to, Unknown::Shared),
            3 => absent(from, to),
            4 => RegionView { touched_bp: 300, ..region(from, to, 80.0) },
            _ => region(from, to, 0.0),
        };
        from = to;
        RegionView { age: Duration::from_secs(age), ..r }
    };
    pages.iter().map(region).collect()
}

proptest! {
    #[test]
    fn ranges_are_disjoint_and_known(
        record in prop::collection::vec(prop::collection::vec(any_region(), 1..20), 1..8),
        cuts in prop::collection::btree_set(0u64..4000, 2..6), lock_limit in 0u64..4 << 20,
    ) {
        let cuts: Vec<u64> = cuts.into_iter().collect();
        let maps = |name: &'static str| -> Vec<_> {
            let map = |c: &[u64]| mapping(BASE + c[0] * 4096, BASE + c[1] * 4096, name);
            cuts.windows(2).map(map).collect()
        };
        let snapshots: Vec<Snapshot> = record.iter().zip(0..).map(|(pages, s)| {
            snapshot(s, 5.0, vec![target(0, maps(""), made(pages)), target(1, maps("[heap]"), made(pages))])
        }).collect();
        let wishes = AdviceThresholds { lock_limit, ..wishes(10, 10) };
        let a = advise(&snapshots, wishes);
        let lines: Vec<_> = a.ranges.iter().map(|r| (r.target, r.action, r.range)).collect();
        for (i, x) in lines.iter().enumerate() {
            let is_cold = |a: AdvisedAction| a >= AdvisedAction::Pageout;
            for y in lines[i + 1..].iter().filter(|y| y.0 == x.0) {
                let apart = x.1 == y.1 || is_cold(x.1) || is_cold(y.1);
                prop_assert!(!apart || x.2.intersect(&y.2).is_none(), "{x:?} {y:?}");
            }
        }
        let last = snapshots.last().unwrap();
        for r in &a.ranges {
            let view = &last.targets[r.target as usize];
            prop_assert!(view.mappings.iter().any(|m| m.range.intersect(&r.range) == Some(r.range)));
            prop_assert_eq!(r.mapping_range.start + r.offset_bytes, r.range.start);
            let unknown = |v: &&RegionView| v.unknown_bp.total() > 0;
            let inside = |v: &RegionView| v.range.intersect(&r.range).is_some();
            prop_assert!(!view.regions.iter().filter(unknown).any(inside), "{r:?}");
        }
        prop_assert!(a.actions[0].size_bytes <= lock_limit);
        prop_assert!(a.actions[0].access_percent <= 100.0 + 1e-6);
    }
}
