//! Runs tasks on a machine, in order of their time.

use isotherm_mm::OutOfMemory;

use super::disk::DiskRequest;
use super::system::{Actor, PagedMachine};

/// Pages of a file that are written before the next file's turn: 4 MiB, `MAX_WRITEBACK_PAGES`.
const TURN_PAGES: usize = 1024;

/// The next step of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// it continues
    Go,
    /// it waits for pages from the disk
    Read {
        /// the file
        file: usize,
        /// the first page
        page: usize,
        /// the number of pages
        pages: usize,
        /// whether more sequential requests will follow
        sequential: bool,
    },
    /// it waits if there are too many dirty pages
    Balance,
    /// it waits until the file has no dirty pages
    Sync {
        /// the file
        file: usize,
    },
    /// it sleeps until this time, in ns
    Sleep(u64),
    /// it has ended
    End,
}

/// A task that runs on a machine.
pub trait Task {
    /// Does a small amount of work, up to about a hundred pages, and advances the actor's time.
    ///
    /// # Errors
    /// If there is not enough memory.
    fn step(&mut self, machine: &mut PagedMachine, actor: &mut Actor) -> Result<Next, OutOfMemory>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ActorState {
    Ready(u64),
    OnDisk,
    Throttled,
    Syncing(usize),
    Ended(u64),
}

/// Pages that are being written to the disk.
#[derive(Debug, Clone, Copy)]
struct Flushing {
    file: usize,
    page: usize,
    pages: usize,
}

struct Engine<'a> {
    machine: &'a mut PagedMachine,
    states: Vec<ActorState>,
    flushing: Option<Flushing>,
    /// the file that is being written, and the number of its pages before the next file's turn
    turn: (usize, usize),
    served: Option<(DiskRequest, u64)>,
}

impl PagedMachine {
    /// Runs tasks concurrently until all have ended; returns the end of each, in ns. Tasks are distributed over
    /// the CPUs in turn.
    ///
    /// # Errors
    /// If there is not enough memory for one of them.
    pub fn run(&mut self, tasks: &mut [Box<dyn Task>]) -> Result<Vec<u64>, OutOfMemory> {
        let states = vec![ActorState::Ready(self.now); tasks.len()];
        let turn = (0, TURN_PAGES);
        let mut engine = Engine { machine: self, states, flushing: None, turn, served: None };
        while engine.event(tasks)? {}
        engine.finish_flush();
        let end = |s: &ActorState| if let ActorState::Ended(at) = s { *at } else { 0 };
        Ok(engine.states.iter().map(end).collect())
    }
}

impl Engine<'_> {
    /// Handles the next event; returns false if there is none.
    fn event(&mut self, tasks: &mut [Box<dyn Task>]) -> Result<bool, OutOfMemory> {
        if self.states.iter().all(|s| matches!(s, ActorState::Ended(_))) {
            return Ok(false);
        }
        self.flush();
        let ready = self.next_ready();
        let served = self.served.map(|(_, done)| done);
        let states = &self.states;
        let comes = |stream: usize| match states.get(stream) {
            Some(&ActorState::Ready(at)) => Some(at),
            _ => None,
        };
        let dispatch = if served.is_none() { self.machine.disk.next_at(comes) } else { None };
        let soonest = [served, ready.map(|(at, _)| at), dispatch].into_iter().flatten().min();
        let Some(soonest) = soonest else { return Ok(false) };
        if served == Some(soonest) {
            self.complete();
        } else if let Some((at, task)) = ready.filter(|&(at, _)| at == soonest) {
            self.step(task, at, tasks)?;
        } else {
            self.machine.advance(soonest);
            self.served = self.machine.disk.serve(soonest);
        }
        Ok(true)
    }

    fn next_ready(&self) -> Option<(u64, usize)> {
        let ready = self.states.iter().enumerate().filter_map(|(i, s)| match s {
            ActorState::Ready(at) => Some((*at, i)),
            _ => None,
        });
        ready.min()
    }

    fn step(
        &mut self,
        task: usize,
        at: u64,
        tasks: &mut [Box<dyn Task>],
    ) -> Result<(), OutOfMemory> {
        let cpu = task % self.machine.cpu_free_at.len();
        let free_at = self.machine.cpu_free_at[cpu];
        if free_at > at {
            self.states[task] = ActorState::Ready(free_at);
            return Ok(());
        }
        self.machine.advance(at);
        let mut actor = Actor { cpu: u32::try_from(cpu).unwrap_or(0), now: at };
        let next = tasks[task].step(self.machine, &mut actor)?;
        self.machine.cpu_free_at[cpu] = actor.now;
        self.states[task] = match next {
            Next::Go => ActorState::Ready(actor.now),
            Next::Read { file, page, pages, sequential } => {
                let at = self.machine.place(file, page);
                let pages = pages as u64;
                let (stream, asked) = (task, actor.now);
                self.machine.disk.ask(DiskRequest { stream, at, pages, sequential, asked });
                ActorState::OnDisk
            }
            Next::Balance if self.must_wait() => ActorState::Throttled,
            Next::Balance => ActorState::Ready(actor.now),
            Next::Sync { file } if !self.is_clean(file) => ActorState::Syncing(file),
            Next::Sync { .. } => ActorState::Ready(actor.now),
            Next::Sleep(until) => ActorState::Ready(until.max(actor.now)),
            Next::End => ActorState::Ended(actor.now),
        };
        Ok(())
    }

    fn must_wait(&self) -> bool {
        self.machine.dirty_limits().must_wait(self.machine.dirty_pages)
    }

    fn is_clean(&self, file: usize) -> bool {
        let flushing = self.flushing.is_some_and(|f| f.file == file);
        self.machine.dirty[file].count() == 0 && !flushing
    }

    /// Starts writeback of dirty pages if it is due: one run at a time, file after file.
    fn flush(&mut self) {
        if self.flushing.is_some() || self.machine.dirty_pages == 0 {
            return;
        }
        let awaited = |s: &ActorState| matches!(s, ActorState::Throttled | ActorState::Syncing(_));
        let limits = self.machine.dirty_limits();
        if !self.states.iter().any(awaited) && !limits.is_background(self.machine.dirty_pages) {
            return;
        }
        let files = self.machine.dirty.len();
        let first = self.turn.0;
        for i in 0..=files {
            let file = (first + i) % files;
            if i > 0 {
                self.turn = (file, TURN_PAGES);
            }
            if let Some((page, pages)) = self.machine.dirty[file].take_run(self.turn.1) {
                self.turn.1 -= pages;
                self.write_out(Flushing { file, page, pages });
                return;
            }
        }
    }

    fn write_out(&mut self, run: Flushing) {
        let (at, pages) = (self.machine.place(run.file, run.page), run.pages as u64);
        let (stream, asked) = (self.states.len(), self.machine.now);
        self.machine.disk.ask(DiskRequest { stream, at, pages, sequential: false, asked });
        self.flushing = Some(run);
    }

    fn complete(&mut self) {
        let Some((request, done)) = self.served.take() else { return };
        self.machine.advance(done);
        if let Some(state) = self.states.get_mut(request.stream) {
            *state = ActorState::Ready(done);
            return;
        }
        self.finish_flush();
        for i in 0..self.states.len() {
            let goes_on = match self.states[i] {
                ActorState::Throttled => !self.must_wait(),
                ActorState::Syncing(file) => self.is_clean(file),
                _ => false,
            };
            if goes_on {
                self.states[i] = ActorState::Ready(done);
            }
        }
    }

    fn finish_flush(&mut self) {
        if let Some(f) = self.flushing.take() {
            (f.page..f.page + f.pages).for_each(|page| self.machine.written(f.file, page));
        }
    }
}
