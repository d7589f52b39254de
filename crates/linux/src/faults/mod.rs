//! Samples page faults and allocations of processes with their call stacks, by software events and a probe of
//! `perf_event_open`. They need no counter of the CPU.
//!
//! A BPF program looks at each fault, and writes those that it selects into a ring. Without BPF, faults are
//! sampled at random.
//!
//! An event counts one thread and the threads and processes that it starts later. Such an event may have a
//! ring only on one CPU. Therefore each thread that exists when its process is attached gets one event per CPU
//! and kind of fault, and all events of a CPU and kind share a ring.

mod event;
mod record;
mod ring;
mod thinner;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use isotherm_core::{AddrRange, Nanos};

use event::{Counts, EventScope};
use record::{Record, parse};
pub use record::{SampleKind, Sampled, StackCopy};
use ring::Ring;
use thinner::{Event, Thinner};

use crate::allocations::Probe;
use crate::proc::{thread_comm, tids};
use crate::sys::online_cpu_list;

/// The use of the rings of a pair, in the order in which they are read.
const ALLOCATIONS: [Counts; 2] = [Counts::Releases, Counts::Allocations];
/// Data pages of the ring of a CPU.
const MINOR_PAGES: usize = 1024;
const MAJOR_PAGES: usize = 256;
/// Size of a sample in a ring, in pages: 8 KiB of stack and up to 64 frames, rounded up.
const SAMPLE_PAGES: f64 = 2.25;
const RELEASE_PAGES: usize = 256;
/// Data pages of the rings of allocations together, and the least and the most for a CPU. A program that allocates at full
/// speed has up to 1400 samples for each GiB, and those that do not fit belong to other code than those that do.
const ALLOCATION_PAGES: usize = 16_384;
const ALLOCATION_PAGES_OF_CPU: [usize; 2] = [1024, 4096];
/// Maximum number of open events.
const MAX_EVENTS: usize = 65_536;

/// Maximum number of libraries whose probes are open, each with two events for each CPU: see [`FaultSampler::probe`].
const MAX_PROBES: usize = 16;

/// Page faults cannot be sampled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FaultsError {
    /// the kernel refuses the events
    #[error(
        "cannot sample page faults of {what}: {source}; run isotherm as root, or set \
         kernel.perf_event_paranoid to 1"
    )]
    Refused {
        /// the process
        what: String,
        /// error of the system
        source: io::Error,
    },
    /// the kernel refuses the probe of allocations
    #[error(
        "cannot sample allocations, which {} reports: {source}; run isotherm as root, on a kernel with \
         CONFIG_UPROBE_EVENTS",
        file.display()
    )]
    Unprobed {
        /// the library
        file: PathBuf,
        /// error of the system
        source: io::Error,
    },
    /// too many copies of the library that reports allocations
    #[error(
        "cannot sample allocations, which {} reports: isotherm samples those of at most {MAX_PROBES} copies of the \
         library; start all programs with the same file",
        file.display()
    )]
    TooManyLibraries {
        /// the library
        file: PathBuf,
    },
    /// too many threads and CPUs
    #[error(
        "cannot sample page faults of process {pid}: its threads on all CPUs require more than {MAX_EVENTS} \
         events; start it with isotherm record --stacks -- COMMAND, which requires two events per CPU"
    )]
    TooMany {
        /// the process
        pid: i32,
    },
}

/// A sample or an event since the last call of [`FaultSampler::drain`].
#[derive(Debug, PartialEq, Eq)]
pub enum FaultNews {
    /// a fault
    Fault(Sampled),
    /// A process may execute this memory from now on: it holds other code than before.
    Mapped {
        /// the process
        pid: i32,
        /// the time
        at: Nanos,
        /// the memory
        range: AddrRange,
    },
    /// A process has started another one, and may share its memory with it until one of them writes to it.
    Fork {
        /// the process
        pid: i32,
        /// the time
        at: Nanos,
    },
    /// A process runs another program: its earlier memory is gone.
    Exec {
        /// the process
        pid: i32,
        /// the time
        at: Nanos,
    },
}

impl FaultNews {
    fn at(&self) -> Nanos {
        match self {
            FaultNews::Fault(s) => s.at,
            FaultNews::Mapped { at, .. }
            | FaultNews::Fork { at, .. }
            | FaultNews::Exec { at, .. } => *at,
        }
    }
}

/// Lets the samples of a ring represent those that did not fit into it too. Sampled pages keep their weight, which is that
/// of their sample: a page is not resident twice.
fn stand_for_lost(news: &mut [FaultNews], lost: u64) {
    let samples = news.iter_mut().filter_map(|n| match n {
        FaultNews::Fault(s) if !s.is_of_page() => Some(&mut s.weight),
        _ => None,
    });
    let weights: Vec<&mut u64> = samples.collect();
    let (n, all) = (weights.len() as u64, weights.len() as u64 + lost);
    for (weight, i) in weights.into_iter().zip(1u64..) {
        // The parts of the lost samples add up to all of them.
        *weight = weight.saturating_mul(i * all / n - (i - 1) * all / n);
    }
}

/// Reads the pairs of rings of all CPUs. A thread may free what another one has allocated, but only later. So with a
/// release, its allocation is read too, or was read before: releases without one are ignored, and their allocation would
/// last for ever.
fn each_allocation_ring<'a, R: 'a>(
    pairs: impl Iterator<Item = &'a mut [R; 2]>,
    mut read: impl FnMut(&mut R, Counts),
) {
    let (releases, allocations): (Vec<_>, Vec<_>) = pairs.map(|[r, a]| (r, a)).unzip();
    for (rings, counts) in [releases, allocations].into_iter().zip(ALLOCATIONS) {
        rings.into_iter().for_each(|ring| read(ring, counts));
    }
}

/// Samples page faults of processes.
pub struct FaultSampler {
    root: PathBuf,
    cpus: Vec<Rings>,
    thinner: Thinner,
    /// The events of each library that reports allocations, by its device and inode.
    probes: HashMap<(u64, u64), Vec<OwnedFd>>,
    /// The events by the process that they were opened for. [`COMMAND`] stands for this process, and is for the
    /// command that it starts.
    events: HashMap<i32, Vec<OwnedFd>>,
    /// the threads that the events of attached processes are for
    scope: EventScope,
    heirs: Heirs,
    /// attached processes, and the key of their events
    attached: BTreeMap<i32, i32>,
    names: HashMap<i32, Arc<str>>,
    /// read from the rings, and not drained yet
    news: Vec<FaultNews>,
    lost: u64,
}

/// The threads whose events are open, their own or inherited ones.
#[derive(Debug, Default)]
struct Heirs {
    /// from the process with which key in the events of the sampler; these events are open
    keys: HashMap<i32, i32>,
    /// threads that have ended since the last drain, and when: the next one may still find samples of them
    ended: HashMap<i32, Nanos>,
}

impl Heirs {
    /// Notes that a thread has started at this time. Its end may stand in a ring that was read before.
    fn begin(&mut self, tid: i32, at: Nanos, key: i32) {
        if self.ended.get(&tid).is_none_or(|&end| end < at) {
            self.keys.insert(tid, key);
        }
    }

    fn end(&mut self, tid: i32, at: Nanos) {
        self.keys.remove(&tid);
        self.ended.insert(tid, at);
    }
}

struct Rings {
    cpu: i32,
    minor: Ring,
    major: Ring,
    /// as in [`ALLOCATIONS`], if allocations are sampled
    allocations: Option<[Ring; 2]>,
}

impl Rings {
    /// With `allocations`, the ring for them has this number of data pages.
    fn open(cpu: i32, thinner: &Thinner, allocations: Option<usize>) -> io::Result<Self> {
        let ring = |counts, pages| {
            // The events of programs are of all processes, -1; any process may own another ring.
            let whose = if counts == Counts::Selected { -1 } else { 0 };
            Ring::map(event::open(counts, EventScope::Now, (whose, cpu))?, pages)
        };
        let faults = if thinner.has_program() { Counts::Selected } else { Counts::Nothing };
        let (minor, major) = (ring(faults, MINOR_PAGES)?, ring(faults, MAJOR_PAGES)?);
        thinner.output(Event::Minor, cpu, minor.event())?;
        thinner.output(Event::Major, cpu, major.event())?;
        let pair = |pages| {
            Ok::<_, io::Error>([
                ring(Counts::Nothing, RELEASE_PAGES)?,
                ring(Counts::Nothing, pages)?,
            ])
        };
        Ok(Rings { cpu, minor, major, allocations: allocations.map(pair).transpose()? })
    }
}

/// Key of the events that a command inherits.
const COMMAND: i32 = 0;

impl FaultSampler {
    /// A sampler without processes. With `allocations` it also samples the allocations of processes that have
    /// loaded the library of [`crate::allocations`].
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn open(root: &Path, allocations: bool) -> Result<Self, FaultsError> {
        let refused = |source| FaultsError::Refused { what: "any process".to_owned(), source };
        let cpus = online_cpu_list(root);
        let room = [MINOR_PAGES, MAJOR_PAGES].map(|pages| (pages as f64 / SAMPLE_PAGES) as u32);
        let greatest = cpus.iter().copied().max().and_then(|cpu| u32::try_from(cpu).ok());
        let mut thinner = Thinner::new(room, greatest.unwrap_or(0) + 1);
        let [least, most] = ALLOCATION_PAGES_OF_CPU;
        let share = (ALLOCATION_PAGES / cpus.len().next_power_of_two()).clamp(least, most);
        let allocations = allocations.then_some(share);
        let rings = |thinner: &Thinner| -> io::Result<Vec<Rings>> {
            cpus.iter().map(|&cpu| Rings::open(cpu, thinner, allocations)).collect()
        };
        let mut opened = rings(&thinner);
        if opened.is_err() && thinner.has_program() {
            // Events of all processes may require more rights than those of one.
            thinner = thinner.without_program();
            opened = rings(&thinner);
        }
        Ok(FaultSampler {
            root: root.to_owned(),
            cpus: opened.map_err(refused)?,
            thinner,
            probes: HashMap::new(),
            events: HashMap::new(),
            scope: EventScope::Now,
            heirs: Heirs::default(),
            attached: BTreeMap::new(),
            names: HashMap::new(),
            news: Vec::new(),
            lost: 0,
        })
    }

    /// Samples processes that an attached one starts only if they are attached too. Kernels before 5.13 sample them in any
    /// case. A command is not affected.
    #[must_use]
    pub fn without_children(self) -> Self {
        let own = (0, self.cpus.first().map_or(0, |rings| rings.cpu));
        match event::open(Counts::Minor { period: 1 }, EventScope::Threads, own) {
            Ok(_) => FaultSampler { scope: EventScope::Threads, ..self },
            Err(_) => self,
        }
    }

    /// Samples the allocations that any process reports at a probe. A repeated probe changes nothing.
    ///
    /// An event of one process would not do: the kernel reads the path of the library again when the process starts
    /// a thread, from the memory of that process.
    ///
    /// # Errors
    /// If the kernel refuses it, or 16 other libraries have probes.
    pub fn probe(&mut self, probe: &Probe) -> Result<(), FaultsError> {
        let Ok(id) = probe.file.metadata().map(|m| (m.dev(), m.ino())) else { return Ok(()) };
        if self.probes.contains_key(&id) {
            return Ok(());
        }
        if self.probes.len() >= MAX_PROBES {
            return Err(FaultsError::TooManyLibraries { file: probe.path.clone() });
        }
        let open = || -> io::Result<Vec<OwnedFd>> {
            let mut events = Vec::new();
            for rings in &self.cpus {
                for (counts, ring) in
                    ALLOCATIONS.into_iter().zip(rings.allocations.iter().flatten())
                {
                    let new = event::open_probe(counts, probe, rings.cpu)?;
                    event::redirect(&new, ring.event())?;
                    events.push(new);
                }
            }
            Ok(events)
        };
        let events =
            open().map_err(|source| FaultsError::Unprobed { file: probe.path.clone(), source })?;
        self.probes.insert(id, events);
        Ok(())
    }

    /// Samples the program that the calling thread starts next, from its first instruction. Call
    /// [`FaultSampler::started`] with its pid.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn expect_command(&mut self) -> Result<(), FaultsError> {
        let opened = self.open_events(COMMAND, EventScope::AtExec);
        let events = opened
            .map_err(|source| FaultsError::Refused { what: "a command".to_owned(), source })?;
        self.events.insert(COMMAND, events);
        Ok(())
    }

    /// Notes the pid of the started command.
    pub fn started(&mut self, pid: i32) {
        self.heirs.keys.insert(pid, COMMAND);
    }

    /// Samples a process, its threads, and the processes that it starts. It is no error if it has ended. Returns
    /// whether it runs already, and was not sampled before.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn attach(&mut self, pid: i32) -> Result<bool, FaultsError> {
        if self.attached.contains_key(&pid) {
            return Ok(false);
        }
        if let Some(&key) = self.heirs.keys.get(&pid) {
            self.attached.insert(pid, key);
            return Ok(false);
        }
        // From now on, threads may inherit from it.
        self.events.entry(pid).or_default();
        let opened = self.open_threads(pid);
        match (opened, self.heirs.keys.get(&pid)) {
            // That it has begun was in a ring until now.
            (Ok(false), Some(&key)) => {
                self.events.retain(|of, events| *of != pid || !events.is_empty());
                self.attached.insert(pid, key);
                Ok(false)
            }
            (Ok(_), _) => {
                self.attached.insert(pid, pid);
                Ok(true)
            }
            (Err(e), _) => {
                self.close(pid);
                Err(e)
            }
        }
    }

    /// Opens the events of all threads of a process that inherit none. Returns whether there are any.
    fn open_threads(&mut self, pid: i32) -> Result<bool, FaultsError> {
        let mut seen = BTreeSet::new();
        let mut any = false;
        // Threads may start at the same time. Those that a thread with events starts inherit them.
        loop {
            self.read_rings();
            let inherits = |tid: &i32| self.heirs.keys.contains_key(tid);
            let new = tids(&self.root, pid).into_iter().filter(|t| !inherits(t) && seen.insert(*t));
            let new: Vec<i32> = new.collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                match self.open_events(tid, self.scope) {
                    Ok(opened) => {
                        any = true;
                        self.events.entry(pid).or_default().extend(opened);
                        // They stay open while a process that inherits them is attached.
                        self.heirs.keys.insert(tid, pid);
                    }
                    // It has ended.
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(source) => {
                        let what = format!("process {pid}");
                        return Err(FaultsError::Refused { what, source });
                    }
                }
                if self.events.values().map(Vec::len).sum::<usize>() > MAX_EVENTS {
                    return Err(FaultsError::TooMany { pid });
                }
            }
        }
        Ok(any)
    }

    /// Closes the events of a process, which ends those that threads inherit from them.
    fn close(&mut self, key: i32) {
        self.events.remove(&key);
        let FaultSampler { heirs, names, .. } = self;
        // Their ends are not reported any more.
        heirs.keys.extract_if(|_, of| *of == key).for_each(|(tid, _)| {
            names.remove(&tid);
        });
    }

    fn open_events(&self, tid: i32, begins: EventScope) -> io::Result<Vec<OwnedFd>> {
        let mut events = Vec::with_capacity(self.cpus.len() * 2);
        for rings in &self.cpus {
            for (event, ring) in [(Event::Minor, &rings.minor), (Event::Major, &rings.major)] {
                let counts = match (self.thinner.has_program(), event) {
                    (false, event) => event.at_random(),
                    (true, Event::Minor) => Counts::Minor { period: 1 },
                    (true, Event::Major) => Counts::Major { period: 1 },
                };
                let new = event::open(counts, begins, (tid, rings.cpu))?;
                event::redirect(&new, ring.event())?;
                self.thinner.attach(event, &new)?;
                events.push(new);
            }
        }
        Ok(events)
    }

    /// Takes only one sample in `stride`, a power of two, from now on, each with this many times its weight.
    pub fn set_stride(&mut self, stride: u32) {
        self.thinner.set(stride);
    }

    /// Minor faults are those of one page in 2 to this power, which [`isotherm_core::sample_level`] selects. While a ring
    /// fills they are those of fewer pages. `None` without BPF: then they are sampled at random.
    #[must_use]
    pub fn page_shift(&self) -> Option<u32> {
        self.thinner.has_program().then(|| self.thinner.shift())
    }

    /// Notes that a sampled page is not mapped any more. If a fault near it maps it again, it is sampled again.
    pub fn unmapped(&self, program: u64, address: u64) {
        self.thinner.unmapped(program, address);
    }

    /// Notes that a page that was left out, of which a sample says so, is sampled now.
    pub fn sampled(&self, program: u64, address: u64) {
        self.thinner.sampled(program, address);
    }

    /// Notes that a page is still left out by the sample of this shift, of which its last sample says so.
    pub fn left_out(&self, program: u64, address: u64, shift: u32) {
        self.thinner.left_out(program, address, shift);
    }

    /// The shift of the sample when a page of the greatest sample was filled last, whether or not it was sampled; `None` if
    /// that is not known.
    #[must_use]
    pub fn filled(&self, program: u64, address: u64) -> Option<u32> {
        self.thinner.filled(program, address)
    }

    /// Forgets a process. Its events stay open while an attached process inherits them.
    pub fn detach(&mut self, pid: i32) {
        let Some(key) = self.attached.remove(&pid) else { return };
        if !self.attached.values().any(|&k| k == key) {
            self.close(key);
        }
    }

    /// Returns the new faults and programs, in the order of time.
    pub fn drain(&mut self) -> Vec<FaultNews> {
        let ended: Vec<i32> = self.heirs.ended.keys().copied().collect();
        self.read_rings();
        let mut news = std::mem::take(&mut self.news);
        news.sort_by_key(FaultNews::at);
        let mut strangers = HashMap::new();
        for news in &mut news {
            if let FaultNews::Fault(s) = news {
                s.thread = self.name(s.pid, s.tid, &mut strangers);
            }
        }
        // The last samples of a thread may stand in a ring that was read before the one with its end.
        for tid in ended {
            self.names.remove(&tid);
            self.heirs.ended.remove(&tid);
        }
        news
    }

    fn read_rings(&mut self) {
        let FaultSampler {
            cpus, thinner, events, scope, heirs, attached, names, news, lost, ..
        } = self;
        let [minor, major] =
            [Event::Minor, Event::Major].map(|event| match thinner.has_program() {
                true => Counts::Selected,
                false => event.at_random(),
            });
        let mut note = |record, news: &mut Vec<FaultNews>, lost: &mut u64| match record {
            Record::Fault(s) if s.is_of_allocation() => news.push(FaultNews::Fault(s)),
            Record::Fault(s) => {
                let taken = thinner.weight();
                news.extend(taken.map(|n| {
                    FaultNews::Fault(Sampled { weight: s.weight.saturating_mul(n), ..s })
                }));
            }
            Record::Name { at, pid, tid, name, exec } => {
                names.insert(tid, name.into());
                if exec {
                    news.push(FaultNews::Exec { pid, at });
                }
            }
            Record::Mapped { at, pid, range } => news.push(FaultNews::Mapped { pid, at, range }),
            Record::Fork { at, pid, tid, parent, parent_pid } => {
                if pid != parent_pid {
                    news.push(FaultNews::Fork { pid: parent_pid, at });
                }
                let key = heirs.keys.get(&parent).or_else(|| attached.get(&parent_pid));
                let key = key.copied().unwrap_or(parent_pid);
                let of_threads = *scope == EventScope::Threads && key != COMMAND;
                let inherits = pid == parent_pid || !of_threads;
                // They may have been closed since. Then the end of the thread is not reported.
                if inherits && events.contains_key(&key) {
                    heirs.begin(tid, at, key);
                    if let Some(name) = names.get(&parent).cloned() {
                        // Its own new name may stand in the ring of another CPU, which was read before.
                        names.entry(tid).or_insert(name);
                    }
                }
            }
            Record::Exit { at, tid } => heirs.end(tid, at),
            Record::Lost(n) => *lost += n,
        };
        let mut read = |ring: &mut Ring, counts| {
            let (first, before) = (news.len(), *lost);
            ring.drain(|kind, misc, content| {
                let record = parse(kind, misc, content, counts);
                record.into_iter().for_each(|r| note(r, news, lost));
            });
            stand_for_lost(news.get_mut(first..).unwrap_or_default(), *lost - before);
        };
        for rings in &mut *cpus {
            read(&mut rings.minor, minor);
            read(&mut rings.major, major);
        }
        each_allocation_ring(cpus.iter_mut().filter_map(|c| c.allocations.as_mut()), read);
        self.thinner.read();
    }

    /// The name of a thread. Of a process that is not attached, it is kept in `strangers`, because the end of the thread
    /// may never be reported.
    fn name(&mut self, pid: i32, tid: i32, strangers: &mut HashMap<i32, Arc<str>>) -> Arc<str> {
        if let Some(known) = self.names.get(&tid) {
            return Arc::clone(known);
        }
        let is_attached = self.attached.contains_key(&pid);
        let names = if is_attached { &mut self.names } else { strangers };
        let read = || thread_comm(&self.root, pid, tid).unwrap_or_default().into();
        names.entry(tid).or_insert_with(read).clone()
    }

    /// Number of samples that did not fit into a ring so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocations::write_library;

    /// A block that was freed while the rings were read stayed in the report: its release was reported before it.
    #[test]
    fn no_release_is_read_before_its_allocation() {
        // After each read, one CPU allocates a block, and one frees it: the same CPU, or the other one.
        let (mut content, mut steps) = ([const { Vec::new() }; 4], 0usize);
        let mut allocated = BTreeSet::new();
        for _ in 0..4 {
            let (mut ids, mut released) = ([[0, 1], [2, 3]], Vec::new());
            each_allocation_ring(ids.iter_mut(), |&mut id, counts| {
                let read = std::mem::take(&mut content[id]);
                match counts {
                    Counts::Releases => released.extend(read),
                    _ => allocated.extend(read),
                }
                content[steps % 2 * 2 + 1].push(steps);
                content[steps / 2 % 2 * 2].push(steps);
                steps += 1;
            });
            assert!(released.iter().all(|block| allocated.contains(block)), "{released:?}");
        }
        assert_eq!(allocated.len(), 14, "of 16; the last two are in the rings");
    }

    /// The name of each process that reports allocations stayed until the recording ended.
    #[test]
    fn names_of_threads_of_unwatched_processes_are_not_kept() {
        // Only root may open it.
        let Ok(mut sampler) = FaultSampler::open("/".as_ref(), false) else { return };
        let pid = std::process::id().cast_signed();
        let mut strangers = HashMap::new();
        let mut name = |sampler: &mut FaultSampler| sampler.name(pid, pid, &mut strangers);
        assert!(!name(&mut sampler).is_empty() && sampler.names.is_empty());
        sampler.attached.insert(pid, pid);
        assert!(!name(&mut sampler).is_empty() && sampler.names.len() == 1);
    }

    /// Found by a review: events of each copy of the library stayed open, until the recorder had no more descriptors.
    #[test]
    fn the_number_of_probes_is_limited() {
        // Only root may open it, on a kernel with such probes.
        let Ok(mut sampler) = FaultSampler::open("/".as_ref(), true) else {
            assert!(std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none(), "requires root");
            return;
        };
        if !Path::new("/sys/bus/event_source/devices/uprobe").exists() {
            return;
        }
        let folders: Vec<_> = (0..2 * MAX_PROBES).map(|_| tempfile::tempdir().unwrap()).collect();
        let copy = |f: &tempfile::TempDir| Probe::of(&write_library(f.path()).unwrap()).unwrap();
        let copies: Vec<Probe> = folders.iter().map(copy).collect();
        let probed: Vec<bool> = copies.iter().map(|p| sampler.probe(p).is_ok()).collect();
        let expected: Vec<bool> = (0..copies.len()).map(|n| n < MAX_PROBES).collect();
        assert_eq!(probed, expected);
        assert!(sampler.probe(&copies[0]).is_ok(), "repeated");
        let events: usize = sampler.probes.values().map(Vec::len).sum();
        assert_eq!(events, MAX_PROBES * 2 * sampler.cpus.len());
    }

    /// A later process with the pid of such a thread was never sampled, because it seemed to inherit events.
    #[test]
    fn a_thread_whose_end_is_read_before_its_begin_inherits_nothing() {
        let mut heirs = Heirs::default();
        heirs.end(5, Nanos(20));
        heirs.begin(5, Nanos(10), 1);
        assert!(heirs.keys.is_empty());
        heirs.begin(5, Nanos(30), 1);
        assert_eq!(heirs.keys, HashMap::from([(5, 1)]));
        heirs.end(5, Nanos(40));
        assert!(heirs.keys.is_empty());
    }
}
