//! `isotherm run`: the amount in a window, the beginning of the next one, and the priority. The bench
//! `quotas` measures this at length.

use std::time::{Duration, Instant};

use isotherm_core::{AddrRange, PAGE_SIZE, join_touching};
use serde_json::Value;

use crate::alone::Alone;
use crate::load::{Load, MIB};
use crate::run::needs_root;
use crate::schemes::{Run, applied_in, swapped};

/// Pages out the cold memory of these ranges only.
fn scheme(only: &[AddrRange], rest: &str) -> String {
    let filter = |r: &AddrRange| {
        let addresses = format!("{:#x}..{:#x}", r.start, r.end);
        format!("{{ kind = {{ addresses = \"{addresses}\" }}, allow = true }},")
    };
    let filters: String = only.iter().map(filter).collect();
    format!("[[scheme]]\naction = \"pageout\"\nrate = {{ max = 0 }}\nfilters = [{filters}]\n{rest}")
}

/// The memory before the hot part, except for its last MiB, because the border may be slightly off.
fn cold(load: &Load) -> AddrRange {
    AddrRange::new(load.memory.start, load.hot.start / MIB * MIB - MIB)
}

/// The range in a line of the log.
pub fn range(line: &Value) -> AddrRange {
    let end = |key: &str| {
        u64::from_str_radix(line[key].as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
    };
    AddrRange::new(end("start"), end("end"))
}

#[test]
fn windows_are_used_up_to_the_page_and_the_next_goes_on_where_one_stopped() {
    needs_root!();
    const QUOTA: u64 = 3 * MIB + PAGE_SIZE;
    let Some(_alone) = Alone::with_swap(64) else { return };
    let loads = [Load::start(24, 2), Load::start(24, 2)];
    let cold: Vec<AddrRange> = loads.iter().map(cold).collect();
    let quota =
        format!("age = {{ min = \"2s\" }}\nquota = {{ bytes = {QUOTA}, reset = \"500ms\" }}\n");
    let second = loads[1].pid().to_string();
    let mut run = Run::by_default(&scheme(&cold, &quota), &["--pid", &loads[0].pid().to_string()]);
    run = run.with(&["--pid", &second, "--log", "log"]);
    let all: u64 = cold.iter().map(AddrRange::len).sum();
    let done = run.finish_when("all that is cold", |log| applied_in(log) >= all);
    assert_eq!(done.status, 0, "{}", done.err);
    let log = run.log();
    let mut so_far = 0;
    for window in log.chunk_by(|a, b| a["window"] == b["window"]) {
        let bytes = applied_in(window);
        so_far += bytes;
        assert!(bytes == QUOTA || bytes < QUOTA && so_far == all, "{bytes} in {window:?}");
    }
    assert_eq!(so_far, all);
    assert_eq!(loads.iter().map(|l| swapped(l.pid())).sum::<u64>(), all, "by the kernel");
    for (load, cold) in loads.iter().zip(cold) {
        let mine = log.iter().filter(|l| l["pid"] == load.pid());
        let mine: Vec<AddrRange> = mine.map(range).collect();
        assert!(mine.is_sorted_by(|a, b| a.end <= b.start), "in order, none twice: {mine:?}");
        assert_eq!(join_touching(mine), [cold], "none is left out");
    }
    let pids = log.chunk_by(|a, b| a["pid"] == b["pid"]).count();
    assert_eq!(pids, 2, "first all of one, then all of the other");
}

#[test]
fn the_oldest_comes_first() {
    needs_root!();
    const OLDEST: u64 = 2 * MIB;
    let Some(_alone) = Alone::with_swap(64) else { return };
    let mut load = Load::start(36, 4);
    let cold = cold(&load);
    // In the order of addresses it would be the last one.
    let oldest = AddrRange::new(cold.end - OLDEST, cold.end);
    let rest = "apply_interval = \"12s\"\nage = { min = \"1s\" }\n";
    let quota =
        format!("quota = {{ bytes = {OLDEST}, reset = \"1h\", weights = {{ age = 1 }} }}\n");
    let mut run = Run::by_default(
        &scheme(&[cold], &format!("{rest}{quota}")),
        &["--pid", &load.pid().to_string()],
    );
    run = run.with(&["--windows", "--log", "log"]);
    let begin = Instant::now();
    let done = run.finish_when("the first time", |log| {
        if begin.elapsed() < Duration::from_secs(7) {
            load.touch(AddrRange::new(cold.start, oldest.start));
            std::thread::sleep(Duration::from_millis(200));
        }
        applied_in(log) >= OLDEST
    });
    assert_eq!(done.status, 0, "{}", done.err);
    let log = run.log();
    let right = |l: &&Value| oldest.contains(range(l).start);
    let right: u64 = log.iter().filter(right).map(|l| applied_in(std::slice::from_ref(l))).sum();
    assert_eq!(applied_in(&log), OLDEST, "{log:?}");
    assert!(right * 10 >= OLDEST * 9, "{right} bytes of {OLDEST}: {log:?}");
}
