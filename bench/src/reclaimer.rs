//! A simulated machine that swaps, one process on it, and a scheme engine that pages out the process towards a
//! goal. A page that is touched again returns by a fault that waits for swap.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use isotherm_core::scheme::{
    ActionEvent, Engine, Goal, MemoryMetrics, Metrics, Outcome, Pattern, Quota, Scheme, Weights,
};
use isotherm_core::{Action, Attrs, Nanos, PAGE_SIZE, Pressure, Snapshot, Thresholds};
use isotherm_mm::{Fair, OutOfMemory};
use isotherm_sim::paged::{
    Actor, MachineSpec, Next, PagedMachine, Populate, Task, Toucher, WatchResults, Watcher,
};
use isotherm_sim::workload::{Workload, WorkloadLayout};

/// 768 MiB, and swap on a fast disk.
const MACHINE: &str = "about = 'short of memory'\ncpus = 8\n\
    [[node]]\nzones = [{ kind = 'normal', pages = 196608 }]\n\
    [swap]\npages = 262144\ncompressed_percent = 0\nout_ns = 20000\nin_ns = 100000\n";
/// To bring a page back, as above.
const READ_IN: Duration = Duration::from_micros(100);
/// The length of a window.
pub const WINDOW: Duration = Duration::from_secs(1);

/// The state of the machine at the end of a window, and the work done in it.
#[derive(Debug, Clone)]
pub struct WindowStats {
    /// of the machine
    pub metrics: Metrics,
    /// bytes that the quota allowed
    pub bound: u64,
    /// bytes that were paged out
    pub out: u64,
}

/// The goals, one after the other, each for a number of windows, within a number of bytes per window if there is
/// an additional quota.
#[derive(Debug, Clone)]
pub struct GoalPlan {
    /// in their order
    pub goals: Vec<Goal>,
    /// of each goal
    pub windows: usize,
    /// in a window
    pub bytes: Option<u64>,
}

#[derive(Debug, Default)]
struct History {
    windows: Vec<WindowStats>,
    /// why it broke off
    failed: Option<anyhow::Error>,
}

/// Runs an engine that in each window pages out memory of `workload` (its first phase) that was hardly touched
/// for 5 s, the coldest first, as requested.
pub fn run(workload: &str, asked: &GoalPlan, seed: u64) -> Result<Vec<WindowStats>> {
    let workload = Workload::parse(workload)?;
    let layout = WorkloadLayout::new(&workload, seed);
    let mut machine = PagedMachine::new(&MachineSpec::parse(MACHINE)?, Fair::Landed.rules(), seed)?;
    let process = machine.add_process(usize::try_from(layout.len() / PAGE_SIZE)?);
    machine.run(&mut [Box::new(Populate::new(process)) as Box<dyn Task>])?;

    let length = WINDOW * u32::try_from(asked.windows * asked.goals.len())?;
    let (watcher, watched) = Watcher::new(&machine, &[process], Attrs::default(), length)?;
    let history = Rc::new(RefCell::new(History::default()));
    let reclaimer = Reclaimer {
        process,
        engine: Engine::default(),
        asked: asked.clone(),
        watched,
        history: Rc::clone(&history),
        begin: machine.now(),
        armed: false,
    };
    let mut tasks: Vec<Box<dyn Task>> = vec![Box::new(watcher), Box::new(reclaimer)];
    let phase = workload.phases.first().context("a workload without a phase")?;
    for access in &phase.accesses {
        let of = (&workload, &layout);
        tasks.push(Box::new(Toucher::new(&machine, process, of, (access, 0), length)));
    }
    machine.run(&mut tasks)?;
    drop(tasks);
    let History { windows, failed } = history.take();
    failed.map_or(Ok(windows), Err)
}

/// A task that lets the engine act at the end of each window.
struct Reclaimer {
    process: usize,
    engine: Engine,
    asked: GoalPlan,
    watched: Rc<RefCell<WatchResults>>,
    history: Rc<RefCell<History>>,
    begin: u64,
    /// bits were cleared for the second look
    armed: bool,
}

impl Reclaimer {
    /// Acts on the last snapshot, and writes down what came of it.
    fn turn(&mut self, machine: &mut PagedMachine, now: u64, goal: Goal) -> Result<()> {
        let last = newest(&mut self.watched.borrow_mut())?;
        let seen = last.bytes(&Thresholds::default());
        let metrics = metrics(machine, seen.hot + seen.warm);
        self.engine.set_schemes(vec![scheme(goal, self.asked.bytes)])?;
        let mut log = Vec::new();
        self.engine.step(Nanos(now), &last, &metrics, &mut machine.pager(), &mut log)?;
        let bound = self.engine.schemes().map(|(_, stats)| stats.effective).sum();
        let out = log.iter().map(applied).sum();
        self.history.borrow_mut().windows.push(WindowStats { metrics, bound, out });
        Ok(())
    }
}

impl Task for Reclaimer {
    fn step(&mut self, machine: &mut PagedMachine, actor: &mut Actor) -> Result<Next, OutOfMemory> {
        let window = u64::try_from(WINDOW.as_nanos()).unwrap_or(u64::MAX);
        let look = u64::try_from(Attrs::default().sample.as_nanos()).unwrap_or(u64::MAX);
        let done = self.history.borrow().windows.len();
        let goal = self.asked.goals.get(done / self.asked.windows.max(1));
        let Some(goal) = goal.cloned() else { return Ok(Next::End) };
        let at = self.begin + window * (done as u64 + 1);
        if !self.armed {
            if actor.now < at - look {
                return Ok(Next::Sleep(at - look));
            }
            machine.clear_accessed(self.process);
            self.armed = true;
            return Ok(Next::Sleep(at));
        }
        self.armed = false;
        match self.turn(machine, actor.now, goal) {
            Ok(()) => Ok(Next::Go),
            Err(e) => {
                self.history.borrow_mut().failed = Some(e);
                Ok(Next::End)
            }
        }
    }
}

/// The last snapshot; those before it are let go of.
fn newest(watched: &mut WatchResults) -> Result<Arc<Snapshot>> {
    if let Some(e) = watched.failed.take() {
        return Err(e.into());
    }
    watched.snapshots.drain(..).next_back().context("no snapshot in a window")
}

fn scheme(goal: Goal, bytes: Option<u64>) -> Scheme {
    let age = Duration::from_secs(5);
    let pattern = Pattern { age: age..=Duration::MAX, hz: 0.0..=10.0, ..Pattern::default() };
    let weights = Weights { age: 1, rate: 1, ..Weights::default() };
    let quota = Quota { goals: vec![goal], bytes, reset: WINDOW, weights, ..Quota::default() };
    Scheme { quota, ..Scheme::new("reclaim", pattern, Action::PageOut) }
}

/// The figures of the machine: faults that waited for swap, the time for them, and direct reclaim.
fn metrics(machine: &PagedMachine, working_set: u64) -> Metrics {
    let (_, _, back) = machine.swapped();
    let waited = READ_IN.saturating_mul(u32::try_from(back).unwrap_or(u32::MAX));
    let stalled = waited + Duration::from_nanos(machine.counts().stalled_ns);
    let pressure = Some(Pressure { stalled, major_faults: back, ..Pressure::default() });
    let zones = machine.memory().zones();
    let pages = |of: i64| u64::try_from(of).unwrap_or(0);
    let resident = pages(zones.iter().map(|z| z.anon).sum()) * PAGE_SIZE;
    let free = pages(zones.iter().map(|z| z.free.exact()).sum());
    let all = pages(machine.layout_pages()).max(1);
    Metrics {
        machine: MemoryMetrics {
            pressure,
            resident: Some(resident),
            working_set: Some(working_set),
        },
        free_bp: u32::try_from(free * 10_000 / all).ok(),
        ..Metrics::default()
    }
}

fn applied(event: &ActionEvent) -> u64 {
    match event.outcome {
        Outcome::Acted(done) => done.applied,
        Outcome::Passed(_) => 0,
    }
}
