//! Tasks that touch the memory of a process as a workload says.

use std::time::Duration;

use isotherm_mm::OutOfMemory;

use super::engine::{Next, Task};
use super::system::{Actor, PagedMachine};
use crate::workload::{Access, TouchRate, Walk, Workload, WorkloadLayout};

/// Touches in a step.
const STEP_TOUCHES: u32 = 128;

/// Touches every page once, in order.
#[derive(Debug)]
pub struct Populate {
    process: usize,
    next: usize,
}

impl Populate {
    /// All pages of a process of the machine.
    #[must_use]
    pub fn new(process: usize) -> Self {
        Populate { process, next: 0 }
    }
}

impl Task for Populate {
    fn step(&mut self, machine: &mut PagedMachine, actor: &mut Actor) -> Result<Next, OutOfMemory> {
        for _ in 0..STEP_TOUCHES {
            if self.next >= machine.owners.processes[self.process].len() {
                return Ok(Next::End);
            }
            machine.touch(actor, self.process, self.next)?;
            self.next += 1;
        }
        Ok(Next::Go)
    }
}

/// An access of a workload, by one of its threads, until the phase ends.
#[derive(Debug)]
pub struct Toucher {
    process: usize,
    walk: Walk,
    begin: u64,
    end: u64,
    /// from one touch to the next, in ns; zero if there is no pause
    every: f64,
    done: u64,
}

impl Toucher {
    /// The `thread`-th of those that make an access, from now on for `length`.
    #[must_use]
    pub fn new(
        machine: &PagedMachine,
        process: usize,
        (workload, layout): (&Workload, &WorkloadLayout),
        (access, thread): (&Access, u32),
        length: Duration,
    ) -> Self {
        let walk = Walk::of(workload, layout, access, thread, machine.seed);
        let every = match access.rate {
            TouchRate::Hz(hz) => 1e9 * f64::from(access.threads) / (hz * walk.pages() as f64),
            TouchRate::Max => 0.0,
        };
        let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let (begin, end) = (machine.now, machine.now.saturating_add(length));
        Toucher { process, walk, begin, end, every, done: 0 }
    }
}

impl Task for Toucher {
    fn step(&mut self, machine: &mut PagedMachine, actor: &mut Actor) -> Result<Next, OutOfMemory> {
        for _ in 0..STEP_TOUCHES {
            if actor.now >= self.end {
                return Ok(Next::End);
            }
            let due = self.begin.saturating_add((self.done as f64 * self.every) as u64);
            if due > actor.now {
                return Ok(Next::Sleep(due.min(self.end)));
            }
            let since = Duration::from_nanos(actor.now - self.begin);
            let Some((_, page)) = self.walk.next(since) else { return Ok(Next::End) };
            self.done += 1;
            machine.touch(actor, self.process, usize::try_from(page).unwrap_or(0))?;
        }
        Ok(Next::Go)
    }
}
