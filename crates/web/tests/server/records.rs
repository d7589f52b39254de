//! A record as a source: what the page gets before it is read, and afterwards.

use isotherm_record::{Event, Reader};
use serde_json::Value;

use crate::scene::{MIB, Records, write_log, write_record};
use crate::{Answer, ask_at};

const SNAPSHOTS: u64 = 400;

impl Records {
    fn ask(&self, path: &str) -> Answer {
        ask_at(self.server.address(), &format!("/api/source/0/{path}"))
    }

    fn state(&self) -> Value {
        ask_at(self.server.address(), "/api/state").json()["sources"][0].clone()
    }

    /// The cells of the first area, with 1 s and 32 MiB each.
    fn tile(&self, axis: &Value, from_ms: u64, width: u64) -> Vec<u8> {
        let answer = self.ask(&format!(
            "tile?target=0&axis={}&from_ms={from_ms}&pixel_ms=1000&from_byte=0&row_bytes={}&width={width}&height=8",
            axis["version"], 32 * MIB
        ));
        assert_eq!((answer.status, answer.body.len()), (200, 8 * width as usize));
        answer.body
    }
}

/// The row of the hot band in each column.
fn bands(cells: &[u8]) -> Vec<usize> {
    let hottest = |column: &[u8]| (0..8).max_by_key(|row| column[*row]).unwrap();
    cells.chunks(8).map(hottest).collect()
}

/// One mark for what a scheme did within a second, at the first action.
#[test]
fn a_log_marks_the_time_of_its_record() {
    let dir = tempfile::tempdir().unwrap();
    let [path, log] = ["a.rec", "log"].map(|name| dir.path().join(name));
    write_record(&path, SNAPSHOTS);
    write_log(&log);
    let mut record = Records::of(&[&path], 1 << 20);
    record.logs.push(log.clone());
    record.load();
    let mark = |ms: f64, bytes: u64| serde_json::json!({ "ms": ms, "scheme": "cold", "action": "pageout", "bytes": bytes });
    assert_eq!(
        record.ask("marks").json(),
        Value::from([mark(20_500.0, 3 * MIB), mark(60_000.0, 5 * MIB)])
    );
    assert_eq!(record.state()["note"], "");
    // Twelve seconds, in which nothing was done.
    write_record(&path, 48);
    let mut record = Records::of(&[&path], 1 << 20);
    record.logs.push(log.clone());
    record.load();
    assert_eq!(record.ask("marks").json(), Value::Array(Vec::new()));
    assert!(record.state()["note"].as_str().unwrap().contains("no action"));
    record.logs.push(dir.path().join("gone"));
    record.load();
    assert!(record.state()["note"].as_str().unwrap().contains("gone"), "{}", record.state());
}

#[test]
fn a_record_answers_as_its_snapshots_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.rec");
    write_record(&path, SNAPSHOTS);
    let record = Records::of(&[&path], 1 << 20);
    assert_eq!(record.ask("table?ms=1000").status, 503);
    assert_eq!(
        (&record.state()["kind"], &record.state()["complete"]),
        (&"record".into(), &false.into())
    );
    record.load();
    let state = record.state();
    assert_eq!((&state["complete"], &state["note"]), (&true.into(), &"".into()));
    assert_eq!((&state["snapshots"], &state["span_ms"]), (&SNAPSHOTS.into(), &100_000.0.into()));
    let axis = record.ask("axis?target=0").json();
    // The band moves up by 32 MiB each second, and starts again after seven.
    let expected: Vec<usize> = (0..30).map(|second| second % 7).collect();
    assert_eq!(bands(&record.tile(&axis, 0, 30)), expected);
    let point = record.ask("point?target=0&ms=15100&byte=33554432").json();
    assert_eq!((&point["from_ms"], &point["region"]["heat"]), (&15_000.0.into(), &"hot".into()));
    let rows = record.ask("table?ms=50000").json();
    let row = |id: usize| rows.as_array().unwrap().iter().find(|row| row["target"] == id).unwrap();
    // What is in swap is that of the last time it was read: at snapshot 200.
    assert_eq!((&row(1)["saved"], &row(1)["hot"]), (&(200 * MIB).into(), &(32 * MIB).into()));
    assert_eq!((&row(0)["saved"], &row(0)["refaults"]), (&0.into(), &Value::Null));
    // Of many histograms, every second one is kept.
    let ages = record.ask("ages?target=1&ms=50000").json();
    assert!((49_000.0..=50_000.0).contains(&ages["ms"].as_f64().unwrap()), "{ages}");
    assert_eq!(record.ask("point?target=7&ms=0&byte=0").status, 404);
}

/// If there is no memory for the finest heat, it is read from the record.
#[test]
fn what_was_given_up_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.rec");
    write_record(&path, SNAPSHOTS);
    let record = Records::of(&[&path], 96 << 10);
    record.load();
    let kept = record.state()["index_bytes"].as_u64().unwrap();
    assert!(kept <= 96 << 10, "{kept} bytes");
    let axis = record.ask("axis?target=0").json();
    let expected: Vec<usize> = (50..60).map(|second| second % 7).collect();
    assert_eq!(bands(&record.tile(&axis, 50_000, 10)), expected);
}

#[test]
fn a_part_of_a_record_is_a_record() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.rec");
    write_record(&path, SNAPSHOTS);
    let record = Records::of(&[&path], 1 << 20);
    record.load();
    let part = record.ask("record?target=1&from_ms=15000&to_ms=30000");
    assert_eq!(part.header("content-length"), Some(&*part.body.len().to_string()));
    let path = dir.path().join("part.rec");
    std::fs::write(&path, &part.body).unwrap();
    let events: Vec<Event> = Reader::open(&path).unwrap().collect::<Result<_, _>>().unwrap();
    let snapshots = events.iter().filter(|e| matches!(e, Event::Snapshot(_))).count();
    assert_eq!(snapshots, 60);
    let saved = events.iter().filter_map(|e| match e {
        Event::Attribution(a) => Some(a.swapped / MIB),
        _ => None,
    });
    assert_eq!(saved.collect::<Vec<_>>(), [40, 80], "what was known before, and what changed");
    let picture = record.ask("picture?target=0&from_ms=20000&to_ms=30000&format=png");
    assert!(picture.body.starts_with(b"\x89PNG"), "{}", picture.head);
}

#[test]
fn a_record_that_breaks_off_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.rec");
    write_record(&path, SNAPSHOTS);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let record = Records::of(&[&path], 1 << 20);
    record.load();
    let state = record.state();
    assert_eq!(state["complete"], true);
    assert!(state["note"].as_str().unwrap().contains("a.rec"), "{state}");
    assert!((1..SNAPSHOTS).contains(&state["snapshots"].as_u64().unwrap()), "{state}");
    assert_eq!(record.ask("table?ms=1000").status, 200);
}
