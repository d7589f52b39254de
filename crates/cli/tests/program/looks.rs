//! The ways to look, chosen at run time.

use isotherm_core::{Heat, Snapshot, Thresholds};

use crate::load::{Load, MIB};
use crate::run::{Record, Recorder, needs_root, run_in};

/// Bytes of the load's hot range that the last snapshots report as hot. The median, because the load may have
/// waited for a CPU.
pub fn found(record: &Record, load: &Load, hot_hz: f64) -> u64 {
    let t = Thresholds { hot_hz, ..Thresholds::default() };
    let in_one = |s: &Snapshot| {
        let hot = s.targets.iter().flat_map(|t| &t.regions).filter(|r| r.heat(&t) == Heat::Hot);
        hot.filter_map(|r| r.range.intersect(&load.hot)).map(|r| r.len()).sum::<u64>()
    };
    let mut last: Vec<u64> = record.snapshots.iter().rev().take(5).map(|s| in_one(s)).collect();
    last.sort_unstable();
    last[last.len() / 2]
}

/// Each way finds the hot range, and the record names the way.
#[test]
fn every_way_finds_hot_memory_and_is_named_in_the_record() {
    needs_root!();
    for way in ["bpf", "bpf-probe", "bpf-iter", "clear_refs"] {
        let load = Load::start(128, 16);
        let pid = load.pid().to_string();
        let mut recorder = Recorder::counted(&["--pid", &pid, "--look", way, "--aggr", "400ms"]);
        recorder.until_more(14);
        let record = recorder.stop();
        let look = &record.facts.look;
        assert!(look.starts_with(&format!("{way}: ")), "{look}");
        assert!(look.contains("Resolution: ") && look.contains("Not seen: "), "{look}");
        let hot = found(&record, &load, 10.0);
        assert!(hot > 14 * MIB, "{way}: {hot} bytes found hot");
    }
}

/// This way distinguishes only mappings. The memory of the load is one, most of which is touched all the
/// time.
#[test]
fn without_bpf_a_mapping_is_as_hot_as_its_pages_together() {
    needs_root!();
    let load = Load::start(128, 80);
    let pid = load.pid().to_string();
    let mut recorder = Recorder::counted(&["--pid", &pid, "--look", "smaps", "--aggr", "1s"]);
    recorder.until_more(7);
    let record = recorder.stop();
    assert!(record.facts.look.starts_with("smaps: "), "{}", record.facts.look);
    assert_eq!(record.facts.attrs.sample.as_millis(), 100);
    let hot = found(&record, &load, 5.0);
    assert!(hot > 70 * MIB, "{hot} bytes found hot");
}

#[test]
fn invalid_looks_are_reported() {
    let dir = tempfile::TempDir::new().unwrap();
    let me = std::process::id().to_string();
    for (options, status, part) in [
        (
            &["--look", "eyes"][..],
            2,
            "write bpf, bpf-probe, bpf-iter, clear_refs, page_idle, smaps, damon or auto",
        ),
        (&["--look", "smaps", "--sample", "20ms"], 2, "make --sample 100ms or longer"),
        (&["--look", "clear_refs", "--sample", "5ms"], 2, "make --sample 10ms or longer"),
        (&["--node", "0"], 2, "require --physical"),
        (&["--addr-unit", "4K", "--look", "damon"], 2, "require --physical"),
        (&["--range", "1000..2000"], 2, "--range requires --physical or --look damon"),
        (&["--intervals-goal", "4%,3,5ms..10s"], 2, "requires --monitor regions or --look damon"),
        (
            &["--monitor", "regions", "--intervals-goal", "4%,3,50ms..10s"],
            2,
            "outside the limits of its tuning",
        ),
        (&["--look", "damon", "--window", "128K"], 2, "its own rules for --window"),
    ] {
        let done = run_in(dir.path(), &[&["record", "--pid", &me], options].concat());
        assert_eq!(done.status, status, "{}", done.err);
        assert!(done.err.contains(part), "{part} is not in {}", done.err);
    }
}
