use std::sync::Arc;

use isotherm_core::{CacheAccess, CacheAccessKind, DirtyBytes, Nanos, PAGE_SIZE, PageAges};

use super::*;
use crate::render::{need_picture, need_text};
use crate::scene::{mapping, region, snapshot, target};

const BEGIN: u64 = 1_000_000_000_000;
const PAGES: u32 = (64 << 20) / PAGE_SIZE as u32;

/// A record of 10-second snapshots with ages: `idle` and `returned` are (age in s, pages).
fn need(rows: u64, idle: &[(u64, u32)], returned: &[(u64, u32)], unknown: u32) -> Need {
    need_of(rows, idle, returned, unknown, &[0], None)
}

fn need_of(
    rows: u64,
    idle: &[(u64, u32)],
    returned: &[(u64, u32)],
    unknown: u32,
    ids: &[u32],
    groups: Option<&[&str]>,
) -> Need {
    let mut builder = NeedBuilder::new(Options::default(), Objective::default());
    if let Some(paths) = groups {
        let of = |(id, path): (&u32, &&str)| Attribution {
            at: Nanos(BEGIN),
            target: TargetId(*id),
            comm: Arc::from(""),
            cgroup: Arc::from(*path),
            swapped: 0,
            major_faults: 0,
        };
        let all: Vec<Attribution> = ids.iter().zip(paths).map(of).collect();
        builder.by_cgroup(all.iter());
    }
    for seq in 0..rows {
        let since = Nanos(BEGIN + seq * 10_000_000_000);
        let mut ages = PageAges {
            since,
            begun: Nanos(BEGIN),
            sampling: 1,
            unknown,
            error_ms: 500,
            ..PageAges::default()
        };
        // What is touched all the time.
        ages.idle.add(100, PAGES / 2);
        // No page is known to be older than the record.
        let known = |age: u64| age.min(seq * 10 + 10) * 1000;
        idle.iter().for_each(|(age, n)| ages.idle.add(known(*age), *n));
        returned.iter().for_each(|(age, n)| ages.returned.add(age * 1000, *n));
        let ages = Arc::new(ages);
        let view = |id: &u32| {
            let mut view =
                target(*id, vec![mapping(0, 64 << 20, "")], vec![region(0, 64 << 20, 1.0)]);
            view.ages = Some(Arc::clone(&ages));
            view
        };
        builder.push(&snapshot(seq, 10.0, ids.iter().map(view).collect()));
    }
    builder.finish().unwrap()
}

#[test]
fn memory_that_stays_idle_is_not_needed() {
    let n = need(60, &[(300, PAGES / 2)], &[], 0);
    let v = n.needs[0].verdict.as_ref().unwrap();
    assert_eq!(v.at.idle_ms, 5000.0, "nothing comes back after any time");
    assert_eq!((v.at.kept_bytes, v.low_bytes), (32 << 20, 32 << 20));
    assert!(v.at.kept_bytes <= v.high_bytes && v.at.kept_bytes <= v.limits.memory_high_bytes);
    assert!(v.limits.memory_high_bytes < v.limits.memory_max_bytes && !v.is_cliff);
    assert_eq!(v.limits.instance_bytes, v.limits.memory_high_bytes.next_power_of_two());
    let text = need_text(&n);
    for part in ["can be given up", "|############            |"] {
        assert!(text.contains(part), "{text}");
    }
}

/// Pages that return after 16 s: with the objective they must stay.
#[test]
fn memory_that_returns_is_needed() {
    let n = need(60, &[(10, PAGES / 4), (250, PAGES / 4)], &[(16, 1000)], 0);
    let v = n.needs[0].verdict.as_ref().unwrap();
    assert!((15_900.0..21_000.0).contains(&v.at.idle_ms), "{}", v.at.idle_ms);
    assert!(v.is_cliff, "100 pages a second come back just below");
    assert!(need_text(&n).contains("a cliff"));
    let (least, most) = (&v.at_least, &v.at_most);
    assert!(least.saved_bytes <= v.at.saved_bytes && v.at.saved_bytes <= most.saved_bytes);
    let returned = [least, &v.at, most].map(|p| p.returned_bytes_per_second);
    assert!(returned.is_sorted() && returned[0] < returned[2], "{returned:?}");
    let curve = &n.needs[0].curve;
    let point = |ms: f64| curve.iter().find(|p| p.idle_ms == ms).unwrap();
    assert_eq!(point(10_000.0).returned_bytes_per_second.round(), 100.0 * PAGE_SIZE as f64);
    assert!((point(10_000.0).waiting_percent - 0.2).abs() < 1e-9, "100 x 20 us");
    assert!((point(10_000.0).acting_percent - 0.0422).abs() < 1e-9, "100 x 4.22 us");
    assert_eq!(point(30_000.0).returned_bytes_per_second, 0.0);
    assert!(point(10_000.0).saved_bytes > point(30_000.0).saved_bytes);
}

/// 48 MiB at work, 128 MiB that are read one page after the other every 15 s, and 80 MiB idle. Ages of 12.7 to 16 s are
/// in one bin, so the curve falls from 12.7 s on. In truth it falls at 15 s: all 176 MiB are needed. If they are read
/// every 3 s, the cliff is below the shortest age of an answer.
#[test]
fn a_cliff_may_lie_anywhere_in_its_bin() {
    const MIB_PAGES: u32 = PAGES / 64;
    let of = |percent_per_minute, period: u64, cycle: bool| {
        let objective = Objective { percent_per_minute, ..Objective::default() };
        let mut builder = NeedBuilder::new(Options::default(), objective);
        for seq in 0..30 {
            let since = Nanos(BEGIN + seq * 10_000_000_000);
            let mut ages =
                PageAges { since, begun: Nanos(BEGIN), sampling: 1, ..PageAges::default() };
            ages.idle.add(100, 48 * MIB_PAGES);
            ages.idle.add((seq + 1) * 10_000, 80 * MIB_PAGES);
            let part = 128 * MIB_PAGES / period as u32;
            for second in 0..period {
                ages.idle.add(second * 1000 + 500, part);
                // A part of the pages is read in each second, after the period or after any time.
                let age = if cycle { period * 1000 } else { second * 1000 + 500 };
                ages.returned.add(age, 10 * part / period as u32);
            }
            let maps = vec![mapping(0, 256 << 20, "")];
            let mut view = target(0, maps, vec![region(0, 256 << 20, 1.0)]);
            view.ages = Some(Arc::new(ages));
            builder.push(&snapshot(seq, 10.0, vec![view]));
        }
        builder.finish().unwrap().needs.remove(0).verdict.unwrap()
    };
    // 291 % of 176 MiB come back per minute.
    for (percent, period) in [(0.2, 15), (5.0, 15), (20.0, 15), (0.2, 3), (20.0, 3)] {
        let v = of(percent, period, true);
        assert!(v.is_cliff, "{percent} %, {period} s");
        assert_eq!(v.at.kept_bytes.div_ceil(1 << 20), 176, "{percent} %, {period} s: {v:?}");
    }
    assert!(!of(60.0, 15, true).is_cliff && !of(20.0, 15, false).is_cliff);
}

/// The need of a target by its rows of ages, each of so many seconds.
fn need_of_rows(rows: u64, seconds: u64, row: impl Fn(u64, &mut PageAges)) -> Need {
    let mut builder = NeedBuilder::new(Options::default(), Objective::default());
    for seq in 0..rows {
        let since = Nanos(BEGIN + seq * seconds * 1_000_000_000);
        let mut ages = PageAges { since, begun: Nanos(BEGIN), sampling: 1, ..PageAges::default() };
        row(seq, &mut ages);
        let bytes = ages.idle.total() * PAGE_SIZE;
        let mut view = target(0, vec![mapping(0, bytes, "")], vec![region(0, bytes, 1.0)]);
        view.ages = Some(Arc::new(ages));
        builder.push(&snapshot(seq, seconds as f64, vec![view]));
    }
    builder.finish().unwrap()
}

/// 64 MiB are touched in the minutes from `first` on, and 8 MiB of them before that.
#[test]
fn limits_have_room_for_busy_hours() {
    let of = |first| {
        need_of_rows(120, 60, |seq, ages| {
            let idle = if seq < first { PAGES / 8 * 7 } else { 0 };
            ages.idle.add(30_000, idle);
            ages.idle.add(100, PAGES - idle);
        })
    };
    let half = of(60);
    let v = half.needs[0].verdict.as_ref().unwrap();
    assert_eq!([v.needed_bytes, v.low_bytes, v.high_bytes].map(|n| n >> 20), [64; 3]);
    // The first minute does not know any age.
    let mean = (59.0 * 8.0 + 60.0 * 64.0) / 119.0;
    assert_eq!(v.at.kept_bytes, (mean * MIB).round() as u64);
    assert_eq!([v.limits.memory_high_bytes, v.limits.memory_max_bytes], [68 << 20; 2], "67.2 MiB");
    let text = need_text(&half);
    let answer = "it needs 64.0 MiB (64.0 MiB to 64.0 MiB) in 98 % of the time, and on average 36.2 MiB of 64.0 MiB\n";
    assert!(text.contains(answer), "{text}");
    let needed = |first| of(first).needs[0].verdict.as_ref().unwrap().needed_bytes >> 20;
    assert_eq!([117, 118].map(needed), [64, 8], "three and two of 119 minutes");
}

/// A program grows from 10 to 100 MiB in ten minutes, and some memory returns after 250 s. Only the last five minutes know
/// whether memory is idle for so long.
#[test]
fn a_growing_target_needs_no_more_than_it_has() {
    let n = need_of_rows(10, 60, |seq, ages| {
        ages.idle.add(100, PAGES / 64 * 10 * (seq as u32 + 1));
        ages.returned.add(250_000, 500);
    });
    let row = &n.needs[0];
    let v = row.verdict.as_ref().unwrap();
    assert_eq!([row.known_bytes, v.at.kept_bytes, v.at.saved_bytes].map(|n| n >> 20), [55, 80, 0]);
    assert_eq!([v.needed_bytes, v.high_bytes, row.most_bytes].map(|n| n >> 20), [100; 3]);
    assert!(!v.is_cliff, "with shorter ages less is kept only because more minutes know them");
    let text = need_text(&n);
    assert!(text.contains("on average 80.0 MiB of 80.0 MiB\n"), "{text}");
    assert!(text.contains("it has 55.0 MiB on average, and 100.0 MiB at most; "), "{text}");
}

/// Half a minute of a longer record: the ages are known from the time before it, the returns are not.
#[test]
fn a_part_of_a_record_is_as_short_as_a_record() {
    let n = need_of_rows(3, 10, |_, ages| {
        ages.begun = Nanos(0);
        ages.idle.add(500_000, PAGES / 2);
        ages.idle.add(100, PAGES / 2);
    });
    let row = &n.needs[0];
    assert!(row.refused.as_ref().unwrap().contains("30 s are too short to exclude"), "{row:?}");
    assert!(need_text(&n).contains("ages were counted for 17.2 min"), "{}", need_text(&n));
}

#[test]
fn records_without_idle_ages_are_refused() {
    let why = |n: &Need| n.needs[0].refused.clone().unwrap();
    assert!(why(&need(60, &[], &[], PAGES / 3)).contains("unknown"));
    assert!(why(&need(60, &[], &[(3600, 500)], 0)).contains("too short for this objective"));
    assert!(why(&need(1, &[], &[], 0)).contains("too short"));
    let mut builder = NeedBuilder::new(Options::default(), Objective::default());
    let view = |id| target(id, vec![mapping(0, 4096, "")], vec![]);
    builder.push(&snapshot(0, 1.0, vec![view(0), view(1)]));
    let none = builder.finish().unwrap();
    assert!(why(&none).contains("no idle ages"));
    let text = need_text(&none);
    assert_eq!(text.matches("no answer").count(), 1, "{text}");
    assert!(!text.contains("on average"), "{text}");
}

/// Nothing came back, which half a minute does not prove: at 0.2 % of 32 MiB a minute, 17 pages may.
#[test]
fn the_interval_is_as_wide_as_the_record_is_short() {
    let of = |rows| need(rows, &[(5000, PAGES / 2)], &[], 0).needs[0].clone();
    assert!(of(3).refused.unwrap().contains("30 s are too short to exclude"));
    let minute = of(6).verdict.unwrap();
    assert_eq!((minute.at.kept_bytes, minute.high_bytes), (32 << 20, 64 << 20));
    let high = |limits: SuggestedLimits| limits.memory_high_bytes >> 20;
    let limits = [minute.low_limits, minute.limits, minute.high_limits];
    assert_eq!(limits.map(high), [34, 34, 68], "33.6 MiB and 67.2 MiB");
    let text = need_text(&need(6, &[(5000, PAGES / 2)], &[], 0));
    assert!(text.contains("request: 34.0 MiB (34.0 MiB to 68.0 MiB)\n"), "{text}");
    assert!(text.contains("limit: 68.0 MiB\n"), "{text}");
    let why = "the upper end is the most memory at once";
    assert!(minute.high_is_most && text.contains(why), "{text}");
    // 3 windows of 16 pages in 600 s are 5 pages a minute.
    let long = of(60).verdict.unwrap();
    assert_eq!((long.high_bytes, long.high_is_most), (32 << 20, false));
    assert!(!need_text(&need(60, &[(5000, PAGES / 2)], &[], 0)).contains(why));
}

/// A child of 300 MiB that ends is not needed now, but the next one will be.
#[test]
fn limits_have_room_for_targets_that_have_ended() {
    let mut builder = NeedBuilder::new(Options::default(), Objective::default());
    let of = |id, size| target(id, vec![mapping(0, size, "")], vec![region(0, size, 1.0)]);
    for seq in 0..60 {
        let since = Nanos(BEGIN + seq * 10_000_000_000);
        let mut ages = PageAges { since, begun: Nanos(BEGIN), sampling: 1, ..PageAges::default() };
        ages.idle.add(100, PAGES / 4);
        ages.idle.add((seq + 1) * 10_000, PAGES / 4 * 3);
        let mut views = vec![of(0, 64 << 20)];
        views[0].ages = Some(Arc::new(ages));
        // One child after the other.
        if (3..7).contains(&seq) {
            views.push(of(seq as u32 / 5 + 1, 300 << 20));
        }
        builder.push(&snapshot(seq, 10.0, views));
    }
    let n = builder.finish().unwrap();
    let row = &n.needs[0];
    assert_eq!((n.ended_targets, row.ended_bytes), (2, 300 << 20));
    let v = row.verdict.as_ref().unwrap();
    assert_eq!(v.at.kept_bytes, 16 << 20);
    assert_eq!(v.limits.memory_high_bytes, (316.0_f64 * 1.05).ceil() as u64 * (1 << 20));
    assert_eq!(v.limits.memory_max_bytes, (364.0_f64 * 1.05).ceil() as u64 * (1 << 20));
    assert!(need_text(&n).contains("had 300.0 MiB at once"), "{}", need_text(&n));
}

#[test]
fn several_targets_are_reported_together_and_separately() {
    let n = need_of(30, &[(100, PAGES / 2)], &[], 0, &[0, 1], None);
    assert_eq!(n.needs.len(), 3);
    assert_eq!(n.needs[0].known_bytes, 2 * n.needs[1].known_bytes);
    assert_eq!(n.needs[2].target, Some(1));
}

/// Three backends map 64 MiB of shared buffers, of which one has only touched a half.
#[test]
fn memory_that_several_targets_map_is_named() {
    let mut builder = NeedBuilder::new(Options::default(), Objective::default());
    for seq in 0..30 {
        let since = Nanos(BEGIN + seq * 10_000_000_000);
        let mut ages = PageAges { since, begun: Nanos(BEGIN), sampling: 1, ..PageAges::default() };
        ages.idle.add(100, PAGES);
        let ages = Arc::new(ages);
        let backend = |(id, mib): (u32, u64)| {
            let maps =
                vec![mapping(0, 64 << 20, "/dev/zero (deleted)"), mapping(64 << 20, 96 << 20, "")];
            let regions = vec![region(0, mib << 20, 1.0), region(64 << 20, 96 << 20, 1.0)];
            let mut view = target(id, maps, regions);
            view.ages = Some(Arc::clone(&ages));
            view
        };
        builder.push(&snapshot(seq, 10.0, [(0, 64), (1, 64), (2, 32)].map(backend).into()));
    }
    let n = builder.finish().unwrap();
    let again: Vec<u64> = n.needs.iter().map(|row| row.counted_again_bytes >> 20).collect();
    assert_eq!(again, [64 + 32, 0, 0, 0]);
    assert!(need_text(&n).contains("up to 96.0 MiB of it may count more than once"));
}

/// The recorder runs on for a while after its only target has ended.
#[test]
fn targets_that_have_all_ended_are_reported() {
    let mut builder = NeedBuilder::new(Options::default(), Objective::default());
    for seq in 0..62 {
        let since = Nanos(BEGIN + seq * 10_000_000_000);
        let mut ages = PageAges { since, begun: Nanos(BEGIN), sampling: 1, ..PageAges::default() };
        ages.idle.add(100, PAGES / 2);
        ages.idle.add((seq + 1) * 10_000, PAGES / 2);
        let mut view = target(0, vec![mapping(0, 64 << 20, "")], vec![region(0, 64 << 20, 1.0)]);
        view.ages = Some(Arc::new(ages));
        builder.push(&snapshot(seq, 10.0, if seq < 60 { vec![view] } else { Vec::new() }));
    }
    let n = builder.finish().unwrap();
    assert_eq!(
        (n.ended_targets, n.needs[0].verdict.as_ref().unwrap().at.kept_bytes),
        (0, 32 << 20)
    );
}

#[test]
fn control_groups_have_the_groups_below_them() {
    let labels = |paths: &[&str]| -> Vec<(String, u64)> {
        let ids: Vec<u32> = (0..paths.len() as u32).collect();
        let n = need_of(30, &[(100, PAGES / 2)], &[], 0, &ids, Some(paths));
        let one = n.needs[0].known_bytes / paths.len() as u64;
        n.needs[1..].iter().map(|row| (row.label.clone(), row.known_bytes / one)).collect()
    };
    let of = |all: &[(&str, u64)]| -> Vec<(String, u64)> {
        all.iter().map(|(path, n)| ((*path).to_owned(), *n)).collect()
    };
    assert_eq!(
        labels(&["/shop/web", "/shop/web", "/shop/db", "/shopping"]),
        of(&[("/", 4), ("/shop", 3), ("/shop/db", 1), ("/shop/web", 2), ("/shopping", 1)])
    );
    assert_eq!(labels(&["/a/b/c", "/a/b/c"]), of(&[("/a/b/c", 2)]), "those above say no more");
}

#[test]
fn the_picture_names_the_need() {
    let n = need(60, &[(10, PAGES / 4), (250, PAGES / 4)], &[(16, 1000)], 0);
    let svg = need_picture(&n).unwrap().svg().unwrap();
    let kept = crate::units::bytes(n.needs[0].verdict.as_ref().unwrap().at.kept_bytes);
    assert!(svg.contains(&format!("needs {kept}")));
}

/// A number that looks random.
fn mixed(i: u64) -> u64 {
    let x = (i ^ 0x55_5555).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 32)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 29)
}

/// A second of 4000 reads of a file, each page of which is as likely.
fn reads(file: u32, second: u64, pages: u64) -> Arc<CacheTrace> {
    let accesses = (0..4000_u64).map(|i| CacheAccess {
        target: TargetId(file),
        page: mixed(second * 4000 + i) % pages,
        kind: CacheAccessKind::Read,
        rarity: 0,
    });
    let since = Nanos(BEGIN + second * 1_000_000_000);
    Arc::new(CacheTrace {
        since,
        until: Nanos(since.0 + 1_000_000_000),
        sampling: 0,
        pages: vec![(TargetId(file), 4000)],
        missing: 0,
        accesses: accesses.collect(),
    })
}

/// A record of 20 s of reads of a file.
fn of_file(pages: u64, asked: &[u64]) -> Need {
    let mut builder = NeedBuilder::new(Options::default(), Objective::default());
    builder.try_sizes(asked);
    for second in 0..20 {
        builder.trace(&reads(0, second, pages));
        builder.push(&snapshot(second, 1.0, vec![file(0, 64 << 20, 8 << 20)]));
    }
    builder.finish().unwrap()
}

/// A file, and its bytes in the page cache.
fn file(id: u32, size: u64, cached: u64) -> TargetView {
    let mut view = target(id, vec![mapping(0, size, "")], vec![region(0, cached, 1.0)]);
    view.dirty = Some(DirtyBytes::default());
    view
}

#[test]
fn files_need_a_page_cache_for_what_is_read() {
    let n = of_file(4096, &[4 << 20]);
    let c = n.cache.as_ref().unwrap();
    assert!(n.needs.is_empty() && c.files == 1, "{n:?}");
    assert!((15 << 20..=16 << 20).contains(&c.accessed_bytes), "{}", c.accessed_bytes);
    let v = c.verdict.unwrap();
    assert!(v.hit_percent > 98.0 && v.cache_bytes >= 15 << 20, "{v:?}");
    let now = c.now.unwrap();
    assert_eq!(now.cache_bytes, 8 << 20);
    assert!((35.0..65.0).contains(&now.hit_percent), "half of it fits: {now:?}");
    assert!(c.curve.iter().any(|row| row.cache_bytes == 4 << 20), "{:?}", c.curve);
    assert!(c.curve.is_sorted_by(|a, b| a.cache_bytes < b.cache_bytes));
    let text = need_text(&n);
    assert!(text.contains("now it has 8.0 MiB") && text.contains("it needs 16.0 MiB"), "{text}");
    assert!(need_picture(&n).unwrap().svg().unwrap().contains("now 8.0 MiB"));
}

/// A process of 64 MiB whose ages are known, and a file of which 8 MiB are cached.
#[test]
fn memory_of_processes_and_the_page_cache_are_apart() {
    let mut builder = NeedBuilder::new(Options::default(), Objective::default());
    for second in 0..20 {
        builder.trace(&reads(1, second, 4096));
        let since = Nanos(BEGIN + second * 1_000_000_000);
        let mut process = target(0, vec![mapping(0, 64 << 20, "")], vec![region(0, 64 << 20, 1.0)]);
        let mut ages = PageAges { since, begun: Nanos(BEGIN), sampling: 1, ..PageAges::default() };
        ages.idle.add(100, PAGES);
        process.ages = Some(Arc::new(ages));
        builder.push(&snapshot(second, 1.0, vec![process, file(1, 64 << 20, 8 << 20)]));
    }
    let n = builder.finish().unwrap();
    assert_eq!(n.cache.unwrap().now.unwrap().cache_bytes, 8 << 20);
    assert_eq!(n.needs.iter().map(|row| row.most_bytes).collect::<Vec<_>>(), [64 << 20]);
}

/// A file of 4 MiB is read at random for 20 s, but between the 8th and the 12th second a file of 32 MiB is read in
/// sequence. One page in `part` of both is in memory.
fn of_sequential_read(part: u64) -> Need {
    let mut builder = NeedBuilder::new(Options::default(), Objective::default());
    for second in 0..20_u64 {
        let access = |(file, page)| CacheAccess {
            target: TargetId(file),
            page,
            kind: CacheAccessKind::Read,
            rarity: 0,
        };
        let accesses: Vec<CacheAccess> = match second.checked_sub(8).filter(|since| *since < 4) {
            Some(since) => {
                (since * 2048..(since + 1) * 2048).map(|page| access((1, page))).collect()
            }
            None => (0..500).map(|i| access((0, mixed(second * 500 + i) % 1024))).collect(),
        };
        let since = Nanos(BEGIN + second * 1_000_000_000);
        builder.trace(&Arc::new(CacheTrace {
            since,
            until: Nanos(since.0 + 1_000_000_000),
            sampling: 0,
            pages: vec![(accesses[0].target, accesses.len() as u64)],
            missing: 0,
            accesses,
        }));
        let of = |id, size| file(id, size, size / part);
        builder.push(&snapshot(second, 1.0, vec![of(0, 4 << 20), of(1, 32 << 20)]));
    }
    builder.finish().unwrap()
}

#[test]
fn a_cache_too_small_for_the_sample_names_no_file() {
    let n = of_sequential_read(128);
    let cache = n.cache.as_ref().unwrap();
    assert_eq!(cache.now.map(|now| now.cache_bytes), Some(288 << 10));
    assert!(cache.scans.is_empty(), "{:?}", cache.scans);
}

#[test]
fn a_sequential_read_is_named_with_what_it_threw_out() {
    let n = of_sequential_read(2);
    let scans = &n.cache.as_ref().unwrap().scans;
    let [scan] = &scans[..] else { panic!("{scans:?}") };
    assert_eq!((scan.target, scan.brought_in_bytes), (1, 32 << 20));
    assert_eq!(scan.read_once_bytes, 32 << 20);
    // Most of the first file is active and survives. The rest leaves, and is read again.
    assert!((1 << 16..=2 << 20).contains(&scan.evicted_bytes), "{scan:?}");
    assert!(scan.missed_bytes > 0 && scan.missed_bytes <= scan.evicted_bytes, "{scan:?}");
    let text = need_text(&n);
    assert!(text.contains("evicted others") && text.contains("32.0 MiB"), "{text}");
}

#[test]
fn a_record_of_first_reads_gives_no_answer() {
    let n = of_file(1 << 40, &[]);
    let c = n.cache.as_ref().unwrap();
    assert!(c.verdict.is_none() && c.refused.as_ref().unwrap().contains("too short"), "{c:?}");
    assert!(need_text(&n).contains("no answer"));
}
