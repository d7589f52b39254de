//! Schemes on the simulated machine, against its truth.

// clippy allows these in tests; here also for their helpers.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{
    ActionEvent, Engine, Goal, MemoryMetrics, Metrics, Outcome, Pattern, Quota, Scheme, Scope,
    Weights,
};
use isotherm_core::{
    Act, Action, AddrRange, Attrs, Budget, Exposure, Look, Nanos, PAGE_SIZE, Pressure,
    RegionSampler, Snapshot, TargetId, Work,
};
use isotherm_sim::{Machine, MappingSpec, Ops, TouchPattern as Touches, run};

const MIB: u64 = 1 << 20;
const BASE: u64 = 0x7f00_0000_0000;
const SECOND: Duration = Duration::from_secs(1);

fn mib(at: u64, len: u64) -> AddrRange {
    AddrRange::new(BASE + at * MIB, BASE + (at + len) * MIB)
}

fn at(seconds: u64) -> Nanos {
    Nanos(seconds * 1_000_000_000)
}

fn machine(lay: impl FnOnce(&mut Machine, TargetId)) -> (Ops, TargetId) {
    let mut machine = Machine::new(11);
    let target = machine.spawn();
    lay(&mut machine, target);
    (Ops::new(machine), target)
}

/// Steps at the machine's time; returns the memory acted on.
fn step(engine: &mut Engine, ops: &mut Ops, s: &Snapshot, metrics: &Metrics) -> Vec<ActionEvent> {
    let now = ops.machine().now();
    let mut log = Vec::new();
    engine.step(now, s, metrics, ops, &mut log).unwrap();
    log
}

fn applied(log: &[ActionEvent]) -> u64 {
    let done = |e: &ActionEvent| match e.outcome {
        Outcome::Acted(done) => done.applied,
        Outcome::Passed(_) => 0,
    };
    log.iter().map(done).sum()
}

fn act(ops: &mut Ops, action: &Action, target: TargetId, range: AddrRange, bytes: u64) {
    let budget = Budget { bytes, time: Duration::MAX };
    let work =
        Work { action, target, range, budget, filters: &[], recheck: Duration::ZERO, cause: None };
    ops.apply(&[work], &mut Vec::new()).unwrap();
}

fn bring_back(ops: &mut Ops, target: TargetId, range: AddrRange, bytes: u64) {
    act(ops, &Action::WillNeed, target, range, bytes);
}

fn resident(ops: &mut Ops, target: TargetId, range: AddrRange) -> u64 {
    let windows = (range.start..range.end).step_by(2 << 20);
    let ask = |start| AddrRange::new(start, (start + (2 << 20)).min(range.end));
    let asks: Vec<_> = windows
        .map(|start| isotherm_core::Ask { target, range: ask(start), clear: false })
        .collect();
    let mut seen = Vec::new();
    ops.look(&asks, &mut seen).unwrap();
    seen.iter().map(|s| u64::from(s.present) * PAGE_SIZE).sum()
}

const BLOCKS: u64 = 40;
const BLOCK: u64 = 2;

/// 40 blocks of 2 MiB, between blocks that are always hot, of which one is let alone each 2 s, in no
/// order. The last snapshot is 20 s behind the last one.
fn ever_colder() -> (Ops, TargetId, Arc<Snapshot>) {
    let all = mib(0, 2 * BLOCKS * BLOCK);
    let (ops, t) = machine(|m, t| {
        m.map(t, all, MappingSpec::anonymous()).unwrap();
        m.touch(t, all, Touches::Poisson { hz: 20.0 }).unwrap();
    });
    let mut monitor = Exposure::new(ops.clone(), Attrs::default(), &[t], 3).unwrap();
    for i in 0..BLOCKS {
        run(&mut monitor, &ops, at(20 + i * 2)).unwrap();
        ops.machine().rest(t, mib(i * 17 % BLOCKS * 2 * BLOCK, BLOCK)).unwrap();
    }
    let last = run(&mut monitor, &ops, at(20 + BLOCKS * 2 + 20)).unwrap().pop().unwrap();
    (ops, t, last)
}

/// Of what a quota for a tenth of the cold memory takes, the share that is of its coldest tenth, by
/// truth.
fn share_of_the_coldest(scene: &(Ops, TargetId, Arc<Snapshot>), weights: Weights) -> f64 {
    let (mut ops, t, last) = scene.clone();
    let tenth = BLOCKS * BLOCK * MIB / 10;
    let quota = Quota { bytes: Some(tenth), weights, ..Quota::default() };
    let pattern = Pattern { age: 5 * SECOND..=Duration::MAX, hz: 0.0..=1.0, ..Pattern::default() };
    let scheme = Scheme { quota, ..Scheme::new("reclaim", pattern, Action::PageOut) };
    let mut engine = Engine::new(vec![scheme]).unwrap();
    let now = ops.machine().now();
    let log = step(&mut engine, &mut ops, &last, &Metrics::default());
    assert_eq!(applied(&log), tenth, "the quota is used, and not exceeded");
    bring_back(&mut ops, t, mib(0, 2 * BLOCKS * BLOCK), u64::MAX);
    let machine = ops.machine();
    let truth = machine.truth(t).unwrap();
    let touched = |addr| truth.last_touch(addr, now).map_or(0, |t| t.0);
    let pages = |r: AddrRange| (r.start..r.end).step_by(4096);
    let cold = (0..BLOCKS).flat_map(|i| pages(mib(i * 2 * BLOCK, BLOCK)));
    let mut times: Vec<u64> = cold.map(touched).collect();
    times.sort_unstable();
    let coldest = times[times.len() / 10];
    let gone: Vec<u64> = log.iter().flat_map(|e| pages(e.range)).map(touched).collect();
    gone.iter().filter(|&&t| t < coldest).count() as f64 / gone.len() as f64
}

#[test]
fn priority_selects_the_coldest_tenth() {
    let scene = ever_colder();
    let by_address = share_of_the_coldest(&scene, Weights::default());
    assert!(by_address <= 0.35, "{by_address}");
    let by_age = share_of_the_coldest(&scene, Weights { age: 1, ..Weights::default() });
    assert!(by_age >= 0.9, "{by_age}");
}

/// Of 64 MiB every tenth page is hot. The resident pages after all of it was paged out.
fn left_of_a_tenth_hot(recheck: Option<Duration>) -> (u64, u64) {
    let range = mib(0, 64);
    let (mut ops, t) = machine(|m, t| {
        m.map(t, range, MappingSpec::anonymous()).unwrap();
        let of = Box::new(Touches::Poisson { hz: 50.0 });
        m.touch(t, range, Touches::Sparse { nth: 10, of }).unwrap();
    });
    let mut monitor = Exposure::new(ops.clone(), Attrs::default(), &[t], 3).unwrap();
    let last = run(&mut monitor, &ops, at(60)).unwrap().pop().unwrap();
    let scheme = Scheme { recheck, ..Scheme::new("s", Pattern::default(), Action::PageOut) };
    let mut engine = Engine::new(vec![scheme]).unwrap();
    // The memory that the monitor has just cleared is touched again.
    ops.machine().advance(SECOND / 2);
    let gone = applied(&step(&mut engine, &mut ops, &last, &Metrics::default()));
    let pages = (range.start..range.end).step_by(10 * 4096);
    let hot = pages.map(|at| resident(&mut ops, t, AddrRange::new(at, at + PAGE_SIZE))).sum();
    (gone, hot)
}

#[test]
fn a_cold_region_loses_none_of_its_hot_pages() {
    let hot = (64 * MIB / PAGE_SIZE).div_ceil(10) * PAGE_SIZE;
    let (gone, left) = left_of_a_tenth_hot(None);
    assert_eq!(left, hot);
    assert!(gone > (64 * MIB - hot) * 9 / 10, "{gone} of the others");
    let (gone, left) = left_of_a_tenth_hot(Some(Duration::ZERO));
    assert_eq!((gone, left), (64 * MIB, 0), "without a second look all of it");
}

/// A machine on which paging out causes stalls, and whose cold memory comes back.
struct Plant {
    ops: Ops,
    target: TargetId,
    monitor: RegionSampler<Ops>,
    engine: Engine,
    stalled: Duration,
}

impl Plant {
    /// The goal is a millisecond of each second.
    fn new() -> Plant {
        let (ops, target) = machine(|m, t| {
            m.map(t, mib(0, 512), MappingSpec::anonymous()).unwrap();
        });
        let monitor = RegionSampler::new(ops.clone(), Attrs::default(), &[target], 3).unwrap();
        let goals = vec![Goal::Stalled { of: Scope::Machine, target: SECOND / 1000 }];
        let pattern = Pattern { age: SECOND..=Duration::MAX, ..Pattern::default() };
        let quota = Quota { goals, ..Quota::default() };
        let scheme = Scheme { quota, ..Scheme::new("reclaim", pattern, Action::PageOut) };
        let engine = Engine::new(vec![scheme]).unwrap();
        Plant { ops, target, monitor, engine, stalled: Duration::ZERO }
    }

    /// Bytes that are paged out in each of so many seconds, where `goal` bytes a second would stall for
    /// as long as the goal says (none: paging out causes no stalls), and `comes_back` is back
    /// each time.
    fn run(&mut self, seconds: u64, goal: Option<u64>, comes_back: u64) -> Vec<u64> {
        let window = |_| {
            let until = self.ops.machine().now() + SECOND;
            let last = run(&mut self.monitor, &self.ops, until).unwrap().pop().unwrap();
            let pressure = Some(Pressure { stalled: self.stalled, ..Pressure::default() });
            let machine = MemoryMetrics { pressure, ..MemoryMetrics::default() };
            let metrics = Metrics { machine, ..Metrics::default() };
            let gone = applied(&step(&mut self.engine, &mut self.ops, &last, &metrics));
            if let Some(goal) = goal {
                self.stalled += (SECOND / 1000).mul_f64(gone as f64 / goal as f64);
            }
            bring_back(&mut self.ops, self.target, mib(0, 512), comes_back);
            gone
        };
        (0..seconds).map(window).collect()
    }
}

#[test]
fn a_goal_settles_after_a_step_up_and_down_and_overshoots_at_most_twofold() {
    let mut plant = Plant::new();
    for goal in [20 * MIB, 30 * MIB, 12 * MIB] {
        let windows = plant.run(60, Some(goal), 512 * MIB);
        let settled = &windows[windows.len() - 20..];
        // The first window is still that of the goal before.
        assert!(windows[1..].iter().all(|&w| w <= 2 * goal), "{goal}: {windows:?}");
        let mean = settled.iter().sum::<u64>() / settled.len() as u64;
        assert!(mean.abs_diff(goal) <= goal / 5, "{goal}: {windows:?}");
    }
}

/// Two minutes with little to page out and no stalls, then all of it at once.
#[test]
fn a_goal_without_stalls_keeps_the_quota_bounded() {
    let mut plant = Plant::new();
    // All but 4 MiB are out already.
    let (mut ops, target) = (plant.ops.clone(), plant.target);
    act(&mut ops, &Action::PageOut, target, mib(4, 508), u64::MAX);
    let idle = plant.run(120, None, 0);
    assert!(idle.iter().sum::<u64>() <= 4 * MIB, "{idle:?}");
    bring_back(&mut ops, target, mib(0, 512), 512 * MIB);
    let busy = plant.run(40, Some(20 * MIB), 512 * MIB);
    assert!(busy.iter().all(|&w| w <= 40 * MIB), "{busy:?}");
    assert!(busy.iter().any(|&w| w >= 10 * MIB), "{busy:?}");
}
