//! Exports for damo, read again.

use std::io::Cursor;
use std::path::Path;
use std::time::Duration;

use isotherm_core::{Missing, Nanos, Snapshot};
use isotherm_record::edit::{Edit, EditError, Rewriter};
use isotherm_record::import::{Import, Presumed};
use isotherm_record::{
    FileEndReason, Limits, RecordingHeader, TargetInfo, Writer, export_damo_json,
    export_perf_script,
};

use crate::samples::{facts, few, reader, record_with, snapshots};

fn imported(file: impl AsRef<[u8]>) -> Import {
    Import::read(Cursor::new(file), Path::new("file"), "0.1.0", Presumed::default()).unwrap()
}

/// What `isotherm import` writes.
fn recorded(import: &Import) -> Vec<u8> {
    let mut bytes = Vec::new();
    let limits = Limits::default();
    let mut writer = Writer::to(&mut bytes, Path::new("new"), import.facts(), limits).unwrap();
    for target in import.targets() {
        let _ = writer.target(target.clone()).unwrap();
    }
    for s in import.snapshots() {
        let _ = writer.snapshot(&s).unwrap();
    }
    writer.finish(FileEndReason::Played, "imported").unwrap();
    bytes
}

fn to_json(record: &[u8]) -> Import {
    let mut out = Vec::new();
    export_damo_json(|| Ok(reader(record)), &mut out).unwrap();
    imported(out)
}

fn to_text(record: &[u8]) -> String {
    let mut out = Vec::new();
    export_perf_script(reader(record), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Found by an audit: damo multiplied counts in the real intervals of the snapshots by the interval of the recording.
#[test]
fn counts_are_in_the_intervals_of_the_recording() {
    let mut all = few(3);
    for (s, aggr) in all.iter_mut().zip([200, 400, 2000]) {
        s.attrs.aggr = Duration::from_millis(aggr);
        for r in &mut s.targets[0].regions {
            (r.accesses_bp, r.age) = (9000, Duration::from_secs(24));
        }
    }
    let record = record_with(&facts(), &all);
    let expected = (9000, Duration::from_secs(24));
    let snapshots: Vec<Snapshot> = to_json(&record).snapshots().collect();
    assert_eq!(snapshots.len(), 3);
    let regions = || snapshots.iter().flat_map(|s| &s.targets[0].regions);
    assert!(regions().all(|r| (r.accesses_bp, r.age) == expected), "{snapshots:?}");
    let text = to_text(&record);
    assert!(text.lines().all(|line| line.ends_with(": 18 60")), "{text}");
}

/// Found by an audit: unknown ages were exported as 0.
#[test]
fn unknown_ages_stay_unknown() {
    let missing = Missing { ages: true, ..Missing::default() };
    let record = record_with(&RecordingHeader { missing, ..facts() }, &few(3));
    let text = to_text(&record);
    assert!(text.lines().all(|line| line.ends_with(": 0") || line.ends_with(": 1")), "{text}");
    assert!(to_json(&record).facts().missing.ages && imported(text).facts().missing.ages);
}

/// Two kdamonds, each with a target 0.
const TWO: &str = r#"[
    {"kdamond_idx": 0, "context_idx": 0, "target_id": 0, "snapshots": [{"start_time": "1000000000",
    "end_time": "1100000000", "regions": [{"start": "4096", "end": "8192", "nr_accesses": {"samples": 3},
    "age": {"aggr_intervals": 1}}]}]},
    {"kdamond_idx": 1, "context_idx": 2, "target_id": 0, "snapshots": [{"start_time": "1000000000",
    "end_time": "1100000000", "regions": [{"start": "8192", "end": "12288", "nr_accesses": {"samples": 20},
    "age": {"aggr_intervals": 5}}]}]}]"#;

/// Found by an audit: both targets had one name, so that the record could not be edited.
#[test]
fn targets_of_two_kdamonds_are_two() {
    let import = imported(TWO);
    let names = |import: &Import| -> Vec<String> {
        import.targets().iter().map(|target| target.command.clone()).collect()
    };
    let expected = ["damon target 0", "damon target 0 of kdamond 1 context 2"];
    assert_eq!(names(&import), expected);
    let record = recorded(&import);
    assert_eq!(names(&to_json(&record)), expected);
    let text = to_text(&record);
    let of = |kdamond| text.lines().filter(move |l| l.starts_with(kdamond)).count();
    assert_eq!([of("kdamond.0"), of("kdamond.1")], [1, 1]);
    assert_eq!(targets_of_edited(&record), 2);
}

/// Names come from files, so that two targets of one recording may have the same.
#[test]
fn targets_of_the_same_name_stay_two() {
    let import = imported(TWO);
    let mut bytes = Vec::new();
    let limits = Limits::default();
    let mut writer = Writer::to(&mut bytes, Path::new("new"), import.facts(), limits).unwrap();
    for target in import.targets() {
        let _ = writer.target(TargetInfo { command: "same".into(), ..target.clone() }).unwrap();
    }
    for s in import.snapshots() {
        let _ = writer.snapshot(&s).unwrap();
    }
    writer.finish(FileEndReason::Played, "").unwrap();
    assert_eq!(targets_of_edited(&bytes), 2);
}

/// Number of targets in the only snapshot of the edited record.
fn targets_of_edited(record: &[u8]) -> usize {
    let mut bytes = Vec::new();
    let writer = Writer::to(&mut bytes, Path::new("new"), &facts(), Limits::default()).unwrap();
    let mut rewriter = Rewriter::new(writer, facts());
    rewriter.add(reader(record), &Edit::default(), false).unwrap();
    rewriter.finish().unwrap();
    let all = snapshots(reader(&bytes));
    assert_eq!(all.len(), 1);
    all[0].targets.len()
}

/// A line of `perf script`, at a time in ms.
fn line(event: &str, ms: u64, start: u64) -> String {
    let (sec, ms, end) = (ms / 1000, ms % 1000, start + 4096);
    format!("kdamond.0 1 [000] {sec}.{ms:03}: damon:{event} {start}-{end}: 3 5\n")
}

/// Found by an audit: its snapshot had no length, so that no report read the record.
#[test]
fn a_single_result_is_as_long_as_the_default_interval() {
    let import = imported(line("damon_aggregated: target_id=0 nr_regions=1", 1500, 4096));
    let lengths: Vec<_> = import.snapshots().map(|s| s.end.since(s.start)).collect();
    assert_eq!(lengths, [Duration::from_millis(100)]);
}

/// Found by an audit: the presumed begin of a part's first snapshot may lie before the end of the part before.
#[test]
fn parts_of_one_recording_are_joined() {
    let part = |ends: &[u64]| {
        let of = |&ms| line("damon_aggregated: target_id=0 nr_regions=1", ms, 4096);
        recorded(&imported(ends.iter().map(of).collect::<String>()))
    };
    let joined = |parts: [&[u64]; 2]| {
        let mut bytes = Vec::new();
        let [first, second] = parts.map(part);
        let facts = imported(line("damon_aggregated: target_id=0 nr_regions=1", 1000, 4096));
        let facts = facts.facts().clone();
        let writer = Writer::to(&mut bytes, Path::new("new"), &facts, Limits::default()).unwrap();
        let mut rewriter = Rewriter::new(writer, facts);
        rewriter.add(reader(&first), &Edit::default(), false)?;
        rewriter.add(reader(&second), &Edit::default(), false)?;
        rewriter.finish().map(|_| snapshots(reader(&bytes)))
    };
    // The snapshots of the second part are longer than the first of them was.
    let all = joined([&[1000, 1100, 1200], &[1300, 1402, 1504]]).unwrap();
    let ms = |at: Nanos| at.0 / 1_000_000;
    let times: Vec<_> = all.iter().map(|s| (ms(s.start), ms(s.end))).collect();
    assert_eq!(times[2..4], [(1100, 1200), (1200, 1300)]);
    let overlap = joined([&[1000, 1100, 1200], &[1200, 1300]]);
    assert!(matches!(overlap, Err(EditError::Overlap { .. })));
}

/// Found by an audit: the results of several intervals were one if each lay at higher addresses.
#[test]
fn a_pause_ends_the_result_of_a_scheme() {
    let scheme = "damos_before_apply: ctx_idx=0 scheme_idx=0 target_idx=0 nr_regions=9";
    let events = [(1000, 4096), (1010, 8192), (2000, 40960), (3000, 409_600)];
    let import = imported(events.map(|(ms, start)| line(scheme, ms, start)).concat());
    let found: Vec<_> = import.snapshots().map(|s| (s.end.0 / 1_000_000, s.nr_regions())).collect();
    assert_eq!(found, [(1000, 2), (2000, 1), (3000, 1)]);
}

/// A record of damo of one target: its intervals and snapshots.
fn damo_record(kdamond: u8, intervals: &str, snapshots: &[String]) -> String {
    let snapshots = snapshots.join(",");
    format!(
        r#"{{"kdamond_idx": {kdamond}, "intervals": {intervals}, "target_id": 0, "snapshots": [{snapshots}]}}"#
    )
}

/// A snapshot from and to times in ms, of one region of 64 MiB with one access.
fn damo_snapshot(from: u64, to: u64, sample_us: &str, start: u64, age: u64) -> String {
    let (ns, end) = (1_000_000, start + (64 << 20));
    format!(
        r#"{{"start_time": "{}", "end_time": "{}", "sample_interval_us": {sample_us}, "regions": [
            {{"start": "{start}", "end": "{end}", "nr_accesses": {{"samples": 1}},
            "age": {{"aggr_intervals": {age}}}}}]}}"#,
        from * ns,
        to * ns,
    )
}

/// Found by an audit: the rates of tuned intervals were those of the initial ones, and so were the ages.
#[test]
fn tuned_intervals_give_rates_and_ages() {
    let (first, goal) = (r#""sample_us": "5000", "aggr_us": "100000""#, "intervals_goal");
    let off = format!(r#"{{{first}, "{goal}": {{"aggrs": "0", "min_sample_us": "0"}}}}"#);
    let limits = r#""min_sample_us": "5000", "max_sample_us": "1000000""#;
    let on = format!(r#"{{{first}, "{goal}": {{"access_bp": "400.0", "aggrs": "3", {limits}}}}}"#);
    // length of the snapshot and its stated sampling interval; its real intervals in us
    for (intervals, len, stated, sample, aggr) in [
        (&on, 1600, "null", 80_000, 1_600_000),
        (&on, 105, "null", 5000, 100_000),
        (&on, 60_000, "null", 1_000_000, 20_000_000),
        (&on, 1, "null", 5000, 100_000),
        (&on, 1600, "40000", 40_000, 800_000),
        (&off, 1600, "null", 5000, 100_000),
        (&off, 1600, "80000", 80_000, 1_600_000),
        // as damo writes it, in ns
        (&on, 1600, r#""80000000""#, 80_000, 1_600_000),
    ] {
        let snapshot = damo_snapshot(1000, 1000 + len, stated, 4096, 10);
        let import = imported(format!("[{}]", damo_record(0, intervals, &[snapshot])));
        let s = import.snapshots().next().unwrap();
        let (found, r) = ([s.attrs.sample, s.attrs.aggr], s.targets[0].regions[0]);
        assert_eq!(found.map(|d| d.as_micros()), [sample, aggr], "{len} {stated}");
        assert_eq!((r.accesses_bp, r.age.as_micros()), (500, 10 * aggr), "{len} {stated}");
        // one access in 20 sampling intervals
        let expected = 0.05 / (sample as f32 / 1e6);
        assert!((0.9..1.3).contains(&(r.rate.hz / expected)), "{len} {stated}: {:?}", r.rate);
    }
}

/// Found by an audit: a target had the rates of the interval of another one, and was missing from most snapshots.
#[test]
fn targets_of_different_intervals_keep_theirs() {
    let each = |ms: u64, n: u64, start| -> Vec<String> {
        let begin = |i| 1000 + i * ms;
        (0..n).map(|i| damo_snapshot(begin(i), begin(i + 1), "null", start, 3)).collect()
    };
    let intervals = |sample, aggr| format!(r#"{{"sample_us": {sample}, "aggr_us": {aggr}}}"#);
    let short = damo_record(0, &intervals(5000, 100_000), &each(100, 40, 4096));
    let long = damo_record(1, &intervals(100_000, 2_000_000), &each(2000, 2, 1 << 30));
    let rate_of = |records: &str, target: usize| {
        let s = imported(format!("[{records}]")).snapshots().last().unwrap();
        s.targets[target].regions[0].rate
    };
    let expected = [rate_of(&short, 0), rate_of(&long, 0)];
    let both = imported(format!("[{short},{long}]"));
    let snapshots: Vec<Snapshot> = both.snapshots().collect();
    assert_eq!(snapshots.len(), 40);
    for s in &snapshots {
        let rates: Vec<_> = s.targets.iter().map(|t| t.regions[0].rate).collect();
        assert_eq!(rates, expected);
        let ages = [0, 1].map(|i| s.targets[i].regions[0].age.as_millis());
        assert_eq!(ages, [300, 6000]);
    }
    let times = snapshots.iter().map(|s| (s.end.0 - s.start.0) / 1_000_000);
    assert!(times.into_iter().all(|ms| ms == 100));
}

/// Of each target and snapshot: the share of accesses in basis points, the rate, and the age in ms.
fn views(import: &Import, target: usize) -> Vec<(u64, u32, f32, u128)> {
    let of = |s: Snapshot| {
        let r = s.targets.get(target)?.regions[0];
        Some((s.end.0 / 1_000_000, r.accesses_bp, r.rate.hz, r.age.as_millis()))
    };
    import.snapshots().filter_map(of).collect()
}

/// Found by an audit: an export had the intervals of the recording for all snapshots, so that damo computed other rates.
#[test]
fn an_export_keeps_tuned_intervals() {
    let goal = r#"{"access_bp": "400", "aggrs": "3", "min_sample_us": "5000", "max_sample_us": "1000000"}"#;
    let intervals =
        format!(r#"{{"sample_us": 5000, "aggr_us": 100000, "intervals_goal": {goal}}}"#);
    let spans = [(1000, 1100, 7), (1100, 1900, 3), (1900, 3500, 2)];
    let all = spans.map(|(from, to, age)| damo_snapshot(from, to, "null", 4096, age));
    let original = imported(format!("[{}]", damo_record(0, &intervals, &all)));
    let again = to_json(&recorded(&original));
    assert_eq!(views(&again, 0), views(&original, 0));
    let samples: Vec<_> = again.snapshots().map(|s| s.attrs.sample.as_millis()).collect();
    assert_eq!(samples, [5, 40, 80]);
}

/// Found by an audit: all targets of an export had the intervals of the first one.
#[test]
fn an_export_keeps_the_intervals_of_each_target() {
    // The counts of the second have 20 and 40 samples per aggregation interval.
    for (sample, nr) in [(100_000, [3, 0, 20]), (50_000, [6, 0, 38])] {
        let region = |start: u64, nr: u32| {
            format!(
                r#"{{"start": {start}, "end": {}, "nr_accesses": {{"samples": {nr}}}, "age": {{"aggr_intervals": 3}}}}"#,
                start + 4096
            )
        };
        let each = |ms: u64, n: u64, regions: &str| -> Vec<String> {
            let ns = |i| (1000 + i * ms) * 1_000_000;
            let of = |i| {
                let times = format!(r#""start_time": {}, "end_time": {}"#, ns(i), ns(i + 1));
                format!(r#"{{{times}, "regions": [{regions}]}}"#)
            };
            (0..n).map(of).collect()
        };
        let intervals = |sample, aggr| format!(r#"{{"sample_us": {sample}, "aggr_us": {aggr}}}"#);
        let long = nr.iter().zip(1..).map(|(nr, i)| region(i << 30, *nr)).collect::<Vec<_>>();
        let records = [
            damo_record(0, &intervals(5000, 100_000), &each(100, 40, &region(4096, 1))),
            damo_record(1, &intervals(sample, 2_000_000), &each(2000, 2, &long.join(","))),
        ];
        let original = imported(format!("[{}]", records.join(",")));
        let again = to_json(&recorded(&original));
        for target in [0, 1] {
            assert_eq!(views(&again, target).len(), 40);
            for (new, old) in views(&again, target).iter().zip(views(&original, target)) {
                let (what, age) = (format!("{sample} {target}: {new:?} {old:?}"), old.3);
                assert_eq!((new.0, new.1), (old.0, old.1), "{what}");
                // A record has rounded rates, and the intervals of the second target follow from these.
                let error = if target == 0 { 1e-6 } else { 0.1 };
                assert!((new.2 / old.2 - 1.0).abs() < error, "{what}");
                assert!(new.3.abs_diff(age) <= if target == 0 { 0 } else { age / 10 }, "{what}");
            }
        }
    }
}
