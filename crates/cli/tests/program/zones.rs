//! `isotherm system zones`: its figures for this machine are those of the kernel.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::run::{Done, run_in};

fn zones(args: &[&str]) -> Done {
    run_in(TempDir::new().unwrap().path(), &[&["system", "zones"], args].concat())
}

fn lines(done: &Done) -> Vec<Value> {
    done.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn sum(list: &Value, key: &str) -> f64 {
    list.as_array().unwrap().iter().map(|item| item[key].as_f64().unwrap()).sum()
}

/// The sum over all zones, by the kernel.
fn managed_bytes() -> f64 {
    let zones = fs::read_to_string("/proc/zoneinfo").unwrap();
    let pages = zones.lines().filter_map(|line| line.trim().strip_prefix("managed"));
    pages.map(|n| n.trim().parse::<f64>().unwrap() * 4096.0).sum()
}

#[test]
fn zones_hold_the_memory_of_the_machine() {
    let before = managed_bytes();
    let done = zones(&["--json"]);
    assert_eq!(done.status, 0, "{}", done.err);
    let after = managed_bytes();
    let state = &lines(&done)[0]["state"];
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    let total = meminfo.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 1024.0;
    let managed = sum(&state["zones"], "managed_bytes");
    // A kernel that initialises memory when it needs it manages more and more.
    assert!((before..=after).contains(&managed), "{before} <= {managed} <= {after}");
    assert!(managed > 0.0 && managed < total * 1.01, "{managed} of {total}");
    for zone in state["zones"].as_array().unwrap() {
        let marks = ["min_bytes", "low_bytes", "high_bytes", "present_bytes"];
        let marks: Vec<u64> = marks.iter().map(|&m| zone[m].as_u64().unwrap()).collect();
        assert!(marks.is_sorted(), "{zone}");
        let unusable = zone["unusable"].as_array().unwrap().iter().map(|u| u.as_f64().unwrap());
        assert!(unusable.is_sorted(), "larger blocks are not easier to find: {zone}");
        // The kernel of the machine follows its own formula.
        let (min, expected) = (&zone["min_bytes"], &zone["expected"]["min_bytes"]);
        let boost = zone["boost_bytes"].as_u64().unwrap();
        let (Some(min), Some(expected)) = (min.as_u64(), expected.as_u64()) else { continue };
        assert!((min - boost).abs_diff(expected) <= expected / 20 + 32768, "{zone}");
    }
    let text = zones(&[]);
    assert!(text.text().contains("node 0") && text.text().contains("reserve"), "{}", text.text());
}

#[test]
fn allocations_of_a_command_are_shown_by_zone() {
    let done = zones(&["--json", "--", "dd", "if=/dev/zero", "of=file", "bs=1M", "count=100"]);
    assert_eq!(done.status, 0, "{}", done.err);
    let change = &lines(&done)[0]["change"];
    assert!(sum(&change["kinds"], "allocated_bytes") >= 1e8, "{change}");
    for share in ["allocated_share", "size_share"] {
        assert!((sum(&change["kinds"], share) - 1.0).abs() < 1e-6, "{change}");
    }
    let fairness = change["fairness"].as_f64().unwrap();
    assert!(0.0 < fairness && fairness <= 1.0);
    let text = zones(&["--", "true"]);
    assert!(text.text().contains("fairness") && text.text().contains("kswapd"), "{}", text.text());
    assert_eq!(zones(&["--", "sh", "-c", "exit 7"]).status, 7, "that of the command");
}

#[test]
fn watching_prints_once_an_interval() {
    let done = zones(&["--watch", "--interval", "200ms", "--duration", "700ms", "--json"]);
    assert_eq!(done.status, 0, "{}", done.err);
    let lines = lines(&done);
    // A reading may be late, and so may the end, but none is early.
    assert!(!lines.is_empty(), "{}", done.err);
    let seconds: f64 = lines.iter().map(|l| l["change"]["seconds"].as_f64().unwrap()).sum();
    assert!(seconds >= 0.2 * lines.len() as f64, "{seconds} s in {} lines", lines.len());
    assert!(lines.iter().all(|l| l["state"]["zones"].is_array() && l["schema_version"] == 1));
}

#[test]
fn invalid_values_are_reported() {
    for (args, status, said) in [
        (&["--interval", "1ms", "--watch"][..], 2, "--interval"),
        (&["--duration", "1s"], 2, "--watch"),
        (&["--duration", "1s", "--interval", "2s", "--watch"], 2, "shorter than --interval"),
        (&["--watch", "--", "true"], 2, "--watch"),
        (&["--", "/no/such/program"], 1, "no such program"),
    ] {
        let done = zones(args);
        assert_eq!(done.status, status, "{args:?}: {}", done.err);
        assert!(done.err.contains(said) && done.out.is_empty(), "{args:?}: {}", done.err);
    }
}
