//! Exports, as the tools read them that they are for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use isotherm_core::{Attrs, Snapshot};
use tempfile::TempDir;

use crate::import::{FILTERED, UNFILTERED, percentiles, rows, samples};
use crate::load::{Load, MIB};
use crate::python::python_with;
use crate::run::{Recorder, has_or_skip, needs_root, run_in};
use crate::synthetic;

/// damo of PyPI. It asks `file` for the format of a record.
fn damo() -> Option<PathBuf> {
    let has_file = Command::new("file").arg("--version").output().is_ok();
    has_or_skip(has_file, "damo", "the program file: apt-get install file")
        .then(|| python_with("damo", "damo==3.4.3"))?
}

/// What damo prints on standard output.
fn report(python: &Path, record: &Path, args: &[&str]) -> String {
    let main = "import sys; from damo import damo; sys.argv[0] = 'damo'; damo.main()";
    let mut command = Command::new(python);
    command.args(["-c", main, "report"]).args(args).arg("-i").arg(record);
    let out = command.output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && !err.contains("Traceback"), "{args:?}: {err}");
    String::from_utf8(out.stdout).unwrap()
}

const REPORTS: [&[&str]; 4] = [
    &["wss", "-r", "1", "101", "1", "--raw_number"],
    &["nr_regions", "-r", "1", "101", "1"],
    &["heatmap", "--guide"],
    &["heatmap", "--output", "raw", "--resol", "20", "30"],
];

/// The text without what damo computes from fractions of nanoseconds: the length of the time, the times of a map,
/// and the last digits of its heat.
fn whole_nanoseconds(text: &str) -> String {
    let line = |line: &str| {
        if let Some((time, _)) = line.strip_prefix("time:").and_then(|l| l.rsplit_once(" (")) {
            return format!("time:{time}\n");
        }
        let cells: Vec<&str> = line.split('\t').collect();
        match cells.as_slice() {
            [_, addr, heat] if heat.parse::<f64>().is_ok() => {
                format!("{addr} {:.5}\n", heat.parse::<f64>().unwrap())
            }
            _ => format!("{line}\n"),
        }
    };
    text.lines().map(line).collect()
}

fn exported(dir: &Path, record: &Path, format: &str) -> PathBuf {
    let done = run_in(dir, &["import", record.to_str().unwrap()]);
    assert_eq!(done.status, 0, "{}", done.err);
    let done = run_in(dir, &["export", "--format", format, "-o", "out"]);
    assert_eq!(done.status, 0, "{}", done.err);
    dir.join("out")
}

#[test]
fn damo_reports_the_same_of_an_export_as_of_the_original() {
    let Some(python) = damo() else { return };
    for samples in samples("damo_reports_the_same_of_an_export_as_of_the_original") {
        let dir = TempDir::new().unwrap();
        // damo of today does not read binary records: this one has the content of the first file.
        for (file, same) in [
            ("damon.data", "damon.data"),
            ("damon.data.json_compressed", "damon.data.json_compressed"),
            ("damon.data.record_v2", "damon.data"),
            ("damon.data.perf_script", "damon.data.perf_script"),
        ] {
            let original = dir.path().join(same);
            fs::copy(samples.dir.join(same), &original).unwrap();
            let out = exported(dir.path(), &samples.dir.join(file), "damo");
            for args in REPORTS {
                let mut texts = [&out, &original].map(|r| report(&python, r, args));
                if file.ends_with("perf_script") {
                    texts = texts.map(|text| whole_nanoseconds(&text));
                }
                assert!(texts[0] == texts[1], "{file} {args:?}");
            }
            // Text has its times in seconds, so that only those of damo's figures are the same.
            let text = exported(dir.path(), &original, "perf-script");
            for args in &REPORTS[..2] {
                assert_eq!(
                    report(&python, &text, args),
                    report(&python, &original, args),
                    "{file}"
                );
            }
        }
        for file in [FILTERED, UNFILTERED] {
            let original = dir.path().join(file);
            fs::copy(samples.dir.join(file), &original).unwrap();
            let out = exported(dir.path(), &original, "damo");
            for style in ["recency-percentiles", "temperature-sz-hist"] {
                let args = ["access", "--style", style];
                let texts = [&out, &original].map(|r| report(&python, r, &args));
                assert_eq!(of_all(&texts[0]), of_all(&texts[1]), "{file} {style}");
            }
        }
    }
}

/// A record of damo: for each target its kdamond, its intervals, and the lengths of its snapshots in ms, each of one region.
fn damo_record(targets: &[(u64, &str, Vec<u64>)]) -> String {
    let record = |(kdamond, intervals, lengths): &(u64, &str, Vec<u64>)| {
        let mut end = 1000;
        let snapshot = |(i, ms): (usize, &u64)| {
            end += ms;
            let (start, length, nr) = ((kdamond + 1) << 30, (i as u64 + 1) << 12, i % 19 + 1);
            format!(
                r#"{{"start_time": "{}000000", "end_time": "{end}000000", "sample_interval_us": null, "regions": [
                {{"start": "{start}", "end": "{}", "nr_accesses": {{"samples": {nr}, "percent": null}},
                "age": {{"usec": null, "aggr_intervals": 2}}}}]}}"#,
                end - ms,
                start + length
            )
        };
        let snapshots: Vec<String> = lengths.iter().enumerate().map(snapshot).collect();
        let snapshots = snapshots.join(",");
        format!(
            r#"{{"kdamond_idx": {kdamond}, "context_idx": 0, "intervals": {{{intervals}}}, "scheme_idx": null,
            "target_id": {kdamond}, "snapshots": [{snapshots}]}}"#
        )
    };
    format!("[{}]", targets.iter().map(record).collect::<Vec<_>>().join(","))
}

/// The rates of all regions of each target that damo prints, in Hz.
fn rates(python: &Path, record: &Path) -> Vec<Vec<f64>> {
    let rate = ["--format", "set", "region", "rate <access hz>"];
    let target = ["--format", "set", "record_head", "target"];
    let args = [&["access", "--raw_number"][..], &rate, &target].concat();
    let mut targets = Vec::<Vec<f64>>::new();
    for line in report(python, record, &args).lines() {
        if line.trim() == "target" {
            targets.push(Vec::new());
        }
        if let (Some(hz), Some(rates)) = (line.strip_prefix("rate "), targets.last_mut()) {
            rates.push(hz.trim().parse().unwrap());
        }
    }
    targets
}

/// Found by an audit: an export had the intervals at the start of the first target for all snapshots and targets, so that
/// damo printed rates up to many times as high.
#[test]
fn damo_prints_the_rates_of_tuned_and_of_different_intervals() {
    let Some(python) = damo() else { return };
    let dir = TempDir::new().unwrap();
    let original = dir.path().join("original");
    let written = |targets: &[(u64, &str, Vec<u64>)]| {
        // damo takes some JSON for text of perf, depending on the version of the program file.
        let pack =
            "import sys, zlib; open(sys.argv[1], 'wb').write(zlib.compress(sys.argv[2].encode()))";
        let mut packer = Command::new(&python);
        packer.args(["-c", pack]).arg(&original).arg(damo_record(targets));
        assert!(packer.status().unwrap().success());
        let out = exported(dir.path(), &original, "damo");
        let wss = [&original, &out].map(|record| report(&python, record, REPORTS[0]));
        (wss, [&original, &out].map(|record| rates(&python, record)))
    };
    let intervals = |sample: u64, aggr: u64, aggrs: u64| {
        format!(
            r#""sample_us": "{sample}", "aggr_us": "{aggr}", "ops_update_us": "1000000", "intervals_goal":
            {{"access_bp": "400", "aggrs": "{aggrs}", "min_sample_us": "5000", "max_sample_us": "1000000"}}"#
        )
    };
    let lengths = [[100; 10], [800; 10], [1600; 10]].concat();
    let (wss, rates) = written(&[(0, &intervals(5000, 100_000, 3), lengths)]);
    assert!(
        wss[0] == wss[1] && rates[0][0].len() == 30 && rates[0] == rates[1],
        "{wss:?} {rates:?}"
    );

    let (short, long) = (intervals(5000, 100_000, 0), intervals(100_000, 2_000_000, 0));
    let (_, [old, new]) = written(&[(0, &short, vec![100; 60]), (1, &long, vec![2000; 3])]);
    assert_eq!((old[0].len(), &old[0]), (60, &new[0]));
    // A result of the second is in each snapshot of its time, and its intervals follow from rounded rates.
    let same = |(i, rate): (usize, &f64)| (rate / old[1][i / 20] - 1.0).abs() < 0.25;
    assert!(new[1].len() == 60 && new[1].iter().enumerate().all(same), "{old:?} {new:?}");
}

/// The rows of a report, without those of the memory that a filter lets pass: an import does not keep that.
fn of_all(report: &str) -> &str {
    let all = report.rsplit_once("\n\n").map_or(report, |(_, all)| all);
    all.split_once("memory bw estimate").unwrap().0
}

#[test]
fn damo_draws_a_record_of_isotherm() {
    let Some(python) = damo() else { return };
    let dir = TempDir::new().unwrap();
    synthetic::write(&dir.path().join("isotherm.rec"), 30);
    let done = run_in(dir.path(), &["export", "--format", "damo", "-o", "damon.data"]);
    assert_eq!(done.status, 0, "{}", done.err);
    let out = dir.path().join("damon.data");
    let map = report(&python, &out, &["heatmap"]);
    assert!(map.lines().count() > 10 && map.contains("x-axis"), "{map}");
    let wss = report(&python, &out, &["wss", "--raw_number", "-r", "50", "51", "1"]);
    // 39 of the 40 regions of 64 KiB are accessed
    assert!(wss.contains(&(39 * 65536).to_string()), "{wss}");
    let regions = report(&python, &out, &["nr_regions", "-r", "50", "51", "1"]);
    assert!(regions.lines().any(|line| line == "50\t40"), "{regions}");
}

/// damo draws it, and its percentiles are those of the record.
#[test]
fn damo_reads_a_recording_of_a_process() {
    needs_root!();
    let Some(python) = damo() else { return };
    let load = Load::start(64, 16);
    let pid = load.pid().to_string();
    let mut recorder = Recorder::counted(&["--pid", &pid]);
    // damo leaves out the first 20
    recorder.until_more(40);
    let record = recorder.stop();
    let input = recorder.record();
    let input = input.to_str().unwrap();
    let args = ["export", "--format", "damo", "-i", input, "-o", "damon.data"];
    let done = run_in(recorder.dir(), &args);
    assert_eq!(done.status, 0, "{}", done.err);
    let out = recorder.dir().join("damon.data");

    let map = report(&python, &out, &["heatmap"]);
    assert!(map.contains("x-axis") && map.contains("y-axis"), "{map}");
    let (start, end) = (load.memory.start.to_string(), load.memory.end.to_string());
    let args =
        ["heatmap", "--output", "raw", "--resol", "10", "40", "--address_range", &start, &end];
    let map = report(&python, &out, &args);
    let heats = map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<f64>().ok());
    let (hot, idle): (Vec<f64>, Vec<f64>) = heats.partition(|heat| *heat > 0.0);
    assert!(hot.len() + idle.len() == 400 && !hot.is_empty() && !idle.is_empty(), "{map}");

    // damo presumes that all of a region was accessed.
    let accessed = |s: &Snapshot| {
        let regions = s.targets.iter().flat_map(|t| &t.regions);
        regions.filter(|r| r.accesses_bp > 0).map(|r| r.range.len()).sum::<u64>()
    };
    let (wss, counts): (Vec<u64>, Vec<u64>) =
        record.snapshots.iter().map(|s| (accessed(s), s.nr_regions() as u64)).unzip();
    assert!(*wss.last().unwrap() >= 16 * MIB, "{wss:?}");
    assert_eq!(rows(&report(&python, &out, REPORTS[0])), percentiles(wss, 20));
    assert_eq!(rows(&report(&python, &out, REPORTS[1])), percentiles(counts, 20));
    assert!(report(&python, &out, &["access"]).contains("total size"));
    // Snapshots are shorter and longer than the interval of the recording, in which damo counts ages.
    let args = ["access", "--style", "recency-percentiles", "--raw_number"];
    let idle = report(&python, &out, &args);
    let oldest = idle.lines().find_map(|line| line.strip_prefix("100 ")?.split_whitespace().next());
    let oldest = Duration::from_micros(oldest.unwrap().parse().unwrap());
    let (first, last) = (&record.snapshots[0], record.snapshots.last().unwrap());
    // damo adds an interval, and an age may be rounded up.
    let all = last.end.since(first.start) + Attrs::default().aggr * 2;
    assert!(!oldest.is_zero() && oldest <= all, "{oldest:?} of {all:?}: {idle}");
}

#[test]
fn records_are_cut_and_joined() {
    let dir = TempDir::new().unwrap();
    let run = |args: &[&str]| run_in(dir.path(), args);
    synthetic::write(&dir.path().join("isotherm.rec"), 30);
    let done =
        run(&["edit", "isotherm.rec", "-o", "a.rec", "--time", "0s..4s", "--target", "made-up"]);
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(done.err.contains("wrote 10 snapshots"), "{}", done.err);
    let done = run(&["edit", "isotherm.rec", "-o", "b.rec", "--time", "4s..1h", "--aggr", "800ms"]);
    assert!(done.err.contains("wrote 10 snapshots"), "{}", done.err);
    let done = run(&["edit", "a.rec", "b.rec", "-o", "c.rec"]);
    assert!(done.err.contains("wrote 20 snapshots"), "{}", done.err);
    assert_eq!(run(&["record", "--check", "c.rec"]).status, 0);
    // in the wrong order, nothing, itself
    let done = run(&["edit", "b.rec", "a.rec", "-o", "d.rec"]);
    assert!(done.status == 1 && done.err.contains("in order of time"), "{}", done.err);
    let done = run(&["edit", "a.rec", "-o", "e.rec", "--time", "1h..2h"]);
    assert!(done.status == 1 && done.err.contains("selected time"), "{}", done.err);
    // What fails leaves nothing, and an earlier record stays.
    assert!(!dir.path().join("d.rec").exists() && !dir.path().join("e.rec").exists());
    let before = fs::read(dir.path().join("c.rec")).unwrap();
    assert_eq!(run(&["edit", "b.rec", "a.rec", "-o", "c.rec"]).status, 1);
    assert_eq!(fs::read(dir.path().join("c.rec")).unwrap(), before);
    assert_eq!(run(&["edit", "a.rec", "-o", "a.rec"]).status, 2);
    // Parquet and Perfetto have tests of their content elsewhere.
    assert_eq!(run(&["export", "--format", "parquet"]).status, 2, "it is a folder");
    let parquet = ["export", "--format", "parquet", "-i", "c.rec", "-o", "folder"];
    assert_eq!(run(&parquet).status, 0);
    let again = run(&parquet);
    assert!(again.status == 1 && again.err.contains("name another folder"), "{}", again.err);
    assert!(dir.path().join("folder/regions/host=unknown").is_dir());
    let done = run(&["export", "--format", "perfetto", "-i", "c.rec", "-o", "c.pftrace"]);
    assert_eq!(done.status, 0, "{}", done.err);
}

#[test]
fn a_damaged_record_is_repaired_as_far_as_it_can_be_read() {
    let dir = TempDir::new().unwrap();
    let edit = |args: &[&str]| run_in(dir.path(), &[&["edit", "-o", "new.rec"], args].concat());
    synthetic::write(&dir.path().join("whole.rec"), 30);
    let whole = fs::read(dir.path().join("whole.rec")).unwrap();
    let damaged = |name: &str, at: usize, len: usize| {
        let mut bytes = whole[..len].to_vec();
        bytes[at] ^= 1;
        fs::write(dir.path().join(name), bytes).unwrap();
    };
    // the facts of the recording, which begin the file; a snapshot, and the end; all snapshots
    damaged("facts.rec", 100, whole.len());
    damaged("torn.rec", whole.len() / 2, whole.len() - 10);
    fs::write(dir.path().join("begin.rec"), &whole[..2000]).unwrap();
    for name in ["facts.rec", "torn.rec", "begin.rec"] {
        let done = edit(&[name]);
        let refused = format!("cannot edit {name} without --repair");
        assert!(done.status == 1 && done.err.contains(&refused), "{}", done.err);
        assert!(!dir.path().join("new.rec").exists());
    }
    let done = edit(&["facts.rec", "--repair"]);
    assert!(done.status == 0 && done.err.contains("wrote 30 snapshots"), "{}", done.err);
    assert_eq!(run_in(dir.path(), &["record", "--check", "new.rec"]).status, 0);
    fs::remove_file(dir.path().join("new.rec")).unwrap();
    let done = edit(&["torn.rec", "--repair"]);
    assert!(done.status == 0 && done.err.contains("snapshots are missing"), "{}", done.err);
    assert_eq!(run_in(dir.path(), &["record", "--check", "new.rec"]).status, 0);
    let done = edit(&["begin.rec", "--repair"]);
    assert!(done.status == 1 && done.err.contains("no snapshot that can be read"), "{}", done.err);
    // Of several records, the error names the one in question.
    let done = edit(&["whole.rec", "whole.rec"]);
    assert!(done.status == 1 && done.err.contains("cannot edit whole.rec: "), "{}", done.err);
    // It would be a file of this name.
    let done = run_in(dir.path(), &["edit", "whole.rec", "-o", "-"]);
    assert!(done.status == 2 && done.err.contains("not to standard output"), "{}", done.err);
}
