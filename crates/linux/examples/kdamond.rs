//! Watches by a kdamond of ours and prints what it sees: `kdamond SECONDS PID...`,
//! `kdamond SECONDS physical START-END...` or `kdamond SECONDS PID START-END...` (hexadecimal).

use std::time::Duration;

use isotherm_core::{
    AddrRange, Attrs, HeatBytes, Mapping, MappingKind, Snapshot, Source, Step, TargetId, Thresholds,
};
use isotherm_linux::damon::{Kdamond, KdamondAttrs, Watched, availability, sweep};
use isotherm_linux::sys::monotonic;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Fallible<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let root = "/".as_ref();
    println!("DAMON: {:?}", availability(root));
    let [seconds, what @ ..] = &args[..] else { return Err("kdamond SECONDS PID...".into()) };
    let end = monotonic() + Duration::from_secs(seconds.parse()?);
    if let Some(pid) = sweep(root)? {
        println!("swept what isotherm {pid} has left");
    }
    let attrs = Attrs {
        sample: Duration::from_millis(20),
        aggr: Duration::from_millis(400),
        ..Attrs::default()
    };
    let mut kdamond = Kdamond::start(root, watched(what)?, KdamondAttrs::from(attrs))?;
    println!("results by {}", kdamond.results());
    loop {
        match kdamond.step(monotonic())? {
            Step::Wait(until) => std::thread::sleep(until.since(monotonic())),
            Step::Snapshot(s) => print(&s),
            Step::End(why) => {
                println!("ended: {why:?}");
                return Ok(());
            }
        }
        if monotonic() >= end {
            kdamond.stop()?;
        }
    }
}

fn watched(what: &[String]) -> Fallible<Watched> {
    let ranges: Vec<AddrRange> = what.iter().filter_map(|w| range(w)).collect();
    let id = TargetId(0);
    if what.first().is_some_and(|w| w == "physical") {
        let mapping = |&range: &AddrRange| Mapping {
            range,
            kind: MappingKind::Special,
            name: "memory".into(),
            unknown: None,
        };
        let mappings = ranges.iter().map(mapping).collect();
        return Ok(Watched::Physical { target: id, ranges, mappings });
    }
    let mut pids = Vec::new();
    for pid in what.iter().filter(|w| !w.contains('-')) {
        pids.push((TargetId(u32::try_from(pids.len())?), pid.parse()?));
    }
    match (&pids[..], ranges.is_empty()) {
        (&[(target, pid)], false) => Ok(Watched::Ranges { target, pid, ranges }),
        _ => Ok(Watched::Processes(pids)),
    }
}

fn range(text: &str) -> Option<AddrRange> {
    let (start, end) = text.split_once('-')?;
    let hex = |s| u64::from_str_radix(s, 16).ok();
    Some(AddrRange::new(hex(start)?, hex(end)?))
}

fn print(s: &Snapshot) {
    let b: HeatBytes =
        s.bytes(&Thresholds { cold_age: Duration::from_secs(2), ..Default::default() });
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "{} {:.2}-{:.2} s: {} regions, MiB hot {} warm {} cold {} unknown {} absent {}, left out {}, own CPU {:.1} ms",
        s.seq,
        s.start.0 as f64 / 1e9,
        s.end.0 as f64 / 1e9,
        s.nr_regions(),
        mib(b.hot),
        mib(b.warm),
        mib(b.cold),
        mib(b.unknown),
        mib(b.absent),
        s.targets.iter().map(|t| mib(t.left_out)).sum::<u64>(),
        s.cost.cpu.as_secs_f64() * 1e3,
    );
}
