//! A process whose page tables are read by BPF.

use std::collections::HashSet;
use std::fs::File;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Block, Liveness, Mapping, MappingKind, Nanos, OpsError, PAGE_SIZE, PageMask,
};

use super::annotate::{annotate, mapping_at};
use super::busy::Busy;
use super::held::{AttachError, HeldProcess, no_refs, not_cleared, not_found, refused};
use super::touched::TouchHistory;
use crate::proc::{self, ClearRefs, Holdings, Pagemap};
use crate::sys::{MemoryAdvice, process_madvise};
use crate::walker::{Glance, Identity, MapChanges, WalkError, Walker};

/// isotherm checks the open descriptors once in this many readings of the mappings: a server may hold hundreds
/// of thousands.
pub(super) const HOLDINGS_EVERY: u32 = 10;
/// In areas without known shared pages, one in this many windows without a young page is checked for pages that
/// are mapped more than once. The check costs more than reading.
const SHARED_EVERY: u32 = 32;

/// A target of [`super::Vaddr`].
#[derive(Debug)]
pub(crate) struct VaddrTarget {
    held: HeldProcess,
    pub identity: Identity,
    /// `/proc/PID/maps`: while it is open, no later address space can have the same kernel address, so that a
    /// new address space always has another address.
    _space: File,
    /// Used where the walker does not know for every page how often it is mapped; `None` if not permitted or
    /// not needed.
    pagemap: Option<Pagemap>,
    pub mappings: Vec<Mapping>,
    /// change counts of the mappings at the time when they were read
    changes: Option<MapChanges>,
    holdings: Holdings,
    updates: u32,
    /// Mappings (by their start) with pages that are mapped more than once, found in the current period and in the
    /// previous one. A child that shared all memory may have ended since.
    sharing: [HashSet<u64>; 2],
    /// Private mappings of files (by their start): mostly code. Accesses of other processes through their own
    /// mappings are irrelevant to this process.
    private_files: HashSet<u64>,
    asked: u32,
    /// Clears all bits at once; `None` if that is not permitted.
    pub refs: Option<ClearRefs>,
    /// Whether clearing all bits at once would block the process for too long.
    pub stalls: bool,
    /// CPU time that the process had used when all bits were last cleared.
    pub ran_at_clear: Option<Duration>,
    busy: Busy,
    /// The areas that the current epoch observes.
    pub in_epoch: Vec<AddrRange>,
    /// CPU time that the process had used when the current epoch began.
    pub ran_at_flush: Duration,
    /// Number of actions on this process.
    pub acts: u64,
    /// When its pages were last touched; `None` until a caller requests this.
    pub touched: Option<TouchHistory>,
    /// when the monitor last cleared pages of its choice
    pub cleared: Option<Nanos>,
}

impl Deref for VaddrTarget {
    type Target = HeldProcess;
    fn deref(&self) -> &HeldProcess {
        &self.held
    }
}

impl VaddrTarget {
    /// Holds process `pid` and checks that isotherm can observe it: with `cold`, that it may clear by advice,
    /// otherwise that it may clear all bits at once.
    pub fn attach(
        walker: &mut Walker,
        root: &Path,
        pid: i32,
        cold: bool,
    ) -> Result<Self, AttachError> {
        let held = HeldProcess::take(root, pid)?;
        let identity = walker.glance(pid).map_err(|e| not_found(&held, e))?.identity;
        let space = proc::open_maps(root, pid).map_err(|e| refused(pid, e))?;
        let refs = ClearRefs::open(root, pid);
        let refs = if cold {
            // There is nothing to clear yet, but the call still reports whether clearing is permitted.
            process_madvise(held.pidfd.as_fd(), &[], MemoryAdvice::Cold)
                .map_err(|e| not_cleared(pid, e))?;
            refs.ok()
        } else {
            Some(refs.map_err(|e| no_refs(pid, e))?)
        };
        if held.has_ended() {
            return Err(AttachError::NoProcess(pid));
        }
        Ok(VaddrTarget {
            held,
            identity,
            _space: space,
            pagemap: open_pagemap(walker, root, pid),
            mappings: Vec::new(),
            changes: None,
            holdings: Holdings::default(),
            updates: 0,
            sharing: Default::default(),
            private_files: HashSet::new(),
            asked: 0,
            refs,
            stalls: false,
            ran_at_clear: None,
            busy: Busy::begin(pid),
            in_epoch: Vec::new(),
            ran_at_flush: Duration::ZERO,
            acts: 0,
            touched: None,
            cleared: None,
        })
    }

    /// Detects an `exec`, and reads the mappings again.
    pub fn update(&mut self, walker: &mut Walker) -> Result<Liveness, AttachError> {
        let (root, pid) = (&self.held.root, self.held.pid);
        let glance = walker.glance(pid)?;
        let identity = glance.identity;
        if identity.start_boottime != self.identity.start_boottime {
            return Ok(Liveness::Gone);
        }
        let replaced = identity.mm != self.identity.mm;
        if replaced {
            self._space = proc::open_maps(root, pid).map_err(|e| refused(pid, e))?;
            self.identity = identity;
            self.pagemap = open_pagemap(walker, root, pid);
            self.forget_mappings();
            self.holdings = Holdings::default();
            self.updates = 0;
            self.ran_at_clear = None;
            self.in_epoch.clear();
            self.sharing = Default::default();
            self.touched = None;
        }
        match self.read_mappings(walker, &glance) {
            // The caller must learn of the new program at once.
            Err(e) if replaced && e.is_passing() => self.postpone(&e),
            read => read?,
        }
        Ok(match (self.has_ended(), replaced) {
            (true, _) => Liveness::Gone,
            (_, true) => Liveness::Replaced,
            _ => Liveness::Alive,
        })
    }

    /// Reads the mappings again if the address space is the known one, and returns whether it is.
    /// [`VaddrTarget::update`] still reports a later `exec`.
    pub fn refresh(&mut self, walker: &mut Walker) -> Result<bool, AttachError> {
        let glance = walker.glance(self.held.pid)?;
        let same = glance.identity == self.identity;
        if same {
            self.read_mappings(walker, &glance)?;
        }
        Ok(same && !self.has_ended())
    }

    /// Returns `read` if it comes from the known address space of this process. None if the process has ended,
    /// runs another program now, or cannot be read for a temporary reason. `of` returns the identity of the
    /// process from which `read` comes, if anything was read.
    pub fn as_it_was<T>(
        &self,
        read: Result<T, WalkError>,
        of: impl FnOnce(&T) -> Option<Identity>,
    ) -> Result<Option<T>, OpsError> {
        match read {
            Ok(read) => Ok(of(&read).is_none_or(|of| of == self.identity).then_some(read)),
            Err(e) if e.is_gone() => Ok(None),
            Err(e) if e.is_transient() => {
                self.postpone(&e);
                Ok(None)
            }
            Err(e) => Err(OpsError::Failed(e.to_string())),
        }
    }

    /// Reads the mappings, unless they are unchanged since the last `glance`. Every `HOLDINGS_EVERY` calls they
    /// are read in any case: the name of a file can change without a change of the mappings.
    fn read_mappings(&mut self, walker: &mut Walker, glance: &Glance) -> Result<(), AttachError> {
        let (root, pid) = (&self.held.root, self.held.pid);
        self.busy.threads = glance.threads;
        let in_turn = self.updates.is_multiple_of(HOLDINGS_EVERY);
        if !in_turn && glance.changes.is_some() && glance.changes == self.changes {
            self.updates = self.updates.wrapping_add(1);
            return Ok(());
        }
        // Until everything is read, no mapping counts as unchanged.
        self.changes = None;
        if in_turn {
            self.holdings = walker.holdings(root, pid, &self.holdings)?;
            self.stalls = false;
            self.sharing = [HashSet::new(), std::mem::take(&mut self.sharing[0])];
        }
        self.updates = self.updates.wrapping_add(1);
        let mappings = self.held.mappings()?;
        let starts: Vec<u64> = mappings.iter().map(|m| m.range.start).collect();
        let flags = walker.vma_flags(pid, &starts)?;
        self.private_files = private_files(&mappings, &flags).collect();
        let mut mappings = annotate(mappings, &flags, &self.mappings, &self.holdings);
        // Unchanged mappings share their names with the copies that callers already have.
        if mappings != self.mappings {
            mappings.shrink_to_fit();
            self.mappings = mappings;
        }
        let all_told = flags.iter().all(Option::is_some);
        self.changes = glance.changes.filter(|_| all_told);
        let VaddrTarget { sharing, mappings, touched, .. } = self;
        let is_mapped =
            |start: &u64| mappings.binary_search_by_key(start, |m| m.range.start).is_ok();
        sharing.iter_mut().for_each(|starts| starts.retain(is_mapped));
        if let Some(touched) = touched.as_mut().filter(|_| self.updates % HOLDINGS_EVERY == 1) {
            let next = |addr| mappings.partition_point(|m| m.range.end <= addr);
            touched.keep(|b| mappings.get(next(b.start)).is_some_and(|m| m.range.start < b.end));
        }
        Ok(())
    }

    /// Forgets all mappings until they are read again.
    pub fn forget_mappings(&mut self) {
        self.mappings.clear();
        self.changes = None;
    }

    /// Records that the `young` pages of the block at `start` were young at `now`, and are cleared.
    pub fn note_touched(&mut self, start: u64, young: &PageMask, now: Nanos) {
        if let Some(touched) = &mut self.touched {
            touched.note(start, young, now);
        }
    }

    /// Records the result of reading a block.
    pub fn note_read(&mut self, block: &Block) {
        if let Some(touched) = &mut self.touched {
            touched.read(block.start, &block.resident, &block.young, block.read_at);
        }
    }

    /// The mean number of CPUs on which the process has run since the last call.
    pub fn running(&mut self) -> u32 {
        self.busy.cpus(self.held.pid)
    }

    /// The mapping that contains `addr`.
    pub fn mapping_at(&self, addr: u64) -> Option<&Mapping> {
        mapping_at(&self.mappings, addr)
    }

    /// Whether processes that are not watched may use the memory of the mapping at `area` in a way that is
    /// relevant to this process.
    pub fn has_strangers(&self, area: u64) -> bool {
        !self.private_files.contains(&area)
    }

    /// Which of `pages`, counted from `start`, are mapped more than once. `mapped` returns the number of
    /// entries that map a page. Where it returns none, pagemap is read. Pages that pagemap does not cover
    /// either count as shared, and are therefore unknown. An area with known shared pages inside `noted` is
    /// remembered.
    pub fn shared(
        &mut self,
        start: u64,
        pages: &PageMask,
        (noted, area): (PageMask, u64),
        mapped: impl Fn(usize) -> Option<u32>,
    ) -> PageMask {
        let (mut shared, mut open) = (PageMask::default(), PageMask::default());
        for page in pages.iter() {
            match mapped(page) {
                Some(1) => {}
                None => open.insert(page),
                Some(_) => shared.insert(page),
            }
        }
        let ends = open.iter().next().zip(open.iter().last());
        if let (Some(pagemap), Some((first, last))) = (&mut self.pagemap, ends) {
            let last = last as u64 + 1;
            let range = AddrRange::new(start + first as u64 * PAGE_SIZE, start + last * PAGE_SIZE);
            let (asked, mut answered) = (open, PageMask::default());
            for (page, entry) in (first..).zip(pagemap.read(range)) {
                answered.insert(page);
                if asked.contains(page) && entry.is_present() && !entry.is_exclusive() {
                    shared.insert(page);
                }
            }
            open = asked.without(&answered);
        }
        self.note_shared(shared.and(&noted), area);
        shared.or(&open)
    }

    /// The same for a huge page. `alone` is whether one entry maps it, if that is known.
    pub fn is_huge_shared(&mut self, start: u64, area: u64, alone: Option<bool>) -> bool {
        let first = PageMask::span(0, 1);
        let mapped = |_| alone.map(|alone| if alone { 1 } else { 2 });
        !self.shared(start, &first, (first, area), mapped).is_empty()
    }

    /// Whether pages that are mapped more than once were found in the mapping at `area`.
    pub fn is_sharing(&self, area: u64) -> bool {
        self.sharing.iter().any(|starts| starts.contains(&area))
    }

    /// Remembers the area if any of these pages is mapped more than once.
    fn note_shared(&mut self, shared: PageMask, area: u64) {
        if !shared.is_empty() {
            self.sharing[0].insert(area);
        }
    }

    /// Whether to check which pages of a window are mapped more than once, even if none is young (a young page may
    /// stay young forever). That is always where such pages were found, otherwise once in `SHARED_EVERY` calls.
    pub fn asks_for_shared(&mut self, area: u64) -> bool {
        self.asked = self.asked.wrapping_add(1);
        self.is_sharing(area) || self.asked.is_multiple_of(SHARED_EVERY)
    }
}

fn open_pagemap(walker: &Walker, root: &Path, pid: i32) -> Option<Pagemap> {
    if walker.counts_pages() { None } else { Pagemap::open(root, pid).ok() }
}

fn private_files(mappings: &[Mapping], flags: &[Option<u64>]) -> impl Iterator<Item = u64> {
    const VM_SHARED: u64 = 8;
    let files = mappings.iter().zip(flags).filter(|(m, _)| m.kind == MappingKind::File);
    let private = files.filter(|(_, flags)| flags.is_some_and(|f| f & VM_SHARED == 0));
    private.map(|(m, _)| m.range.start)
}
