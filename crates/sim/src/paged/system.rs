//! The machine: memory by a kernel's rules, the owners of pages, a disk, and the time that each operation
//! requires.

use isotherm_mm::{Memory, Rules, ZoneStats};
use serde::Serialize;

use super::ages::Ages;
use super::bus::Bus;
use super::disk::{Disk, DiskStats};
use super::owners::{Owners, Swap};
use super::spec::{MachineSpec, SpecError};
use super::writeback::DirtyPages;
use crate::random::mix;

/// A task at work: its CPU and its time, in ns.
#[derive(Debug, Clone, Copy)]
pub struct Actor {
    /// its CPU
    pub cpu: u32,
    /// its time, which advances as it works
    pub now: u64,
}

/// Counters of operations on pages of files and of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PageEvents {
    /// pages of files read
    pub reads: u64,
    /// of these, pages read from the disk
    pub fetched: u64,
    /// pages of files written
    pub writes: u64,
    /// accesses of processes
    pub touches: u64,
    /// accesses that required a new page first
    pub faults: u64,
    /// busy time of the kswapds, in ns
    pub kswapd_ns: u64,
    /// time for direct reclaim, in ns
    pub stalled_ns: u64,
}

impl PageEvents {
    /// The increase since `before`.
    #[must_use]
    pub fn since(&self, before: &PageEvents) -> PageEvents {
        PageEvents {
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
    /// by file: its start on the disk, in pages
    pub(super) file_at: Vec<u64>,
    /// pages that are dirty or being written
    pub(super) dirty_pages: i64,
    pub(super) bus: Bus,
    /// by node: the time until which its kswapd has run
    pub(super) kswapd_at: Vec<u64>,
    pub(super) cpu_free_at: Vec<u64>,
    pub(super) now: u64,
    pub(super) folded_at: u64,
    pub(super) counts: PageEvents,
    pub(super) ages: Option<Ages>,
    pub(super) seed: u64,
}

impl PagedMachine {
    /// A machine with all memory free at time 0. The same seed and the same tasks give the same results.
    ///
    /// # Errors
    /// If the machine is invalid.
    pub fn new(spec: &MachineSpec, rules: Rules, seed: u64) -> Result<Self, SpecError> {
        spec.check()?;
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
            bus: Bus::new(spec),
            kswapd_at: vec![0; nodes],
            cpu_free_at: vec![0; spec.cpus as usize],
            now: 0,
            folded_at: 0,
            counts: PageEvents::default(),
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

    /// Counters of operations so far.
    #[must_use]
    pub fn counts(&self) -> PageEvents {
        self.counts
    }

    /// Pages of all zones.
    #[must_use]
    pub fn layout_pages(&self) -> i64 {
        self.memory.zones().iter().map(|z| z.managed).sum()
    }

    /// Counters of its disk.
    #[must_use]
    pub fn disk(&self) -> DiskStats {
        self.disk.stats
    }

    /// Pages in swap, pages written to swap so far, and pages read back so far.
    #[must_use]
    pub fn swapped(&self) -> (u64, u64, u64) {
        self.owners.swap.as_ref().map_or((0, 0, 0), |s| (s.used, s.out, s.back))
    }

    /// Counters of each zone.
    #[must_use]
    pub fn zone_stats(&self) -> Vec<ZoneStats> {
        self.memory.zones().iter().map(|z| z.stats).collect()
    }

    /// Records the ages of reclaimed pages from now on, in steps of `step_ns`.
    pub fn keep_ages(&mut self, step_ns: u64) {
        self.memory.note_departures();
        self.ages = Some(Ages::new(self.memory.zones().len(), step_ns));
    }

    /// The recorded ages.
    #[must_use]
    pub fn ages(&self) -> Option<&Ages> {
        self.ages.as_ref()
    }

    /// Adds an empty file of `pages` pages, after the existing ones on the disk.
    pub fn add_file(&mut self, pages: usize) -> usize {
        let last = self.file_at.len().checked_sub(1);
        let end = last.map_or(0, |i| self.file_at[i] + self.owners.file_len(i) as u64);
        self.file_at.push(end);
        self.dirty.push(DirtyPages::new(pages));
        self.owners.add_file(pages)
    }

    /// Adds a process of `pages` pages, none of which is allocated yet.
    pub fn add_process(&mut self, pages: usize) -> usize {
        self.owners.add_process(pages)
    }

    /// Ends a process, and frees its pages in memory and in swap.
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
}
