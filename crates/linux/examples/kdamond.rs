//! Watches by a kdamond of ours and prints what it sees: `kdamond SECONDS PID...`,
//! `kdamond SECONDS physical START-END...` or `kdamond SECONDS PID START-END...` (hexadecimal). A pid
//! with a plus is watched as well from half of the time on; `goal=BP` has intervals tuned, and `unit=N`
//! makes a step of a physical address N bytes.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Attrs, EndReason, HeatBytes, IntervalsGoal, Mapping, MappingKind, Snapshot,
    TargetId, Thresholds,
};
use isotherm_linux::damon::{Kdamond, KdamondAttrs, MonitoredMemory, availability, sweep};
use isotherm_linux::sys::{KeptCapabilities, drop_privileges};
use isotherm_linux::watch_for;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> std::process::ExitCode {
    match run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(e) => {
            println!("{e}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run() -> Fallible<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let root = "/".as_ref();
    println!("DAMON: {:?}", availability(root));
    let [seconds, what @ ..] = &args[..] else { return Err("kdamond SECONDS PID...".into()) };
    let seconds = Duration::from_secs(seconds.parse()?);
    let (later, what): (Vec<String>, Vec<String>) =
        what.iter().cloned().partition(|w| w.starts_with('+'));
    let later = Some(pids(&later)?).filter(|all| !all.is_empty());
    if let Some(pid) = sweep(root)? {
        println!("swept what isotherm {pid} has left");
    }
    let attrs = Attrs {
        sample: Duration::from_millis(20),
        aggr: Duration::from_millis(400),
        ..Attrs::default()
    };
    let watched = watched(&what)?;
    let processes = match &watched {
        MonitoredMemory::Processes(all) => all.clone(),
        _ => Vec::new(),
    };
    let mut attrs = KdamondAttrs::from(attrs);
    attrs.addr_unit = word(&what, "unit=")?;
    attrs.intervals_goal = word(&what, "goal=")?.map(|access_bp| IntervalsGoal {
        access_bp: u32::try_from(access_bp).unwrap_or(u32::MAX),
        aggrs: 3,
        min_sample: Duration::from_millis(5),
        max_sample: Duration::from_secs(10),
    });
    let mut kdamond = Kdamond::start(root, watched, attrs)?;
    drop_privileges(KeptCapabilities { reading: true, writing: false, frames: false })?;
    println!("results by {}", kdamond.results());
    let show = |_: &mut Kdamond, s: Arc<Snapshot>| -> Fallible<_> {
        print(&s);
        Ok(ControlFlow::Continue(()))
    };
    let mut ended = watch_for(&mut kdamond, seconds / 2, show)?;
    if let (None, Some(more)) = (ended, later) {
        let new = more.iter().map(|&(TargetId(n), pid)| (TargetId(n + 100), pid));
        kdamond.set_targets(&processes.iter().copied().chain(new).collect::<Vec<_>>())?;
    }
    if ended.is_none() {
        ended = watch_for(&mut kdamond, seconds / 2, show)?;
    }
    kdamond.stop()?;
    println!("ended: {:?}", ended.unwrap_or(EndReason::Stopped));
    Ok(())
}

fn watched(what: &[String]) -> Fallible<MonitoredMemory> {
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
        return Ok(MonitoredMemory::Physical { target: id, ranges, mappings });
    }
    let pids = pids(what)?;
    match (&pids[..], ranges.is_empty()) {
        (&[(target, pid)], false) => Ok(MonitoredMemory::Ranges { target, pid, ranges }),
        _ => Ok(MonitoredMemory::Processes(pids)),
    }
}

fn pids(what: &[String]) -> Fallible<Vec<(TargetId, i32)>> {
    let pids = what.iter().filter(|w| !w.contains(['-', '='])).zip(0..);
    pids.map(|(w, n)| Ok((TargetId(n), w.trim_start_matches('+').parse()?))).collect()
}

/// The number behind `name` in one of the words.
fn word(what: &[String], name: &str) -> Fallible<Option<u64>> {
    let found = what.iter().find_map(|w| w.strip_prefix(name));
    Ok(found.map(str::parse).transpose()?)
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
        "{} {:.2}-{:.2} s (sample {:?}): {} regions, MiB hot {} warm {} cold {} unknown {} absent {}, left out {}, own CPU {:.1} ms",
        s.seq,
        s.start.0 as f64 / 1e9,
        s.end.0 as f64 / 1e9,
        s.attrs.sample,
        s.nr_regions(),
        mib(b.hot),
        mib(b.warm),
        mib(b.cold),
        mib(b.unknown),
        mib(b.absent),
        s.targets.iter().map(|t| mib(t.left_out)).sum::<u64>(),
        s.cost.cpu.as_secs_f64() * 1e3,
    );
    for t in &s.targets {
        let oldest = t.regions.iter().map(|r| r.age).max().unwrap_or_default();
        println!("    target {}: {} regions, oldest {oldest:.1?}", t.id.0, t.regions.len());
    }
}
