//! `isotherm interleave`, as far as a machine with any number of nodes can test it. The guests test several
//! nodes.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::load::Load;
use crate::run::{Done, copy_program, finish, needs_root, run_in};

fn interleave(args: &[&str]) -> Done {
    run_in(TempDir::new().unwrap().path(), &[&["interleave"], args].concat())
}

fn sum(object: &Value) -> u64 {
    object.as_object().unwrap().values().map(|v| v.as_u64().unwrap()).sum()
}

/// A node with memory.
fn first_node() -> String {
    let show = interleave(&["show", "--json"]).json();
    show["nodes"][0]["node"].to_string()
}

/// The sum of the nodes' own `meminfo`, in bytes.
fn total_of_nodes() -> u64 {
    let nodes = fs::read_dir("/sys/devices/system/node").unwrap();
    let files = nodes.map(|entry| entry.unwrap().path().join("meminfo"));
    let of = |text: String| -> u64 {
        let kib = text.split_whitespace().skip_while(|w| *w != "MemTotal:").nth(1);
        kib.unwrap().parse::<u64>().unwrap() << 10
    };
    files.filter_map(|file| fs::read_to_string(file).ok()).map(of).sum()
}

#[test]
fn nodes_hold_the_memory_of_the_machine() {
    let before = total_of_nodes();
    let done = interleave(&["show", "--json"]);
    assert_eq!(done.status, 0, "{}", done.err);
    let shown = done.json();
    let nodes = shown["nodes"].as_array().unwrap();
    let total: u64 = nodes.iter().map(|n| n["total_bytes"].as_u64().unwrap()).sum();
    // A kernel that initialises memory when it needs it reports more and more.
    let after = total_of_nodes();
    assert!((before..=after).contains(&total), "{before} <= {total} <= {after}");
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    let kib: u64 = meminfo.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(total > 0 && total <= (kib << 10) / 100 * 101, "{total} of {kib} KiB");
    for node in nodes {
        assert_eq!(node["distances"][node["node"].to_string()], 10, "{node}");
    }
    let text = interleave(&["show"]);
    assert!(text.text().contains("distance from"), "{}", text.text());
}

#[test]
fn the_kernel_keeps_its_rules() {
    let done = interleave(&["verify", "--kernel", "--json"]);
    assert_eq!(done.status, 0, "{}{}", done.text(), done.err);
    let outcomes = done.json()["cases"].as_array().unwrap().clone();
    assert!(outcomes.iter().any(|c| c["outcome"] == "as the rule"), "{outcomes:?}");
}

#[test]
fn memory_on_one_node_is_found_there() {
    needs_root!();
    let load = Load::start(64, 8);
    let (pid, node) = (load.pid().to_string(), first_node());
    let of = |task: &str| {
        let done = interleave(&[task, "--pid", &pid, "--nodes", &node, "--weights", "3", "--json"]);
        assert_eq!(done.status, 0, "{}{}", done.text(), done.err);
        done.json()
    };
    let applied = of("apply");
    let pages = applied["pages"].as_u64().unwrap();
    assert!(pages * 4096 >= 64 << 20, "{applied}");
    assert_eq!((sum(&applied["found"]), sum(&applied["asked"])), (pages, pages), "{applied}");
    let verified = of("verify");
    assert_eq!(verified["misplaced"], 0, "{verified}");
    let mappings = verified["mappings"].as_array().unwrap();
    let parts: u64 = mappings.iter().map(|m| m["pages"].as_u64().unwrap()).sum();
    assert_eq!(verified["pages"], parts);
}

#[test]
fn only_hot_memory_is_placed() {
    needs_root!();
    let load = Load::start(256, 16);
    let (pid, node) = (load.pid().to_string(), first_node());
    let args = ["apply", "--pid", &pid, "--nodes", &node, "--weights", "1", "--json", "--hot"];
    let done = interleave(&[&args[..], &["--watch", "4s"]].concat());
    assert_eq!(done.status, 0, "{}", done.err);
    let applied = done.json();
    let hot = applied["hot_bytes"].as_u64().unwrap();
    assert!((8 << 20..64 << 20).contains(&hot), "{applied}");
    assert!(applied["pages"].as_u64().unwrap() * 4096 <= hot, "{applied}");
}

#[test]
fn a_command_runs_under_the_policy() {
    let node = first_node();
    let show = ["--nodes", &node, "--interval", "100ms", "--", "sh", "-c"];
    let done = interleave(&[&["run"], &show[..], &["cat /proc/self/numa_maps; exit 7"]].concat());
    assert_eq!(done.status, 7, "{}", done.err);
    // If the kernel has no weighted interleave, isotherm prints that it moves pages instead.
    let policy = format!("weighted interleave:{node}");
    let moves = done.err.contains("no weighted interleave");
    assert!(done.text().contains(&policy) || moves, "{}{}", done.text(), done.err);
}

#[test]
fn keeping_ends_with_the_process_or_in_time() {
    needs_root!();
    let load = Load::start(16, 4);
    let (pid, node) = (load.pid().to_string(), first_node());
    let args = ["apply", "--pid", &pid, "--nodes", &node, "--weights", "1", "--keep"];
    let done = interleave(&[&args[..], &["--interval", "200ms", "--duration", "1s"]].concat());
    assert_eq!(done.status, 0, "{}", done.err);
    assert_eq!(done.text().matches(") checked, ").count(), 1, "nothing moved since");
    // Found by a review: the duration ended while the hot memory was determined.
    let hot = ["--hot", "--watch", "2s", "--interval", "200ms", "--duration", "1s"];
    let done = interleave(&[&args[..], &hot].concat());
    assert_eq!(done.status, 0, "{}", done.err);
    assert_eq!(done.text().matches(") checked, ").count(), 1, "{}", done.text());
}

#[test]
fn measuring_keeps_its_time_and_draws_a_picture() {
    let dir = TempDir::new().unwrap();
    let args = ["interleave", "probe", "--yes", "--time", "5s", "--json", "-o", "curve.png"];
    let done = run_in(dir.path(), &args);
    assert_eq!(done.status, 0, "{}", done.err);
    let probed = done.json();
    assert!(probed["seconds"].as_f64().unwrap() < 30.0, "{probed}");
    let node = &probed["nodes"][0];
    // If memory is allocated slowly, none of it may be measured in time; a message says that.
    let measured = node["bandwidth"]["read"].as_f64().is_some_and(|mb_s| mb_s > 0.0);
    assert!(measured || probed["remarks"].to_string().contains("There was no time"), "{probed}");
    let curve = node["curve"].as_array().unwrap();
    let loads: Vec<f64> = curve.iter().map(|p| p["mb_s"].as_f64().unwrap()).collect();
    assert!(loads.is_sorted(), "{loads:?}");
    assert!(fs::read(dir.path().join("curve.png")).unwrap().starts_with(b"\x89PNG"));
}

/// Runs it as a user without rights, in a directory that this user may read.
fn by_nobody(args: &[&str]) -> Done {
    let dir = TempDir::new().unwrap();
    let program = dir.path().join("isotherm");
    copy_program(env!("CARGO_BIN_EXE_isotherm"), &program);
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
    finish(command.arg("interleave").args(args))
}

#[test]
fn missing_privileges_are_named() {
    needs_root!();
    let load = Load::start(16, 4);
    let (pid, node) = (load.pid().to_string(), first_node());
    let weight = format!("{node}=3");
    for args in [
        &["set", &weight][..],
        &["run", "--nodes", &node, "--weights", "3", "--", "true"],
        &["apply", "--pid", &pid, "--nodes", &node, "--weights", "3"],
        &["verify", "--pid", &pid, "--nodes", &node, "--weights", "3"],
    ] {
        let done = by_nobody(args);
        // Kernels without weighted interleave have no weights to set, for any user.
        let reported = ["root", "no weighted interleave"].iter().any(|t| done.err.contains(t));
        assert!(done.status == 1 && reported, "{args:?}: {} {}", done.status, done.err);
    }
    let done = by_nobody(&["show"]);
    assert_eq!(done.status, 0, "{}", done.err);
}

/// Words between backticks.
fn quoted(text: &str) -> HashSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn keys<'a>(value: &'a Value, out: &mut HashSet<&'a str>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            // The keys of objects by node are numbers.
            out.extend((!key.starts_with(|c: char| c.is_ascii_digit())).then_some(key.as_str()));
            keys(value, out);
        }),
        Value::Array(list) => list.iter().for_each(|value| keys(value, out)),
        _ => {}
    }
}

#[test]
fn every_key_is_documented() {
    needs_root!();
    let documented = quoted(include_str!("../../../../docs/abi/testing/interleave.md"));
    let load = Load::start(16, 4);
    let (pid, node) = (load.pid().to_string(), first_node());
    let of = ["--pid", &pid, "--nodes", &node, "--weights", "1", "--json"];
    for args in [
        &["show", "--json"][..],
        &["verify", "--kernel", "--json"],
        &[&["verify"], &of[..]].concat(),
        &[&["apply"], &of[..]].concat(),
        &["probe", "--yes", "--time", "2s", "--json"],
    ] {
        let shown = interleave(args).json();
        let mut there = HashSet::new();
        keys(&shown, &mut there);
        let missing: Vec<_> = there.difference(&documented).collect();
        assert!(missing.is_empty(), "{args:?}: {missing:?}");
    }
}

#[test]
fn invalid_values_are_reported() {
    let me = std::process::id().to_string();
    for (args, status, said) in [
        (&["set", "0=0"][..], 2, "1 to 255"),
        (&["set", "0=256"], 2, "1 to 255"),
        (&["set", "0=1,0=2"], 2, "named twice"),
        (&["set", "sometimes"], 2, "restore"),
        (&["run", "--weights", "9:0", "--", "true"], 2, "1 to 255"),
        (&["run", "--nodes", "0"], 2, "COMMAND"),
        (&["run", "--nodes", "0", "--", "/no/such"], 1, "no such program"),
        (&["run", "--nodes", "900", "--", "true"], 1, "no node 900 with memory"),
        (&["apply", "--pid", "2147483647", "--nodes", "0"], 1, "no process 2147483647"),
        (
            &["apply", "--pid", &me, "--nodes", "0", "--weights", "1:2"],
            2,
            "2 weights are given for 1",
        ),
        (&["apply", "--pid", &me, "--duration", "1s"], 2, "--keep"),
        (&["apply", "--pid", &me, "--keep", "--interval", "1ms"], 2, "--interval"),
        (&["verify", "--pid", &me], 1, "policy of weighted interleave"),
        (&["verify", "--kernel", "--pid", &me], 2, "--kernel"),
        (&["verify"], 2, "--pid"),
        (&["probe"], 2, "--yes"),
        (&["probe", "--yes", "--time", "1ms"], 2, "--time"),
        (&["probe", "--yes", "-o", "curve.txt"], 2, ".png or .svg"),
    ] {
        let done = interleave(args);
        assert_eq!(done.status, status, "{args:?}: {}", done.err);
        assert!(done.err.contains(said) && done.out.is_empty(), "{args:?}: {}", done.err);
    }
}
