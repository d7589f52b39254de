//! The advice of one process, and how far it has been applied.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use isotherm_core::AddrRange;
use isotherm_linux::inject::{self, InjectError, InjectedCall};
use isotherm_linux::proc::ProcError;
use isotherm_linux::{Thread, proc};
use rangemap::RangeSet;
use tracing::{debug, warn};

use super::AppliedAdvice;
use super::advice::Program;
use super::place::{place, requests};
use crate::reading::program;
use crate::stop::Stop;

/// Calls after which signals are checked: a call for shared memory may wait for 1 MiB from a disk.
const CALLS_BETWEEN_CHECKS: usize = 64;

/// A process of the command.
#[derive(Debug)]
struct Process {
    process: Thread,
    /// where each mapping of the advice was found
    found: Vec<Option<AddrRange>>,
    /// what is locked by the advice
    locked: RangeSet<u64>,
    applied: AppliedAdvice,
}

impl Process {
    fn new(process: Thread) -> Self {
        let (found, locked) = (Vec::new(), RangeSet::new());
        Process { process, found, locked, applied: AppliedAdvice::default() }
    }

    /// Whether each mapping of the advice has been found.
    fn is_done(&self, program: &Program) -> bool {
        self.found.iter().flatten().count() == program.mappings.len()
    }

    /// Applies the advice to mappings that have appeared, until `stop` is over. Returns the time that its calls took;
    /// `None` if there were no such mappings.
    ///
    /// # Errors
    /// If the process has ended or cannot be made to call the kernel.
    fn apply(&mut self, program: &Program, stop: &Stop) -> Result<Option<Duration>, InjectError> {
        let root = Path::new(crate::ROOT);
        if self.applied.locked > 0 && proc::locked(root, self.process.pid)? < self.applied.locked {
            // The program has unmapped some of it, and may have mapped it again.
            let locked = std::mem::take(&mut self.locked);
            *self = Process { locked, ..Process::new(self.process) };
        }
        if self.is_done(program) {
            return Ok(None);
        }
        let live = proc::mappings(root, self.process.pid)?;
        let found = place(&program.mappings, &self.found, &live);
        let new =
            program.mappings.iter().zip(&found).enumerate().filter_map(|(i, (mapping, at))| {
                let is_known = self.found.get(i).is_some_and(Option::is_some);
                Some((mapping, (*at).filter(|_| !is_known)?))
            });
        let mut new: Vec<InjectedCall> =
            new.flat_map(|(mapping, at)| requests(mapping, at)).collect();
        if !new.is_empty() && proc::locked(root, self.process.pid)? > 0 {
            // What the program has locked itself must stay locked at the end.
            let mut own = self.locked_now(root)?;
            self.locked.iter().for_each(|ours| own.remove(ours.clone()));
            new = new.into_iter().flat_map(|request| not_locked(request, &own)).collect();
        }
        if new.is_empty() {
            self.found = found;
            return Ok(None);
        }
        let begin = Instant::now();
        let (mut results, mut made) = (Vec::new(), Ok(()));
        for some in new.chunks(CALLS_BETWEEN_CHECKS) {
            if made.is_err() || stop.is_over() {
                break;
            }
            let (more, done) = inject::request(root, self.process, some);
            results.extend(more);
            made = done;
        }
        let took = begin.elapsed();
        let locks = new.iter().take(results.len()).filter(|request| is_lock(**request));
        self.locked.extend(locks.filter_map(|request| request.range().non_empty()));
        // After an error all is requested again.
        made?;
        let has_locks = new.iter().any(|request| is_lock(*request));
        let locked = if has_locks { self.locked_now(root)? } else { RangeSet::new() };
        self.found = found;
        new.iter().zip(results).for_each(|(request, result)| self.note(*request, result, &locked));
        Ok(Some(took))
    }

    /// The memory that is locked, by the advice or by the program itself.
    fn locked_now(&self, root: &Path) -> Result<RangeSet<u64>, ProcError> {
        let areas = proc::usage(root, self.process.pid)?;
        let areas = areas.iter().filter(|area| area.is_locked());
        Ok(areas.filter_map(|area| area.range.non_empty()).collect())
    }

    /// Counts a request after which this memory is `locked`. Results do not suffice: the kernel accepts locks of
    /// memory that it never locks (of devices, for asynchronous I/O, hugetlb pages), and a lock that fails at a hole
    /// has locked the memory before it.
    fn note(&mut self, request: InjectedCall, result: io::Result<()>, locked: &RangeSet<u64>) {
        let bytes = request.range().len();
        let refused = if is_lock(request) {
            not_locked(request, locked).iter().map(|part| part.range().len()).sum()
        } else if result.is_err() {
            bytes
        } else {
            0
        };
        if refused > 0 {
            let pid = self.process.pid;
            debug!("process {pid}: {request:?}: {refused} of {bytes} bytes refused: {result:?}");
        }
        self.applied.refused += refused;
        let sum = if is_lock(request) { &mut self.applied.locked } else { &mut self.applied.huge };
        *sum += bytes - refused;
    }

    /// Undoes the locks.
    fn unlock(&self) -> Result<(), InjectError> {
        let ranges = self.locked.iter().map(|r| AddrRange::new(r.start, r.end));
        let all: Vec<InjectedCall> = ranges.map(InjectedCall::Unlock).collect();
        if !all.is_empty() {
            inject::request(Path::new(crate::ROOT), self.process, &all).1?;
        }
        Ok(())
    }
}

fn is_lock(request: InjectedCall) -> bool {
    matches!(request, InjectedCall::Lock(_) | InjectedCall::LockNow(_))
}

/// The parts of a request for a lock that are not `locked`. Other requests stay whole.
fn not_locked(request: InjectedCall, locked: &RangeSet<u64>) -> Vec<InjectedCall> {
    let (part, whole): (fn(AddrRange) -> InjectedCall, _) = match request {
        InjectedCall::Lock(whole) => (InjectedCall::Lock, whole.non_empty()),
        InjectedCall::LockNow(whole) => (InjectedCall::LockNow, whole.non_empty()),
        InjectedCall::Unlock(_) | InjectedCall::HugePages(_) => return vec![request],
    };
    let gaps = whole.iter().flat_map(|whole| locked.gaps(whole));
    gaps.map(|gap| part(AddrRange::new(gap.start, gap.end))).collect()
}

/// The names of a process.
struct Names {
    /// of the file that it executes, by its command line
    program: String,
    /// as the kernel has it: of a script, that of the script
    comm: String,
}

impl Names {
    fn read(root: &Path, pid: i32) -> Option<Self> {
        let program = program(&proc::command(root, pid).ok()?).to_owned();
        Some(Names { program, comm: proc::comm(root, pid).ok()? })
    }

    fn has(&self, name: &str) -> bool {
        self.program == name || self.comm == proc::cut_comm(name)
    }
}

/// The processes of a command.
#[derive(Debug)]
pub(super) struct Processes<'a> {
    programs: &'a [Program],
    /// the process that has the advice of each program, by the index of the program
    all: BTreeMap<usize, Process>,
    /// the programs that have had a process
    used: BTreeSet<usize>,
    /// processes that could not be made to call the kernel
    refused: BTreeSet<i32>,
    /// the maximum that was applied at any time
    pub(super) most: AppliedAdvice,
    /// time for which the last round waited for threads that did not stop
    pub(super) waited: Duration,
}

impl<'a> Processes<'a> {
    pub(super) fn new(programs: &'a [Program]) -> Self {
        let (all, used, refused) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let (most, waited) = (AppliedAdvice::default(), Duration::ZERO);
        Processes { programs, all, used, refused, most, waited }
    }

    /// Applies the advice in the processes that exist now. Returns the time that calls in them took; `None` if there was
    /// nothing new.
    pub(super) fn apply(&mut self, pids: &[i32], stop: &Stop) -> Option<Duration> {
        let root = Path::new(crate::ROOT);
        let names: BTreeMap<i32, Names> =
            pids.iter().filter_map(|&pid| Some((pid, Names::read(root, pid)?))).collect();
        self.find(&names);
        let mut calls = None;
        self.waited = Duration::ZERO;
        for (i, process) in &mut self.all {
            let Some(program) = self.programs.get(*i) else { continue };
            let begin = Instant::now();
            match process.apply(program, stop) {
                Ok(None) => {}
                Ok(Some(took)) => *calls.get_or_insert(Duration::ZERO) += took,
                Err(InjectError::Ended(_)) => {}
                Err(InjectError::Proc(e)) if e.is_gone() => {}
                Err(e) => {
                    if matches!(e, InjectError::Waiting(_)) {
                        self.waited += begin.elapsed();
                    }
                    if self.refused.insert(process.process.pid) {
                        warn!("{e}; the advice for it is not applied yet");
                    }
                }
            }
        }
        let most =
            |before: u64, of: fn(&Process) -> u64| before.max(self.all.values().map(of).sum());
        self.most = AppliedAdvice {
            locked: most(self.most.locked, |p| p.applied.locked),
            huge: most(self.most.huge, |p| p.applied.huge),
            refused: most(self.most.refused, |p| p.applied.refused),
        };
        calls
    }

    /// Finds a process for each program that has none: the first process of a name has the advice of the first such
    /// process of the record, and so on, also if there is no advice for it. A process that starts after all of these
    /// has the advice of one that has ended. Of the processes that map shared memory, the one with the lowest pid locks
    /// it.
    fn find(&mut self, names: &BTreeMap<i32, Names>) {
        let programs = self.programs;
        let fits = |i: usize, pid: i32| {
            let name = programs.get(i).and_then(|program| program.name.as_deref());
            names.get(&pid).is_some_and(|own| name.is_none_or(|name| own.has(name)))
        };
        let root = Path::new(crate::ROOT);
        self.all.retain(|i, p| fits(*i, p.process.pid) && p.process.lives(root));
        let (again, first): (Vec<_>, Vec<_>) =
            programs.iter().enumerate().partition(|(i, _)| self.used.contains(i));
        let again = again.into_iter().filter(|(_, program)| !program.mappings.is_empty());
        for (i, program) in first.into_iter().chain(again) {
            if self.all.contains_key(&i) {
                continue;
            }
            let is_taken = |pid: i32| {
                self.all.iter().any(|(i, p)| {
                    p.process.pid == pid && programs.get(*i).is_some_and(|p| p.name.is_some())
                })
            };
            let is_right = |pid: i32| match program.name {
                Some(_) => !is_taken(pid),
                None => maps(pid, program),
            };
            let found = names.keys().copied().find(|&pid| fits(i, pid) && is_right(pid));
            if let Some(process) = found.and_then(|pid| Thread::now(root, pid)) {
                self.used.insert(i);
                self.all.insert(i, Process::new(process));
            }
        }
    }

    /// Undoes all locks.
    pub(super) fn unlock(&self) {
        for process in self.all.values() {
            match process.unlock() {
                Ok(()) | Err(InjectError::Ended(_)) => {}
                Err(InjectError::Proc(e)) if e.is_gone() => {}
                Err(e) => warn!("{e}; its memory remains locked"),
            }
        }
    }
}

/// Whether a process maps the memory of a program.
fn maps(pid: i32, program: &Program) -> bool {
    let live = proc::mappings(Path::new(crate::ROOT), pid).unwrap_or_default();
    place(&program.mappings, &[], &live).iter().any(Option::is_some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_the_kernel_does_not_lock_counts_as_refused() {
        let range = AddrRange::new;
        let mut process = Process::new(Thread { pid: 1, start_ticks: 0 });
        let locked = RangeSet::from_iter(std::iter::once(0x1000..0x3000));
        let no_memory = || Err(io::ErrorKind::OutOfMemory.into());
        for (request, result) in [
            (InjectedCall::Lock(range(0x1000, 0x2000)), Ok(())),
            // Memory of a device.
            (InjectedCall::Lock(range(0x5000, 0x7000)), Ok(())),
            // A hole after the first page.
            (InjectedCall::LockNow(range(0x2000, 0x4000)), no_memory()),
            (InjectedCall::HugePages(range(0x8000, 0xc000)), Ok(())),
            (InjectedCall::HugePages(range(0xc000, 0x1_0000)), no_memory()),
        ] {
            process.note(request, result, &locked);
        }
        let expected =
            AppliedAdvice { locked: 0x2000, huge: 0x4000, refused: 0x2000 + 0x1000 + 0x4000 };
        assert_eq!(process.applied, expected);
    }

    #[test]
    fn a_part_that_is_locked_is_not_requested() {
        let range = AddrRange::new;
        let locked = RangeSet::from_iter([0x2000..0x3000, 0x5000..0x9000]);
        let of = |request| not_locked(request, &locked);
        let parts =
            [InjectedCall::Lock(range(0x1000, 0x2000)), InjectedCall::Lock(range(0x3000, 0x5000))];
        assert_eq!(of(InjectedCall::Lock(range(0x1000, 0x6000))), parts);
        assert_eq!(of(InjectedCall::LockNow(range(0x5000, 0x6000))), []);
        let huge = InjectedCall::HugePages(range(0x1000, 0x6000));
        assert_eq!(of(huge), [huge]);
    }
}
