//! The content of a record of a known process.

use std::time::{Duration, SystemTime};

use isotherm_core::{AddrRange, Heat, MonitorKind, Snapshot, Thresholds, Unknown};
use isotherm_record::FileEndReason;

use crate::load::{Load, MIB};
use crate::run::{Record, Recorder, finish, isotherm, needs_root, until};

/// Precision and recall of the hot bytes within `all`.
fn score(s: &Snapshot, all: AddrRange, truth: AddrRange) -> (f64, f64) {
    let regions = s.targets.iter().flat_map(|t| &t.regions);
    let hot = regions.filter(|r| r.heat(&Thresholds::default()) == Heat::Hot);
    let (mut called, mut right) = (0, 0);
    for range in hot.filter_map(|r| r.range.intersect(&all)) {
        called += range.len();
        right += range.intersect(&truth).map_or(0, |r| r.len());
    }
    (right as f64 / called.max(1) as f64, right as f64 / truth.len() as f64)
}

/// Most of the last snapshots show the hot memory. Some may fall into a moment in which the load did not run,
/// because others had the CPUs.
pub fn assert_found(record: &Record, all: AddrRange, truth: AddrRange) {
    assert_found_in_last(10, record, all, truth);
}

fn assert_found_in_last(n: usize, record: &Record, all: AddrRange, truth: AddrRange) {
    let last = record.snapshots.iter().rev().take(n);
    let scores: Vec<_> = last.map(|s| score(s, all, truth)).collect();
    // A region of 2.5 MiB beside it may be reported as hot if others have the CPUs.
    let good = scores.iter().filter(|&&(precision, recall)| precision >= 0.8 && recall >= 0.9);
    assert!(scores.len() == n && good.count() >= n * 3 / 5, "{scores:?}");
}

/// Where it can read all memory, a recorder without options clears once and reads many times.
#[test]
fn the_exposure_monitor_finds_the_hot_range_within_its_budget() {
    needs_root!();
    let load = Load::start(256, 16);
    let pid = load.pid().to_string();
    let options = ["--monitor", "exposure", "--budget", "2.5%", "--ipis", "200", "--windows"];
    let more = ["--pid", &pid, "--seed", "1"];
    let mut recorder = Recorder::counted(&[&options[..], &more].concat());
    // Rates are known after exposures of all lengths, which take longer where others have the CPUs.
    until("a bound of the rates", || recorder.err().contains("rates within a factor of"));
    recorder.until_more(5);
    let record = recorder.stop();
    record.assert_without_gaps();
    let attrs = record.facts.attrs;
    assert_eq!((attrs.monitor, attrs.budget_ppm), (MonitorKind::Exposure, 25_000));
    assert_eq!((attrs.max_clears, attrs.windows), (200, true));
    let last = record.snapshots.last().unwrap();
    assert!(last.quality.is_some_and(|q| q.coverage_bp > 9_000), "{:?}", last.quality);
    // How often it reads depends on its cost in a program without optimization.
    assert_found_in_last(5, &record, load.memory, load.hot);
    let err = recorder.err();
    for part in ["(budget 2.5 %)", " % measured"] {
        assert!(err.contains(part), "{part} is not in: {err}");
    }
}

/// Almost nothing of this memory is touched, so that the intervals grow until enough is observed.
#[test]
fn intervals_are_tuned_towards_a_goal() {
    needs_root!();
    let load = Load::start(64, 1);
    let pid = load.pid().to_string();
    let intervals = ["--sample", "20ms", "--aggr", "200ms", "--intervals-goal", "50%,2,20ms..80ms"];
    let more = ["--monitor", "regions", "--pid", &pid];
    let mut recorder = Recorder::counted(&[&intervals[..], &more].concat());
    // The fourth and later steps come after four snapshots at the longest interval.
    recorder.until_more(8);
    let record = recorder.stop();
    let attrs = record.snapshots.iter().map(|s| (s.attrs.sample.as_millis(), s.attrs.samples()));
    let attrs: Vec<(u128, u32)> = attrs.collect();
    assert_eq!(attrs[0], (20, 10));
    assert_eq!(attrs.last(), Some(&(80, 10)), "{attrs:?}");
    assert!(attrs.is_sorted(), "{attrs:?}");
}

#[test]
fn the_hot_range_of_a_process_is_found() {
    needs_root!();
    let load = Load::start(256, 16);
    let pid = load.pid().to_string();
    let mut recorder = Recorder::counted(&["--pid", &pid, "--seed", "42"]);
    // Its own memory: an unoptimized program has many pages of code, which the kernel can drop.
    let own = || {
        let path = format!("/proc/{}/status", recorder.pid());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let mut most = 0;
    for _ in 0..50 {
        recorder.until_more(1);
        most = most.max(own());
    }
    assert!((1..=8 << 10).contains(&most), "{most} KiB of its own");
    let record = recorder.stop();
    record.assert_without_gaps();
    let span = record.snapshots.last().unwrap().end.since(record.snapshots[0].start);
    let most = span.as_millis() / 100 + 1;
    let count = record.snapshots.len();
    assert!(count >= 50 && count as u128 <= most, "{count} snapshots in {span:?}");
    assert_found(&record, load.memory, load.hot);
    assert_locked_memory_is_found(&record, load.locked);
    let end = record.end.as_ref().unwrap();
    assert_eq!((end.why, end.files), (FileEndReason::Stopped, 1));
    assert_eq!(end.snapshots, record.snapshots.len() as u64);
    assert_eq!(record.pids(), [load.pid().cast_unsigned()]);
    assert!(record.targets[0].command.contains("obey"), "{:?}", record.targets);
    assert_facts(&record);

    let err = recorder.err();
    let lines: Vec<&str> = err.lines().collect();
    let last = lines[lines.len() - 2..].join("\n");
    for part in [
        "recorded ",
        "(stopped by SIGINT)",
        "1 process in ",
        &format!(" {} snapshots, ", record.snapshots.len()),
        "% of a CPU",
        "TLB shootdowns a second",
        "next: isotherm report heatmap -i a.rec",
    ] {
        assert!(last.contains(part), "{part} is not in {last}");
    }
    assert!(err.lines().next().unwrap().contains("unknown"), "no progress in {err}");
}

/// Locked memory is observed in epochs, and is unknown until the first one is over. Regions may extend beyond
/// its edge if the machine was busy: first regions of 2.75 MiB were observed, of which one lies within.
fn assert_locked_memory_is_found(record: &Record, locked: AddrRange) {
    let bytes = |s: &Snapshot| {
        let regions = s.targets.iter().flat_map(|t| &t.regions);
        let inside = regions.filter(|r| r.range.intersect(&locked) == Some(r.range));
        inside
            .map(|r| (r.bytes(&Thresholds::default()), r.unknown_bytes(Unknown::Mlocked)))
            .fold((0, 0, 0), |(hot, unknown, mlocked), (b, m)| {
                (hot + b.hot, unknown + b.unknown, mlocked + m)
            })
    };
    let (hot, unknown, mlocked) = bytes(&record.snapshots[0]);
    assert!(hot == 0 && unknown == mlocked && mlocked >= MIB, "{hot} {unknown} {mlocked}");
    let last = record.snapshots.iter().rev().take(10).map(|s| bytes(s));
    let found = last.filter(|&(hot, unknown, _)| hot >= 3 * MIB && unknown == 0).count();
    assert!(found >= 6, "hot in {found} of the last 10 snapshots only");
}

fn assert_facts(record: &Record) {
    let facts = &record.facts;
    let kernel = |file| std::fs::read_to_string(format!("/proc/sys/kernel/{file}")).unwrap();
    assert_eq!(facts.host, kernel("hostname").trim());
    assert_eq!(facts.kernel, kernel("osrelease").trim());
    assert_eq!(facts.isotherm_version, env!("CARGO_PKG_VERSION"));
    assert!(facts.command.contains("record --sample 10ms"), "{}", facts.command);
    assert_eq!(facts.seed, 42);
    let ms = Duration::from_millis;
    assert_eq!((facts.attrs.sample, facts.attrs.aggr), (ms(10), ms(100)));
    assert_eq!((facts.attrs.update, facts.attrs.max_regions), (ms(200), 1000));
    assert!(facts.look.contains("BPF") && facts.look.contains("MADV_COLD"), "{}", facts.look);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let age = u64::try_from(now.as_millis()).unwrap() - facts.started_unix_ms;
    assert!((5_000..600_000).contains(&age), "started {age} ms ago");
    assert!(facts.started <= record.snapshots[0].start);
}

#[test]
fn a_process_is_followed_through_exec() {
    needs_root!();
    let mut load = Load::start(64, 8);
    let before = load.memory;
    let mut recorder = Recorder::counted(&["--pid", &load.pid().to_string()]);
    load.exec(96, 16);
    recorder.until_more(25);
    let record = recorder.stop();
    record.assert_without_gaps();
    assert!(load.memory != before);
    assert_found(&record, load.memory, load.hot);
    assert_eq!(record.pids(), [load.pid().cast_unsigned()], "it is one target still");
    let name = &record.targets.last().unwrap().command;
    assert!(name.ends_with("--test-threads=1"), "{:?}", record.targets);
}

#[test]
fn two_processes_at_once_of_which_one_ends() {
    needs_root!();
    let (mut first, mut second) = (Load::start(32, 4), Load::start(48, 8));
    let (a, b) = (first.pid().to_string(), second.pid().to_string());
    // A pid that is given twice is one process.
    let mut recorder = Recorder::counted(&["--pid", &a, "--pid", &b, "--pid", &a]);
    recorder.until_more(15);
    first.end(0);
    first.child().wait().unwrap();
    recorder.until_more(15);
    second.end(7);
    second.child().wait().unwrap();
    assert_eq!(recorder.wait().code(), Some(0), "the status of others is not ours");
    let record = Record::read(&recorder.record());
    record.assert_without_gaps();
    assert_eq!(record.end.as_ref().unwrap().why, FileEndReason::TargetsGone);
    assert!(recorder.err().contains("all targets have ended"), "{}", recorder.err());
    let pids = [first.pid(), second.pid()].map(i32::cast_unsigned);
    assert_eq!(record.pids(), pids);
    let [of_first, of_second] = pids.map(|pid| record.snapshots_of(pid));
    assert!(of_first >= 5 && of_second >= of_first + 5, "{of_first} {of_second}");
    assert_found(&record, second.memory, second.hot);
}

#[test]
fn children_of_a_process_are_watched_if_asked() {
    needs_root!();
    let mut load = Load::start(16, 4);
    let before = load.fork();
    let pid = load.pid().to_string();
    let mut with = Recorder::counted(&["--pid", &pid, "--children"]);
    let mut without = Recorder::counted(&["--pid", &pid]);
    let after = load.fork();
    let parent = load.pid().cast_unsigned();
    until("the children", || with.watched().len() == 3);
    with.until_more(5);
    without.until_more(5);
    let (with, without) = (with.stop(), without.stop());
    assert_eq!(without.pids(), [parent]);
    assert_eq!(with.pids(), [parent, before, after]);
    for pid in [parent, before, after] {
        assert!(with.snapshots_of(pid) >= 3, "{pid}");
    }
}

#[test]
fn a_name_that_is_no_text_is_reported_up_to_the_invalid_byte() {
    use std::os::unix::ffi::OsStrExt;
    needs_root!();
    let load = Load::start(16, 4);
    let dir = tempfile::TempDir::new().unwrap();
    let name = std::ffi::OsStr::from_bytes(b"a\xff.rec");
    let mut command =
        isotherm(["record", "--duration", "3s", "--pid", &load.pid().to_string(), "-o"]);
    let done = finish(command.arg(name).current_dir(dir.path()));
    assert_eq!(done.status, 0, "{}", done.err);
    let reported = Record::read(&dir.path().join(name)).facts.command;
    assert!(reported.ends_with(" a\u{fffd}.rec"), "{reported}");
}

/// A second recording with the same name is refused, and the first one stays in its place.
#[test]
fn a_record_that_is_being_written_is_not_taken_away() {
    needs_root!();
    let load = Load::start(64, 16);
    let pid = load.pid().to_string();
    let mut first = Recorder::recording(&["--pid", &pid]);
    let mut second = isotherm(["record", "--pid", &pid, "-o", "a.rec", "--duration", "1s"]);
    let done = finish(second.current_dir(first.dir()));
    assert!(done.status == 1 && done.err.contains("another recording"), "{}", done.err);
    let record = first.stop();
    assert!(!record.snapshots.is_empty());
    assert!(!first.dir().join("a.rec.old").exists());
}

#[test]
fn a_record_goes_to_standard_output() {
    needs_root!();
    let load = Load::start(64, 16);
    let pid = load.pid().to_string();
    let dir = tempfile::TempDir::new().unwrap();
    let record = |options: &[&str]| {
        let mut command = isotherm([&["record", "--pid", &pid, "-o", "-"][..], options].concat());
        finish(command.current_dir(dir.path()))
    };
    let done = record(&["--duration", "5s"]);
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(done.err.contains("in standard output"), "{}", done.err);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "no file of the name -");
    let reader = isotherm_record::Reader::new(std::io::Cursor::new(done.out), "-".as_ref());
    let events: Result<Vec<_>, _> = reader.unwrap().collect();
    let snapshots = |e: &&isotherm_record::Event| matches!(e, isotherm_record::Event::Snapshot(_));
    assert!(events.unwrap().iter().filter(snapshots).count() > 0);
    let rotated = record(&["--max-size", "1M", "--rotate", "2"]);
    assert!(rotated.status == 2 && rotated.err.contains("--rotate"), "{}", rotated.err);
}

/// Running processes are shown, and no file is left.
#[test]
fn running_processes_are_shown_without_a_record() {
    let usage = finish(&mut isotherm(["now"]));
    assert!(usage.status == 2 && usage.err.contains("--pid"), "{}", usage.err);
    needs_root!();
    let load = Load::start(64, 16);
    let pid = load.pid().to_string();
    let dir = tempfile::TempDir::new().unwrap();
    let now = |options: &[&str]| {
        let mut command =
            isotherm([&["now", "--pid", &pid, "--duration", "5s"][..], options].concat());
        finish(command.current_dir(dir.path()))
    };
    let json = now(&["--json"]).json();
    let regions = json["regions"].as_array().unwrap();
    let hot = |r: &&serde_json::Value| r["state"] == "hot";
    assert!(regions.iter().filter(hot).count() > 0, "{json}");
    let text = now(&["--sort", "rate"]);
    assert!(text.status == 0 && text.text().contains("target address"), "{}", text.err);
    assert_eq!(text.err, "");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
