//! Tests of actions, of skipped memory with its reasons, and of failures.

use std::time::Duration;

use super::super::testing::{Desk, PageOutcome, pages, snapshot, target, view};
use super::super::*;
use super::*;
use crate::act::{Action, Destination, Destinations, Failure, PageFilter, PageKind};
use crate::call::TargetId;
use crate::range::{AddrRange, PAGE_SIZE};
use crate::snapshot::RegionView;
use crate::unknown::{Unknown, UnknownPages};

const SECOND: Duration = Duration::from_secs(1);

fn scheme(name: &str, action: Action) -> Scheme {
    Scheme::new(name, Pattern::default(), action)
}

fn engine(schemes: &[Scheme]) -> Engine {
    Engine::new(schemes.to_vec()).unwrap()
}

/// 16 pages, untouched for a minute.
fn cold(at: u64) -> RegionView {
    view(at, 16, 0.0, 60 * SECOND)
}

/// One target with these regions, at `ms`.
fn step(engine: &mut Engine, desk: &mut Desk, ms: u64, regions: &[RegionView]) -> Vec<ActionEvent> {
    try_step(engine, desk, &snapshot(ms, vec![target(1, regions)])).unwrap()
}

fn try_step(
    engine: &mut Engine,
    desk: &mut Desk,
    s: &Snapshot,
) -> Result<Vec<ActionEvent>, OpsError> {
    let mut log = Vec::new();
    engine.step(s.end, s, &Metrics::default(), desk, &mut log).map(|()| log)
}

fn stats(engine: &Engine, at: usize) -> Stats {
    engine.schemes().nth(at).unwrap().1.clone()
}

#[test]
fn matching_regions_are_acted_on_and_reported() {
    let pattern = Pattern { age: 30 * SECOND..=Duration::MAX, ..Pattern::default() };
    let mut engine = engine(&[Scheme::new("old", pattern, Action::PageOut)]);
    let mut desk = Desk::new();
    let young = view(16, 16, 0.0, SECOND);
    let log = step(&mut engine, &mut desk, 5000, &[cold(0), young, cold(32)]);
    assert_eq!(desk.take(), [pages(0, 16), pages(32, 16)]);
    let ActionEvent { at, ref scheme, ref action, target, range, age, outcome, .. } = log[1];
    assert_eq!((at.0, &**scheme, action), (5_000_000_000, "old", &Action::PageOut));
    assert_eq!((target, range, age), (TargetId(1), pages(32, 16), 60 * SECOND));
    let Outcome::Acted(done) = outcome else { panic!("{outcome:?}") };
    assert_eq!((done.tried, done.applied), (16 * PAGE_SIZE, 16 * PAGE_SIZE));
    let stats = stats(&engine, 0);
    let all = Count { regions: 2, bytes: 32 * PAGE_SIZE };
    assert_eq!((stats.tried, stats.applied, stats.failed), (all, all, Count::default()));
}

fn unknown(bp: u32) -> UnknownPages<u32> {
    let mut unknown = UnknownPages::default();
    unknown.0[Unknown::Shared.index()] = bp;
    unknown
}

#[test]
fn unobservable_memory_is_never_acted_on() {
    let hidden = RegionView { unknown_bp: unknown(10_000), ..cold(0) };
    let half = RegionView { unknown_bp: unknown(5_000), ..cold(16) };
    for action in [Action::PageOut, Action::Cold, Action::NoHugePage, Action::LruDeprio] {
        let (mut engine, mut desk) = (engine(&[scheme("s", action)]), Desk::new());
        step(&mut engine, &mut desk, 0, &[hidden, half]);
        assert_eq!(desk.take(), [pages(16, 16)]);
        let count = Count { regions: 1, bytes: 16 * PAGE_SIZE };
        assert_eq!(stats(&engine, 0).passed(SkipReason::Unknown), count);
    }
}

#[test]
fn pageout_skips_absent_pages_and_willneed_skips_resident_ones() {
    let out = RegionView { resident_bp: 0, ..cold(16) };
    for (action, range) in [(Action::PageOut, pages(0, 16)), (Action::WillNeed, pages(16, 16))] {
        let (mut engine, mut desk) = (engine(&[scheme("s", action)]), Desk::new());
        step(&mut engine, &mut desk, 0, &[cold(0), out]);
        assert_eq!(desk.take(), [range]);
        assert_eq!(stats(&engine, 0).passed(SkipReason::Nothing).regions, 1);
    }
}

/// Monitors of resident pages know no age of absent memory, and reading ahead may not bring it back.
#[test]
fn willneed_retries_absent_memory_after_a_pause() {
    let absent = RegionView { resident_bp: 0, ..view(0, 16, 0.0, Duration::ZERO) };
    let old = Pattern { age: 2 * SECOND..=Duration::MAX, ..Pattern::default() };
    for (pattern, expected) in [(Pattern::default(), [0, 10, 20]), (old, [2, 12, 22])] {
        let mut engine = engine(&[Scheme::new("s", pattern, Action::WillNeed)]);
        let mut desk = Desk::new();
        let mut at = Vec::new();
        for second in 0..30 {
            let log = step(&mut engine, &mut desk, second * 1000, &[absent]);
            at.extend(log.iter().map(|event| (second, event.age)));
        }
        let seconds: Vec<u64> = at.iter().map(|a| a.0).collect();
        assert_eq!(seconds, expected);
        assert!(at.iter().all(|(second, age)| age.as_secs() == *second), "{at:?}");
    }
}

/// While no scheme reads memory ahead, nobody notes that it is back.
#[test]
fn absent_memory_is_as_old_as_it_was_seen() {
    let absent = RegionView { resident_bp: 0, ..view(0, 16, 0.0, Duration::ZERO) };
    let old = Pattern { age: 60 * SECOND..=Duration::MAX, ..Pattern::default() };
    let schemes = [Scheme::new("s", old, Action::WillNeed)];
    let (mut engine, mut desk) = (engine(&schemes), Desk::new());
    step(&mut engine, &mut desk, 1_000, &[absent]);
    engine.set_schemes(Vec::new()).unwrap();
    step(&mut engine, &mut desk, 2_000, &[cold(0)]);
    engine.set_schemes(schemes.to_vec()).unwrap();
    for second in [3_600, 3_601] {
        assert_eq!(step(&mut engine, &mut desk, second * 1000, &[absent]), []);
    }
    assert_eq!(step(&mut engine, &mut desk, 3_660_000, &[absent]).len(), 1);
}

/// The kernel would repeat the action in each interval.
#[test]
fn a_lasting_action_is_applied_once_until_heat_changes() {
    let to = Destinations(Arc::new([Destination { node: 1, weight: 1 }]));
    for action in [Action::HugePage, Action::MigrateHot(to), Action::Cold] {
        let (mut engine, mut desk) = (engine(&[scheme("s", action)]), Desk::new());
        for second in 0..100 {
            step(
                &mut engine,
                &mut desk,
                second * 1000,
                &[view(0, 512, 0.0, second as u32 * SECOND)],
            );
        }
        assert_eq!(desk.asked.len(), 1);
        step(&mut engine, &mut desk, 100_000, &[view(0, 512, 0.0, 2 * SECOND)]);
        assert_eq!(desk.asked.len(), 2, "touched 2 s ago");
        assert_eq!(stats(&engine, 0).passed(SkipReason::Done).regions, 99);
    }
}

#[test]
fn counting_counts_each_time() {
    let (mut engine, mut desk) = (engine(&[scheme("s", Action::Stat)]), Desk::new());
    for second in 0..3 {
        step(&mut engine, &mut desk, second * 1000, &[cold(0)]);
    }
    let stats = stats(&engine, 0);
    assert_eq!((stats.tried.regions, stats.failed.regions), (3, 0));
}

#[test]
fn the_first_scheme_has_it() {
    let stat = scheme("count", Action::Stat);
    let filters =
        vec![Filter { kind: FilterKind::Addresses(pages(0, 4)), matching: true, allow: true }];
    let some = Scheme { filters, ..scheme("some", Action::WillNeed) };
    let mut engine =
        engine(&[stat, some, scheme("out", Action::PageOut), scheme("cold", Action::Cold)]);
    let mut desk = Desk::new();
    let half = RegionView { resident_bp: 5_000, ..cold(0) };
    step(&mut engine, &mut desk, 0, &[half]);
    let asked: Vec<_> = desk.asked.iter().map(|(a, _)| (a.action.name(), a.range)).collect();
    let expected = [("stat", pages(0, 16)), ("willneed", pages(0, 4)), ("pageout", pages(4, 12))];
    assert_eq!(asked, expected);
    assert_eq!(stats(&engine, 1).passed(SkipReason::Filtered).bytes, 12 * PAGE_SIZE);
    assert_eq!(stats(&engine, 2).passed(SkipReason::Taken).bytes, 4 * PAGE_SIZE);
    assert_eq!(stats(&engine, 3).passed(SkipReason::Taken).bytes, 16 * PAGE_SIZE);
}

#[test]
fn filters_of_pages_and_the_second_look_are_handed_on() {
    let page_filters = vec![PageFilter { kind: PageKind::Young, matching: true, allow: false }];
    let file = FilterKind::Addresses(pages(0, 4));
    let filters = vec![Filter { kind: file, matching: true, allow: true }];
    let out = Scheme { page_filters, filters, ..scheme("out", Action::PageOut) };
    let huge = scheme("huge", Action::HugePage);
    let recheck = Some(Duration::from_millis(3));
    let mut engine = engine(&[out.clone(), huge]);
    let mut desk = Desk::new();
    let with = |desk: &mut Desk| -> Vec<_> {
        desk.asked
            .drain(..)
            .map(|(a, _)| (a.range, a.filters.len(), a.recheck.as_millis()))
            .collect()
    };
    step(&mut engine, &mut desk, 0, &[cold(0)]);
    assert_eq!(with(&mut desk), [(pages(0, 4), 0, 20), (pages(4, 12), 1, 20)]);
    engine.set_schemes(vec![scheme("huge", Action::HugePage), Scheme { recheck, ..out }]).unwrap();
    step(&mut engine, &mut desk, 1000, &[view(512, 512, 0.0, 600 * SECOND)]);
    assert_eq!(with(&mut desk), [(pages(512, 512), 0, 0)]);
}

#[test]
fn each_keeps_to_its_interval_and_its_watermarks() {
    let metric = WatermarkMetric::Free;
    let marks = Watermarks { metric, interval: SECOND, high: 5000, mid: 4000, low: 2000 };
    let slow = Scheme { apply_interval: 3 * SECOND, ..scheme("slow", Action::Stat) };
    let off = Scheme { watermarks: Some(marks), ..scheme("off", Action::Stat) };
    let (mut engine, mut desk) = (engine(&[slow, off]), Desk::new());
    assert_eq!(engine.due(), Some(Nanos(0)));
    for quarter in 0..24 {
        step(&mut engine, &mut desk, quarter * 250, &[cold(0)]);
    }
    assert_eq!(engine.due(), Some(Nanos(6_000_000_000)));
    assert_eq!((stats(&engine, 0).tried.regions, stats(&engine, 1).tried.regions), (2, 0));
    assert_eq!(stats(&engine, 1).inactive, 6, "checks, not steps");
}

#[test]
fn a_quota_of_zero_never_acts() {
    let quota = Quota { bytes: Some(0), ..Quota::default() };
    let (mut engine, mut desk) =
        (engine(&[Scheme { quota, ..scheme("s", Action::Cold) }]), Desk::new());
    engine.log_passed(true);
    let log = step(&mut engine, &mut desk, 0, &[cold(0)]);
    assert_eq!(desk.asked.len(), 0);
    assert_eq!(log[0].outcome, Outcome::Passed(SkipReason::Quota));
}

/// Memory that is too young now is old enough later, for any action, even if its region does not change.
#[test]
fn regions_held_back_by_page_filters_are_tried_again() {
    for (within, most, cold, page_out) in
        [(5, u32::MAX, 10, 100), (60, u32::MAX, 2, 50), (60, 20, 5, 100)]
    {
        for (action, asked) in [(Action::Cold, cold), (Action::PageOut, page_out)] {
            let kind = PageKind::Touched { within: within * SECOND };
            let page_filters = vec![PageFilter { kind, matching: true, allow: false }];
            let pattern = Pattern { age: Duration::ZERO..=most * SECOND, ..Pattern::default() };
            let one = Scheme { page_filters, pattern, ..scheme("s", action) };
            let (mut engine, mut desk) = (engine(&[one]), Desk::with(|_, _| PageOutcome::Passed));
            for second in 0..100 {
                let age = second as u32 * SECOND;
                step(
                    &mut engine,
                    &mut desk,
                    second * 1000,
                    &[view(0, 16, 0.0, age.min(20 * SECOND))],
                );
            }
            assert_eq!(desk.asked.len(), asked, "{within} s");
        }
    }
}

/// Paging out takes far longer than looking, and does not delay the next look: it would delay it ever more.
#[test]
fn slow_actions_do_not_delay_the_next_look() {
    let kind = PageKind::Touched { within: 30 * SECOND };
    let page_filters = vec![PageFilter { kind, matching: true, allow: false }];
    let one = Scheme { page_filters, ..scheme("s", Action::PageOut) };
    let fate = |_, page| if page < 16 { PageOutcome::Done } else { PageOutcome::Passed };
    let (mut engine, mut desk) = (engine(&[one]), Desk::with(fate));
    (desk.takes, desk.begins) = (Duration::from_millis(1), Duration::from_micros(10));
    for second in 0..60 {
        let all = [view(0, 16, 0.0, SECOND), view(100, 16, 0.0, SECOND)];
        step(&mut engine, &mut desk, second * 1000, &all);
    }
    assert_eq!(desk.asked.len(), 120, "two regions each second");
}

/// The next window may begin before the monitor has a new snapshot.
#[test]
fn a_window_that_did_not_suffice_says_when_the_next_one_begins() {
    let quota = Quota { bytes: Some(8 * PAGE_SIZE), ..Quota::default() };
    let (mut engine, mut desk) =
        (engine(&[Scheme { quota, ..scheme("s", Action::Cold) }]), Desk::new());
    let last = snapshot(500, vec![target(1, &[cold(0)])]);
    let mut step = |engine: &mut Engine, ms: u64| {
        let now = Nanos(ms * 1_000_000);
        engine.step(now, &last, &Metrics::default(), &mut desk, &mut Vec::new()).unwrap();
        engine.due().map(|due| due.0 / 1_000_000)
    };
    assert_eq!(step(&mut engine, 500), Some(1500));
    assert_eq!(step(&mut engine, 700), Some(1500));
    assert_eq!(step(&mut engine, 1500), None, "all is done");
    assert_eq!(desk.take(), [pages(0, 16)]);
}

/// If swap is full, the scheme reports and counts it, and does not retry at once.
#[test]
fn no_room_is_no_reason_to_spin() {
    let full = Failure::NoRoom;
    let mut engine = engine(&[scheme("s", Action::PageOut)]);
    let mut desk = Desk::with(move |_, _| PageOutcome::Failed(full));
    for second in 0..25 {
        step(&mut engine, &mut desk, second * 1000, &[cold(0), cold(32)]);
    }
    assert_eq!(desk.asked.len(), 6, "at 0, 10 and 20 s");
    assert_eq!(stats(&engine, 0).failed.regions, 6);
    assert_eq!(stats(&engine, 0).applied, Count::default());
}

#[test]
fn a_target_that_is_gone_is_counted_and_the_others_have_their_turn() {
    let mut engine = engine(&[scheme("s", Action::PageOut)]);
    let mut desk = Desk::new();
    desk.unknown = Some(TargetId(1));
    let all = snapshot(0, (0..3).map(|id| target(id, &[cold(0), cold(32)])).collect());
    let log = try_step(&mut engine, &mut desk, &all).unwrap();
    let targets: Vec<_> = desk.asked.iter().map(|(a, _)| a.target.0).collect();
    assert_eq!(targets, [0, 0, 2, 2]);
    let gone = |e: &&ActionEvent| matches!(e.outcome, Outcome::Acted(a) if a.failure == Some(Failure::Gone));
    assert_eq!(log.iter().filter(gone).count(), 1);
    assert_eq!((stats(&engine, 0).applied.regions, stats(&engine, 0).failed.regions), (4, 1));
}

#[test]
fn an_error_is_returned_after_the_events_before_it() {
    let unsupported_now = scheme("huge", Action::HugePage);
    let mut engine =
        engine(&[scheme("s", Action::Cold), unsupported_now, scheme("lists", Action::LruPrio)]);
    let mut desk = Desk::new();
    let unsupported = engine.unsupported(&desk);
    assert_eq!(unsupported, [(Arc::from("lists"), "a desk has no lists".to_owned())]);
    let mut log = Vec::new();
    let s = snapshot(0, vec![target(1, &[cold(0), cold(32)])]);
    engine.schemes().for_each(|(s, _)| assert!(s.check().is_ok()));
    engine.step(s.end, &s, &Metrics::default(), &mut desk, &mut log).unwrap();
    assert_eq!(log.len(), 2, "all was taken by the first");
    let s = snapshot(1000, vec![target(1, &[cold(0), cold(32)])]);
    let failed = engine.step(s.end, &s, &Metrics::default(), &mut desk, &mut log);
    assert!(matches!(failed, Err(OpsError::Failed(_))), "{failed:?}");
}

#[test]
fn a_change_keeps_the_statistics() {
    let quota = |bytes| Quota { bytes: Some(bytes), ..Quota::default() };
    let named = |bytes| Scheme { quota: quota(bytes), ..scheme("s", Action::Cold) };
    let mut engine = engine(&[named(8 * PAGE_SIZE)]);
    let mut desk = Desk::new();
    step(&mut engine, &mut desk, 0, &[cold(0)]);
    assert_eq!(desk.take(), [pages(0, 8)]);
    engine.set_schemes(vec![scheme("new", Action::Stat), named(12 * PAGE_SIZE)]).unwrap();
    step(&mut engine, &mut desk, 500, &[cold(0)]);
    assert_eq!(desk.take(), [pages(0, 16), pages(8, 4)], "4 more of this window");
    assert_eq!(stats(&engine, 1).applied.bytes, 12 * PAGE_SIZE);
    assert!(engine.set_schemes(vec![named(12), named(12)]).is_err());
    assert_eq!(engine.schemes().count(), 2, "what is refused changes nothing");
    let other = Scheme { action: Action::PageOut, ..named(12 * PAGE_SIZE) };
    engine.set_schemes(vec![other]).unwrap();
    step(&mut engine, &mut desk, 1000, &[cold(0)]);
    assert_eq!(desk.take(), [pages(0, 12)], "another action was done to nothing yet");
}

/// Physical memory may end anywhere.
#[test]
fn only_whole_pages_are_acted_on() {
    let odd = RegionView { range: AddrRange::new(5, 3 * PAGE_SIZE + 5), ..cold(0) };
    let (mut engine, mut desk) = (engine(&[scheme("s", Action::Cold)]), Desk::new());
    step(&mut engine, &mut desk, 0, &[odd]);
    assert_eq!(desk.take(), [pages(1, 2)]);
    let nothing = RegionView { range: AddrRange::new(5, 9), ..cold(0) };
    step(&mut engine, &mut desk, 1000, &[nothing]);
    assert_eq!(desk.asked.len(), 0);
}

/// With goals only: a huge page is more than the initial quota of the loop for other actions.
#[test]
fn goals_alone_have_huge_pages_made_and_split() {
    let goals = vec![Goal::Free { bp: 2000 }];
    let metrics = Metrics { free_bp: Some(1000), ..Metrics::default() };
    for action in [Action::HugePage, Action::NoHugePage] {
        let quota = Quota { goals: goals.clone(), ..Quota::default() };
        let (mut engine, mut desk) =
            (engine(&[Scheme { quota, ..scheme("s", action) }]), Desk::new());
        for second in 0..4 {
            let s = snapshot(second * 1000, vec![target(1, &[view(0, 2048, 0.0, 600 * SECOND)])]);
            engine.step(s.end, &s, &metrics, &mut desk, &mut Vec::new()).unwrap();
        }
        assert_eq!(desk.take(), [pages(0, 2048)]);
    }
}

/// One page per window, while 20 to 50 % of memory is free; checked every 5 s.
fn marked() -> Scheme {
    let metric = WatermarkMetric::Free;
    let marks = Watermarks { metric, interval: 5 * SECOND, high: 5000, mid: 4000, low: 2000 };
    let quota = Quota { bytes: Some(PAGE_SIZE), ..Quota::default() };
    Scheme { watermarks: Some(marks), quota, ..scheme("s", Action::Cold) }
}

/// Runs a step with this share of free memory. Returns the number of pages acted on, and the time of the next
/// step in ms.
fn step_marked(engine: &mut Engine, ms: u64, free_bp: u32) -> (usize, Option<u64>) {
    let metrics = Metrics { free_bp: Some(free_bp), ..Metrics::default() };
    let (s, mut desk) = (snapshot(ms, vec![target(1, &[cold(0)])]), Desk::new());
    engine.step(s.end, &s, &metrics, &mut desk, &mut Vec::new()).unwrap();
    (desk.asked.len(), engine.due().map(|due| due.0 / 1_000_000))
}

/// This holds although work of the last window remains.
#[test]
fn a_scheme_that_watermarks_hold_off_is_due_when_they_are_looked_at_again() {
    let mut engine = engine(&[marked()]);
    assert_eq!(step_marked(&mut engine, 0, 3000), (1, Some(1000)));
    assert_eq!(step_marked(&mut engine, 5000, 9000), (0, Some(10_000)));
    assert_eq!(step_marked(&mut engine, 7000, 3000), (0, Some(10_000)));
    assert_eq!(step_marked(&mut engine, 10_000, 3000), (1, Some(11_000)));
}

/// Found by a review: a check that found the watermarks closed used up the interval, here ten minutes.
#[test]
fn a_check_of_closed_watermarks_does_not_use_up_the_interval() {
    let slow = Scheme { apply_interval: 600 * SECOND, ..marked() };
    let mut engine = engine(&[slow]);
    assert_eq!(step_marked(&mut engine, 0, 6000), (0, Some(5000)));
    assert_eq!(step_marked(&mut engine, 6000, 3000).0, 1);
    assert_eq!(step_marked(&mut engine, 12_000, 3000).0, 0);
}

/// At 45 % the state stays; and a check with other marks does not count.
#[test]
fn watermarks_that_are_changed_are_looked_at_at_once_and_others_stay_as_they_were() {
    let mut engine = engine(&[marked()]);
    assert_eq!(step_marked(&mut engine, 0, 3000).0, 1);
    let quota = Quota { bytes: Some(2 * PAGE_SIZE), ..Quota::default() };
    engine.set_schemes(vec![Scheme { quota, ..marked() }]).unwrap();
    assert_eq!(step_marked(&mut engine, 1000, 9000).0, 1, "not looked at yet");
    assert_eq!(step_marked(&mut engine, 5000, 4500).0, 1, "on, as before");
    let lower = marked().watermarks.map(|marks| Watermarks { mid: 2500, ..marks });
    engine.set_schemes(vec![Scheme { watermarks: lower, ..marked() }]).unwrap();
    assert_eq!(step_marked(&mut engine, 6000, 3000).0, 0, "as if it had never been on");
    engine.set_schemes(vec![Scheme { watermarks: None, ..marked() }]).unwrap();
    assert_eq!(step_marked(&mut engine, 7000, 9000).0, 1);
}
