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
use super::held::{AttachError, Held, no_refs, not_cleared, not_found, refused};
use super::touched::Touched;
use crate::proc::{self, ClearRefs, Holdings, Pagemap};
use crate::sys::{Advice, process_madvise};
use crate::walker::{Glance, Identity, MapChanges, WalkError, Walker};

/// Descriptors are looked through every so many readings of the mappings: a server may hold
/// hundreds of thousands.
pub(super) const HOLDINGS_EVERY: u32 = 10;
/// Of the windows in areas where no page is known to be mapped more than once, and in which no page
/// is young, one in so many is asked for such pages: asking costs more than reading.
const SHARED_EVERY: u32 = 32;

/// A target of [`super::Vaddr`].
#[derive(Debug)]
pub(crate) struct Process {
    held: Held,
    pub identity: Identity,
    /// `/proc/PID/maps`: as long as it is open, no later address space can lie where this one does, so
    /// that a new one is always told by its place.
    _space: File,
    /// Where the walker does not tell of every page who maps it, if that is allowed.
    pagemap: Option<Pagemap>,
    pub mappings: Vec<Mapping>,
    /// of when they were read
    changes: Option<MapChanges>,
    holdings: Holdings,
    updates: u32,
    /// Mappings (by their start) in which pages mapped more than once have been seen lately, and
    /// before that: a child that shared everything may have gone.
    sharing: [HashSet<u64>; 2],
    /// Private mappings of files (by their start): code above all. What others do with their own is
    /// no affair of this process.
    private_files: HashSet<u64>,
    asked: u32,
    /// For clearing all at once; `None` if that is not allowed.
    pub refs: Option<ClearRefs>,
    /// Whether clearing all at once would hold the process up for too long.
    pub stalls: bool,
    /// CPU time that it had used when all was cleared.
    pub ran_at_clear: Option<Duration>,
    busy: Busy,
    /// What the epoch under way looks at.
    pub in_epoch: Vec<AddrRange>,
    /// CPU time that it had used when that began.
    pub ran_at_flush: Duration,
    /// How often it was acted on.
    pub acts: u64,
    /// When its pages were last touched, once somebody has asked for that.
    pub touched: Option<Touched>,
}

impl Deref for Process {
    type Target = Held;
    fn deref(&self) -> &Held {
        &self.held
    }
}

impl Process {
    /// Takes hold of process `pid` and tries what looking takes: with `cold`, clearing by advice, else
    /// clearing all at once.
    pub fn attach(
        walker: &mut Walker,
        root: &Path,
        pid: i32,
        cold: bool,
    ) -> Result<Self, AttachError> {
        let held = Held::take(root, pid)?;
        let identity = walker.identity(pid).map_err(|e| not_found(&held, e))?;
        let space = proc::open_maps(root, pid).map_err(|e| refused(pid, e))?;
        let refs = ClearRefs::open(root, pid);
        let refs = if cold {
            // Nothing to clear yet: whether it would be allowed is told all the same.
            process_madvise(held.pidfd.as_fd(), &[], Advice::Cold)
                .map_err(|e| not_cleared(pid, e))?;
            refs.ok()
        } else {
            Some(refs.map_err(|e| no_refs(pid, e))?)
        };
        if held.has_ended() {
            return Err(AttachError::NoProcess(pid));
        }
        Ok(Process {
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
        })
    }

    /// Notes an `exec`, and reads the mappings anew.
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
            // That it is another program now has to be told at once.
            Err(e) if replaced && e.is_transient() => self.postpone(&e),
            read => read?,
        }
        Ok(match (self.has_ended(), replaced) {
            (true, _) => Liveness::Gone,
            (_, true) => Liveness::Replaced,
            _ => Liveness::Alive,
        })
    }

    /// Reads the mappings anew if the address space is the one that is known; returns whether it is. An
    /// `exec` stays to be told by [`Process::update`].
    pub fn refresh(&mut self, walker: &mut Walker) -> Result<bool, AttachError> {
        let glance = walker.glance(self.held.pid)?;
        let same = glance.identity == self.identity;
        if same {
            self.read_mappings(walker, &glance)?;
        }
        Ok(same && !self.has_ended())
    }

    /// What was `read`, if it is of this process as it was: none if that has ended, is another program
    /// by now, or cannot be read for a reason that passes. `of` tells whose it is, if anything was read.
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

    /// Reads the mappings, unless they are as they were at the last `glance`. Now and then they are read all
    /// the same: the name of a file changes without them.
    fn read_mappings(&mut self, walker: &mut Walker, glance: &Glance) -> Result<(), AttachError> {
        let (root, pid) = (&self.held.root, self.held.pid);
        self.busy.threads = glance.threads;
        let in_turn = self.updates.is_multiple_of(HOLDINGS_EVERY);
        if !in_turn && glance.changes.is_some() && glance.changes == self.changes {
            self.updates = self.updates.wrapping_add(1);
            return Ok(());
        }
        // Until all is read, nothing is known to be unchanged.
        self.changes = None;
        if in_turn {
            self.holdings = walker.holdings(root, pid, &self.holdings)?;
            self.stalls = false;
            self.sharing = [HashSet::new(), std::mem::take(&mut self.sharing[0])];
        }
        self.updates = self.updates.wrapping_add(1);
        let mappings = proc::mappings(root, pid)?;
        let starts: Vec<u64> = mappings.iter().map(|m| m.range.start).collect();
        let flags = walker.vma_flags(pid, &starts)?;
        self.private_files = private_files(&mappings, &flags).collect();
        let mut mappings = annotate(mappings, &flags, &self.mappings, &self.holdings);
        // Those that have not changed share their names with whoever was told of them before.
        if mappings != self.mappings {
            mappings.shrink_to_fit();
            self.mappings = mappings;
        }
        let all_told = flags.iter().all(Option::is_some);
        self.changes = glance.changes.filter(|_| all_told);
        let Process { sharing, mappings, touched, .. } = self;
        let is_mapped =
            |start: &u64| mappings.binary_search_by_key(start, |m| m.range.start).is_ok();
        sharing.iter_mut().for_each(|starts| starts.retain(is_mapped));
        if let Some(touched) = touched.as_mut().filter(|_| self.updates % HOLDINGS_EVERY == 1) {
            let next = |addr| mappings.partition_point(|m| m.range.end <= addr);
            touched.keep(|b| mappings.get(next(b.start)).is_some_and(|m| m.range.start < b.end));
        }
        Ok(())
    }

    /// Knows of no mappings until they are read again.
    pub fn forget_mappings(&mut self) {
        self.mappings.clear();
        self.changes = None;
    }

    /// Writes down that these pages of the block from `start` on were young, and are cleared.
    pub fn note_touched(&mut self, start: u64, young: &PageMask, now: Nanos) {
        if let Some(touched) = &mut self.touched {
            touched.note(start, young, now);
        }
    }

    /// Takes in what was read of a block.
    pub fn note_read(&mut self, block: &Block) {
        if let Some(touched) = &mut self.touched {
            touched.read(block.start, &block.resident, &block.young, block.read_at);
        }
    }

    /// On how many CPUs it has run since this was asked last.
    pub fn running(&mut self) -> u32 {
        self.busy.cpus(self.held.pid)
    }

    /// The mapping that holds `addr`.
    pub fn mapping_at(&self, addr: u64) -> Option<&Mapping> {
        mapping_at(&self.mappings, addr)
    }

    /// Whether memory in the mapping that begins at `area` may be used by processes that are not watched
    /// in a way that matters to this one.
    pub fn has_strangers(&self, area: u64) -> bool {
        !self.private_files.contains(&area)
    }

    /// Which of these `pages` from `start` on are mapped more than once: `mapped` tells by how many entries a
    /// page is. Where it does not, pagemap is asked; and those of which nobody tells count as shared, so that
    /// they are unknown. Areas in which some are known to be, as far as `noted` reaches, are remembered.
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
                None | Some(0) => open.insert(page),
                Some(_) => shared.insert(page),
            }
        }
        let ends = open.iter().next().zip(open.iter().last());
        if let (Some(pagemap), Some((first, last))) = (&mut self.pagemap, ends) {
            let last = last as u64 + 1;
            let range = AddrRange::new(start + first as u64 * PAGE_SIZE, start + last * PAGE_SIZE);
            let (asked, mut told) = (open, PageMask::default());
            for (page, entry) in (first..).zip(pagemap.read(range)) {
                told.insert(page);
                if asked.contains(page) && entry.is_present() && !entry.is_exclusive() {
                    shared.insert(page);
                }
            }
            open = asked.without(&told);
        }
        self.note_shared(shared.and(&noted), area);
        shared.or(&open)
    }

    /// The same of a huge page, which is `alone` or not, if that is told.
    pub fn is_huge_shared(&mut self, start: u64, area: u64, alone: Option<bool>) -> bool {
        let first = PageMask::span(0, 1);
        let mapped = |_| alone.map(|alone| if alone { 1 } else { 2 });
        !self.shared(start, &first, (first, area), mapped).is_empty()
    }

    /// Whether pages mapped more than once have been seen in the mapping that begins at `area`.
    pub fn is_sharing(&self, area: u64) -> bool {
        self.sharing.iter().any(|starts| starts.contains(&area))
    }

    /// Remembers an area in which these pages are mapped more than once, if any are.
    fn note_shared(&mut self, shared: PageMask, area: u64) {
        if !shared.is_empty() {
            self.sharing[0].insert(area);
        }
    }

    /// Whether it is worth asking which pages of a window are mapped more than once, also if none is
    /// young (one that is may be so for ever): always where such pages were seen, else now and then.
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
