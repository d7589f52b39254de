//! Edited records.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Attribution, Fault, FaultKind, HugeAges, Nanos, PageAges, Snapshot, TargetId,
    Thresholds,
};
use isotherm_record::edit::{Edit, EditError, Editor, Rewriter};
use isotherm_record::{Event, FileEndReason, Limits, ReadError, Reader, RecordingHeader, Writer};
use proptest::prelude::*;

use crate::samples::{
    any_snapshots, attribution, facts, few, reader, record, record_stacked, record_with, snapshots,
    target,
};
use crate::stored::of_stacks;

/// One record of these, edited.
fn rewritten(records: &[Vec<u8>], edit: &Edit, repair: bool) -> Result<Vec<u8>, EditError> {
    let mut bytes = Vec::new();
    let writer = Writer::to(&mut bytes, Path::new("new"), &facts(), Limits::default())?;
    let mut rewriter = Rewriter::new(writer, facts());
    for record in records {
        let reader = reader(record);
        rewriter.add(if repair { reader.skip_damaged() } else { reader }, edit, repair)?;
    }
    rewriter.finish()?;
    Ok(bytes)
}

fn edited(record: &[u8], edit: &Edit) -> Vec<Snapshot> {
    snapshots(reader(&rewritten(&[record.to_vec()], edit, false).unwrap()))
}

#[test]
fn a_part_of_the_time_stays_as_it_was() {
    let all = few(10);
    let ms = Duration::from_millis;
    let edit = Edit { time: Some(ms(400)..ms(1300)), ..Edit::default() };
    let part = edited(&record(&all), &edit);
    let expected: Vec<Snapshot> = all[1..3]
        .iter()
        .enumerate()
        .map(|(i, s)| Snapshot { seq: i as u64, ..s.clone() })
        .collect();
    assert_eq!(part, expected);
}

#[test]
fn regions_and_mappings_are_cut_at_addresses() {
    let edit = Edit { addr: Some(AddrRange::new(0x1800, 0x2800)), ..Edit::default() };
    for s in edited(&record(&few(4)), &edit) {
        let view = &s.targets[0];
        let ranges: Vec<_> = view.regions.iter().map(|r| (r.range.start, r.range.end)).collect();
        assert_eq!(ranges, [(0x1800, 0x2000), (0x2000, 0x2800)]);
        assert_eq!((view.mapped(), view.left_out), (0x1000, 0));
    }
}

#[test]
fn a_target_may_be_left_out() {
    let edit = Edit { targets: Some([TargetId(2)].into()), ..Edit::default() };
    assert!(edited(&record(&few(4)), &edit).iter().all(|s| s.targets.is_empty()));
    let edit = Edit { targets: Some([TargetId(1)].into()), ..Edit::default() };
    assert_eq!(edited(&record(&few(4)), &edit)[0].targets[0].id, TargetId(0), "numbers begin anew");
}

/// The memory of a selected time belongs to whom it belonged before, unless a later attribution says otherwise.
#[test]
fn the_last_attribution_before_the_selected_time_stays() {
    let all = few(10);
    let edit =
        Edit { time: Some(Duration::from_millis(2000)..Duration::from_secs(3)), ..Edit::default() };
    let mut bytes = Vec::new();
    let mut writer = Writer::to(&mut bytes, Path::new("a"), &facts(), Limits::default()).unwrap();
    let _ = writer.target(target(1)).unwrap();
    for s in &all {
        if [1, 3, 6].contains(&s.seq) {
            let _ = writer.attribution(attribution(s)).unwrap();
        }
        let _ = writer.snapshot(s).unwrap();
    }
    writer.finish(FileEndReason::Stopped, "").unwrap();
    let edited = rewritten(&[bytes], &edit, false).unwrap();
    let reported = reader(&edited).filter_map(|event| match event.unwrap() {
        Event::Attribution(a) => Some(a),
        _ => None,
    });
    let mine = |s: &Snapshot| Attribution { target: TargetId(0), ..attribution(s) };
    let expected = [Attribution { at: all[5].start, ..mine(&all[3]) }, mine(&all[6])];
    assert_eq!(reported.collect::<Vec<_>>(), expected);
}

/// A fault before the selected time made memory that is still there.
#[test]
fn faults_and_code_stay() {
    let (faults, code) = of_stacks();
    let first = Fault { range: AddrRange::new(0x1000, 0x3000), ..faults[0].clone() };
    let all = few(10);
    let others = [
        Fault { at: all[8].start, ..first.clone() },
        Fault { target: TargetId(2), ..first.clone() },
        Fault { range: AddrRange::new(0x8000, 0x9000), ..first.clone() },
    ];
    // All memory ends when the target becomes another program, also where an allocation began before the addresses.
    let all_memory = AddrRange::new(0, u64::MAX);
    let ended = Fault { kind: FaultKind::Freed, range: all_memory, ..first.clone() };
    // So is the first address of an allocation, by which its release names it.
    let allocated = Fault { kind: FaultKind::Allocated, ..first.clone() };
    let name = AddrRange::new(0x1000, 0x1001);
    let released = Fault { kind: FaultKind::Released, range: name, ..first.clone() };
    let whole = [ended, allocated, released];
    let faults = [&[first.clone()][..], &others, &whole].concat();
    let edit = Edit {
        time: Some(Duration::from_millis(800)..Duration::from_secs(2)),
        targets: Some([first.target].into()),
        addr: Some(AddrRange::new(0x1800, 0x2800)),
        ..Edit::default()
    };
    let record = record_stacked(&all, &faults, Some(Arc::clone(&code)), None);
    let edited = rewritten(&[record], &edit, false).unwrap();
    let (mut kept, mut known) = (Vec::new(), Vec::new());
    for event in reader(&edited) {
        match event.unwrap() {
            Event::Fault(f) => kept.push(f),
            Event::Code { code, .. } => known.push(code),
            _ => {}
        }
    }
    let target = TargetId(0);
    let clipped = Fault { range: AddrRange::new(0x1800, 0x2800), target, ..first };
    let whole = whole.map(|f| Fault { target, ..f });
    assert_eq!(kept, [&[clipped][..], &whole].concat());
    assert_eq!(known, [code]);
}

#[test]
fn a_selection_of_nothing_is_refused() {
    let seconds = Duration::from_secs;
    let late = Edit { time: Some(seconds(100)..seconds(200)), ..Edit::default() };
    let elsewhere = Edit { addr: Some(AddrRange::new(1, 2)), ..Edit::default() };
    for edit in [late, elsewhere] {
        let refused = rewritten(&[record(&few(4))], &edit, false);
        assert!(matches!(refused, Err(EditError::Empty)), "{edit:?}");
    }
}

#[test]
fn longer_intervals_have_means() {
    let edit = Edit { aggr: Some(Duration::from_millis(800)), ..Edit::default() };
    let all = few(5);
    let joined = edited(&record(&all), &edit);
    let times: Vec<u64> = joined.iter().map(|s| s.end.since(s.start).as_millis() as u64).collect();
    assert_eq!(times, [800, 800, 400]);
    let looks: u64 = joined.iter().map(|s| s.cost.looks).sum();
    assert_eq!(looks, 5 * 20);
    let bp = |s: &Snapshot, i: usize| s.targets[0].regions[i].accesses_bp;
    // 0 and 1 in the first region, 7 and 8 in the second: they differ by less than 1 %, and become one
    assert_eq!(bp(&joined[0], 0), 8);
    assert_eq!(joined[0].targets[0].regions.len(), 1);
    assert_eq!(joined[0].targets[0].ran, Some(Duration::from_millis(780)));
    // What is long enough has the regions that it had, also similar ones.
    assert_eq!(joined[2].targets[0].regions, all[4].targets[0].regions);
}

/// Found by an audit: what ended before the last snapshot of an interval was left out.
#[test]
fn a_target_that_ends_within_a_longer_interval_stays() {
    let mut all = few(4);
    let mut ages = PageAges { sampling: 1, since: all[0].start, ..PageAges::default() };
    ages.returned.add(9_000, 300);
    ages.idle.add(9_000, 400);
    ages.untouched = 100;
    let mut job = all[0].targets[0].clone();
    (job.id, job.ages) = (TargetId(2), Some(Arc::new(ages)));
    all[0].targets.push(job);
    let edit = Edit { aggr: Some(Duration::from_millis(1600)), ..Edit::default() };
    let [joined] = &edited(&record(&all), &edit)[..] else { panic!() };
    let job = &joined.targets[1];
    // It was there for a quarter of the time.
    assert!(job.regions.iter().all(|r| r.resident_bp == 2500), "{job:?}");
    let ages = job.ages.as_ref().unwrap();
    let pages = (ages.returned.total(), ages.idle.total(), ages.untouched);
    assert_eq!(pages, (300, 100, 25));
    assert!(joined.targets[0].regions.iter().all(|r| r.resident_bp == 10_000));
}

/// Found by an audit: joined to intervals of 10 s, this record had four times as much hot memory.
#[test]
fn longer_intervals_have_as_much_hot_memory() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/notebooks/redis.rec");
    let all = snapshots(Reader::open(&path).unwrap());
    let hot = |all: &[Snapshot]| {
        let seconds = |s: &Snapshot| s.end.since(s.start).as_secs_f64();
        let hot = |s: &Snapshot| s.bytes(&Thresholds::default()).hot as f64 * seconds(s);
        all.iter().map(hot).sum::<f64>() / all.iter().map(seconds).sum::<f64>()
    };
    let before = hot(&all);
    for seconds in [1, 2, 5, 10] {
        let edit = Edit { aggr: Some(Duration::from_secs(seconds)), ..Edit::default() };
        let mut editor = Editor::new(edit);
        let mut joined: Vec<Snapshot> =
            all.iter().filter_map(|s| editor.push(s).unwrap()).collect();
        joined.extend(editor.rest());
        let after = hot(&joined);
        assert!((0.9..1.1).contains(&(after / before)), "{seconds} s: {after} of {before}");
    }
}

#[test]
fn recordings_one_after_the_other_are_one() {
    let first = record(&few(3));
    let mut later = few(3);
    for s in &mut later {
        s.start = s.start + Duration::from_secs(10);
        s.end = s.end + Duration::from_secs(10);
    }
    let joined = rewritten(&[first.clone(), record(&later)], &Edit::default(), false).unwrap();
    let all = snapshots(reader(&joined));
    assert_eq!(all.iter().map(|s| s.seq).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    let overlap = rewritten(&[first.clone(), first.clone()], &Edit::default(), false);
    assert!(matches!(overlap, Err(EditError::Overlap { .. })));

    // After a reboot, an hour later: the clock has started again.
    let rebooted =
        RecordingHeader { started_unix_ms: facts().started_unix_ms + 3_600_000, ..facts() };
    let second = record_with(&rebooted, &few(3));
    let all = snapshots(reader(&rewritten(&[first, second], &Edit::default(), false).unwrap()));
    assert_eq!(all[3].start.since(all[0].start), Duration::from_secs(3600));
}

/// The times of idle ages are on the clock of the joined record too, whichever of the two clocks is ahead.
#[test]
fn idle_ages_keep_their_length_on_another_clock() {
    let later = |by_s: u64| {
        let mut all = few(3);
        for s in &mut all {
            (s.start, s.end) =
                (s.start + Duration::from_secs(by_s), s.end + Duration::from_secs(by_s));
            let (since, begun) = (s.start, Nanos(s.start.0 - 1_000_000));
            let ages = PageAges { since, begun, sampling: 1, ..PageAges::default() };
            s.targets[0].ages = Some(Arc::new(ages));
        }
        all
    };
    // Both begin an hour later: the one by the clock of a machine that was off, the other by that of one that ran for
    // two hours before.
    for uptime_s in [0, 7200] {
        let started = facts().started + Duration::from_secs(uptime_s);
        let started_unix_ms = facts().started_unix_ms + 3_600_000;
        let facts = RecordingHeader { started, started_unix_ms, ..facts() };
        let second = record_with(&facts, &later(uptime_s));
        let joined = rewritten(&[record(&later(0)), second], &Edit::default(), false).unwrap();
        let all = snapshots(reader(&joined));
        assert_eq!(all[3].start.since(all[0].start), Duration::from_secs(3600));
        for s in &all {
            let ages = s.targets[0].ages.as_ref().unwrap();
            let times = (ages.since, ages.since.since(ages.begun));
            assert_eq!(times, (s.start, Duration::from_millis(1)), "{uptime_s}");
        }
    }
}

/// What came back in huge pages is added up too, and the error of ages is that of all that came back.
#[test]
fn joined_ages_have_all_that_came_back() {
    let mut all = few(2);
    for (s, (pages, error_ms)) in all.iter_mut().zip([(300, 1000), (100, 200)]) {
        let mut ages = PageAges { since: s.start, sampling: 1, error_ms, ..PageAges::default() };
        ages.returned.add(9_000, pages);
        ages.idle.add(9_000, pages);
        let huge = HugeAges { returned: ages.returned, idle: ages.idle };
        ages.huge = Some(Box::new(huge));
        s.targets[0].ages = Some(Arc::new(ages));
    }
    let edit = Edit { aggr: Some(Duration::from_millis(800)), ..Edit::default() };
    let joined = edited(&record(&all), &edit);
    let ages = joined[0].targets[0].ages.as_ref().unwrap();
    let huge = ages.huge.as_ref().unwrap();
    let pages = [&ages.returned, &huge.returned, &ages.idle, &huge.idle].map(|h| h.total());
    assert_eq!(pages, [400, 400, 100, 100]);
    assert_eq!((ages.since, ages.error_ms), (all[0].start, 800));
}

#[test]
fn a_torn_and_damaged_record_is_repaired() {
    let mut bytes = record(&few(200));
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    bytes.truncate(bytes.len() - 10);
    let refused = rewritten(&[bytes.clone()], &Edit::default(), false);
    assert!(matches!(
        refused,
        Err(EditError::Read(ReadError::Damaged { .. } | ReadError::Torn { .. }))
    ));
    let repaired = rewritten(&[bytes], &Edit::default(), true).unwrap();
    let events: Vec<Event> = reader(&repaired).map(|event| event.unwrap()).collect();
    assert!(matches!(events.last(), Some(Event::End(_))));
    let left = snapshots(events.into_iter().map(Ok::<_, ReadError>));
    assert!((1..200).contains(&left.len()));
    assert!((0..).zip(&left).all(|(seq, s)| s.seq == seq));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn joined_snapshots_have_the_same_time_and_cost_and_are_valid(
        all in any_snapshots(12),
        seconds in 1..10u64,
    ) {
        let mut editor = Editor::new(Edit { aggr: Some(Duration::from_secs(seconds)), ..Edit::default() });
        let mut joined: Vec<Snapshot> = all.iter().filter_map(|s| editor.push(s).unwrap()).collect();
        joined.extend(editor.rest());
        let time = |all: &[Snapshot]| all.iter().map(|s| s.end.since(s.start)).sum::<Duration>();
        prop_assert_eq!(time(&joined), time(&all));
        // A writer refuses what is out of order, or has a share above one or a rate that is no number.
        record(&joined);
        let most = |all: &[Snapshot]| all.iter().map(Snapshot::nr_regions).max().unwrap_or(0);
        prop_assert!(joined.iter().all(|s| s.targets.iter().all(|t| t.regions.len() <= most(&all).max(1) * 12)));
    }
}
