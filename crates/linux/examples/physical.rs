//! Watches physical memory by idle page tracking, and prints how much of each zone of each node is hot.
//!
//! `cargo run -p isotherm-linux --example physical -- SECONDS [PID]`, as root, on a kernel with
//! `CONFIG_IDLE_PAGE_TRACKING`. With `PID`, it also shows the memory of that process, by its page frames: one
//! letter for each 4 MiB, `H`ot, `w`arm, `c`old, unknown `?` or `-` absent.

use std::collections::BTreeMap;
use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Attrs, Heat, HeatBytes, OpsError, PAGE_SIZE, RegionSampler, RegionView, Snapshot,
    TargetView, Thresholds,
};
use isotherm_linux::proc::{self, Pagemap};
use isotherm_linux::{Part, Physical, physical_memory, watch_for};

const LETTER: u64 = 4 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new("/");
    let mut args = std::env::args().skip(1);
    let seconds = args.next().map_or(Ok(10), |s| s.parse())?;
    let pid: Option<i32> = args.next().map(|s| s.parse()).transpose()?;
    let memory = Part::default().of(&physical_memory(root)?)?;
    let ops = Physical::new(root, &memory)?;
    let mut monitor = RegionSampler::new(ops, Attrs::default(), &[Physical::TARGET], 1)?;
    let mut last = None;
    watch_for(&mut monitor, Duration::from_secs(seconds), |_, s| {
        last = Some(s);
        Ok::<_, OpsError>(ControlFlow::Continue(()))
    })?;
    let last = last.ok_or("no snapshot yet: watch for longer")?;
    let target = last.targets.first().ok_or("no target")?;
    print_zones(&last, target);
    pid.map_or(Ok(()), |pid| print_process(root, pid, target))
}

fn print_zones(snapshot: &Snapshot, target: &TargetView) {
    let mut zones: BTreeMap<&str, HeatBytes> = BTreeMap::new();
    for m in target.mappings.iter() {
        let regions = target.regions.iter();
        let parts =
            regions.filter_map(|r| Some(RegionView { range: r.range.intersect(&m.range)?, ..*r }));
        *zones.entry(&m.name).or_default() += parts.map(|p| p.bytes(&Thresholds::default())).sum();
    }
    println!(
        "{:16} {:>7} {:>7} {:>7} {:>7} {:>7} MiB",
        "", "hot", "warm", "cold", "unknown", "absent"
    );
    for (name, b) in zones {
        let [hot, warm, cold, unknown, absent] =
            [b.hot, b.warm, b.cold, b.unknown, b.absent].map(|n| n >> 20);
        println!("{name:16} {hot:7} {warm:7} {cold:7} {unknown:7} {absent:7}");
    }
    let (cost, n) = (snapshot.cost, target.regions.len());
    println!("{n} regions; last interval {:?}: {cost:?}", snapshot.end.since(snapshot.start));
}

fn print_process(root: &Path, pid: i32, target: &TargetView) -> Result<(), Box<dyn Error>> {
    let mut pagemap = Pagemap::open(root, pid)?;
    for m in proc::mappings(root, pid)?.iter().filter(|m| m.range.len() >= LETTER) {
        let starts = (m.range.start..m.range.end).step_by(LETTER as usize);
        let parts = starts.filter_map(|at| AddrRange::new(at, at + LETTER).intersect(&m.range));
        let line: String = parts.map(|part| letter(&mut pagemap, part, target)).collect();
        println!("{:#x} {:?} {line}", m.range.start, m.name);
    }
    Ok(())
}

/// The most frequent heat of the pages of `part`.
fn letter(pagemap: &mut Pagemap, part: AddrRange, target: &TargetView) -> char {
    let mut count: BTreeMap<char, u32> = BTreeMap::new();
    for entry in pagemap.read(part) {
        let address = entry.frame() * PAGE_SIZE;
        let region = target.regions.iter().find(|r| r.range.contains(address));
        let word = match region.map(|r| r.heat(&Thresholds::default())) {
            _ if !entry.is_present() => '-',
            None => '?',
            Some(Heat::Hot) => 'H',
            Some(Heat::Warm) => 'w',
            Some(Heat::Cold) => 'c',
        };
        *count.entry(word).or_default() += 1;
    }
    count.into_iter().max_by_key(|(_, n)| *n).map_or(' ', |(word, _)| word)
}
