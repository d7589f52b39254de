//! Page faults and allocations of the recorded processes, and the code that they come from.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::ffi::OsString;
use std::fs::File;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, BLOCK_SIZE, CodeMapping, Fault, FaultKind, MappingKind, Nanos, PAGE_SIZE,
    SampleBudget, TargetId, align_down, sample_level,
};
use isotherm_linux::allocations::{AllocationsError, BYTES_VARIABLE, PreloadLibrary, Probe};
use isotherm_linux::code::CodeReader;
use isotherm_linux::faults::{FaultNews, FaultSampler, FaultsError, SampleKind, Sampled};
use isotherm_linux::proc::{
    FileCode, KPageFlags, PageFlags, Pagemap, PagemapEntry, mappings, stat,
};
use isotherm_linux::sys::{self, PageState, page_state, pagemap_entry, resident_ranges};
use isotherm_linux::unwind::{StackUnwinder, UnwindTables};
use isotherm_record::TargetInfo;
use tracing::warn;

use crate::ROOT;
use crate::follow::Selection;

/// Interval between two readings of the rings.
const READ_INTERVAL: Duration = Duration::from_millis(200);
/// Interval after a reading that has found [`BUSY_SAMPLES`] or more, or an allocation.
const BUSY_READ_INTERVAL: Duration = Duration::from_millis(20);
const BUSY_SAMPLES: usize = 32;
/// Number of sampled pages whose state is read in the first of these intervals, or fewer in a shorter one.
const CHECKED_PAGES: u64 = 128;
/// Maximum number of sampled pages whose state is followed. Each time that a further eighth is reached, the sample of new
/// pages halves.
const MAX_FOLLOWED: usize = 1 << 18;
/// Maximum number of sampled pages on each side that are asked whether memory was filled again.
const NEIGHBOURS: usize = 64;
/// Maximum number of ranges of mapped pages that are noted when processes are attached, for all of them.
const MAX_MAPPED_BEFORE: usize = 1 << 16;
/// Maximum number of pages of its parent that are compared with those of a process when it is attached. If they share all,
/// the error of the sum of so many is 4 %. If fewer than the minimum may be compared, the process inherits nothing.
const MAX_INHERITED: usize = 512;
const MIN_INHERITED: usize = 64;
/// Levels of [`sample_level`].
const LEVELS: usize = 65;
/// Maximum bytes of samples of processes that are not attached yet. Most of a sample is the copy of its stack.
const MAX_EARLY_BYTES: usize = 32 << 20;
/// Maximum age of such samples.
const MAX_EARLY_AGE: Duration = Duration::from_secs(10);
/// Time until the mappings of a program are read again, if a frame is in none of them. It is short at first, because a
/// program that starts maps its libraries one by one, and doubles with each reading.
const REREAD: Duration = Duration::from_millis(10);
/// Maximum of that time, while reading finds new files, or if the program has replaced one.
const REREAD_NEW: Duration = Duration::from_secs(1);
/// Maximum of that time, if reading does not help, because the program generates code.
const REREAD_MOST: Duration = Duration::from_secs(64);
/// The minimum of that time, as a multiple of the CPU time of the reading, up to [`REREAD_MOST`]. A process may map any
/// number of files.
const REREAD_REST: u32 = 20;

/// News of code and faults, in the order in which a record contains them.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StackNews {
    /// the files that a target executes from now on
    Code(TargetId, Arc<Vec<CodeMapping>>),
    /// a sampled fault, or a change of a sampled page
    Fault(Fault),
}

/// Numbers of sampled page faults and allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleCounts {
    /// sampled faults
    pub faults: u64,
    /// sampled allocations; `None` if they are not sampled
    pub allocations: Option<u64>,
    /// samples that were lost because a ring was full
    pub lost: u64,
}

/// Which stacks are sampled in addition to those of page faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct StackOptions {
    /// Sample allocations: one each time that about this number of bytes was allocated.
    pub allocation_bytes: Option<u64>,
    /// The budget of watching, in millionths of a CPU: a quarter of it is for samples in the long run.
    pub budget_ppm: Option<u32>,
}

impl StackOptions {
    /// Within a budget of watching, in millionths of a CPU.
    #[must_use]
    pub fn within(self, budget_ppm: Option<u32>) -> Self {
        StackOptions { budget_ppm, ..self }
    }
}

/// Stacks cannot be sampled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StacksError {
    /// faults cannot be sampled
    #[error(transparent)]
    Faults(#[from] FaultsError),
    /// allocations cannot be sampled
    #[error(transparent)]
    Allocations(#[from] AllocationsError),
}

/// Samples the page faults of processes, and follows the sampled pages.
pub struct Stacks {
    sampler: FaultSampler,
    samples_allocations: bool,
    /// the library that a command loads, and the number of bytes from one sample to the next
    library: Option<(PreloadLibrary, u64)>,
    /// `None` without the right to read them
    frames: Option<KPageFlags>,
    reader: CodeReader,
    tables: UnwindTables,
    processes: BTreeMap<i32, Process>,
    /// samples of processes that are not attached yet
    early: VecDeque<Sampled>,
    /// attached processes whose pages have not been compared with those of their parents yet
    forked: BTreeSet<i32>,
    /// how many pages may be compared for them
    to_inherit: SampleBudget,
    followed: BTreeMap<FollowedKey, Followed>,
    owners: Owners,
    /// the followed page that was checked last
    checked: FollowedKey,
    /// when faults of pages of each level may have been missed: they were in no sample
    unseen: [Nanos; LEVELS],
    next: Nanos,
    /// when it had work last
    turned: Nanos,
    budget: SampleBudget,
    sampled: u64,
    allocations: u64,
}

/// The pid, the address and the size of a page. A page may be filled again that is the first one of a huge page.
type FollowedKey = (i32, u64, u64);

/// The code that a sampled page belongs to.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
struct Owner {
    tid: u32,
    thread: Arc<str>,
    frames: Arc<[u64]>,
    weight: u64,
}

impl Owner {
    /// The fault by which a page belongs to it.
    fn fault(&self, target: TargetId, at: Nanos, range: AddrRange) -> Fault {
        let (thread, frames) = (Arc::clone(&self.thread), Arc::clone(&self.frames));
        let (kind, tid, weight) = (FaultKind::Minor, self.tid, self.weight);
        Fault { target, at, kind, tid, thread, range, weight, frames }
    }
}

/// Equal owners share their memory.
#[derive(Debug, Default)]
struct Owners {
    known: HashSet<Arc<Owner>>,
    /// number of those that pages had when the rest was forgotten last
    used: usize,
}

impl Owners {
    fn shared(&mut self, f: &Fault) -> Arc<Owner> {
        let (thread, frames) = (Arc::clone(&f.thread), Arc::clone(&f.frames));
        let owner = Owner { tid: f.tid, thread, frames, weight: f.weight };
        if let Some(known) = self.known.get(&owner) {
            return Arc::clone(known);
        }
        if self.known.len() > 2 * self.used + 64 {
            self.known.retain(|owner| Arc::strong_count(owner) > 1);
            self.used = self.known.len();
        }
        let new = Arc::new(owner);
        self.known.insert(Arc::clone(&new));
        new
    }
}

/// A sampled page or huge page that belongs to the code of its fault.
#[derive(Debug, Clone)]
struct Followed {
    owner: Arc<Owner>,
    resident: bool,
    /// the time of its fault
    since: Nanos,
    level: usize,
    /// one page in 2 to this power was sampled then
    shift: usize,
    /// It had been filled before: this fault filled it again.
    again: bool,
    /// its page frame when it was resident last; 0 if unknown
    frame: u64,
    /// the number of forks of its process at its last fault; `None` if its process shared it with its parent and has not
    /// touched it since
    forks: Option<u64>,
    /// Its process shared it with its parent.
    inherited: bool,
}

impl Followed {
    /// Whether a minor fault leaves the page to its owner: it was in swap when it was checked, or it is written to for the
    /// first time after a fork. At the fault its process had this number of forks. A fork leaves the pages of files as they
    /// are.
    fn keeps_owner(&self, forks: u64, is_of_file: bool) -> bool {
        let has_forked = self.forks.is_none_or(|known| known != forks && !is_of_file);
        !self.resident || has_forked
    }
}

struct Process {
    target: TargetId,
    /// the program of its last sample, as the kernel names it
    program: u64,
    code: Arc<Vec<CodeMapping>>,
    /// It has mapped other code in the place of some of it.
    is_replaced: bool,
    /// It has mapped code since its mappings were read.
    has_new_code: bool,
    /// when its mappings were read last, and the pause after that
    read: (Nanos, Duration),
    /// the minimum of that pause
    rest: Duration,
    pagemap: Option<File>,
    /// Pages of files and of shared memory that it had mapped when it was attached, ascending. They have no owner by a
    /// fault near them, also after the process has mapped another file there.
    mapped_before: Vec<AddrRange>,
    unwinder: Option<StackUnwinder>,
    /// the number of processes that it has started; it stands for that of forks where the kernel does not count them
    forks: u64,
    /// when it had inherited pages of its parent
    inherited: Option<Nanos>,
}

impl Process {
    fn new(pid: i32, target: TargetId) -> Self {
        let pagemap = File::open(Path::new(ROOT).join(format!("proc/{pid}/pagemap"))).ok();
        Process {
            target,
            program: 0,
            code: Arc::default(),
            is_replaced: false,
            has_new_code: false,
            read: (Nanos(0), Duration::ZERO),
            rest: Duration::ZERO,
            pagemap,
            mapped_before: Vec::new(),
            unwinder: None,
            forks: 0,
            inherited: None,
        }
    }

    /// Whether a fault near a page may have mapped it.
    fn may_map(&self, address: u64) -> bool {
        let after = self.mapped_before.partition_point(|r| r.end <= address);
        !self.mapped_before.get(after).is_some_and(|r| r.contains(address))
    }

    /// The state of a page; resident if the kernel cannot say.
    fn state(&self, address: u64, frames: Option<&KPageFlags>) -> PageState {
        let Some(pagemap) = &self.pagemap else { return PageState::Base };
        let read = page_state(pagemap, address);
        let (Ok(PageState::Absent) | Err(_)) = read else { return read.unwrap_or(PageState::Base) };
        match (self.entry(address), read) {
            // In an address space without mappings, because the process has ended, nothing was freed.
            (None, _) => PageState::Base,
            (Some(_), Ok(state)) => state,
            // before Linux 6.7
            (Some(entry), Err(_)) => state_of(entry, flags_of(frames, entry)),
        }
    }

    /// Whether a part of the memory is resident.
    fn has_resident(&self, range: AddrRange) -> bool {
        let mut found = Vec::new();
        let Some(pagemap) = &self.pagemap else { return true };
        match resident_ranges(pagemap, range, 1, &mut found) {
            Ok(()) => !found.is_empty(),
            // before Linux 6.7
            Err(_) => (range.start..range.end)
                .step_by(PAGE_SIZE as usize)
                .any(|at| self.entry(at).is_some_and(PagemapEntry::is_present)),
        }
    }

    fn entry(&self, address: u64) -> Option<PagemapEntry> {
        pagemap_entry(self.pagemap.as_ref()?, address).ok()
    }

    /// The page frame of a resident page; 0 without the right to know it.
    fn frame(&self, address: u64) -> u64 {
        self.entry(address).map_or(0, PagemapEntry::frame)
    }

    /// The longer of the stack by frame pointers, and the stack that is unwound. The first one ends at a function
    /// without a frame pointer, the other one where the copy of the stack ends.
    fn frames(&mut self, s: &Sampled) -> Arc<[u64]> {
        let unwound = self.unwinder.as_mut().zip(s.copy.as_ref()).map(|(u, copy)| u.frames(copy));
        match unwound {
            Some(frames) if frames.len() >= s.frames.len() => frames.into(),
            _ => Arc::clone(&s.frames),
        }
    }

    /// Notes that the process may execute this memory from now on.
    fn mapped(&mut self, range: AddrRange) {
        self.has_new_code = true;
        self.is_replaced |= self.code.iter().any(|c| c.range.intersect(&range).is_some());
    }

    /// Whether to read its code again: a frame of a sample is in none of it, or in a file that may be another one now.
    fn should_read(&self, frames: &[u64], now: Nanos) -> bool {
        let (at, pause) = self.read;
        let is_new = self.is_replaced || self.has_new_code;
        let pause = if is_new { pause.min(REREAD_NEW) } else { pause };
        let is_old = self.is_replaced || frames.iter().any(|&f| !self.has_code(f));
        is_old && now >= at + pause.max(self.rest)
    }

    /// Reads its code. None if it is the same.
    fn read_code(
        &mut self,
        pid: i32,
        reader: &mut CodeReader,
        tables: &mut UnwindTables,
        now: Nanos,
    ) -> Option<StackNews> {
        let begin = sys::thread_cpu();
        // The first reading also parses the files, and most programs map more of them just after it.
        let most = if self.code.is_empty() { REREAD_NEW } else { REREAD_MOST };
        let code = self.read_code_now(pid, reader, tables, now);
        self.rest_after(sys::thread_cpu().saturating_sub(begin), most);
        code
    }

    /// Notes the CPU time of a reading. The rest after it is `most` at most.
    fn rest_after(&mut self, cost: Duration, most: Duration) {
        self.rest = (cost * REREAD_REST).min(most);
    }

    fn read_code_now(
        &mut self,
        pid: i32,
        reader: &mut CodeReader,
        tables: &mut UnwindTables,
        now: Nanos,
    ) -> Option<StackNews> {
        // Also if it fails: there may be too much to read.
        let pause = (self.read.1 * 2).clamp(REREAD, REREAD_MOST);
        self.read = (now, pause);
        let read = reader.read(ROOT.as_ref(), pid).ok()?;
        (self.is_replaced, self.has_new_code) = (false, false);
        let mapping = |(file, build_id): &(FileCode, Arc<str>)| CodeMapping {
            range: file.range,
            offset: file.offset,
            path: Arc::clone(&file.path),
            build_id: Arc::clone(build_id),
        };
        let code: Vec<CodeMapping> = read.iter().map(mapping).collect();
        if code == *self.code {
            return None;
        }
        self.read.1 = pause.min(REREAD_NEW);
        let process = Path::new(ROOT).join(format!("proc/{pid}"));
        let files = read.iter().map(|(file, _)| file);
        self.unwinder = Some(StackUnwinder::new(&process, files, tables));
        self.code = Arc::new(code);
        Some(StackNews::Code(self.target, Arc::clone(&self.code)))
    }

    fn has_code(&self, address: u64) -> bool {
        let after = self.code.partition_point(|c| c.range.end <= address);
        self.code.get(after).is_some_and(|c| c.range.contains(address))
    }
}

impl Stacks {
    /// Samples no process yet. If `targets` contain a command, the program that the calling thread starts next is sampled
    /// from its first instruction.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn open(targets: &Selection, o: StackOptions) -> Result<Self, StacksError> {
        let mut sampler = FaultSampler::open(ROOT.as_ref(), o.allocation_bytes.is_some())?;
        if !targets.has_more() {
            sampler = sampler.without_children();
        }
        let budget = SampleBudget::new(sys::monotonic());
        let budget = o.budget_ppm.map_or(budget.clone(), |ppm| budget.within(ppm));
        let mut library = None;
        if !targets.command.is_empty() {
            if let Some(bytes) = o.allocation_bytes {
                let created = PreloadLibrary::create()?;
                Probe::of(created.path()).map_or(Ok(()), |probe| sampler.probe(&probe))?;
                library = Some((created, bytes));
            }
            sampler.expect_command()?;
        }
        Ok(Stacks {
            sampler,
            samples_allocations: o.allocation_bytes.is_some(),
            library,
            frames: KPageFlags::open(ROOT.as_ref()).ok(),
            reader: CodeReader::default(),
            tables: UnwindTables::default(),
            processes: BTreeMap::new(),
            early: VecDeque::new(),
            forked: BTreeSet::new(),
            to_inherit: budget.clone(),
            followed: BTreeMap::new(),
            owners: Owners::default(),
            checked: (0, 0, 0),
            unseen: [Nanos(0); LEVELS],
            next: Nanos(0),
            turned: Nanos(0),
            budget,
            sampled: 0,
            allocations: 0,
        })
    }

    /// Variables for the environment of the command, so that it loads the library that samples allocations.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let Some((library, bytes)) = &self.library else { return Vec::new() };
        // Before an allocator that the user loads in the same way: the first definition is called.
        let mut preload = library.path().as_os_str().to_owned();
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        vec![("LD_PRELOAD", preload), (BYTES_VARIABLE, bytes.to_string().into())]
    }

    /// Notes the pid of the started command.
    pub fn started(&mut self, pid: i32) {
        self.sampler.started(pid);
    }

    /// Samples a target. A repeated target only has a new name.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn target(&mut self, fact: &TargetInfo) -> Result<(), StacksError> {
        let Some(pid) = fact.pid.and_then(|pid| i32::try_from(pid).ok()) else { return Ok(()) };
        let known = self.processes.get(&pid).map(|process| process.target);
        if known != Some(fact.id) {
            // A new process has the pid of one that has ended, but is not reported yet.
            known.into_iter().for_each(|ended| self.gone(ended));
            let has_begun = self.sampler.attach(pid)?;
            let noted: usize = self.processes.values().map(|p| p.mapped_before.len()).sum();
            let most = MAX_MAPPED_BEFORE.saturating_sub(noted);
            let mapped_before = if has_begun { mapped_files(pid, most) } else { Vec::new() };
            let process = Process { mapped_before, ..Process::new(pid, fact.id) };
            self.processes.insert(pid, process);
            if !has_begun {
                self.forked.insert(pid);
            }
            // Its page faults are sampled even if its allocations cannot be: it may have loaded any library.
            if let Err(e) = self.probe(pid) {
                warn!("{e}");
            }
        }
        Ok(())
    }

    /// A process shares the memory of its parent until one of them writes to it. So it belongs to the code of the parent.
    fn inherit(&mut self, pid: i32, at: Nanos, out: &mut Vec<StackNews>) {
        // Without the program in the kernel, pages are sampled at random.
        if self.sampler.page_shift().is_none() {
            return;
        }
        let parent = stat(ROOT.as_ref(), pid).map_or(0, |stat| stat.ppid);
        if self.forked.remove(&parent) {
            self.inherit(parent, at, out);
        }
        let room = (MAX_FOLLOWED / 4).saturating_sub(self.followed.len());
        let most = MAX_INHERITED.min(self.to_inherit.available(at)).min(room);
        if most < MIN_INHERITED {
            return;
        }
        let of_parent = || self.followed.range((parent, 0, 0)..=(parent, u64::MAX, 0));
        let smallest = smaller_sample(of_parent().map(|(_, page)| page.level), most);
        let of_sample = of_parent().filter(|(_, page)| page.level >= smallest);
        let of_sample: Vec<_> = of_sample.map(|(key, page)| (*key, page.clone())).collect();
        self.to_inherit.spend(of_sample.len());
        let Stacks { processes, reader, tables, followed, owners, .. } = self;
        let Some(process) = processes.get_mut(&pid) else { return };
        let mut faults = Vec::new();
        for ((_, start, size), page) in of_sample {
            // If the process runs another program by now, or one of them has written to the page, they share no frame.
            // Pages of files and of shared memory are not mapped by a fork.
            let is_same = |entry: PagemapEntry| entry.frame() == page.frame && !entry.is_of_file();
            if page.frame == 0 || !process.entry(start).is_some_and(is_same) {
                continue;
            }
            let shift = page.shift.max(smallest).min(63);
            let range = AddrRange::new(start, start + size);
            let fault = page.owner.fault(process.target, at, range);
            let fault = Fault { weight: 1 << shift, ..fault };
            let owner = owners.shared(&fault);
            faults.push(StackNews::Fault(fault));
            let (again, forks, inherited) = (false, None, true);
            let new = Followed { owner, since: at, shift, again, forks, inherited, ..page };
            followed.insert((pid, start, size), new);
        }
        if !faults.is_empty() {
            process.inherited = Some(sys::monotonic());
            out.extend(process.read_code(pid, reader, tables, at));
            out.append(&mut faults);
        }
    }

    /// Samples the allocations of a process, if it has loaded the library. A command may load it later.
    fn probe(&mut self, pid: i32) -> Result<(), FaultsError> {
        if !self.samples_allocations {
            return Ok(());
        }
        match Probe::in_process(ROOT.as_ref(), pid) {
            Some(probe) => self.sampler.probe(&probe),
            None if self.library.is_some() => Ok(()),
            None => {
                warn!(
                    "allocations of process {pid} are not sampled: start it with the library of isotherm system \
                     alloc-library"
                );
                Ok(())
            }
        }
    }

    /// Forgets a target that has ended.
    pub fn gone(&mut self, target: TargetId) {
        let pid = self.processes.iter().find(|(_, p)| p.target == target).map(|(&pid, _)| pid);
        if let Some(pid) = pid {
            self.sampler.detach(pid);
            self.processes.remove(&pid);
            self.forked.remove(&pid);
            self.forget(pid);
        }
    }

    /// The files that each target executes, as far as they were read.
    pub fn code(&self) -> BTreeMap<TargetId, Arc<Vec<CodeMapping>>> {
        let known = self.processes.values().filter(|p| !p.code.is_empty());
        known.map(|p| (p.target, Arc::clone(&p.code))).collect()
    }

    /// The sampled pages with their code: what a record that begins now has to contain about them.
    pub fn pages(&self) -> Vec<Fault> {
        let mut out = Vec::new();
        // In the order of their faults: a fault takes the memory of earlier ones.
        let mut followed: Vec<_> = self.followed.iter().collect();
        followed.sort_by_key(|(_, page)| page.since);
        for (&(pid, start, size), page) in followed {
            let Some(process) = self.processes.get(&pid) else { continue };
            let range = AddrRange::new(start, start + size);
            out.push(page.owner.fault(process.target, page.since, range));
            if !page.resident {
                out.push(change(process.target, page.since, FaultKind::Swapped, range));
            }
        }
        out
    }

    /// When [`Stacks::turn`] has work.
    pub fn by(&self) -> Nanos {
        self.next
    }

    /// Returns what is new, if that is due.
    pub fn turn(&mut self, now: Nanos) -> Vec<StackNews> {
        if now < self.next {
            return Vec::new();
        }
        let since = now.since(self.turned).min(READ_INTERVAL).as_micros() as u64;
        self.turned = now;
        let mut news = self.drain(now);
        let most = (CHECKED_PAGES * since).div_ceil(READ_INTERVAL.as_micros() as u64);
        self.check(now, most as usize, &mut news);
        news
    }

    /// Returns what is new at the end, and the state of all followed pages.
    pub fn finish(&mut self, now: Nanos) -> Vec<StackNews> {
        let mut news = self.drain(now);
        self.check(now, MAX_FOLLOWED, &mut news);
        news
    }

    /// The number of samples so far.
    pub fn counts(&self) -> SampleCounts {
        SampleCounts {
            faults: self.sampled,
            allocations: self.samples_allocations.then_some(self.allocations),
            lost: self.sampler.lost(),
        }
    }

    fn drain(&mut self, now: Nanos) -> Vec<StackNews> {
        let mut out = Vec::new();
        let early = std::mem::take(&mut self.early).into_iter().map(FaultNews::Fault);
        let lost = self.sampler.lost();
        let new = self.sampler.drain();
        self.note_unseen(&new, self.sampler.lost() > lost, now);
        let samples = || {
            new.iter().filter_map(|n| match n {
                FaultNews::Fault(s) => Some(s),
                _ => None,
            })
        };
        let allocations = samples().filter(|s| s.is_of_allocation()).count();
        // A program that allocates does so in bursts.
        let soon = new.len() >= BUSY_SAMPLES || allocations > 0;
        self.next = now + if soon { BUSY_READ_INTERVAL } else { READ_INTERVAL };
        let stride = self.budget.stride(now, samples().count() - allocations);
        let full = (self.followed.len() * 8 / MAX_FOLLOWED) as u32;
        self.sampler.set_stride(stride << full.min(8));
        let mut early_bytes = 0;
        for news in early.chain(new) {
            // By then, the earlier pages of its parent are known.
            if let FaultNews::Fault(s) = &news
                && self.forked.remove(&s.pid)
            {
                self.inherit(s.pid, s.at, &mut out);
            }
            match news {
                FaultNews::Fault(s) if self.processes.contains_key(&s.pid) => {
                    self.fault(s, now, &mut out);
                }
                FaultNews::Fault(s) => {
                    // Other processes may have loaded a library that remains installed, so a sample may be of an
                    // unwatched process.
                    let may_be_ours = !s.is_of_allocation() || self.library.is_some();
                    let size = s.size();
                    if may_be_ours
                        && s.at + MAX_EARLY_AGE > now
                        && early_bytes + size <= MAX_EARLY_BYTES
                    {
                        early_bytes += size;
                        self.early.push_back(s);
                    }
                }
                FaultNews::Mapped { pid, range, .. } => {
                    self.processes.entry(pid).and_modify(|process| process.mapped(range));
                }
                FaultNews::Fork { pid, .. } => {
                    self.processes.entry(pid).and_modify(|process| process.forks += 1);
                }
                FaultNews::Exec { pid, at } => self.exec(pid, at, &mut out),
            }
        }
        for pid in std::mem::take(&mut self.forked) {
            self.inherit(pid, now, &mut out);
        }
        out
    }

    /// Notes which pages were in no sample since the rings were read last.
    fn note_unseen(&mut self, new: &[FaultNews], is_lost: bool, now: Nanos) {
        let shift = |news: &FaultNews| match news {
            FaultNews::Fault(s) if s.is_of_page() => s.weight.checked_ilog2(),
            _ => None,
        };
        let seen = match self.sampler.page_shift() {
            Some(current) if !is_lost => new.iter().filter_map(shift).fold(current, u32::max),
            _ => u32::MAX,
        };
        for (unseen, _) in self.unseen.iter_mut().zip(0..seen) {
            *unseen = now;
        }
    }

    fn fault(&mut self, s: Sampled, now: Nanos, out: &mut Vec<StackNews>) {
        let Some(process) = self.processes.get_mut(&s.pid) else { return };
        match s.kind {
            SampleKind::Minor | SampleKind::Read | SampleKind::Around => self.page(s, now, out),
            SampleKind::Major => {
                self.sampled += 1;
                let start = align_down(s.address, PAGE_SIZE);
                let range = AddrRange::new(start, start + PAGE_SIZE);
                self.sample(s, FaultKind::Major, range, now, out);
            }
            SampleKind::Allocated(size) => {
                self.allocations += 1;
                let range = AddrRange::new(s.address, s.address.saturating_add(size));
                self.sample(s, FaultKind::Allocated, range, now, out);
            }
            SampleKind::Released => {
                let range = AddrRange::new(s.address, s.address.saturating_add(1));
                let released = change(process.target, s.at, FaultKind::Released, range);
                out.push(StackNews::Fault(released));
            }
        }
    }

    /// A thread has touched a page of the sample, or one near it, so that the kernel mapped it too: from now on the page
    /// belongs to its code. A page that returns from swap keeps its owner, and so does one that a fork made shared.
    /// Without one, it existed before isotherm attached, and belongs to the code that brings it back.
    fn page(&mut self, s: Sampled, now: Nanos, out: &mut Vec<StackNews>) {
        let Some(process) = self.processes.get_mut(&s.pid) else { return };
        process.program = s.program;
        let state = process.state(s.address, self.frames.as_ref());
        let size = match state {
            PageState::Huge => BLOCK_SIZE,
            PageState::Base | PageState::Swapped => PAGE_SIZE,
            // the page of zeros, or memory that was freed already
            PageState::Absent => return self.sampler.unmapped(s.program, s.address),
        };
        let start = align_down(s.address, size);
        let level = sample_level(start / size);
        let shift = s.weight.checked_ilog2().unwrap_or(0);
        // The kernel selects pages and huge pages, and does not know which one it is.
        if self.sampler.page_shift().is_some() && level < shift {
            return;
        }
        let key = (s.pid, start, size);
        let is_around = s.kind == SampleKind::Around;
        let is_resident = self.followed.get(&key).is_some_and(|page| page.resident);
        if is_around && (is_resident || !process.may_map(start)) {
            return;
        }
        let entry = process.entry(start);
        let (since, frame) = (s.at, entry.map_or(0, PagemapEntry::frame));
        let (is_read, forks) = (s.kind == SampleKind::Read, s.forks.unwrap_or(process.forks));
        let is_minor = s.kind == SampleKind::Minor;
        let is_of_file = entry.is_some_and(PagemapEntry::is_of_file);
        let again = self.followed.contains_key(&key);
        // For other pages it does not matter. A page that is in swap again has most likely returned from there too.
        let from_swap = (again || s.left_out > 0)
            && (state == PageState::Swapped || has_returned(self.frames.as_ref(), frame));
        let returns = is_read || is_minor && from_swap;
        if let Some(page) = self.followed.get_mut(&key)
            && (returns || page.keeps_owner(forks, is_of_file))
        {
            let (was_resident, range) = (page.resident, AddrRange::new(start, start + size));
            (page.resident, page.frame, page.forks) = (true, frame, Some(forks));
            if !returns && shift as usize > page.shift {
                (page.shift, page.since) = (shift as usize, since);
                // A smaller sample has copied it: this page represents more of them.
                let copy = page.owner.fault(process.target, since, range);
                let copy = Fault { weight: s.weight, ..copy };
                page.owner = self.owners.shared(&copy);
                out.push(StackNews::Fault(copy));
                return;
            }
            if returns || !was_resident {
                let returned = change(process.target, s.at, FaultKind::Returned, range);
                out.push(StackNews::Fault(returned));
            }
            return;
        }
        let is_copy = process.inherited.is_some_and(|at| since > at);
        // The program in the kernel does not know whether a minor fault fills a page or returns it from swap. So it may name
        // the sample of an earlier return. Any smaller sample may have left out the page when it was filled.
        let by = if from_swap { level + 1 } else { s.left_out };
        let may_be_left_out = s.left_out > 0 && (returns || !is_minor);
        let is_left_out = may_be_left_out && is_represented(&self.followed, key, by as usize);
        if is_left_out && is_minor {
            self.sampler.left_out(s.program, start, s.left_out);
        }
        if !again && (is_left_out || is_copy && is_copied(&self.followed, key, level as usize)) {
            return;
        }
        if s.left_out > 0 && !is_minor {
            self.sampler.sampled(s.program, start);
        }
        if self.followed.len() >= MAX_FOLLOWED && !again {
            return;
        }
        self.sampled += 1;
        self.sample(s, FaultKind::Minor, AddrRange::new(start, start + size), now, out);
        let Some(StackNews::Fault(sample)) = out.last() else { return };
        let owner = self.owners.shared(sample);
        let (level, shift) = (level as usize, shift as usize);
        let (resident, forks, inherited) = (true, Some(forks), false);
        let new = Followed { owner, resident, since, level, shift, again, frame, forks, inherited };
        self.followed.insert(key, new);
    }

    /// Reports a sample with its stack, and the code of its process if that is new.
    fn sample(
        &mut self,
        s: Sampled,
        kind: FaultKind,
        range: AddrRange,
        now: Nanos,
        out: &mut Vec<StackNews>,
    ) {
        let Stacks { processes, reader, tables, .. } = self;
        let Some(process) = processes.get_mut(&s.pid) else { return };
        let mut frames = process.frames(&s);
        if process.should_read(&frames, now)
            && let Some(code) = process.read_code(s.pid, reader, tables, now)
        {
            out.push(code);
            frames = process.frames(&s);
        }
        out.push(StackNews::Fault(Fault {
            target: process.target,
            at: s.at,
            kind,
            tid: u32::try_from(s.tid).unwrap_or(0),
            frames,
            thread: s.thread,
            range,
            weight: s.weight,
        }));
    }

    fn exec(&mut self, pid: i32, at: Nanos, out: &mut Vec<StackNews>) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        *process = Process::new(pid, process.target);
        self.forked.remove(&pid);
        out.push(StackNews::Fault(change(
            process.target,
            at,
            FaultKind::Freed,
            AddrRange::new(0, u64::MAX),
        )));
        self.forget(pid);
    }

    fn forget(&mut self, pid: i32) {
        let pages = self.followed.range((pid, 0, 0)..=(pid, u64::MAX, 0)).map(|(key, _)| *key);
        for key in pages.collect::<Vec<_>>() {
            self.followed.remove(&key);
        }
    }

    /// Reads the state of up to `most` followed pages, beginning after the one that was checked last.
    fn check(&mut self, now: Nanos, most: usize, out: &mut Vec<StackNews>) {
        let is_random = self.sampler.page_shift().is_none();
        let Stacks { processes, followed, checked, unseen, sampler, frames, .. } = self;
        let after = followed.range((Bound::Excluded(*checked), Bound::Unbounded));
        let after: Vec<_> = after.take(most).map(|(k, _)| *k).collect();
        let rest = most - after.len();
        let before: Vec<_> = followed.range(..=*checked).take(rest).map(|(k, _)| *k).collect();
        for key in after.into_iter().chain(before) {
            *checked = key;
            let (pid, start, size) = key;
            let Some(process) = processes.get(&pid) else { continue };
            let Some(page) = followed.get(&key).cloned() else { continue };
            let range = AddrRange::new(start, start + size);
            let (state, frame) = match process.state(start, frames.as_ref()) {
                state @ (PageState::Base | PageState::Huge) => (state, process.frame(start)),
                // Only the begin of a huge page was freed.
                _ if size > PAGE_SIZE && process.has_resident(range) => {
                    (PageState::Base, page.frame)
                }
                state => (state, page.frame),
            };
            // A page that was freed and filled again has another frame, unless the same frames went around. So has
            // one that was moved, or was in swap in between.
            let has_other_frame = ![0, page.frame].contains(&frame) && page.frame != 0;
            // A fault that was not sampled has filled or copied it: others represent it.
            let filled = sampler
                .filled(process.program, start)
                .filter(|_| size == PAGE_SIZE && !page.inherited);
            let is_other = || match sides_filled_again(followed, key, unseen) {
                _ if is_random => has_other_frame,
                0 => false,
                1 => has_other_frame,
                _ => true,
            };
            let may_be_other = page.resident && filled.is_none() && unseen[page.level] > page.since;
            // Such a fault that returned it from swap has not filled it.
            let is_left_out = filled.is_some_and(|shift| shift as usize > page.level)
                && state != PageState::Swapped
                && !has_returned(frames.as_ref(), frame);
            let kind = match (state, page.resident) {
                (PageState::Absent, _) => {
                    sampler.unmapped(process.program, start);
                    FaultKind::Freed
                }
                (PageState::Swapped, true) => FaultKind::Swapped,
                (PageState::Base | PageState::Huge, false) => FaultKind::Returned,
                _ if is_left_out || may_be_other && is_other() => FaultKind::Freed,
                _ => {
                    // It may have been moved.
                    followed.insert(key, Followed { frame, ..page });
                    continue;
                }
            };
            match kind {
                FaultKind::Freed => followed.remove(&key),
                kind => {
                    let resident = kind == FaultKind::Returned;
                    followed.insert(key, Followed { resident, frame, ..page })
                }
            };
            out.push(StackNews::Fault(change(process.target, now, kind, range)));
        }
    }
}

/// Whether the page in this frame has returned from swap since it was filled; not if that is not known.
fn has_returned(frames: Option<&KPageFlags>, frame: u64) -> bool {
    flags_of_frame(frames, frame).is_some_and(PageFlags::has_returned)
}

/// The flags of the frame of a resident page; `None` if they are not known.
fn flags_of(frames: Option<&KPageFlags>, entry: PagemapEntry) -> Option<PageFlags> {
    flags_of_frame(frames, if entry.is_present() { entry.frame() } else { 0 })
}

fn flags_of_frame(frames: Option<&KPageFlags>, frame: u64) -> Option<PageFlags> {
    frames.filter(|_| frame > 0)?.of(&[frame]).ok()?.first().copied()
}

/// The state of a page by its entry in `pagemap` and the flags of its frame. Those kernels have one size of anonymous
/// folios besides pages, that of a block. It counts as huge also where its pages are mapped one by one.
fn state_of(entry: PagemapEntry, flags: Option<PageFlags>) -> PageState {
    match flags {
        _ if entry.is_swapped() => PageState::Swapped,
        _ if !entry.is_present() => PageState::Absent,
        Some(flags) if flags.is_zero() => PageState::Absent,
        Some(flags) if flags.is_anonymous() && (flags.is_head() || flags.is_tail()) => {
            PageState::Huge
        }
        _ => PageState::Base,
    }
}

/// The smallest level of pages of the greatest nested sample that has at most so many of the pages with these levels.
fn smaller_sample(levels: impl Iterator<Item = usize>, most: usize) -> usize {
    let mut counts = [0; LEVELS];
    levels.for_each(|level| counts.get_mut(level).into_iter().for_each(|n| *n += 1));
    let mut left: usize = counts.iter().sum();
    let is_enough = |n: &usize| {
        let enough = left <= most;
        left -= n;
        enough
    };
    counts.iter().position(is_enough).unwrap_or(LEVELS)
}

/// On how many sides of a page, of 2, the nearest page of a finer sample was filled again when the page itself was in no
/// sample. Example: one page in 64 was sampled, later one in 128, so half of the sampled pages are watched no longer. One
/// that lies in a buffer that is filled every second is between two pages that were filled a second ago.
fn sides_filled_again(
    followed: &BTreeMap<FollowedKey, Followed>,
    key: FollowedKey,
    unseen: &[Nanos; LEVELS],
) -> usize {
    let Some(page) = followed.get(&key) else { return 0 };
    let hidden = unseen.iter().rposition(|at| *at > page.since).unwrap_or(0);
    let tells = |(at, other): (&FollowedKey, &Followed)| {
        if at.0 != key.0 {
            return Some(false);
        }
        match other.since > page.since {
            true => (other.again && other.shift > page.level).then_some(true),
            // All of its faults were seen.
            false => (other.level > hidden).then_some(false),
        }
    };
    nearest(followed, key, tells).into_iter().filter(|side| *side == Some(true)).count()
}

/// Whether a page of the sample of this shift represents a page that this sample, or a smaller one, left out when it was
/// filled or mapped: the nearest such page still has at least that weight. Example: of the pages of a file that was read at
/// full speed, one in 1024 was sampled. The others may be read or mapped again later, when all pages of the greatest sample
/// are observed. If the program has dropped the file before, the pages that represented them are followed no longer, or
/// were sampled again.
fn is_represented(
    followed: &BTreeMap<FollowedKey, Followed>,
    key: FollowedKey,
    left_out: usize,
) -> bool {
    let distance = |at: &FollowedKey| at.1.abs_diff(key.1) / key.2;
    let tells = |(at, other): (&FollowedKey, &Followed)| {
        // Pages of a sample of one in n are up to 2.6 n pages apart.
        let is_near = at.0 == key.0 && distance(at) <= 4 << other.shift.max(left_out).min(32);
        match is_near {
            true if other.inherited || at.2 != key.2 || other.level < left_out => None,
            true => Some((distance(at), other.shift >= left_out)),
            false => Some((u64::MAX, false)),
        }
    };
    let sides = nearest(followed, key, tells).into_iter().flatten();
    sides.min_by_key(|(distance, _)| *distance).is_some_and(|(_, is)| is)
}

/// Whether a page of this level is a copy of an inherited page that inherited pages on both sides represent: of the pages of
/// its parent, a smaller sample was taken.
fn is_copied(followed: &BTreeMap<FollowedKey, Followed>, key: FollowedKey, level: usize) -> bool {
    let tells = |(at, other): (&FollowedKey, &Followed)| {
        let is_near = || at.1.abs_diff(key.1) / key.2 <= 4 << other.shift;
        match at.0 == key.0 {
            true if !other.inherited => None,
            true => (at.2 == key.2 && other.shift > level).then(is_near),
            false => Some(false),
        }
    };
    nearest(followed, key, tells) == [Some(true); 2]
}

/// The answers of `tells` for the nearest followed page before and after another one. Pages without an answer are skipped.
fn nearest<T>(
    followed: &BTreeMap<FollowedKey, Followed>,
    key: FollowedKey,
    tells: impl Fn((&FollowedKey, &Followed)) -> Option<T>,
) -> [Option<T>; 2] {
    let after = followed.range((Bound::Excluded(key), Bound::Unbounded)).take(NEIGHBOURS);
    let before = followed.range(..key).rev().take(NEIGHBOURS);
    [before.map(&tells).find_map(|told| told), after.map(&tells).find_map(|told| told)]
}

/// The pages of files and of shared memory that a process has mapped, as at most so many ranges and the rest.
fn mapped_files(pid: i32, most: usize) -> Vec<AddrRange> {
    let mut found = Vec::new();
    if let (Ok(mappings), Ok(mut pagemap)) =
        (mappings(ROOT.as_ref(), pid), Pagemap::open(ROOT.as_ref(), pid))
    {
        let files = mappings.iter().filter(|m| m.kind == MappingKind::File);
        files.for_each(|m| pagemap.resident(m.range, most, &mut found));
    }
    // The rest may be mapped, too: memory without an owner is better than memory with a wrong one.
    if found.len() >= most {
        let start = found.last().map_or(0, |last| last.end);
        found.push(AddrRange::new(start, u64::MAX));
    }
    found
}

/// A change of a page that no thread has touched.
fn change(target: TargetId, at: Nanos, kind: FaultKind, range: AddrRange) -> Fault {
    Fault { target, at, kind, tid: 0, thread: "".into(), range, weight: 0, frames: [].into() }
}

/// Attaches a target; a recording continues without its samples if that fails.
pub fn try_target(stacks: &mut Stacks, fact: &TargetInfo) {
    if let Err(e) = stacks.target(fact) {
        warn!("{e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(since: u64, level: usize, shift: usize, again: bool) -> Followed {
        Followed {
            owner: Arc::default(),
            resident: true,
            since: Nanos(since),
            level,
            shift,
            again,
            frame: 0,
            forks: None,
            inherited: false,
        }
    }

    /// Pages that a burst had left out counted twice when they came back, and files that were read after a burst had no
    /// stacks until the recording ended.
    #[test]
    fn pages_that_a_burst_left_out_are_represented_while_others_stay() {
        let at = 0x5000_0000;
        let is = |pid, near, by: Followed| {
            let pages = [
                ((pid, near, PAGE_SIZE), by),
                // It was sampled before the burst, or in vain after it.
                ((7, at + 0x1000, PAGE_SIZE), page(1, 6, 6, false)),
            ];
            is_represented(&BTreeMap::from(pages), (7, at, PAGE_SIZE), 10)
        };
        let of_burst = || page(5, 10, 10, false);
        assert!(is(7, at + 0x10_0000, of_burst()) && is(7, at - 0x10_0000, of_burst()));
        assert!(!is(7, at - 0x10_0000, page(5, 10, 6, false)), "not of the burst");
        assert!(!is(8, at - 0x10_0000, of_burst()), "another process");
        assert!(!is(7, at - 0x200_0000, of_burst()), "other memory");
        let far = BTreeMap::from([((7, at + 0xc0_0000, PAGE_SIZE), of_burst())]);
        assert!(is_represented(&far, (7, at, PAGE_SIZE), 7), "in the reach of a smaller sample");
    }

    /// A child of a large parent inherits a smaller sample. Each page that it wrote to later counted once more.
    #[test]
    fn copies_of_inherited_pages_are_represented() {
        let at = 0x5000_0000;
        let inherited = |start: u64, inherited| {
            ((7, start, PAGE_SIZE), Followed { inherited, ..page(5, 10, 10, false) })
        };
        let is = |pages: [(FollowedKey, Followed); 2]| {
            is_copied(&BTreeMap::from(pages), (7, at, PAGE_SIZE), 6)
        };
        let before = |is_inherited| inherited(at - 0x10_0000, is_inherited);
        let after = inherited(at + 0x10_0000, true);
        assert!(is([before(true), after.clone()]));
        assert!(!is([before(false), after]), "new memory beside it");
    }

    #[test]
    fn a_smaller_sample_has_at_most_so_many_pages() {
        let sample = |most| smaller_sample([6, 6, 6, 7, 7, 9].into_iter(), most);
        assert_eq!([sample(6), sample(5), sample(3), sample(2), sample(0)], [0, 7, 7, 8, 10]);
    }

    #[test]
    fn memory_around_a_page_tells_whether_it_was_filled_again() {
        let mut unseen = [Nanos(0); LEVELS];
        unseen[6] = Nanos(5);
        let sides = |before: (i32, &Followed), after: &Followed| {
            let pages = [(before.0, 0x1000, before.1), (7, 0x9000, after)]
                .map(|(pid, at, page)| ((pid, at, PAGE_SIZE), page.clone()));
            let mut followed = BTreeMap::from(pages);
            let key = (7, 0x5000, PAGE_SIZE);
            followed.insert(key, page(1, 6, 6, false));
            sides_filled_again(&followed, key, &unseen)
        };
        let refilled = page(5, 7, 7, true);
        assert_eq!(sides((7, &refilled), &refilled), 2);
        assert_eq!(sides((7, &page(1, 7, 6, false)), &refilled), 1, "it ends here");
        let first = page(5, 7, 7, false);
        assert_eq!(sides((7, &first), &first), 0, "filled for the first time, in another order");
        assert_eq!(sides((8, &refilled), &refilled), 1, "another process");
    }

    #[test]
    fn equal_owners_are_kept_once_and_unused_ones_are_forgotten() {
        let range = AddrRange::new(0, PAGE_SIZE);
        let of = |frame: u64| Fault {
            frames: [frame].into(),
            ..change(TargetId(0), Nanos(0), FaultKind::Minor, range)
        };
        let mut owners = Owners::default();
        let used = owners.shared(&of(1));
        assert!(Arc::ptr_eq(&used, &owners.shared(&of(1))));
        (2..1000).for_each(|frame| drop(owners.shared(&of(frame))));
        assert!(owners.known.len() < 100, "{}", owners.known.len());
        assert!(Arc::ptr_eq(&used, &owners.shared(&of(1))));
    }

    /// A page belonged to whoever wrote to it next after a fork, or after it came back from the swap cache.
    #[test]
    fn a_write_after_a_fork_makes_no_new_owner() {
        let page = |resident| Followed {
            owner: Arc::default(),
            resident,
            since: Nanos(1),
            level: 6,
            shift: 6,
            again: false,
            frame: 0,
            forks: Some(3),
            inherited: false,
        };
        assert!(page(true).keeps_owner(4, false) && page(false).keeps_owner(3, false));
        assert!(!page(true).keeps_owner(3, false), "it was freed and filled again");
        // It kept the weight of a burst of reads, while others were sampled beside it.
        assert!(
            !page(true).keeps_owner(4, true),
            "a page of a file is written to for the first time"
        );
        let inherited = Followed { forks: None, ..page(true) };
        assert!(inherited.keeps_owner(0, true), "its process shared it with its parent");
    }

    /// The code that touched a page near it after the begin would own memory that was there before.
    #[test]
    fn pages_that_were_mapped_before_have_no_owner() {
        let mut process = Process::new(0, TargetId(0));
        assert!(process.may_map(0x1000));
        process.mapped_before =
            vec![AddrRange::new(0x1000, 0x3000), AddrRange::new(0x5000, 0x6000)];
        let may = [0, 0x1000, 0x2000, 0x3000, 0x5000, 0x6000].map(|at| process.may_map(at));
        assert_eq!(may, [true, false, false, true, false, true]);
    }

    /// Found by a review: after Ctrl-C, which ends the command too, all of its memory counted as freed.
    #[test]
    fn no_memory_is_freed_by_the_end_of_a_process() {
        let mut child = std::process::Command::new("cat");
        let mut child = child.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id().cast_signed();
        // The parent goes on before the program is there.
        let stack = loop {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
            let all = mappings(ROOT.as_ref(), pid).unwrap();
            match all.iter().find(|m| &*m.name == "[stack]") {
                Some(stack) if name == "cat\n" => break stack.range,
                _ => std::thread::yield_now(),
            }
        };
        let process = Process::new(pid, TargetId(0));
        let hole = 0x1000;
        assert_eq!(process.state(hole, None), PageState::Absent);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(process.state(stack.end - 8, None), PageState::Base);
    }

    /// Before Linux 6.7, memory that was dropped or paged out counted as resident.
    #[test]
    fn entries_and_flags_tell_the_state_of_a_page() {
        let (present, swapped) = (PagemapEntry(1 << 63 | 9), PagemapEntry(1 << 62 | 9));
        let state = |entry, flags: Option<u64>| state_of(entry, flags.map(PageFlags));
        assert_eq!(state(PagemapEntry(0), None), PageState::Absent);
        assert_eq!(state(swapped, None), PageState::Swapped);
        assert_eq!(state(present, None), PageState::Base, "without the right to read flags");
        assert_eq!(state(present, Some(1 << 24)), PageState::Absent, "the zero page");
        let (anonymous, tail) = (1 << 12, 1 << 16);
        assert_eq!(state(present, Some(anonymous)), PageState::Base);
        assert_eq!(state(present, Some(anonymous | tail)), PageState::Huge);
        assert_eq!(state(present, Some(tail)), PageState::Base, "of a file");
    }

    /// Another library at the address of one that was closed had the names of its functions.
    #[test]
    fn code_is_read_again_where_it_was_replaced() {
        let mut process = Process::new(0, TargetId(0));
        let second = |n: u64| Nanos(n * 1_000_000_000);
        assert!(process.should_read(&[0x1010], Nanos(0)), "nothing is known");
        let range = AddrRange::new(0x1000, 0x2000);
        let code = CodeMapping { range, offset: 0, path: "/a".into(), build_id: "".into() };
        process.code = Arc::new(vec![code]);
        process.read = (second(100), REREAD_MOST);
        assert!(!process.should_read(&[0x1010], second(300)));
        assert!(process.should_read(&[0x1010, 0x2010], second(164)));
        assert!(!process.should_read(&[0x1010, 0x2010], second(163)), "it generates code");
        process.mapped(AddrRange::new(0x2000, 0x3000));
        assert!(!process.should_read(&[0x1010], second(300)));
        // Found by a review: a library that was loaded later had no stacks for a minute.
        assert!(process.should_read(&[0x1010, 0x2010], second(101)));
        process.mapped(AddrRange::new(0x1800, 0x3000));
        assert!(process.should_read(&[0x1010], second(101)));
        assert!(!process.should_read(&[0x1010], second(100)), "at most once a second");
    }

    /// A process with 65,000 files could use the recorder's thread for most of the time: it mapped another one each second.
    #[test]
    fn code_that_takes_long_to_read_is_read_seldom() {
        let mut process = Process::new(0, TargetId(0));
        let second = |n: u64| Nanos(n * 1_000_000_000);
        (process.read, process.is_replaced) = ((second(100), REREAD), true);
        assert!(process.should_read(&[0x1010], second(101)));
        process.rest_after(Duration::from_secs(2), REREAD_MOST);
        assert!(!process.should_read(&[0x1010], second(139)));
        assert!(process.should_read(&[0x1010], second(140)));
        process.rest_after(Duration::from_secs(20), REREAD_MOST);
        assert!(process.should_read(&[0x1010], second(100) + REREAD_MOST), "stacks come back");
    }
}
