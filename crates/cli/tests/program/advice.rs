//! `isotherm report advice` on a workload with known truth.

use std::fs;

use isotherm_core::AddrRange;
use isotherm_sim::GroundTruth;
use serde_json::Value;

use crate::load::MIB;
use crate::run::{Recorder, needs_root, run_in};
use crate::workload::Running;

const LOCK: u64 = 16 * MIB;
/// On a busy machine a monitor may be too late, so it may try again.
const TRIES: usize = 5;

/// The ranges of the workload's memory with advice.
struct Advised {
    json: Value,
    truth: GroundTruth,
}

impl Advised {
    fn record() -> Self {
        let mut running = Running::start("hot-warm-cold", &["--duration", "1h"]);
        let mut recorder = Recorder::start(&["--pid", &running.pid(), "--duration", "20s"]);
        assert_eq!(recorder.wait().code(), Some(0), "{}", recorder.err());
        let truth = running.end();
        let dir = running.dir.path();
        fs::copy(recorder.record(), dir.join("isotherm.rec")).unwrap();
        let run = |args: &[&str]| {
            // At first the monitor has to find out which memory is hot.
            let all = ["report", "advice", "--time", "5s..", "--lock-limit", "16M"];
            let done =
                run_in(dir, &[&all[..], &["--min-age", "6s", "--window", "6s"], args].concat());
            assert_eq!((done.status, done.err.as_str()), (0, ""));
            done
        };
        let json = serde_json::from_str(run(&["--json"]).text()).unwrap();
        let text = run(&[]);
        for part in ["mlock((char *)base + 0x", "MADV_PAGEOUT);", "how big a limit", "memory.high"]
        {
            assert!(text.text().contains(part), "{part} is not in\n{}", text.text());
        }
        Advised { json, truth }
    }

    /// Bytes with advice for an action in the memory of this name.
    fn bytes(&self, action: &str, name: &str) -> u64 {
        let at = |text: &Value| u64::from_str_radix(&text.as_str().unwrap()[2..], 16).unwrap();
        let rows = self.json["ranges"].as_array().unwrap().iter();
        let own = rows.filter(|r| r["action"] == action);
        let range = |r: &Value| AddrRange::new(at(&r["range"][0]), at(&r["range"][1]));
        let ranges: Vec<AddrRange> = own.map(range).collect();
        let stretches = self.truth.stretches.iter().filter(|s| s.name == name);
        let stretches = stretches.map(|s| AddrRange::new(s.start, s.end));
        stretches
            .flat_map(|s| ranges.iter().filter_map(move |r| r.intersect(&s)))
            .map(|r| r.len())
            .sum()
    }

    fn whole(&self, name: &str) -> u64 {
        self.truth.stretches.iter().filter(|s| s.name == name).map(|s| s.end - s.start).sum()
    }

    /// The difference from the truth, if there is one.
    fn wrong(&self) -> Option<String> {
        let [hot, warm, cold] = ["hot", "warm", "cold"].map(|name| self.whole(name));
        let idle = |name| self.bytes("pageout", name) + self.bytes("cold", name);
        let size = |i: usize| self.json["actions"][i]["size_bytes"].as_u64().unwrap();
        let locked = self.bytes("lock", "hot");
        let needed = self.json["sizing"][0]["needed_p50_bytes"].as_u64().unwrap();
        let figures = format!(
            "locked {locked} of {}, huge {}, idle: hot {} of {hot}, warm {} of {warm}, cold {} of {cold}; needed {needed}",
            size(0),
            self.bytes("hugepage", "hot"),
            idle("hot"),
            idle("warm"),
            idle("cold")
        );
        let right = size(0) <= LOCK
            && locked >= LOCK * 3 / 4
            && self.bytes("lock", "warm") + self.bytes("lock", "cold") <= LOCK / 100
            && self.bytes("hugepage", "hot") >= hot / 2
            && self.bytes("hugepage", "warm") + self.bytes("hugepage", "cold") == 0
            // The kernel's own ageing makes half a per cent look untouched.
            && idle("hot") + idle("warm") <= (hot + warm) / 200
            // The regions around hot islands are warm: by the bench `accuracy` a fifth of the cold memory.
            && idle("cold") >= cold * 7 / 10
            && (hot + warm..hot + warm + cold * 3 / 10).contains(&needed);
        (!right).then_some(figures)
    }
}

#[test]
fn advice_agrees_with_the_truth() {
    needs_root!();
    let mut wrong = Vec::new();
    while let Some(why) = Advised::record().wrong() {
        wrong.push(why);
        assert!(wrong.len() < TRIES, "{wrong:#?}");
    }
}

#[test]
fn invalid_advice_options_are_reported() {
    let dir = tempfile::TempDir::new().unwrap();
    crate::synthetic::write(&dir.path().join("isotherm.rec"), 6);
    let run = |args: &[&str]| run_in(dir.path(), &[&["report", "advice"], args].concat());
    assert_eq!(run(&[]).status, 0);
    for (args, status, said) in [
        (&["--lock-limit", "much"][..], 2, "lock-limit"),
        (&["--headroom", "200"], 2, "headroom"),
        (&["--time", "1h.."], 1, "choose a time range"),
        (&["-i", "none.rec"], 1, "none.rec"),
    ] {
        let done = run(args);
        assert!(done.status == status && done.out.is_empty(), "{args:?}: {}", done.err);
        assert!(done.err.contains(said), "{args:?}: {}", done.err);
    }
}
