//! The advice of one process, and how far it has been applied.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use isotherm_core::AddrRange;
use isotherm_linux::inject::{self, InjectError, Request};
use isotherm_linux::proc;
use tracing::{debug, warn};

use super::Applied;
use super::advice::Program;
use super::place::{place, requests};

/// A process of the command.
#[derive(Debug)]
struct Process {
    pid: i32,
    /// its name, which changes when it runs another program
    name: String,
    /// where each mapping of the advice was found
    found: Vec<Option<AddrRange>>,
    /// the ranges that are locked by the advice
    locked: Vec<AddrRange>,
    applied: Applied,
}

impl Process {
    fn new(pid: i32, name: String) -> Self {
        let (found, locked) = (Vec::new(), Vec::new());
        Process { pid, name, found, locked, applied: Applied::default() }
    }

    /// Whether each mapping of the advice has been found.
    fn is_done(&self, program: &Program) -> bool {
        self.found.iter().flatten().count() == program.mappings.len()
    }

    /// Applies the advice to mappings that have appeared. Returns whether there were any.
    ///
    /// # Errors
    /// If the process has ended or cannot be made to call the kernel.
    fn apply(&mut self, program: &Program) -> Result<bool, InjectError> {
        let root = Path::new(crate::ROOT);
        if self.applied.locked > 0 && proc::locked(root, self.pid)? < self.applied.locked {
            // The program has given up some of it, and may have mapped it anew.
            *self = Process::new(self.pid, std::mem::take(&mut self.name));
        }
        if self.is_done(program) {
            return Ok(false);
        }
        let live = proc::mappings(root, self.pid)?;
        let found = place(&program.mappings, &self.found, &live);
        let new =
            program.mappings.iter().zip(&found).enumerate().filter_map(|(i, (mapping, at))| {
                let is_known = self.found.get(i).is_some_and(Option::is_some);
                Some((mapping, (*at).filter(|_| !is_known)?))
            });
        let new: Vec<Request> = new.flat_map(|(mapping, at)| requests(mapping, at)).collect();
        if new.is_empty() {
            self.found = found;
            return Ok(false);
        }
        let results = inject::request(root, self.pid, &new)?;
        self.found = found;
        new.iter().zip(results).for_each(|(request, result)| self.note(*request, result));
        Ok(true)
    }

    fn note(&mut self, request: Request, result: io::Result<()>) {
        let (Request::Lock(range) | Request::Unlock(range) | Request::HugePages(range)) = request;
        let sum = match (request, result) {
            (_, Err(e)) => {
                debug!("process {}: {request:?}: {e}", self.pid);
                &mut self.applied.refused
            }
            (Request::HugePages(_), Ok(())) => &mut self.applied.huge,
            (_, Ok(())) => {
                self.locked.push(range);
                &mut self.applied.locked
            }
        };
        *sum += range.len();
    }

    /// Undoes the locks.
    fn unlock(&self) -> Result<(), InjectError> {
        let all: Vec<Request> = self.locked.iter().copied().map(Request::Unlock).collect();
        if !all.is_empty() {
            inject::request(Path::new(crate::ROOT), self.pid, &all)?;
        }
        Ok(())
    }
}

/// The processes of a command.
#[derive(Debug)]
pub(super) struct Processes<'a> {
    programs: &'a [Program],
    /// each process with advice, and the index of its program
    all: BTreeMap<i32, (Process, usize)>,
    /// processes that could not be made to call the kernel
    refused: BTreeSet<i32>,
    /// the most that was applied at any time
    pub(super) most: Applied,
}

impl<'a> Processes<'a> {
    pub(super) fn new(programs: &'a [Program]) -> Self {
        let (all, refused) = (BTreeMap::new(), BTreeSet::new());
        Processes { programs, all, refused, most: Applied::default() }
    }

    /// Applies the advice in the processes that exist now. Returns whether there was anything new.
    pub(super) fn apply(&mut self, pids: &[i32]) -> bool {
        self.all.retain(|pid, _| pids.contains(pid));
        let mut is_new = false;
        for &pid in pids {
            let Some((process, program)) = self.process(pid) else { continue };
            match process.apply(program) {
                Ok(new) => is_new |= new,
                Err(InjectError::Ended(_)) => {}
                Err(InjectError::Proc(e)) if e.is_gone() => {}
                Err(e) => {
                    if self.refused.insert(pid) {
                        warn!("{e}; the advice for it is not applied yet");
                    }
                }
            }
        }
        let all = || self.all.values().map(|(process, _)| process.applied);
        let most = |before: u64, of: fn(Applied) -> u64| before.max(all().map(of).sum());
        self.most = Applied {
            locked: most(self.most.locked, |a| a.locked),
            huge: most(self.most.huge, |a| a.huge),
            refused: most(self.most.refused, |a| a.refused),
        };
        is_new
    }

    /// Undoes all locks.
    pub(super) fn unlock(&self) {
        for (process, _) in self.all.values() {
            match process.unlock() {
                Ok(()) | Err(InjectError::Ended(_)) => {}
                Err(InjectError::Proc(e)) if e.is_gone() => {}
                Err(e) => warn!("{e}; its memory remains locked"),
            }
        }
    }

    /// The process of a pid with its advice, if there is any: the first process of a name has that of the first such
    /// process of the record, and so on.
    fn process(&mut self, pid: i32) -> Option<(&mut Process, &'a Program)> {
        let name = proc::comm(Path::new(crate::ROOT), pid).ok()?;
        if self.all.get(&pid).is_some_and(|(process, _)| process.name != name) {
            self.all.remove(&pid);
        }
        if !self.all.contains_key(&pid) {
            let is_free = |i: &usize| self.all.values().all(|(_, taken)| taken != i);
            let named = self.programs.iter().enumerate().filter(|(_, p)| p.name == name);
            let i = named.map(|(i, _)| i).find(is_free)?;
            self.all.insert(pid, (Process::new(pid, name), i));
        }
        let (process, i) = self.all.get_mut(&pid)?;
        Some((process, self.programs.get(*i)?))
    }
}
