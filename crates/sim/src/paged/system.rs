//! The machine: memory by a kernel's rules, who has it, a disk, and what all of that takes.

use isotherm_mm::{
    FrameId, Memory, OutOfMemory, PageKind, Request, Rules, Work, ZoneKind, ZoneStats,
};
use serde::Serialize;

use super::ages::Ages;
use super::disk::{Disk, DiskStats};
use super::owners::{Entry, Owner, Owners, Swap};
use super::spec::{MachineSpec, SpecError};
use super::writeback::{DirtyLimits, DirtyPages};
use crate::random::mix;

const PAGE_BYTES: u64 = 4096;
/// What a processor reads at a time.
const LINE_BYTES: u64 = 64;
/// CPUs hand in their counts so often, in ns.
const FOLD_NS: u64 = 1_000_000_000;

/// Who acts, and how late it is for them, in ns.
#[derive(Debug, Clone, Copy)]
pub struct Actor {
    /// on which CPU
    pub cpu: u32,
    /// the time, which passes as they act
    pub now: u64,
}

/// What was done to pages of files and of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// pages of files read
    pub reads: u64,
    /// of these, brought from the disk
    pub fetched: u64,
    /// pages of files written
    pub writes: u64,
    /// accesses of processes
    pub touches: u64,
    /// that had to be given a page first
    pub faults: u64,
    /// time that kswapds were busy, in ns
    pub kswapd_ns: u64,
    /// time that those who allocate reclaimed for it, in ns
    pub stalled_ns: u64,
}

impl Counts {
    /// What was done since `before`.
    #[must_use]
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            reads: self.reads - before.reads,
            fetched: self.fetched - before.fetched,
            writes: self.writes - before.writes,
            touches: self.touches - before.touches,
            faults: self.faults - before.faults,
            kswapd_ns: self.kswapd_ns - before.kswapd_ns,
            stalled_ns: self.stalled_ns - before.stalled_ns,
        }
    }
}

/// A simulated machine whose memory may run short. Its [`Memory`] follows a kernel's rules.
#[derive(Debug)]
pub struct PagedMachine {
    pub(super) spec: MachineSpec,
    pub(super) memory: Memory,
    pub(super) owners: Owners,
    pub(super) disk: Disk,
    /// by file
    pub(super) dirty: Vec<DirtyPages>,
    /// by file: where on the disk it begins, in pages
    file_at: Vec<u64>,
    /// pages that are dirty or being written
    pub(super) dirty_pages: i64,
    /// by node: until when its memory is busy
    bus: Vec<u64>,
    /// by node: until when its kswapd has run
    kswapd_at: Vec<u64>,
    pub(super) cpu_free_at: Vec<u64>,
    pub(super) now: u64,
    folded_at: u64,
    pub(super) counts: Counts,
    ages: Option<Ages>,
    pub(super) seed: u64,
}

impl PagedMachine {
    /// All memory free at time zero. The same seed and the same tasks do the same.
    ///
    /// # Errors
    /// If there can be no such machine.
    pub fn new(spec: &MachineSpec, rules: Rules, seed: u64) -> Result<Self, SpecError> {
        let mut memory = Memory::new(&spec.layout(), rules)?;
        memory.set_swap(spec.swap.is_some());
        let mut owners = Owners::default();
        owners.swap = spec.swap.map(Swap::new);
        let nodes = spec.nodes.len();
        Ok(PagedMachine {
            memory,
            owners,
            disk: Disk::new(spec.disk, mix(seed, 1)),
            dirty: Vec::new(),
            file_at: Vec::new(),
            dirty_pages: 0,
            bus: vec![0; nodes],
            kswapd_at: vec![0; nodes],
            cpu_free_at: vec![0; spec.cpus as usize],
            now: 0,
            folded_at: 0,
            counts: Counts::default(),
            ages: None,
            seed,
            spec: spec.clone(),
        })
    }

    /// The time, in ns.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Its memory.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// What was done to pages so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Pages of all zones.
    #[must_use]
    pub fn layout_pages(&self) -> i64 {
        self.memory.zones().iter().map(|z| z.managed).sum()
    }

    /// What its disk has done.
    #[must_use]
    pub fn disk(&self) -> DiskStats {
        self.disk.stats
    }

    /// Pages in swap, put there and brought back so far.
    #[must_use]
    pub fn swapped(&self) -> (u64, u64, u64) {
        self.owners.swap.as_ref().map_or((0, 0, 0), |s| (s.used, s.out, s.back))
    }

    /// What has happened in each zone.
    #[must_use]
    pub fn zone_stats(&self) -> Vec<ZoneStats> {
        self.memory.zones().iter().map(|z| z.stats).collect()
    }

    /// From now on, the ages of pages taken back are kept, by the `step_ns` in which they were.
    pub fn keep_ages(&mut self, step_ns: u64) {
        self.memory.note_departures();
        self.ages = Some(Ages::new(self.memory.zones().len(), step_ns));
    }

    /// The ages kept.
    #[must_use]
    pub fn ages(&self) -> Option<&Ages> {
        self.ages.as_ref()
    }

    /// An empty place for a file of so many pages, behind those that are there on the disk.
    pub fn add_file(&mut self, pages: usize) -> usize {
        let last = self.file_at.len().checked_sub(1);
        let end = last.map_or(0, |i| self.file_at[i] + self.owners.file_len(i) as u64);
        self.file_at.push(end);
        self.dirty.push(DirtyPages::new(pages));
        self.owners.add_file(pages)
    }

    /// A process with so many pages, none of which is there yet.
    pub fn add_process(&mut self, pages: usize) -> usize {
        self.owners.add_process(pages)
    }

    /// Ends a process: its pages are free, in memory and in swap.
    pub fn end_process(&mut self, process: usize) {
        for frame in self.owners.drop_process(process) {
            self.memory.free(0, frame);
        }
        self.settle_swap();
    }

    /// Drops all clean pages of files, as `vm.drop_caches` does.
    pub fn drop_caches(&mut self) {
        for file in 0..self.owners.files() {
            for frame in self.owners.drop_file(file) {
                if self.memory.is_dirty(frame) {
                    let owner = self.memory.owner_of(frame);
                    let page = usize::try_from(owner & 0xff_ffff_ffff).unwrap_or(0);
                    self.owners.cache(file, page, frame);
                } else {
                    self.memory.free(0, frame);
                }
            }
        }
    }

    /// Where a page of a file is on the disk.
    pub(super) fn place(&self, file: usize, page: usize) -> u64 {
        self.file_at[file] + page as u64
    }

    /// Reads a page of a file, if it is in memory; whether it is.
    pub(super) fn read_cached(&mut self, actor: &mut Actor, file: usize, page: usize) -> bool {
        let Some(frame) = self.owners.cached(file, page) else { return false };
        self.counts.reads += 1;
        self.memory.mark_accessed(frame);
        self.copy(actor, frame);
        true
    }

    /// Makes room for up to `window` pages of a file that are not in memory, from `page` on; how
    /// many are to be brought from the disk.
    pub(super) fn make_room(
        &mut self,
        actor: &mut Actor,
        file: usize,
        page: usize,
        window: usize,
    ) -> Result<usize, OutOfMemory> {
        let end = (page + window.max(1)).min(self.owners.file_len(file));
        let mut next = page;
        while next < end && self.owners.cached(file, next).is_none() {
            let owner = Owner::File(file, next);
            match self.allocate(actor, Some(PageKind::File), owner, false) {
                Ok(frame) => self.owners.cache(file, next, frame),
                Err(e) if next == page => return Err(e),
                Err(_) => break,
            }
            next += 1;
        }
        self.counts.fetched += (next - page) as u64;
        Ok(next - page)
    }

    /// Writes a whole page of a file.
    pub(super) fn write(
        &mut self,
        actor: &mut Actor,
        file: usize,
        page: usize,
    ) -> Result<(), OutOfMemory> {
        let frame = match self.owners.cached(file, page) {
            Some(frame) => frame,
            None => {
                let owner = Owner::File(file, page);
                let frame = self.allocate(actor, Some(PageKind::File), owner, true)?;
                self.owners.cache(file, page, frame);
                frame
            }
        };
        self.counts.writes += 1;
        self.memory.mark_accessed(frame);
        if self.dirty[file].insert(page) && !self.memory.is_dirty(frame) {
            self.dirty_pages += 1;
        }
        self.memory.set_dirty(frame);
        self.copy(actor, frame);
        Ok(())
    }

    /// A page of a file was written to the disk.
    pub(super) fn written(&mut self, file: usize, page: usize) {
        let again = self.dirty[file].contains(page);
        if let Some(frame) = self.owners.cached(file, page).filter(|_| !again) {
            self.dirty_pages -= i64::from(self.memory.is_dirty(frame));
            self.memory.set_clean(frame);
        }
    }

    /// An access of a process to a page of its own.
    #[inline]
    pub(super) fn touch(
        &mut self,
        actor: &mut Actor,
        process: usize,
        page: usize,
    ) -> Result<(), OutOfMemory> {
        let entry = &mut self.owners.processes[process][page];
        self.counts.touches += 1;
        entry.accessed = true;
        if !entry.is_present() {
            self.fault(actor, process, page)?;
        }
        let node = usize::from(self.owners.processes[process][page].node);
        self.access(actor, node, LINE_BYTES);
        Ok(())
    }

    fn fault(&mut self, actor: &mut Actor, process: usize, page: usize) -> Result<(), OutOfMemory> {
        self.counts.faults += 1;
        actor.now += u64::from(self.spec.costs.fault_ns);
        let owner = Owner::Process(process, page);
        let frame = self.allocate(actor, Some(PageKind::Anon), owner, false)?;
        let was_swapped = self.owners.processes[process][page].swapped;
        if let Some(swap) = self.owners.swap.as_mut().filter(|_| was_swapped) {
            actor.now += swap.bring();
        }
        self.memory.set_mapped(frame, true);
        let node = self.memory.zones()[self.memory.zone_of(frame)].node;
        self.owners.processes[process][page] = Entry::new(frame, node);
        Ok(())
    }

    fn allocate(
        &mut self,
        actor: &mut Actor,
        kind: Option<PageKind>,
        owner: Owner,
        write: bool,
    ) -> Result<FrameId, OutOfMemory> {
        let before = self.memory.stats().passes;
        let request = Request {
            cpu: actor.cpu,
            node: self.node_of(actor.cpu),
            class: ZoneKind::Movable,
            kind,
            write,
            owner: owner.encode(),
        };
        let allocated = self.memory.allocate(request, &mut self.owners)?;
        let passes = self.memory.stats().passes - before;
        let costs = self.spec.costs;
        let stalled = self.scan_ns(allocated.stalled) + self.swap_debt();
        self.counts.stalled_ns += stalled;
        actor.now += u64::from(costs.allocation_ns) + passes * u64::from(costs.pass_ns) + stalled;
        Ok(allocated.frame)
    }

    /// The node that a CPU belongs to: they are shared out evenly.
    fn node_of(&self, cpu: u32) -> usize {
        (cpu % self.spec.cpus) as usize * self.bus.len() / self.spec.cpus as usize
    }

    fn scan_ns(&self, work: Work) -> u64 {
        work.scanned * 1_000_000_000 / u64::from(self.spec.costs.kswapd_pages_s)
    }

    fn swap_debt(&mut self) -> u64 {
        self.owners.swap.as_mut().map_or(0, |s| std::mem::take(&mut s.owed_ns))
    }

    fn copy(&mut self, actor: &mut Actor, frame: FrameId) {
        actor.now += u64::from(self.spec.costs.page_ns);
        let node = self.memory.zones()[self.memory.zone_of(frame)].node;
        self.access(actor, node, PAGE_BYTES);
    }

    /// Bytes from a node's memory: in turn with all others who want some, then on their way.
    #[inline]
    fn access(&mut self, actor: &mut Actor, node: usize, bytes: u64) {
        let spec = &self.spec.nodes[node];
        let from = self.node_of(actor.cpu);
        let distance = match self.spec.nodes[from].distances.get(node) {
            Some(&distance) => distance,
            None if from == node => 10,
            None => 20,
        };
        let busy = bytes * 1000 / u64::from(spec.bandwidth_mb_s);
        self.bus[node] = self.bus[node].max(actor.now) + busy;
        actor.now = self.bus[node] + u64::from(spec.latency_ns * distance / 10);
    }

    /// Lets kswapds do what they can up to `now`, and what is due by then.
    pub(super) fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
        self.memory.set_now(self.now);
        for node in 0..self.kswapd_at.len() {
            self.advance_kswapd(node);
        }
        if self.now >= self.folded_at + FOLD_NS {
            self.folded_at = self.now;
            self.memory.fold_counters();
        }
        if let Some(ages) = &mut self.ages {
            self.memory.drain_departures().for_each(|d| ages.push(&d));
        }
        self.settle_swap();
    }

    fn advance_kswapd(&mut self, node: usize) {
        let speed = u64::from(self.spec.costs.kswapd_pages_s);
        if !self.memory.is_kswapd_awake(node) {
            self.kswapd_at[node] = self.now;
            return;
        }
        let time = self.now.saturating_sub(self.kswapd_at[node]);
        let pages = u128::from(time) * u128::from(speed) / 1_000_000_000;
        let pages = u64::try_from(pages).unwrap_or(u64::MAX);
        if pages == 0 {
            return;
        }
        let work = self.memory.run_kswapd(node, pages, &mut self.owners);
        let busy = self.scan_ns(work) + self.swap_debt();
        self.counts.kswapd_ns += busy;
        // What was more than there was time for is missing next time.
        self.kswapd_at[node] = self.now.max(self.kswapd_at[node] + busy);
    }

    /// Compressed pages take pages that stay, as far as there are some.
    fn settle_swap(&mut self) {
        let Some(swap) = &self.owners.swap else { return };
        let (wanted, has) = (swap.pool_wanted(), swap.pool.len() as u64);
        for _ in has..wanted {
            let mut kernel = Actor { cpu: 0, now: self.now };
            let owner = Owner::File(0, 0);
            let Ok(frame) = self.allocate(&mut kernel, None, owner, false) else { break };
            if let Some(swap) = &mut self.owners.swap {
                swap.pool.push(frame);
            }
        }
        for _ in wanted..has {
            let page = self.owners.swap.as_mut().and_then(|s| s.pool.pop());
            page.into_iter().for_each(|frame| self.memory.free(0, frame));
        }
    }

    /// How much may be dirty now.
    pub(super) fn dirty_limits(&self) -> DirtyLimits {
        let zones = self.memory.zones().iter();
        DirtyLimits::of(zones.map(|z| (z.free.read() - z.watermarks.high).max(0) + z.file).sum())
    }
}
