//! `isotherm lab interleave`.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::run::{Done, run_in};

const DOCUMENT: &str = include_str!("../../../../docs/abi/testing/lab.md");
const NODES: &str = "about = 'three'\n\
                     [[node]]\nname = 'a'\nbandwidth_mb_s = 50000\n\
                     [[node]]\nname = 'b'\nbandwidth_mb_s = 20000\n\
                     [[node]]\nname = 'c'\nbandwidth_mb_s = 10000\n";

fn interleave(dir: &Path, more: &[&str]) -> Done {
    run_in(dir, &[&["lab", "interleave"], more].concat())
}

/// All keys of objects in it, at any depth.
fn keys(value: &Value, all: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            all.push(key.clone());
            keys(value, all);
        }),
        Value::Array(values) => values.iter().for_each(|v| keys(v, all)),
        _ => {}
    }
}

fn all_documented(value: &Value) {
    let mut all = Vec::new();
    keys(value, &mut all);
    assert!(!all.is_empty());
    for key in all {
        assert!(DOCUMENT.contains(&format!("`{key}`")), "{key} is not documented");
    }
}

#[test]
fn published_cells_stand_beside_what_is_predicted() {
    let dir = TempDir::new().unwrap();
    let done = interleave(dir.path(), &[]);
    assert_eq!(done.status, 0, "{}", done.err);
    for part in ["MLC", "STREAM", "XSBench", "slowest node", "cannot be fitted", "best, Copy"] {
        assert!(done.text().contains(part), "{part}");
    }

    let found = interleave(dir.path(), &["--json"]).json();
    assert_eq!(found["schema_version"], 1);
    all_documented(&found);
    let list = |value: &Value| value.as_array().unwrap().clone();
    for cell in list(&found["tables"]).iter().flat_map(|table| list(&table["cells"])) {
        let published = cell["published"].as_f64().unwrap();
        for p in list(&cell["predictions"]) {
            let error = 100.0 * (p["predicted"].as_f64().unwrap() / published - 1.0);
            assert!((error - p["error_percent"].as_f64().unwrap()).abs() < 1e-9, "{p}");
            assert!(!p["from"].as_str().unwrap().is_empty());
        }
    }
}

#[test]
fn a_machine_by_file() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("nodes.toml"), NODES).unwrap();
    let args = ["--machine", "nodes.toml"];
    let done = interleave(dir.path(), &args);
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(done.text().contains("5:2:1"), "{}", done.text());
    let found = interleave(dir.path(), &[&args[..], &["--json"]].concat()).json();
    assert_eq!(found["weights"], serde_json::json!([5, 2, 1]));
    assert!(found["latency"].is_null() && found["curve"].is_null());
    let done = interleave(dir.path(), &[&args[..], &["-o", "x.svg"]].concat());
    assert_eq!(done.status, 2, "three nodes cannot be drawn");
    assert!(done.err.contains("nothing to draw"), "{}", done.err);
}

/// The file of the guests' machine, for which kernels derive the same weights.
#[test]
fn the_machine_of_the_guests() {
    let dir = TempDir::new().unwrap();
    let nodes = include_str!("../../../sim/lab/three-nodes.toml");
    fs::write(dir.path().join("nodes.toml"), nodes).unwrap();
    let found = interleave(dir.path(), &["--machine", "nodes.toml", "--json"]).json();
    assert_eq!(found["weights"], serde_json::json!([5, 2, 1]));
    assert_eq!(found["automatic"], found["weights"]);
}

/// The file in the documentation can be parsed, and all keys of the output are described.
#[test]
fn the_documented_machine() {
    let dir = TempDir::new().unwrap();
    let blocks = DOCUMENT.split("```").filter_map(|part| part.strip_prefix("toml\n"));
    let nodes = blocks.filter(|b| b.contains("bandwidth_mb_s") && b.contains("idle_ns")).last();
    fs::write(dir.path().join("nodes.toml"), nodes.unwrap()).unwrap();
    let done = interleave(dir.path(), &["--machine", "nodes.toml", "--json"]);
    assert_eq!(done.status, 0, "{}", done.err);
    let found = done.json();
    assert!(found["curve"].is_object() && found["latency"].is_object());
    all_documented(&found);
    for figure in ["weights", "latency"] {
        let args = ["--machine", "nodes.toml", "-o", "x.svg", "--figure", figure];
        let done = interleave(dir.path(), &args);
        assert_eq!(done.status, 0, "{}", done.err);
    }
}

#[test]
fn pictures() {
    let dir = TempDir::new().unwrap();
    for (name, figure, text) in
        [("w.svg", "weights", "optimum, 9.05:1"), ("l.svg", "latency", "Mean latency over load")]
    {
        let done = interleave(dir.path(), &["-o", name, "--figure", figure]);
        assert_eq!(done.status, 0, "{}", done.err);
        assert!(fs::read_to_string(dir.path().join(name)).unwrap().contains(text), "{name}");
    }
    assert_eq!(interleave(dir.path(), &["-o", "w.png"]).status, 0);
    assert!(fs::read(dir.path().join("w.png")).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn invalid_values_are_reported() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    file("zero.toml", &NODES.replace("20000", "0"));
    file("one.toml", NODES.split("[[node]]\nname = 'b'").next().unwrap());
    file("key.toml", &NODES.replace("bandwidth_mb_s", "bandwidth"));
    file("lines.toml", &format!("lines_in_flight = 9\n{NODES}"));
    file("long.toml", &" ".repeat(2 << 20));
    for (args, status, said) in [
        (&["--machine", "gone.toml"][..], 1, "gone.toml"),
        (&["--machine", "long.toml"], 1, "longer than 1 MiB"),
        (&["--machine", "zero.toml"], 2, "node b is out of range"),
        (&["--machine", "one.toml"], 2, "choose 2 to 64"),
        (&["--machine", "key.toml"], 2, "bandwidth"),
        (&["--machine", "lines.toml"], 2, "idle latency"),
        (&["-o", "x.jpeg"], 2, ".png or .svg"),
        (&["--figure", "weights"], 2, "--output"),
        (&["--json", "-o", "x.png"], 2, "--output"),
    ] {
        let done = interleave(dir.path(), args);
        assert_eq!(done.status, status, "{args:?}: {}", done.err);
        assert!(done.err.contains(said), "{args:?}: {}", done.err);
        assert!(done.out.is_empty(), "{args:?}");
    }
}
