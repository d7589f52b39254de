//! A monitor that watches the processes of the machine while they run.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Ask, Attrs, AttrsError, Cost, Liveness, Look, Mapping, MappingKind, Monitor, Nanos,
    OpsError, PAGE_SIZE, RegionSampler, Seen, Snapshot, Source, Space, Step, TargetId,
};
use isotherm_mm::OutOfMemory;

use super::engine::{Next, Task};
use super::owners::Entry;
use super::system::{Actor, PagedMachine};

/// Where the memory of each process begins.
const BASE: u64 = 1 << 40;

/// A process of the machine, as a monitor knows it.
#[must_use]
pub fn target(process: usize) -> TargetId {
    TargetId(u32::try_from(process).unwrap_or(u32::MAX))
}

/// The addresses of `pages` pages of a process, from its `first` one on.
#[must_use]
pub fn addresses(first: usize, pages: usize) -> AddrRange {
    let start = BASE + first as u64 * PAGE_SIZE;
    AddrRange::new(start, start + pages as u64 * PAGE_SIZE)
}

/// The number of the page of a process that an address lies in.
pub(super) fn page_of(addr: u64) -> usize {
    usize::try_from(addr.saturating_sub(BASE) / PAGE_SIZE).unwrap_or(usize::MAX)
}

/// The processes as an operations set. Reclaim uses the same accessed bits: a monitor that clears them makes
/// pages look old to reclaim, as on a real machine.
///
/// It holds the page tables only during the monitor's turn.
#[derive(Debug, Default)]
struct Tables {
    processes: Vec<Vec<Entry>>,
    now: Nanos,
}

impl Tables {
    fn entries(&mut self, target: TargetId) -> Result<&mut Vec<Entry>, OpsError> {
        let process = usize::try_from(target.0).ok().and_then(|i| self.processes.get_mut(i));
        process.ok_or(OpsError::NoTarget(target))
    }
}

impl Space for Tables {
    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<Liveness, OpsError> {
        out.clear();
        let pages = self.entries(target)?.len();
        if pages == 0 {
            return Ok(Liveness::Gone);
        }
        out.push(Mapping {
            range: addresses(0, pages),
            kind: MappingKind::Anonymous,
            name: "".into(),
            unknown: None,
        });
        Ok(Liveness::Alive)
    }

    /// Unknown: a process may have several threads, and none has to wait for a CPU.
    fn ran(&mut self, _: TargetId) -> Option<Duration> {
        None
    }
}

impl Look for Tables {
    /// Costs no CPU time.
    fn look(&mut self, asks: &[Ask], out: &mut Vec<Seen>) -> Result<Cost, OpsError> {
        let mut cost = Cost { looks: asks.len() as u64, ..Cost::default() };
        let now = self.now;
        for ask in asks {
            let entries = self.entries(ask.target)?;
            let pages = page_of(ask.range.start)..page_of(ask.range.end);
            let Some(entries) = entries.get_mut(pages) else {
                out.push(Seen::default());
                continue;
            };
            let seen = look(entries, ask.clear, now);
            cost.pages += u64::from(seen.pages);
            cost.clears += u64::from(ask.clear && seen.young > 0);
            out.push(seen);
        }
        Ok(cost)
    }
}

fn look(entries: &mut [Entry], clear: bool, now: Nanos) -> Seen {
    let pages = u32::try_from(entries.len()).unwrap_or(u32::MAX);
    let mut seen = Seen { pages, read_at: now, cleared_at: now, ..Seen::default() };
    for entry in entries.iter_mut().filter(|e| e.is_present()) {
        seen.present += 1;
        seen.young += u32::from(entry.accessed);
        entry.accessed &= !clear;
    }
    seen
}

/// The results of a [`Watcher`].
#[derive(Debug, Default)]
pub struct WatchResults {
    /// in order of time
    pub snapshots: Vec<Arc<Snapshot>>,
    /// the error that ended it early, if any
    pub failed: Option<OpsError>,
}

/// A task that watches processes. It uses no CPU time and no memory of theirs.
pub struct Watcher {
    monitor: RegionSampler<Tables>,
    end: u64,
    watched: Rc<RefCell<WatchResults>>,
}

impl Watcher {
    /// Watches these existing processes of the machine from now on for `length`. The second value receives the
    /// results.
    ///
    /// # Errors
    /// If the attributes are invalid.
    pub fn new(
        machine: &PagedMachine,
        processes: &[usize],
        attrs: Attrs,
        length: Duration,
    ) -> Result<(Self, Rc<RefCell<WatchResults>>), AttrsError> {
        let targets: Vec<TargetId> = processes.iter().map(|&p| target(p)).collect();
        let monitor = RegionSampler::new(Tables::default(), attrs, &targets, machine.seed)?;
        let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let watched = Rc::new(RefCell::new(WatchResults::default()));
        let end = machine.now.saturating_add(length);
        Ok((Watcher { monitor, end, watched: Rc::clone(&watched) }, watched))
    }

    /// Gives the page tables to the monitor for one turn.
    fn turn(&mut self, machine: &mut PagedMachine, now: Nanos) -> Result<Step, OpsError> {
        let tables = self.monitor.ops();
        tables.now = now;
        std::mem::swap(&mut tables.processes, &mut machine.owners.processes);
        let step = self.monitor.step(now);
        std::mem::swap(&mut self.monitor.ops().processes, &mut machine.owners.processes);
        step
    }
}

impl Task for Watcher {
    fn step(&mut self, machine: &mut PagedMachine, actor: &mut Actor) -> Result<Next, OutOfMemory> {
        if actor.now >= self.end {
            return Ok(Next::End);
        }
        let step = self.turn(machine, Nanos(actor.now));
        let mut watched = self.watched.borrow_mut();
        Ok(match step {
            Ok(Step::Wait(until)) => Next::Sleep(until.0.min(self.end)),
            Ok(Step::Snapshot(s)) => {
                watched.snapshots.push(s);
                Next::Go
            }
            Ok(Step::End(_)) => Next::End,
            Err(e) => {
                watched.failed = Some(e);
                Next::End
            }
        })
    }
}
