//! The working set, regions, one snapshot, and all of a record: on a real one, and on made-up ones.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Attrs, CacheAccess, CacheAccessKind, CacheTrace, DirtyBytes, Mapping, MappingKind,
    Nanos, RegionView, Snapshot, TargetId, TargetView,
};
use isotherm_record::{FileEndReason, Limits, RecordingHeader, TargetInfo, Writer};
use serde_json::Value;
use tempfile::TempDir;

use crate::load::MIB;
use crate::long_record;
use crate::report::{addr, sample};
use crate::run::run_in;

fn values(course: &Value) -> Vec<u64> {
    let of = |p: &Value| p["value"].as_u64().unwrap();
    course["percentiles"].as_array().unwrap().iter().map(of).collect()
}

fn assert_says_what_it_rests_on(json: &Value) {
    assert_eq!((&json["hot_hz"], &json["cold_ms"]), (&10.0.into(), &5000.0.into()));
    assert!(json["look"].as_str().unwrap().contains("BPF"), "{}", json["look"]);
    assert!(json["unknown_bytes"].is_u64(), "{json}");
    assert_eq!(json["schema_version"], 1);
}

#[test]
fn the_working_set_is_touched_memory() {
    let Some(sample) = sample("the_working_set_is_touched_memory") else { return };
    let json = sample.json(&["report", "wss", "--time", "1s..", "--percentiles", "0,50,100"]);
    assert_says_what_it_rests_on(&json);
    let hot = values(&json["hot_bytes"]);
    assert!(hot.is_sorted() && (18 * MIB..23 * MIB).contains(&hot[1]), "{hot:?}");
    for (a, b) in [("hot_bytes", "touched_bytes"), ("touched_bytes", "working_set_bytes")] {
        let pairs = values(&json[a]).into_iter().zip(values(&json[b]));
        assert!(pairs.into_iter().all(|(a, b)| a <= b), "{a} is within {b}");
    }
    let points = json["hot_bytes"]["over_time"].as_array().unwrap();
    assert_eq!(points.len() as u64, json["snapshots"].as_u64().unwrap());

    let done = sample.run(&["report", "wss"]);
    assert_eq!((done.status, done.err.as_str()), (0, ""));
    for part in ["75 %", "working set", "10 Hz", "5 s", "looked at by", "unknown: ", "####"] {
        assert!(done.text().contains(part), "{part} is not in {}", done.text());
    }
    let over_time = sample.run(&["report", "wss", "--over-time"]);
    assert!(over_time.text().contains(" to ") && over_time.text() != done.text());
}

#[test]
fn regions_stay_within_their_bounds() {
    let Some(sample) = sample("regions_stay_within_their_bounds") else { return };
    let json = sample.json(&["report", "regions"]);
    assert_says_what_it_rests_on(&json);
    assert_eq!((&json["min_regions"], &json["max_regions"]), (&100.into(), &1000.into()));
    assert_eq!(json["snapshots_above_max"], 0);
    let counts = values(&json["regions"]);
    let real: Vec<usize> = sample.record.snapshots.iter().map(|s| s.nr_regions()).collect();
    assert_eq!(counts[0], *real.iter().min().unwrap() as u64);
    assert_eq!(counts[4], *real.iter().max().unwrap() as u64);
    assert!(json["sizes"]["mean_bytes"].as_u64().unwrap() > 0);
    let text = sample.run(&["report", "regions"]);
    assert!(text.text().contains("allowed: 100 to 1,000"), "{}", text.text());
}

#[test]
fn one_snapshot_is_sorted_and_chosen_from() {
    let Some(sample) = sample("one_snapshot_is_sorted_and_chosen_from") else { return };
    let json = sample.json(&["report", "access"]);
    assert_says_what_it_rests_on(&json);
    let last = sample.record.snapshots.last().unwrap();
    assert_eq!((&json["seq"], &json["nr_regions"]), (&last.seq.into(), &last.nr_regions().into()));
    assert_eq!(json["regions"].as_array().unwrap().len(), last.nr_regions());

    let json = sample.json(&["report", "access", "--addr", &addr(sample.hot), "--rate", "10.."]);
    let rows = json["regions"].as_array().unwrap();
    let size: u64 = rows.iter().map(|r| r["size_bytes"].as_u64().unwrap()).sum();
    assert!(size >= sample.hot.len() * 9 / 10, "{size} bytes are hot");
    assert!(rows.iter().all(|r| r["state"] == "hot"), "{rows:?}");

    let json = sample.json(&["report", "access", "--sort", "rate", "--snapshot", "3"]);
    let rates: Vec<f64> = json["regions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["rate_hz"].as_f64().unwrap())
        .collect();
    assert!(json["seq"] == 3 && rates.is_sorted_by(|a, b| a >= b), "{rates:?}");
    let stack = sample.json(&["report", "access", "--mapping", "[stack]"]);
    let names: HashSet<&str> = stack["regions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["mapping"].as_str().unwrap())
        .collect();
    assert!(!names.is_empty() && names.iter().all(|n| n.contains("[stack]")), "{names:?}");
    let done = sample.run(&["report", "access", "--snapshot", "99999"]);
    assert!(done.status == 1 && done.err.contains("choose one from 0 to"), "{}", done.err);
    let done = sample.run(&["report", "access", "--at", "1h"]);
    assert!(done.status == 1 && done.err.contains("choose a time from 0 s to"), "{}", done.err);
}

#[test]
fn raw_has_a_line_for_each_region() {
    let Some(sample) = sample("raw_has_a_line_for_each_region") else { return };
    let regions: usize = sample.record.snapshots.iter().map(|s| s.nr_regions()).sum();
    let done = sample.run(&["report", "raw"]);
    assert_eq!((done.status, done.err.as_str()), (0, ""));
    assert_eq!(done.text().lines().filter(|l| !l.starts_with('#')).count(), regions);
    let json = sample.run(&["report", "raw", "--json"]);
    let lines: Vec<Value> = json.text().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), 1 + sample.record.snapshots.len());
    assert!(lines[0]["look"].as_str().unwrap().contains("BPF"));
    let count = |s: &Value| -> usize {
        let of = |t: &Value| t["regions"].as_array().unwrap().len();
        s["targets"].as_array().unwrap().iter().map(of).sum()
    };
    assert_eq!(lines[1..].iter().map(count).sum::<usize>(), regions);
}

#[test]
fn a_target_is_selected() {
    let Some(sample) = sample("a_target_is_selected") else { return };
    let pid = sample.record.pids()[0].to_string();
    let all = sample.json(&["report", "summary"]);
    for target in [pid.as_str(), "program", "0"] {
        for kind in ["summary", "heatmap", "wss", "regions", "access"] {
            sample.json(&["report", kind, "--target", target]);
        }
        assert_eq!(sample.json(&["report", "summary", "--target", target]), all);
    }
    let done = sample.run(&["report", "wss", "--target", "mysqld"]);
    assert!(done.status == 1 && done.out.is_empty());
    assert!(done.err.contains("mysqld") && done.err.contains(&pid), "{}", done.err);
}

/// Checks that tags are balanced: only the subset of XML that isotherm writes.
fn assert_well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = svg;
    while let Some((text, after)) = rest.split_once('<') {
        assert!(!text.contains('>') && !text.replace("&amp;", "").contains("& "), "{text}");
        let (tag, behind) = after.split_once('>').unwrap();
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        rest = behind;
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest}");
}

#[test]
fn pictures_are_png_or_svg_by_their_names() {
    let dir = TempDir::new().unwrap();
    long_record::write(&dir.path().join("isotherm.rec"), 20, 100).unwrap();
    for kind in ["heatmap", "wss", "regions"] {
        for (name, begin) in [("a.png", &b"\x89PNG"[..]), ("a.svg", b"<svg "), ("b.SVG", b"<svg ")]
        {
            let done = run_in(dir.path(), &["report", kind, "-o", name]);
            assert_eq!((done.status, done.out.len()), (0, 0), "{kind}: {}", done.err);
            assert!(fs::read(dir.path().join(name)).unwrap().starts_with(begin), "{kind} {name}");
        }
        let svg = fs::read_to_string(dir.path().join("a.svg")).unwrap();
        assert_well_formed(&svg);
        for text in ["server on ", "10 Hz or more", "unknown: ", "looked at by nothing"] {
            assert!(svg.contains(text), "{kind}: {text}");
        }
        let done = run_in(dir.path(), &["report", kind, "-o", "a.jpeg"]);
        assert_eq!(done.status, 2, "{}", done.err);
        assert!(done.err.contains(".png or .svg") && !dir.path().join("a.jpeg").exists());
    }
}

/// The names of all values, those of reasons apart.
fn keys(json: &Value, out: &mut HashSet<String>) {
    match json {
        Value::Array(all) => all.iter().for_each(|v| keys(v, out)),
        Value::Object(all) => all.iter().for_each(|(key, v)| {
            out.insert(key.clone());
            if key != "unknown_bytes_by_reason" {
                keys(v, out);
            }
        }),
        _ => {}
    }
}

/// The texts between backticks.
fn quoted(text: &str) -> HashSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// A file of 4 MiB is read at random, but for 4 of 20 s another one of 32 MiB is read in sequence. Half of both is in
/// memory.
fn write_sequential_read(path: &Path) {
    let header = RecordingHeader::new("0.1.0", Attrs::default(), Nanos(0));
    let mut writer = Writer::create(path, &header, Limits::default()).unwrap();
    let sizes = [(TargetId(0), 4 * MIB), (TargetId(1), 32 * MIB)];
    for (id, name) in [(TargetId(0), "table"), (TargetId(1), "backup")] {
        let _ = writer.target(TargetInfo { id, pid: None, command: name.into() }).unwrap();
    }
    let view = |of: &TargetView, (id, size)| {
        let mapping = Mapping {
            range: AddrRange::new(0, size),
            kind: MappingKind::File,
            name: "".into(),
            unknown: None,
        };
        let cached =
            RegionView { range: AddrRange::new(0, size / 2), resident_bp: 10_000, ..of.regions[0] };
        TargetView {
            id,
            mappings: Arc::new(vec![mapping]),
            regions: vec![cached],
            left_out: size / 2,
            dirty: Some(DirtyBytes::default()),
            ages: None,
            ..of.clone()
        }
    };
    let mixed =
        |i: u64| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(i | 1);
    let seconds = long_record::snapshots(3, Duration::from_secs(1), 1);
    for (second, s) in (0_u64..20).zip(seconds) {
        let (target, pages): (TargetId, Vec<u64>) = match second {
            8..12 => (TargetId(1), ((second - 8) * 2048..(second - 7) * 2048).collect()),
            _ => (TargetId(0), (0..500).map(|i| mixed(second * 500 + i) >> 54).collect()),
        };
        let kind = CacheAccessKind::Read;
        let read = |&page: &u64| CacheAccess { target, page, kind, rarity: 0 };
        let trace = CacheTrace {
            since: s.start,
            until: s.end,
            sampling: 0,
            pages: vec![(target, pages.len() as u64)],
            missing: 0,
            accesses: pages.iter().map(read).collect(),
        };
        let _ = writer.trace(trace).unwrap();
        let targets = sizes.map(|of| view(&s.targets[0], of)).to_vec();
        let _ = writer.snapshot(&Snapshot { targets, ..s }).unwrap();
    }
    writer.finish(FileEndReason::Stopped, "").unwrap();
}

#[test]
fn every_key_is_documented_and_every_documented_key_exists() {
    let documented = include_str!("../../../../docs/abi/testing/report.md");
    let dir = TempDir::new().unwrap();
    long_record::write(&dir.path().join("isotherm.rec"), 20, 100).unwrap();
    write_sequential_read(&dir.path().join("files.rec"));
    let mut there = HashSet::new();
    let of_processes = [
        "summary", "heatmap", "wss", "regions", "access", "need", "advice", "cgroups", "code",
        "raw",
    ];
    let of_processes = of_processes.map(|kind| (kind, "isotherm.rec"));
    for (kind, record) in of_processes.into_iter().chain([("need", "files.rec")]) {
        let done = run_in(dir.path(), &["report", kind, "--json", "--input", record]);
        assert_eq!(done.status, 0, "{}", done.err);
        for line in done.text().lines() {
            keys(&serde_json::from_str(line).unwrap(), &mut there);
        }
    }
    let words = quoted(documented);
    let missing: Vec<_> = there.iter().filter(|key| !words.contains(*key)).collect();
    assert!(missing.is_empty(), "not documented: {missing:?}");
    let rows = documented.lines().filter(|l| l.starts_with("| `"));
    let first: HashSet<String> = rows.flat_map(|l| quoted(l.split('|').nth(1).unwrap())).collect();
    let gone: Vec<_> = first.difference(&there).collect();
    assert!(gone.is_empty(), "documented, and not there: {gone:?}");
}
