//! Quotas over many windows, with different amounts of work.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::super::testing::{Desk, PageOutcome, pages, snapshot, target, view};
use super::super::*;
use super::*;
use crate::act::{Action, Applied, Failure};
use crate::call::TargetId;
use crate::ops::{Mapping, MappingKind};
use crate::range::{AddrRange, PAGE_SIZE, join_touching};
use crate::snapshot::RegionView;
use crate::survey::BLOCK_SIZE;

const SECOND: Duration = Duration::from_secs(1);

/// Of memory that is equally old, a file goes first if it is cheaper to read back than anonymous memory is to swap.
#[test]
fn the_cheapest_memory_goes_first() {
    let idle = |at, seconds| view(at, 4, 0.0, Duration::from_secs(seconds));
    let anonymous = target(0, &[idle(0, 600)]);
    let mut file = target(1, &[idle(0, 300), idle(4, 6000)]);
    file.mappings = Arc::new(
        file.mappings.iter().map(|m| Mapping { kind: MappingKind::File, ..m.clone() }).collect(),
    );
    let order = |prices: Prices| {
        let weights = Weights { cost: 1, ..Weights::default() };
        let quota = Quota { weights, ..Quota::default() };
        let age = Duration::from_secs(60)..=Duration::MAX;
        let pattern = Pattern { age, ..Pattern::default() };
        let scheme = Scheme { quota, ..Scheme::new("s", pattern, Action::PageOut) };
        let mut engine = Engine::new(vec![scheme]).unwrap();
        let (mut desk, mut log) = (Desk::with(|_, _| PageOutcome::Done), Vec::new());
        let metrics = Metrics { prices, ..Metrics::default() };
        let snapshot = snapshot(1, vec![anonymous.clone(), file.clone()]);
        engine.step(snapshot.end, &snapshot, &metrics, &mut desk, &mut log).unwrap();
        log.iter().map(|e| (e.target.0, e.range.start / PAGE_SIZE)).collect::<Vec<_>>()
    };
    assert_eq!(order(Prices::default()), [(1, 4), (0, 0), (1, 0)], "swap in compressed memory");
    let on_disk = Prices::on_disk(Duration::from_millis(5));
    assert_eq!(order(on_disk), [(1, 4), (1, 0), (0, 0)], "swap on a disk");
}

/// Regions with gaps: lengths and gaps in pages, and ages in seconds that exceed the duration of any test.
fn regions(parts: &[(u64, u64, u32)]) -> Vec<RegionView> {
    let mut at = 0;
    let region = |&(len, gap, age): &(u64, u64, u32)| {
        at += gap;
        let region = view(at, len, 0.0, (100_000 + age) * SECOND);
        at += len;
        region
    };
    parts.iter().map(region).collect()
}

fn parts() -> impl Strategy<Value = Vec<(u64, u64, u32)>> {
    prop::collection::vec((1u64..300, 0u64..3, 0u32..5000), 1..30)
}

/// Regions of several huge pages each.
fn long() -> impl Strategy<Value = Vec<(u64, u64, u32)>> {
    prop::collection::vec((1u64..3000, 0u64..600, 0u32..5000), 1..12)
}

fn scheme(action: Action, quota: Quota) -> Engine {
    let scheme = Scheme { quota, ..Scheme::new("s", Pattern::default(), action) };
    Engine::new(vec![scheme]).unwrap()
}

/// Runs steps at these milliseconds. Returns the ranges that each step acted on, in order.
fn run(
    engine: &mut Engine,
    desk: &mut Desk,
    at: &[u64],
    s: impl Fn(u64) -> Snapshot,
) -> Vec<Vec<ActionEvent>> {
    let step = |&ms: &u64| {
        let (snapshot, mut log) = (s(ms), Vec::new());
        engine.step(snapshot.end, &snapshot, &Metrics::default(), desk, &mut log).unwrap();
        log
    };
    at.iter().map(step).collect()
}

fn done(event: &ActionEvent) -> Applied {
    match event.outcome {
        Outcome::Acted(done) => done,
        Outcome::Passed(_) => Applied::default(),
    }
}

proptest! {
    /// The bytes of a window are never exceeded, and are used up if there is enough work.
    #[test]
    fn a_size_quota_is_kept_to_the_page(
        parts in parts(), quota in 1u64..2000, odd in 0u64..4096, phase in 0u64..8,
        resident_bp in prop_oneof![Just(10_000), 1u32..10_000],
        waits in prop::collection::vec(1u64..700, 1..40),
    ) {
        let bytes = quota * PAGE_SIZE + odd;
        let mut engine = scheme(Action::PageOut, Quota { bytes: Some(bytes), ..Quota::default() });
        engine.log_passed(true);
        let mut desk = Desk::with(move |_, page| match page % 8 == phase {
            true => PageOutcome::Passed,
            false => PageOutcome::Done,
        });
        let at: Vec<u64> = waits.iter().scan(0, |at, w| { *at += w; Some(*at) }).collect();
        let part = |r| RegionView { resident_bp, ..r };
        let all: Vec<_> = regions(&parts).into_iter().map(part).collect();
        let steps = run(&mut engine, &mut desk, &at, |ms| snapshot(ms, vec![target(1, &all)]));
        let (mut began, mut used) = (None, 0);
        for (ms, log) in at.iter().zip(steps) {
            if began.is_none_or(|began| ms - began >= 1000) {
                (began, used) = (Some(*ms), 0);
            }
            used += log.iter().map(|e| done(e).tried).sum::<u64>();
            prop_assert!(used <= bytes);
            let is_left = log.iter().any(|e| e.outcome == Outcome::Passed(SkipReason::Quota));
            let is_used_up = bytes - used < PAGE_SIZE;
            // If little memory is resident, its position in a region is estimated, which limits the batches.
            prop_assert!(is_used_up || !is_left || resident_bp < 10_000, "{used} of {bytes}");
        }
    }

    /// From window to window: no gap, no page twice, in circular order.
    #[test]
    fn a_window_resumes_exactly_where_the_last_one_stopped(
        first in parts(), second in parts(), quota in 1u64..2000, stat: bool,
    ) {
        let action = if stat { Action::Stat } else { Action::Cold };
        let mut engine = scheme(action, Quota { bytes: Some(quota * PAGE_SIZE), ..Quota::default() });
        let mut desk = Desk::new();
        let targets = vec![target(1, &regions(&first)), target(2, &regions(&second))];
        let pages: u64 = first.iter().chain(&second).map(|p| p.0).sum();
        let windows: Vec<u64> = (0..pages.div_ceil(quota) + 1).map(|i| i * 1000).collect();
        run(&mut engine, &mut desk, &windows, |ms| snapshot(ms, targets.clone()));
        let mut acted = desk.asked.iter().flat_map(|(a, _)| {
            (a.range.start / PAGE_SIZE..a.range.end / PAGE_SIZE).map(|p| (a.target, p))
        });
        let expected = targets.iter().flat_map(|t| t.regions.iter().map(move |r| (t.id, r.range)))
            .flat_map(|(id, r)| (r.start / PAGE_SIZE..r.end / PAGE_SIZE).map(move |p| (id, p)));
        for page in expected.clone() {
            prop_assert_eq!(acted.next(), Some(page));
        }
        // An action on all memory is not repeated; an action that only counts starts again.
        prop_assert_eq!(acted.next(), expected.clone().next().filter(|_| stat));
    }

    /// Huge pages in regions with arbitrary borders, by the clock of [`Engine::due`]: each page is processed
    /// once, and each step makes progress.
    #[test]
    fn works_of_huge_pages_continue_to_the_end(parts in long(), quota in 1u64..5) {
        let bytes = Some(quota * BLOCK_SIZE);
        let mut engine = scheme(Action::NoHugePage, Quota { bytes, ..Quota::default() });
        let mut desk = Desk::new();
        let all = regions(&parts);
        let last = snapshot(0, vec![target(1, &all)]);
        let mut due = engine.due();
        while let Some(now) = due {
            let before = desk.asked.len();
            engine.step(now, &last, &Metrics::default(), &mut desk, &mut Vec::new()).unwrap();
            prop_assert!(desk.asked.len() > before, "at {now:?}");
            due = engine.due();
            prop_assert!(due.is_none_or(|due| due > now));
        }
        let acted: Vec<AddrRange> = desk.asked.iter().map(|(a, _)| a.range).collect();
        prop_assert!(acted.is_sorted_by(|a, b| a.end <= b.start), "{acted:?}");
        prop_assert_eq!(join_touching(acted), join_touching(all.iter().map(|r| r.range)));
    }

    /// No skipped memory has a higher score than processed memory.
    #[test]
    fn the_best_come_first(parts in parts(), quota in 1u64..2000) {
        let weights = Weights { age: 1, ..Weights::default() };
        let bytes = Some(quota * PAGE_SIZE);
        let mut engine = scheme(Action::PageOut, Quota { bytes, weights, ..Quota::default() });
        engine.log_passed(true);
        let all = regions(&parts);
        let steps = run(&mut engine, &mut Desk::new(), &[0], |ms| snapshot(ms, vec![target(1, &all)]));
        let (done, left): (Vec<_>, Vec<_>) =
            steps[0].iter().partition(|e| matches!(e.outcome, Outcome::Acted(_)));
        let worst = done.iter().map(|e| e.age).min().unwrap();
        prop_assert!(left.iter().all(|e| e.age <= worst));
        let pages: u64 = parts.iter().map(|p| p.0).sum();
        prop_assert_eq!(done.iter().map(|e| e.range.len()).sum::<u64>(), pages.min(quota) * PAGE_SIZE);
        let least = done.iter().map(|e| e.score).fold(f64::MAX, f64::min);
        prop_assert!(left.iter().all(|e| e.score <= least));
    }

    /// For any quota, filters, failures and earlier actions: each page of a matching region is reported
    /// exactly once per step.
    #[test]
    fn every_page_is_accounted_for(
        parts in parts(), quota in 0u64..2000, fates in any::<u64>(), hole in (0u64..3000, 1u64..900),
        slow: bool,
    ) {
        let kind = FilterKind::Addresses(pages(hole.0, hole.1));
        let filters = vec![Filter { kind, matching: true, allow: false }];
        let quota = Quota { bytes: Some(quota * PAGE_SIZE), ..Quota::default() };
        let one = Scheme { quota, filters, ..Scheme::new("s", Pattern::default(), Action::Cold) };
        let mut engine = Engine::new(vec![one]).unwrap();
        engine.log_passed(true);
        let mut desk = Desk::with(move |_, page| match (fates >> (page % 30 * 2)) & 3 {
            0 => PageOutcome::Passed,
            1 => PageOutcome::Failed(Failure::Busy),
            _ => PageOutcome::Done,
        });
        desk.takes = Duration::from_micros(if slow { 2000 } else { 0 });
        let all = regions(&parts);
        let steps: Vec<u64> = (0..20).map(|i| i * 400).collect();
        for log in run(&mut engine, &mut desk, &steps, |ms| snapshot(ms, vec![target(1, &all)])) {
            let mut reported: Vec<AddrRange> = log.iter().map(|e| e.range).collect();
            reported.sort_unstable();
            prop_assert_eq!(join_touching(reported), join_touching(all.iter().map(|r| r.range)));
        }
    }

    /// A time quota is kept within a tenth, and used if there is enough work, at any speed.
    #[test]
    fn a_time_quota_is_kept_and_used(nanos_a_page in 100u64..20_000, ms in 5u64..200) {
        let time = Duration::from_millis(ms);
        let mut engine = scheme(Action::Stat, Quota { time: Some(time), ..Quota::default() });
        let mut desk = Desk::new();
        desk.takes = Duration::from_nanos(nanos_a_page);
        // 4 GiB in 256 regions.
        let all: Vec<_> = (0..256).map(|i| view(i * 4100, 4096, 0.0, 600 * SECOND)).collect();
        let windows: Vec<u64> = (0..8).map(|i| i * 1000).collect();
        let s = |ms| snapshot(ms, vec![target(1, &all)]);
        let mut shares: Vec<f64> = run(&mut engine, &mut desk, &windows, s).iter().map(|log| {
            log.iter().map(|e| done(e).took).sum::<Duration>().as_secs_f64() / time.as_secs_f64()
        }).collect();
        shares.sort_by(f64::total_cmp);
        prop_assert!(shares[7] <= 1.1, "{shares:?}");
        let all_takes = desk.takes.as_secs_f64() * 256.0 * 4096.0 / time.as_secs_f64();
        prop_assert!(shares[4] >= 0.8 * all_takes.min(1.0), "{shares:?}");
    }
}

/// Many small regions: initially each needs more time than its share.
#[test]
fn small_regions_use_a_time_quota_too() {
    let time = Duration::from_millis(10);
    let mut engine = scheme(Action::Stat, Quota { time: Some(time), ..Quota::default() });
    let mut desk = Desk::new();
    (desk.takes, desk.begins) = (Duration::from_micros(1), Duration::from_micros(50));
    let all: Vec<_> = (0..10_000).map(|i| view(i * 17, 16, 0.0, 600 * SECOND)).collect();
    let windows: Vec<u64> = (0..9).map(|i| i * 1000).collect();
    let s = |ms| snapshot(ms, vec![target(1, &all)]);
    for log in run(&mut engine, &mut desk, &windows, s) {
        let took: Duration = log.iter().map(|e| done(e).took).sum();
        assert!((0.8..=1.1).contains(&(took.as_secs_f64() / time.as_secs_f64())), "{took:?}");
        let pages: u64 = log.iter().map(|e| done(e).tried / PAGE_SIZE).sum();
        assert!(pages > 1500, "{pages} of 2400 or so");
    }
}

/// Finding that memory is in use costs time. The memory behind it is processed all the same.
#[test]
fn skipped_memory_leaves_time_for_other_works() {
    let time = Duration::from_millis(10);
    let mut engine = scheme(Action::PageOut, Quota { time: Some(time), ..Quota::default() });
    const IN_USE: u64 = 4000;
    let mut desk =
        Desk::with(|_, page| if page < IN_USE { PageOutcome::Passed } else { PageOutcome::Done });
    desk.begins = Duration::from_micros(100);
    let all = [view(0, IN_USE + 1000, 0.0, 600 * SECOND)];
    let windows: Vec<u64> = (0..40).map(|i| i * 1000).collect();
    run(&mut engine, &mut desk, &windows, |ms| snapshot(ms, vec![target(1, &all)]));
    let applied = engine.schemes().next().unwrap().1.applied.bytes / PAGE_SIZE;
    assert!(applied >= 1000, "{applied} of 1000");
}

/// If a sixteenth is resident, a batch contains sixteen times as many bytes of address space.
#[test]
fn memory_in_swap_does_not_slow_other_works() {
    let bytes = Some(64 * PAGE_SIZE);
    let mut engine = scheme(Action::PageOut, Quota { bytes, ..Quota::default() });
    let mut desk =
        Desk::with(|_, page| if page % 16 == 0 { PageOutcome::Done } else { PageOutcome::Passed });
    let sparse = |at| RegionView { resident_bp: 625, ..view(at, 800, 0.0, 600 * SECOND) };
    let all = [sparse(0), sparse(800)];
    run(&mut engine, &mut desk, &[0, 1000], |ms| snapshot(ms, vec![target(1, &all)]));
    let ranges: Vec<AddrRange> = desk.asked.iter().map(|(a, _)| a.range).collect();
    assert_eq!(ranges, [pages(0, 800), pages(800, 224), pages(1024, 576)]);
    assert_eq!(engine.schemes().next().unwrap().1.applied.bytes, 100 * PAGE_SIZE);
}

/// A region may contain more resident memory than its share suggests, because residency is uneven. Its
/// remainder precedes the memory behind it, also in the same batch.
#[test]
fn memory_beyond_the_share_keeps_its_order() {
    let bytes = Some(150 * PAGE_SIZE);
    let mut engine = scheme(Action::PageOut, Quota { bytes, ..Quota::default() });
    let mut desk = Desk::new();
    let most = |at| RegionView { resident_bp: 9_000, ..view(at, 100, 0.0, 600 * SECOND) };
    let all = [most(0), most(100), most(200)];
    let steps = run(&mut engine, &mut desk, &[0, 1000], |ms| snapshot(ms, vec![target(1, &all)]));
    let acted = |log: &Vec<ActionEvent>| log.iter().map(|e| e.range).collect::<Vec<_>>();
    assert_eq!(join_touching(acted(&steps[0])), [pages(0, 150)]);
    assert_eq!(join_touching(acted(&steps[1])), [pages(150, 150)]);
    assert!(steps.iter().flat_map(acted).is_sorted());
}

/// If the time ended within a work, the next turn continues at that point first.
#[test]
fn a_work_that_ran_out_of_time_is_first_in_the_next_turn() {
    let time = Some(Duration::from_millis(10));
    let mut engine = scheme(Action::Cold, Quota { time, ..Quota::default() });
    let mut desk = Desk::new();
    desk.takes = Duration::from_micros(10);
    let all: Vec<_> = (0..4).map(|i| view(i * 1000, 1000, 0.0, 600 * SECOND)).collect();
    let windows: Vec<u64> = (0..10).map(|i| i * 1000).collect();
    let steps = run(&mut engine, &mut desk, &windows, |ms| snapshot(ms, vec![target(1, &all)]));
    let acted: Vec<AddrRange> = steps.iter().flatten().map(|e| e.range).collect();
    assert!(acted.is_sorted(), "{acted:?}");
    assert_eq!(join_touching(acted), [pages(0, 4000)]);
}

/// Failures are not charged, and are retried after a pause.
#[test]
fn failures_do_not_use_up_the_bytes() {
    let bytes = Some(16 * PAGE_SIZE);
    let mut engine = scheme(Action::Cold, Quota { bytes, ..Quota::default() });
    let busy = PageOutcome::Failed(Failure::Busy);
    let mut desk = Desk::with(move |_, page| if page < 64 { busy } else { PageOutcome::Done });
    let all = [view(0, 64, 0.0, 600 * SECOND), view(64, 64, 0.0, 600 * SECOND)];
    let s = |ms| snapshot(ms, vec![target(1, &all)]);
    run(&mut engine, &mut desk, &[0], s);
    let stats = |engine: &Engine| engine.schemes().next().unwrap().1.clone();
    assert_eq!(
        (stats(&engine).failed.bytes, stats(&engine).applied.bytes),
        (64 * PAGE_SIZE, 16 * PAGE_SIZE)
    );
    run(&mut engine, &mut desk, &[1000, 2000, 3000, 4000, 9999], s);
    assert_eq!(stats(&engine).failed.bytes, 64 * PAGE_SIZE);
    assert_eq!(stats(&engine).applied.bytes, 64 * PAGE_SIZE);
    assert_eq!(stats(&engine).exceeded, 4);
    run(&mut engine, &mut desk, &[10_000], s);
    assert_eq!(stats(&engine).failed.bytes, 128 * PAGE_SIZE);
    assert_eq!(desk.asked[0].0.target, TargetId(1));
}

/// Regions have arbitrary borders, which change later; huge pages are made of whole blocks.
#[test]
fn no_huge_page_is_lost_between_regions() {
    let mut engine = scheme(Action::HugePage, Quota::default());
    let mut desk = Desk::new();
    let mut at = |ms, all: &[RegionView]| -> Vec<AddrRange> {
        let steps = run(&mut engine, &mut desk, &[ms], |ms| snapshot(ms, vec![target(1, all)]));
        steps.iter().flatten().map(|e| e.range).collect()
    };
    let two =
        [view(100, 668, 20.0, SECOND), view(768, 100, 30.0, SECOND), view(868, 1692, 40.0, SECOND)];
    assert_eq!(at(0, &two), [pages(512, 2048)]);
    // Memory that became hot later lies between two hot regions, and is joined with them.
    let three =
        [view(0, 512, 20.0, SECOND), view(4000, 800, 20.0, SECOND), view(5200, 1000, 20.0, SECOND)];
    assert_eq!(at(1000, &three), [pages(0, 512), pages(4096, 512), pages(5632, 512)]);
    assert_eq!(at(2000, &[view(4000, 2200, 20.0, SECOND)]), [pages(4608, 1024)]);
}
