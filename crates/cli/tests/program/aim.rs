//! `isotherm reclaim --aim` on a workload with known truth.

use std::fs;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::alone::Alone;
use crate::load::MIB;
use crate::need::scattered;
use crate::reclaim::Service;
use crate::run::{isotherm, needs_root, run_in, until};
use crate::schemes::log_in;

#[test]
fn an_objective_finds_its_age() {
    needs_root!();
    finds_its_age("refault 20%/min", 88..=105, 2..=8);
}

#[test]
fn a_share_is_saved() {
    needs_root!();
    // 60 % of some 100 MiB; quotas count in blocks.
    finds_its_age("save 60%", 50..=70, 34..=48);
}

/// Of 107 MiB, 104 are never touched: 93 between pages that are touched all the time, and 11 beside them. The ranges are
/// the MiB that are paged out, and those that the first choice keeps.
fn finds_its_age(objective: &str, out: RangeInclusive<u64>, stays: RangeInclusive<u64>) {
    let Some(_alone) = Alone::with_swap(256) else { return };
    let scattered = scattered();
    let pid = scattered.pid();
    let mut command = isotherm(["reclaim", "--pid", &pid, "--aim", objective]);
    command.args(["--watermarks", "none", "--quota", "none", "--control", "none"]);
    command.args(["--log", "log"]);
    let service = Service::by_command(command, TempDir::new().unwrap());
    let begin = Instant::now();
    until("what is idle", || scattered.swapped() >= out.start() * MIB);
    // No more goes in a time in which all of it could.
    std::thread::sleep(begin.elapsed().min(Duration::from_secs(60)));
    assert!(scattered.swapped() <= out.end() * MIB, "what is hot stays");
    let log = log_in(service.dir.path());
    let chosen: Vec<&Value> = log.iter().filter(|line| line["action"] == "aim").collect();
    let first = chosen.iter().find(|line| line["why"] == "curve").unwrap();
    assert!(first["age_seconds"].as_f64() >= Some(5.0), "{first}");
    // The program itself adds some memory, most of it idle.
    let [idle, kept] = ["idle", "kept"].map(|key| first[key].as_u64().unwrap());
    assert!(idle >= out.start() * MIB && stays.contains(&(kept / MIB)), "{first}");
    let documented = include_str!("../../../../docs/abi/testing/audit-log.md");
    for key in first.as_object().unwrap().keys() {
        assert!(documented.contains(&format!("`{key}`")), "{key} is not documented");
    }
    assert!(service.err().contains("pages out memory that is idle for"), "{}", service.err());
}

#[test]
fn an_objective_requires_ages_of_pages() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    for (options, status, said) in [
        (&["--aim", "save 30%", "--monitor", "regions"][..], 1, "requires idle ages of pages"),
        (&["--aim", "save 30%", "--min-age", "5s"], 2, "--min-age"),
        (&["--aim", "save 0%"], 2, "--aim: "),
        (&["--aim", "save"], 2, "or \"save 30%\""),
    ] {
        let done =
            run_in(dir.path(), &[&["reclaim", "--all", "--control", "none"], options].concat());
        assert_eq!(done.status, status, "{options:?}: {}", done.err);
        assert!(done.err.contains(said), "{options:?}: {}", done.err);
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
