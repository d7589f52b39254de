//! Reports and exports of a record.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use isotherm_core::AddrRange;
use serde_json::Value;

use crate::load::{Load, MIB};
use crate::run::{Done, Record, Recorder, isotherm, root_or_skip, run_in};

/// A recording of three seconds, made once.
pub struct Sample {
    pub dir: PathBuf,
    pub record: Record,
    memory: AddrRange,
    pub hot: AddrRange,
}

impl Sample {
    pub fn run(&self, args: &[&str]) -> Done {
        run_in(&self.dir, &[args, &["-i", "a.rec"]].concat())
    }

    pub fn json(&self, args: &[&str]) -> Value {
        let done = self.run(&[args, &["--json"]].concat());
        assert_eq!((done.status, done.err.as_str()), (0, ""));
        done.json()
    }
}

/// `None` if the sample cannot be made here.
pub fn sample(test: &str) -> Option<&'static Sample> {
    static SAMPLE: OnceLock<Sample> = OnceLock::new();
    root_or_skip(test).then(|| {
        SAMPLE.get_or_init(|| {
            let load = Load::start(64, 16);
            let mut recorder = Recorder::counted(&["--pid", &load.pid().to_string()]);
            recorder.until_more(30);
            let record = recorder.stop();
            // A static is never dropped: always the same place, so that it does not fill the disk.
            let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report");
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(&dir).unwrap();
            fs::copy(recorder.record(), dir.join("a.rec")).unwrap();
            Sample { dir, record, memory: load.memory, hot: load.hot }
        })
    })
}

pub fn addr(range: AddrRange) -> String {
    format!("{:#x}..{:#x}", range.start, range.end)
}

/// The parts of what is resident, and of what is mapped, add up; to within the byte that is lost
/// by rounding a mean.
fn assert_adds_up(bytes: &Value) {
    let n = |key: &str| bytes[format!("{key}_bytes")].as_u64().unwrap();
    let near = |a: u64, b: u64| assert!(a.abs_diff(b) <= 8, "{a} and {b} in {bytes}");
    near(n("hot") + n("warm") + n("cold") + n("unknown"), n("resident"));
    near(n("resident") + n("absent") + n("left_out"), n("mapped"));
    let reasons = bytes["unknown_bytes_by_reason"].as_object().unwrap();
    near(reasons.values().map(|v| v.as_u64().unwrap()).sum(), n("unknown"));
}

#[test]
fn the_summary_reports_hot_memory_and_adds_up() {
    let Some(sample) = sample("the_summary_reports_hot_memory_and_adds_up") else { return };
    let json = sample.json(&["report", "summary"]);
    assert_eq!(json["schema_version"], 1);
    assert_eq!(json["snapshots"], sample.record.snapshots.len());
    assert_eq!((&json["sample_ms"], &json["aggr_ms"]), (&10.0.into(), &100.0.into()));
    assert_eq!((&json["hot_hz"], &json["cold_ms"]), (&10.0.into(), &5000.0.into()));
    for part in ["mean", "last"] {
        assert_adds_up(&json[part]);
    }
    let rows = json["mappings"].as_array().unwrap();
    rows.iter().for_each(assert_adds_up);
    let hot: u64 = rows.iter().map(|r| r["hot_bytes"].as_u64().unwrap()).sum();
    assert!(hot.abs_diff(json["mean"]["hot_bytes"].as_u64().unwrap()) <= rows.len() as u64);
    let hot = json["last"]["hot_bytes"].as_u64().unwrap();
    // 16 MiB, and 4 MiB that are locked.
    assert!((18 * MIB..23 * MIB).contains(&hot), "{hot} bytes are hot");

    let done = sample.run(&["report", "summary"]);
    assert_eq!((done.status, done.err.as_str()), (0, ""));
    for part in ["hot", "warm", "cold", "unknown", "mlocked", "working set", "p95", "10 Hz", "5 s"]
    {
        assert!(done.text().contains(part), "{part} is not in {}", done.text());
    }
    let few = sample.run(&["report", "summary", "--top", "2"]);
    assert!(few.text().lines().count() < done.text().lines().count(), "{}", few.text());
}

#[test]
fn thresholds_are_those_of_the_options() {
    let Some(sample) = sample("thresholds_are_those_of_the_options") else { return };
    let json = sample.json(&["report", "summary", "--hot", "5000Hz", "--cold", "1s"]);
    assert_eq!((&json["hot_hz"], &json["cold_ms"]), (&5000.0.into(), &1000.0.into()));
    // On a busy machine a few pages may seem to be touched so often for a moment.
    assert!(json["mean"]["hot_bytes"].as_u64().unwrap() < MIB / 4, "{json}");
    assert!(json["last"]["cold_bytes"].as_u64().unwrap() > 30 * MIB, "{json}");
}

#[test]
fn time_and_addresses_select() {
    let Some(sample) = sample("time_and_addresses_select") else { return };
    for report in ["summary", "heatmap", "wss", "regions"] {
        let json = sample.json(&["report", report, "--time", "1s..2s"]);
        let (from, to) = (json["from_ms"].as_f64().unwrap(), json["to_ms"].as_f64().unwrap());
        assert!(from >= 1000.0 && to <= 2000.0 && to - from >= 800.0, "{from} to {to}");
    }
    let hot = addr(sample.hot);
    let json = sample.json(&["report", "summary", "--addr", &hot]);
    assert_eq!(json["last"]["mapped_bytes"], sample.hot.len());
    assert!(json["last"]["hot_bytes"].as_u64().unwrap() >= sample.hot.len() * 9 / 10, "{json}");
    let json = sample.json(&["report", "heatmap", "--addr", &hot]);
    let panels = json["panels"].as_array().unwrap();
    assert_eq!(panels.len(), 1, "{panels:?}");
    let ends = [format!("{:#x}", sample.hot.start), format!("{:#x}", sample.hot.end)];
    assert_eq!(panels[0]["range"], serde_json::json!(ends));
}

#[test]
fn an_empty_selection_is_reported_with_the_contents() {
    let Some(sample) = sample("an_empty_selection_is_reported_with_the_contents") else { return };
    for report in ["summary", "heatmap", "wss", "regions", "access", "cgroups"] {
        let done = sample.run(&["report", report, "--time", "1h..2h"]);
        assert!(done.status == 1 && done.out.is_empty());
        assert!(done.err.contains("the record spans 0 s to "), "{}", done.err);
        let done = sample.run(&["report", report, "--addr", "0x1000..0x2000"]);
        assert!(done.status == 1 && done.out.is_empty());
        assert!(done.err.contains("regions within 0x"), "{}", done.err);
    }
}

/// Width, height and pixels.
fn decode(bytes: &[u8]) -> (u32, u32, Vec<u8>) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    (info.width, info.height, pixels)
}

#[test]
fn a_heat_map_becomes_a_picture() {
    let Some(sample) = sample("a_heat_map_becomes_a_picture") else { return };
    let done = sample.run(&["report", "heatmap", "--output", "map.png"]);
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(done.out.is_empty() && done.err.contains("map.png"), "{}", done.err);
    let file = fs::read(sample.dir.join("map.png")).unwrap();
    let (width, height, pixels) = decode(&file);
    assert!(width == 1200 && (200..4000).contains(&height), "{width} x {height}");
    let colours: std::collections::HashSet<_> = pixels.chunks(3).collect();
    assert!(colours.len() > 10, "{} colours", colours.len());

    let done = sample.run(&["report", "heatmap", "--output", "-"]);
    assert_eq!((done.status, done.err.as_str()), (0, ""));
    assert_eq!(decode(&done.out), (width, height, pixels));

    let done = sample.run(&["report", "heatmap", "--output", "no/such/map.png"]);
    assert!(done.status == 1 && done.err.contains("cannot write no/such/map.png"), "{}", done.err);
}

#[test]
fn a_heat_map_becomes_plain_text_where_there_is_no_terminal() {
    let Some(sample) = sample("a_heat_map_becomes_plain_text_where_there_is_no_terminal") else {
        return;
    };
    let done = sample.run(&["report", "heatmap"]);
    assert_eq!((done.status, done.err.as_str()), (0, ""));
    assert!(!done.text().contains('\x1b'), "{}", done.text());
    assert!(done.text().lines().count() >= 10, "{}", done.text());
    assert!(done.text().lines().all(|l| l.chars().count() <= 100), "{}", done.text());
    for part in ["Linux", "MiB resident on average", "hot: ", "from 0x"] {
        assert!(done.text().contains(part), "{part} is not in {}", done.text());
    }
}

#[test]
fn a_heat_map_becomes_json() {
    let Some(sample) = sample("a_heat_map_becomes_json") else { return };
    let json = sample.json(&["report", "heatmap", "--addr", &addr(sample.memory)]);
    assert_eq!(json["schema_version"], 1);
    let cells = &json["panels"][0]["cells"];
    let rows = cells["hz"].as_array().unwrap();
    assert_eq!(rows.len() as u64, cells["rows"].as_u64().unwrap());
    let columns = usize::try_from(cells["columns"].as_u64().unwrap()).unwrap();
    assert!(rows.iter().all(|r| r.as_array().unwrap().len() == columns));
    // In the last column, as much of the rows is hot as of the memory.
    let hz = |r: &Value| r[columns - 1].as_f64().unwrap_or(0.0);
    let share = rows.iter().filter(|r| hz(r) >= 10.0).count() as f64 / rows.len() as f64;
    assert!((0.2..0.32).contains(&share), "{share} of the rows are hot, and 1/4 of the memory is");

    // The picture is written to the given path.
    let done = sample.run(&["report", "heatmap", "--json", "--output", "map.json"]);
    assert!(done.status == 0 && done.out.is_empty(), "{}", done.err);
    let file = fs::read(sample.dir.join("map.json")).unwrap();
    let json: Value = serde_json::from_slice(&file).unwrap();
    assert_eq!(json["schema_version"], 1);
}

#[test]
fn an_export_is_an_arrow_stream() {
    let Some(sample) = sample("an_export_is_an_arrow_stream") else { return };
    let piped = sample.run(&["export", "--arrow"]);
    assert_eq!((piped.status, piped.err.as_str()), (0, ""));
    let done = sample.run(&["export", "--arrow", "-o", "a.arrows"]);
    assert!(done.status == 0 && done.out.is_empty(), "{}", done.err);
    let file = fs::read(sample.dir.join("a.arrows")).unwrap();
    assert_eq!(file, piped.out);
    // Each message begins with a mark and the length of its header, a multiple of 8; the last has
    // none.
    assert_eq!(file[..4], [0xff; 4]);
    let len = u32::from_le_bytes(file[4..8].try_into().unwrap());
    assert!(len > 0 && len.is_multiple_of(8) && (len as usize) < file.len(), "{len}");
    assert_eq!(file[file.len() - 8..], [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
}

#[test]
fn the_record_is_never_written_over() {
    let Some(sample) = sample("the_record_is_never_written_over") else { return };
    let path = sample.dir.join("a.rec");
    let before = fs::read(&path).unwrap();
    fs::hard_link(&path, sample.dir.join("alias.png")).unwrap();
    for args in [
        &["export", "--arrow", "-o", "a.rec"][..],
        &["export", "--arrow", "-o", "alias.png"],
        &["report", "heatmap", "-o", "alias.png"],
        &["report", "wss", "--json", "-o", "a.rec"],
    ] {
        let done = sample.run(args);
        assert_eq!(done.status, 2, "{}", done.err);
        assert!(done.err.contains("choose another name"), "{}", done.err);
    }
    assert_eq!(sample.run(&["report", "heatmap", "-o", "a.rec"]).status, 2);
    assert!(fs::read(&path).unwrap() == before);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let Some(sample) = sample("a_closed_pipe_is_no_error") else { return };
    for args in [
        &["report", "summary"][..],
        &["report", "heatmap"],
        &["report", "heatmap", "-o", "-"],
        &["report", "summary", "--json"],
        &["report", "wss"],
        &["report", "regions", "--json"],
        &["report", "access"],
        &["report", "raw"],
        &["export", "--arrow"],
        &["system", "doctor"],
    ] {
        let (reader, pipe) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = isotherm(args);
        if args != ["system", "doctor"] {
            command.args(["-i", "a.rec"]);
        }
        let done = command.current_dir(&sample.dir).stdout(pipe).output().unwrap();
        let err = String::from_utf8(done.stderr).unwrap();
        assert_eq!((done.status.code(), err.as_str()), (Some(0), ""), "{args:?}");
    }
}
