//! Recordings of other tools as records, against what damo itself reports of them.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use isotherm_core::{AddrRange, Snapshot};
use isotherm_record::{Event, Reader};
use serde_json::json;
use tempfile::TempDir;

use crate::run::run_in;

/// Recordings of damo, and what it reports of them.
pub struct Samples {
    pub dir: PathBuf,
    /// snapshots of the recordings, and of the text of perf script
    snapshots: [usize; 2],
    /// end of the first snapshot of the text
    first_end: u64,
    /// of single snapshots: file, number of regions, sampling and aggregation interval in ms
    single: [(&'static str, usize, u128, u128); 2],
}

/// Those of this folder, and those beside the repository, or in `ISOTHERM_CONFORMANCE`. The latter are not part of it,
/// because their licence is another.
pub fn samples(test: &str) -> Vec<Samples> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ours = Samples {
        dir: package.join("tests/program/damo"),
        snapshots: [59, 22],
        first_end: 31_230_345_513_466,
        single: [(FILTERED, 18, 5, 100), (UNFILTERED, 18, 5, 100)],
    };
    let beside = package.join("../../../shared/conformance");
    let beside = std::env::var_os("ISOTHERM_CONFORMANCE").map_or(beside, PathBuf::from);
    let of_damo = Samples {
        dir: beside.join("damo"),
        snapshots: [543, 54],
        first_end: 82_820_952_659_000,
        single: [(FILTERED, 105, 150, 3000), (UNFILTERED, 132, 5, 100)],
    };
    if of_damo.dir.is_dir() {
        return vec![ours, of_damo];
    }
    // The harness hides what `eprintln` prints in a test that passes.
    let skipped = of_damo.dir.display();
    let _ = writeln!(
        io::stderr(),
        "{test} uses only the recordings of this repository: {skipped} does not exist. Name the folder that holds \
         it in ISOTHERM_CONFORMANCE",
    );
    vec![ours]
}

/// A snapshot of a scheme with a filter, and of none.
pub const FILTERED: &str = "damon.data.snapshot.anon";
pub const UNFILTERED: &str = "damon.data.snapshot.nofilter";

/// Imports a file and reads the record, which must be sound.
fn import(file: &Path) -> Vec<Snapshot> {
    let dir = TempDir::new().unwrap();
    let done = run_in(dir.path(), &["import", file.to_str().unwrap()]);
    assert_eq!(done.status, 0, "{}", done.err);
    let check = run_in(dir.path(), &["record", "--check", "isotherm.rec"]);
    assert_eq!(check.status, 0, "{}{}", check.text(), check.err);
    let events = Reader::open(&dir.path().join("isotherm.rec")).unwrap();
    let snapshot = |event| match event {
        Event::Snapshot(s) => Some(Snapshot::clone(&s)),
        _ => None,
    };
    events.filter_map(|event| snapshot(event.unwrap())).collect()
}

/// The `touched_bytes` that `report wss` prints of each snapshot.
fn touched(snapshots: &[Snapshot]) -> Vec<u64> {
    let of = |s: &Snapshot| {
        let mut builder = isotherm_report::WssBuilder::new(isotherm_report::Options::default());
        builder.push(s);
        builder.finish(&[50.0]).unwrap().touched_bytes.mean
    };
    snapshots.iter().map(of).collect()
}

/// damo's rows of percentiles: it leaves out the first 20 snapshots, and takes the value at a share of the
/// sorted ones.
pub fn percentiles(mut values: Vec<u64>, skipped: usize) -> (u64, Vec<u64>) {
    values.drain(..skipped);
    values.sort_unstable();
    let mean = values.iter().sum::<u64>() / values.len() as u64;
    let at = |p: usize| values[(p * values.len() / 100).min(values.len() - 1)];
    (mean, (1..=100).map(at).collect())
}

/// The mean and the second column of a report of damo.
pub fn rows(report: &str) -> (u64, Vec<u64>) {
    let mean = report.lines().find_map(|l| l.strip_prefix("# avr:")).unwrap().trim();
    let rows = report.lines().filter(|l| !l.starts_with('#'));
    let values = rows.filter_map(|l| l.split_whitespace().nth(1)?.parse().ok()).collect();
    (mean.parse().unwrap(), values)
}

fn expected(file: &Path) -> (u64, Vec<u64>) {
    rows(&fs::read_to_string(file).unwrap())
}

/// The areas outside of gaps that every snapshot has.
fn areas(snapshots: &[Snapshot]) -> Vec<AddrRange> {
    let regions = snapshots.iter().flat_map(|s| &s.targets).flat_map(|t| &t.regions);
    let mut all: Vec<AddrRange> = regions.map(|r| r.range).collect();
    all.sort_unstable();
    let mut areas: Vec<AddrRange> = Vec::new();
    for r in all {
        match areas.last_mut() {
            Some(last) if r.start <= last.end => last.end = last.end.max(r.end),
            _ => areas.push(r),
        }
    }
    areas
}

#[test]
fn each_format_has_the_figures_that_damo_reports() {
    for Samples { dir, snapshots: [count, _], .. } in
        samples("each_format_has_the_figures_that_damo_reports")
    {
        for file in ["damon.data", "damon.data.json_compressed", "damon.data.record_v2"] {
            let file = dir.join(file);
            let snapshots = import(&file);
            assert_eq!(snapshots.len(), count, "{file:?}");
            let wss = percentiles(touched(&snapshots), 20);
            assert_eq!(wss, expected(&dir.join("wss.expected")), "{file:?}");
            let regions = snapshots.iter().map(|s| s.nr_regions() as u64).collect();
            let regions = percentiles(regions, 20);
            assert_eq!(regions, expected(&dir.join("nr_regions.expected")), "{file:?}");

            let (begin, end) = (snapshots[0].start.0, snapshots[count - 1].end.0);
            let mut guide = format!("[{begin}, {end}) ({})\n", end - begin);
            for (i, r) in areas(&snapshots).iter().enumerate() {
                guide += &format!("region\t{i:2}: [{}, {}) ({})\n", r.start, r.end, r.len());
            }
            let expected = fs::read_to_string(dir.join("heats_guide.expected")).unwrap();
            assert_eq!(guide, expected.split_once("time: ").unwrap().1, "{file:?}");
        }
    }
}

#[test]
fn text_of_perf_script_has_the_regions_of_its_lines() {
    for Samples { dir, snapshots: [_, count], first_end, .. } in
        samples("text_of_perf_script_has_the_regions_of_its_lines")
    {
        let file = dir.join("damon.data.perf_script");
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().filter(|l| l.contains("damon_aggregated")).collect();
        let snapshots = import(&file);
        assert_eq!(snapshots.len(), count);
        let regions: Vec<_> = snapshots.iter().flat_map(|s| &s.targets[0].regions).collect();
        assert_eq!(regions.len(), lines.len());
        for (r, line) in regions.iter().zip(&lines) {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(words[7], format!("{}-{}:", r.range.start, r.range.end));
            // 20 sampling intervals are presumed
            assert_eq!(words[8], (r.accesses_bp / 500).to_string());
            assert_eq!(r.rate.high, f32::INFINITY, "the sampling interval is not known");
        }
        assert_eq!(snapshots[0].end.0, first_end);
    }
}

#[test]
fn one_snapshot_has_its_ages_and_intervals() {
    for Samples { dir, single, .. } in samples("one_snapshot_has_its_ages_and_intervals") {
        for (file, regions, sample, aggr) in single {
            let file = dir.join(file);
            let snapshots = import(&file);
            let found = (snapshots.len(), snapshots[0].nr_regions());
            assert_eq!(found, (1, regions), "{file:?}");
            let attrs = snapshots[0].attrs;
            let intervals = (attrs.sample.as_millis(), attrs.aggr.as_millis());
            assert_eq!(intervals, (sample, aggr), "{file:?}");
            let ages = snapshots[0].targets[0].regions.iter().map(|r| r.age.as_millis());
            assert!(ages.clone().any(|ms| ms > 0) && ages.clone().all(|ms| ms % aggr == 0));
        }
    }
}

#[test]
fn what_a_file_lacks_is_unknown_in_reports() {
    let dir = samples("what_a_file_lacks_is_unknown_in_reports").remove(0).dir;
    for (file, missing) in
        [(FILTERED, json!(["residency"])), ("damon.data.record_v2", json!(["ages", "residency"]))]
    {
        let work = TempDir::new().unwrap();
        let run = |args: &[&str]| {
            let done = run_in(work.path(), args);
            assert_eq!(done.status, 0, "{args:?}: {}", done.err);
            done
        };
        let file = dir.join(file);
        let done = run(&["import", file.to_str().unwrap()]);
        let lacks_ages = missing.as_array().unwrap().contains(&json!("ages"));
        assert_eq!(done.err.contains("does not have ages"), lacks_ages, "{}", done.err);
        // An edited record lacks the same.
        run(&["edit", "-o", "edited.rec", "--time", "0s..1h"]);
        for record in ["isotherm.rec", "edited.rec"] {
            for kind in ["access", "heatmap", "wss", "regions"] {
                let report = run(&["report", kind, "--json", "-i", record]).json();
                assert_eq!(report["missing"], missing, "{kind}");
                assert!(report["resident_bytes"].is_null(), "{kind}");
                let rows = ["regions", "panels"].map(|key| report[key].as_array());
                for row in rows.into_iter().flatten().flatten() {
                    assert!(row["resident_bytes"].is_null(), "{row}");
                    if kind == "access" {
                        assert_eq!(row["age_ms"].is_null(), lacks_ages, "{row}");
                        assert!(row["age_low_ms"].is_number(), "{row}");
                    }
                }
            }
            let summary = run(&["report", "summary", "--json", "-i", record]).json();
            assert_eq!(summary["missing"], missing);
            for bytes in [&summary["mean"], &summary["targets"][0], &summary["mappings"][0]] {
                assert!(bytes["resident_bytes"].is_null() && bytes["absent_bytes"].is_null());
                assert!(bytes["mapped_bytes"].is_number(), "{bytes}");
            }
            for kind in ["summary", "access", "wss", "raw"] {
                let text = run(&["report", kind, "-i", record]).text().to_owned();
                assert!(text.contains("not in the record: which memory is resident"), "{text}");
                assert_eq!(text.contains("; ages, except for lower bounds"), lacks_ages, "{text}");
                if ["access", "raw"].contains(&kind) {
                    assert_eq!(text.contains(" >= "), lacks_ages, "{text}");
                }
            }
        }
        // Most imports have no time of their start either.
        run(&["export", "--format", "parquet", "-o", "folder"]);
        let days = fs::read_dir(work.path().join("folder/regions/host=unknown")).unwrap();
        let days: Vec<_> = days.map(|day| day.unwrap().file_name()).collect();
        assert_eq!(days, ["day=__HIVE_DEFAULT_PARTITION__"]);
    }
}

#[test]
fn files_that_are_no_recordings_are_refused_with_a_reason() {
    let dir = TempDir::new().unwrap();
    let cases: [(&str, &[u8], &str); 7] = [
        ("text", b"hello\n", "no known format"),
        ("nothing", b"", "nothing is empty"),
        ("json", b"[{\"snapshots\": [5]}]", "at byte 16"),
        ("zlib", b"\x78\x9c\x01\x02", "at byte 0"),
        ("binary", b"damon_recfmt_ver\x09\0\0\0", "version is 9"),
        ("perf", b"PERFILE2 and no more", "at byte 0"),
        ("trace", b"k 1 [0] 1.5: damon:damon_aggregated: target_id=0\n", "at byte 0"),
    ];
    for (name, content, reason) in cases {
        fs::write(dir.path().join(name), content).unwrap();
        let done = run_in(dir.path(), &["import", name, "-o", "x.rec"]);
        assert_eq!(done.status, 1, "{name}");
        assert!(done.err.contains(reason), "{name}: {}", done.err);
        assert!(!dir.path().join("x.rec").exists(), "{name}");
    }
}

/// A recording of one snapshot with one region, as damo writes it.
fn recording(intervals: &str) -> String {
    format!(
        r#"[{{"intervals": {intervals}, "target_id": 7, "snapshots": [
            {{"start_time": 1000000000, "end_time": 1100000000, "regions": [
                {{"start": 0, "end": 4096, "nr_accesses": {{"samples": 3}}, "age": {{"usec": 0}}}}]}}]}}]"#
    )
}

#[test]
fn given_intervals_must_fit_the_file() {
    let dir = TempDir::new().unwrap();
    let stated = recording(r#"{"sample_us": "5000", "aggr_us": "100000", "ops_update_us": "1"}"#);
    fs::write(dir.path().join("stated"), stated).unwrap();
    fs::write(dir.path().join("bare"), recording("null")).unwrap();
    let import = |file, options: &[&str]| {
        let done = run_in(dir.path(), &[&["import", file, "-o", "x.rec"], options].concat());
        let written = fs::remove_file(dir.path().join("x.rec")).is_ok();
        assert_eq!(written, done.status == 0, "{file} {options:?}: {}", done.err);
        (done.status, done.err)
    };
    for (file, options, reason) in [
        ("bare", &["--sample", "0s"][..], "--sample is 0ns, but must be from 100µs to 50ms"),
        ("bare", &["--sample", "51ms"], "--sample is 51ms, but must be"),
        ("bare", &["--aggr", "0s"], "--aggr is 0ns, but must be from 200µs"),
        ("bare", &["--aggr", "20ms", "--sample", "11ms"], "from 100µs to 10ms"),
        ("stated", &["--sample", "1ms"], "the sampling interval of the file is 5ms"),
        ("stated", &["--aggr", "1s"], "the aggregation interval of the file is 100ms"),
        ("stated", &["--sample", "0s"], "--sample is 0ns"),
    ] {
        let (status, err) = import(file, options);
        assert_eq!(status, 2, "{file} {options:?}: {err}");
        assert!(err.contains(reason) && err.contains("leave out --"), "{file} {options:?}: {err}");
    }
    for (file, options) in [
        ("bare", &["--sample", "50ms"][..]),
        ("bare", &["--aggr", "20ms", "--sample", "100us"]),
        ("stated", &["--sample", "5ms", "--aggr", "100ms"]),
        ("stated", &[]),
    ] {
        let (status, err) = import(file, options);
        assert_eq!(status, 0, "{file} {options:?}: {err}");
    }
}
