//! A run of one policy, one workload and one number of threads: the results of each phase.

use std::time::Duration;

use isotherm_core::PAGE_SIZE;
use isotherm_mm::{AllocStats, OutOfMemory, Rules, ZoneStats};
use serde::Serialize;

use super::load::LabLoad;
use super::streams::{StreamPhase, Streams};
use crate::paged::{
    MachineSpec, PageEvents, PagedMachine, Populate, SpecError, Stream, Task, Toucher,
};
use crate::workload::{Phase, Workload, WorkloadLayout};

/// Length of the intervals over which ages of reclaimed pages are averaged, in ns.
const AGE_STEP_NS: u64 = 2_000_000_000;

/// Why an experiment failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// invalid machine
    #[error(transparent)]
    Machine(#[from] SpecError),
    /// not enough memory
    #[error("the workload does not fit into the machine: {0}")]
    Memory(#[from] OutOfMemory),
}

/// The results of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// name of the rules
    pub policy: String,
    /// number of concurrent threads
    pub threads: u32,
    /// phases in order of time
    pub phases: Vec<PhaseFigures>,
    /// by zone: the time and the mean age of pages that were reclaimed around it, both in s
    pub ages: Vec<Vec<(f64, f64)>>,
}

/// The results of a phase.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PhaseFigures {
    /// its name
    pub name: String,
    /// duration
    pub seconds: f64,
    /// pages of files read and written, in 10^6 bytes per second
    pub mb_s: f64,
    /// accesses of processes per second
    pub touches_s: f64,
    /// share of the pages read that were in memory, in percent
    pub hits_percent: f64,
    /// pages that came from the disk, were written, faulted in
    pub counts: PageEvents,
    /// results of allocations
    pub allocator: AllocStats,
    /// resets of the batches per 1000 allocations
    pub resets_per_1000: f64,
    /// passes through a zonelist per allocation
    pub passes: f64,
    /// by zone
    pub zones: Vec<ZoneFigures>,
}

/// The results of a zone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ZoneFigures {
    /// its node
    pub node: usize,
    /// its kind, as the kernel calls it
    pub kind: &'static str,
    /// pages that it has
    pub pages: i64,
    /// share of all pages, in percent
    pub size_percent: f64,
    /// share of all allocated pages, in percent: pgalloc
    pub allocated_percent: f64,
    /// mean age of the pages reclaimed from it, in s
    pub age_s: Option<f64>,
    /// counts
    pub stats: ZoneStats,
}

/// Runs a workload under some rules.
///
/// # Errors
/// If the machine is invalid or has too little memory.
pub fn run(
    spec: &MachineSpec,
    (policy, rules): (&str, Rules),
    load: &LabLoad,
    threads: u32,
    seed: u64,
) -> Result<Run, LabError> {
    let mut machine = PagedMachine::new(spec, rules, seed)?;
    machine.keep_ages(AGE_STEP_NS);
    let phases = match load {
        LabLoad::Streams(streams) => run_streams(&mut machine, streams, threads)?,
        LabLoad::Process(workload) => run_process(&mut machine, workload, seed)?,
    };
    let zones = 0..machine.memory().zones().len();
    let course = |z| machine.ages().map_or(Vec::new(), |a| a.course(z).collect());
    let ages = zones.map(course).collect();
    Ok(Run { policy: policy.to_owned(), threads, phases, ages })
}

fn run_streams(
    machine: &mut PagedMachine,
    streams: &Streams,
    threads: u32,
) -> Result<Vec<PhaseFigures>, LabError> {
    let pages = streams.file_pages(machine.layout_pages(), threads);
    let files: Vec<usize> = (0..threads).map(|_| machine.add_file(pages)).collect();
    let mut phases = Vec::new();
    for phase in &streams.phases {
        if phase.drop_caches {
            machine.drop_caches();
        }
        let before = Before::of(machine);
        let mut tasks = stream_tasks(machine, phase, &files, pages as u64);
        machine.run(&mut tasks)?;
        phases.push(before.figures(&phase.name, machine));
    }
    Ok(phases)
}

fn stream_tasks(
    machine: &PagedMachine,
    phase: &StreamPhase,
    files: &[usize],
    file_pages: u64,
) -> Vec<Box<dyn Task>> {
    let each = phase.pages.map_or(file_pages, |all| (all / files.len() as u64).max(1));
    let task = |&file| {
        let stream = Stream::new(machine, file, phase.op, phase.order, each);
        Box::new(stream) as Box<dyn Task>
    };
    files.iter().map(task).collect()
}

fn run_process(
    machine: &mut PagedMachine,
    workload: &Workload,
    seed: u64,
) -> Result<Vec<PhaseFigures>, LabError> {
    let layout = WorkloadLayout::new(workload, seed);
    let pages = usize::try_from(layout.len() / PAGE_SIZE).unwrap_or(usize::MAX);
    let process = machine.add_process(pages);
    let before = Before::of(machine);
    machine.run(&mut [Box::new(Populate::new(process)) as Box<dyn Task>])?;
    let mut phases = vec![before.figures("populate", machine)];
    for _ in 0..workload.repeat {
        for phase in &workload.phases {
            let before = Before::of(machine);
            machine.run(&mut touchers(machine, process, (workload, &layout), phase))?;
            phases.push(before.figures(&phase.name, machine));
        }
    }
    Ok(phases)
}

fn touchers(
    machine: &PagedMachine,
    process: usize,
    of: (&Workload, &WorkloadLayout),
    phase: &Phase,
) -> Vec<Box<dyn Task>> {
    let accesses = phase.accesses.iter().flat_map(|a| (0..a.threads).map(move |t| (a, t)));
    let task = |access| {
        let toucher = Toucher::new(machine, process, of, access, phase.duration);
        Box::new(toucher) as Box<dyn Task>
    };
    accesses.map(task).collect()
}

/// The state at the start of a phase.
struct Before {
    now: u64,
    counts: PageEvents,
    stats: AllocStats,
    zones: Vec<ZoneStats>,
}

impl Before {
    fn of(machine: &PagedMachine) -> Self {
        Before {
            now: machine.now(),
            counts: machine.counts(),
            stats: *machine.memory().stats(),
            zones: machine.zone_stats(),
        }
    }

    fn figures(&self, name: &str, machine: &PagedMachine) -> PhaseFigures {
        let time = Duration::from_nanos(machine.now() - self.now);
        let per_second = |n: f64| if time.is_zero() { 0.0 } else { n / time.as_secs_f64() };
        let counts = machine.counts().since(&self.counts);
        let allocator = machine.memory().stats().since(&self.stats);
        let pages = (counts.reads + counts.writes) as f64;
        let each = |n: u64| part(n as f64, allocator.allocations as f64);
        PhaseFigures {
            name: name.to_owned(),
            seconds: time.as_secs_f64(),
            mb_s: per_second(pages * PAGE_SIZE as f64 / 1e6),
            touches_s: per_second(counts.touches as f64),
            hits_percent: 100.0
                * part((counts.reads.saturating_sub(counts.fetched)) as f64, counts.reads as f64),
            resets_per_1000: 1000.0 * each(allocator.resets),
            passes: each(allocator.passes),
            zones: self.zones(machine),
            counts,
            allocator,
        }
    }

    fn zones(&self, machine: &PagedMachine) -> Vec<ZoneFigures> {
        let all_pages = machine.layout_pages() as f64;
        let stats = machine.zone_stats().into_iter().zip(&self.zones);
        let stats: Vec<ZoneStats> = stats.map(|(now, before)| now.since(before)).collect();
        let allocated: u64 = stats.iter().map(|s| s.allocated).sum();
        let zone = |(z, stats): (&isotherm_mm::Zone, ZoneStats)| {
            let left = stats.reclaimed();
            ZoneFigures {
                node: z.node,
                kind: z.kind.name(),
                pages: z.managed,
                size_percent: 100.0 * part(z.managed as f64, all_pages),
                allocated_percent: 100.0 * part(stats.allocated as f64, allocated as f64),
                age_s: (left > 0).then(|| stats.age_sum as f64 / left as f64 / 1e9),
                stats,
            }
        };
        machine.memory().zones().iter().zip(stats).map(zone).collect()
    }
}

/// `part` divided by `whole`; 0 if `whole` is 0.
fn part(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
