//! Figures of cached pages.

use std::rc::Rc;

use isotherm_core::PAGE_SIZE;
use isotherm_linux::page_cache::{Cached, CachedRange, CountedFiles, FileReadCounts};
use serde::Serialize;

use super::heat::{CacheHeat, FileHeat, Observed};

/// Cached pages, in bytes. `None` is a figure that the kernel does not report here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PageUse {
    /// in the page cache
    pub resident_bytes: u64,
    /// of the files, cached or not
    pub size_bytes: u64,
    /// with changes that are not on the disk yet
    pub dirty_bytes: Option<u64>,
    /// being written to the disk
    pub writeback_bytes: Option<u64>,
    /// evicted, and noted by the kernel
    pub evicted_bytes: Option<u64>,
    /// of tmpfs, in swap
    pub swapped_bytes: Option<u64>,
    /// of files that a process maps: accesses through a mapping leave no mark
    pub mapped_bytes: Option<u64>,
    /// marks of accesses, by a sample
    pub marks: Option<MarkedBytes>,
    /// read per second by `read()` and similar calls, by a sample; `None` if it was not counted, or cannot be
    /// observed for any of the files
    pub read_bytes_per_second: Option<u64>,
    /// resident pages by heat; `None` if no file was watched
    pub heat: Option<CacheHeat>,
}

/// Resident pages by the marks that the kernel has made, estimated from one page of each 64. Accesses by `read()` and
/// similar calls leave marks. Writes leave none, and neither do accesses through a mapping: a page without a mark is
/// not cold, its accesses are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct MarkedBytes {
    /// the basis of the following: pages that a sample represents
    pub sampled_bytes: u64,
    /// read at least once since they came in
    pub referenced_bytes: u64,
    /// read at least twice; `None` with MGLRU, which has other marks for that
    pub active_bytes: Option<u64>,
}

impl PageUse {
    /// No pages, of a file of this size.
    pub(super) fn of_size(size_bytes: u64) -> Self {
        let none = Some(0);
        PageUse {
            size_bytes,
            dirty_bytes: none,
            writeback_bytes: none,
            evicted_bytes: none,
            swapped_bytes: none,
            mapped_bytes: none,
            marks: Some(MarkedBytes { active_bytes: none, ..MarkedBytes::default() }),
            resident_bytes: 0,
            read_bytes_per_second: None,
            heat: None,
        }
    }

    /// Adds a part of a file.
    pub(super) fn add_part(&mut self, part: &CachedRange, of: &FileKind) {
        let bytes = |pages: u32| u64::from(pages) * PAGE_SIZE;
        let add = |to: &mut Option<u64>, more| to.iter_mut().for_each(|to| *to += more);
        let cached = bytes(part.cached);
        self.resident_bytes += cached;
        add(&mut self.dirty_bytes, bytes(part.dirty));
        add(&mut self.writeback_bytes, bytes(part.writeback));
        let gone = if of.is_tmpfs { &mut self.swapped_bytes } else { &mut self.evicted_bytes };
        add(gone, bytes(part.evicted));
        if of.is_mapped {
            add(&mut self.mapped_bytes, cached);
        }
        if let (Some(marks), Some(sample)) = (&mut self.marks, part.sample.filter(|_| cached > 0)) {
            let active = if sample.active { cached } else { 0 };
            marks.sampled_bytes += cached;
            marks.referenced_bytes += if sample.referenced { cached } else { active };
            match of.is_two_lists {
                true => add(&mut marks.active_bytes, active),
                false => marks.active_bytes = None,
            }
        }
    }

    /// Sets the resident bytes and the size. The other figures are as they were read last.
    pub(super) fn recount(&mut self, resident_bytes: u64, size_bytes: u64) {
        (self.resident_bytes, self.size_bytes) = (resident_bytes, size_bytes);
        for mapped in self.mapped_bytes.iter_mut().filter(|mapped| **mapped > 0) {
            *mapped = resident_bytes;
        }
    }

    /// No page is cached, and none is noted as evicted.
    pub(super) fn is_empty(&self) -> bool {
        let gone = self.evicted_bytes.unwrap_or(0) + self.swapped_bytes.unwrap_or(0);
        self.resident_bytes + gone == 0
    }

    /// Adds other pages. A figure that is unknown for one of them is unknown for all, except for reads: those that
    /// were observed count.
    pub(super) fn add(&mut self, other: &PageUse) {
        self.combine(other, u64::saturating_add);
    }

    /// Takes away pages that were added. What is unknown remains so.
    pub(super) fn remove(&mut self, other: &PageUse) {
        self.combine(other, u64::saturating_sub);
    }

    fn combine(&mut self, other: &PageUse, with: fn(u64, u64) -> u64) {
        let both = |a: Option<u64>, b: Option<u64>| Some(with(a?, b?));
        self.resident_bytes = with(self.resident_bytes, other.resident_bytes);
        self.size_bytes = with(self.size_bytes, other.size_bytes);
        self.dirty_bytes = both(self.dirty_bytes, other.dirty_bytes);
        self.writeback_bytes = both(self.writeback_bytes, other.writeback_bytes);
        self.evicted_bytes = both(self.evicted_bytes, other.evicted_bytes);
        self.swapped_bytes = both(self.swapped_bytes, other.swapped_bytes);
        self.mapped_bytes = both(self.mapped_bytes, other.mapped_bytes);
        let reads = [self.read_bytes_per_second, other.read_bytes_per_second];
        self.read_bytes_per_second = reads.into_iter().flatten().reduce(with);
        self.heat = [self.heat, other.heat].into_iter().flatten().reduce(|a, b| a.combine(b, with));
        self.marks = self.marks.zip(other.marks).map(|(a, b)| MarkedBytes {
            sampled_bytes: with(a.sampled_bytes, b.sampled_bytes),
            referenced_bytes: with(a.referenced_bytes, b.referenced_bytes),
            active_bytes: both(a.active_bytes, b.active_bytes),
        });
    }

    /// The figures of files that were counted together.
    pub(super) fn of_counted(counted: &CountedFiles, is_tmpfs: bool, is_two_lists: bool) -> Self {
        let bytes = |pages: u64| pages * PAGE_SIZE;
        let gone = bytes(counted.evicted);
        PageUse {
            resident_bytes: bytes(counted.cached),
            dirty_bytes: Some(bytes(counted.dirty)),
            writeback_bytes: Some(bytes(counted.writeback)),
            evicted_bytes: Some(if is_tmpfs { 0 } else { gone }),
            swapped_bytes: Some(if is_tmpfs { gone } else { 0 }),
            mapped_bytes: Some(bytes(counted.mapped)),
            marks: Some(MarkedBytes {
                sampled_bytes: bytes(counted.sampled),
                referenced_bytes: bytes(counted.referenced),
                active_bytes: is_two_lists.then_some(bytes(counted.active)),
            }),
            ..PageUse::of_size(counted.size)
        }
    }

    /// The figures of a file by system calls.
    pub(super) fn of_calls(size_bytes: u64, pages: &Cached) -> Self {
        let bytes = |pages: Option<u64>| Some(pages? * PAGE_SIZE);
        PageUse {
            resident_bytes: pages.cached * PAGE_SIZE,
            size_bytes,
            dirty_bytes: bytes(pages.dirty),
            writeback_bytes: bytes(pages.writeback),
            evicted_bytes: bytes(pages.evicted),
            ..PageUse::default()
        }
    }
}

/// Files of which only the sum is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FileSum {
    pub files: u64,
    pub pages: PageUse,
}

impl Default for FileSum {
    fn default() -> Self {
        FileSum { files: 0, pages: PageUse::of_size(0) }
    }
}

impl FileSum {
    pub fn add(&mut self, files: u64, pages: &PageUse) {
        self.files += files;
        self.pages.add(pages);
    }
}

/// The properties of a file that determine the meaning of its marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FileKind {
    /// its pages are memory
    pub is_tmpfs: bool,
    /// no tracepoint sees its reads, or not all of them
    pub hides_reads: bool,
    /// a process maps the file
    pub is_mapped: bool,
    /// the kernel uses the active and the inactive list, and not MGLRU
    pub is_two_lists: bool,
}

/// A file and its cached pages.
#[derive(Debug, Clone, PartialEq)]
pub struct FileUse {
    /// path, or another name in brackets
    pub name: String,
    /// the mount point of its file system, or another name in brackets
    pub file_system: Rc<str>,
    /// identity in the kernel's memory; 0: unknown
    pub id: u64,
    /// all its pages
    pub pages: PageUse,
    /// its pages by the number of the cgroup to which they are charged; empty if unknown, or unless it was wanted
    pub groups: Vec<(u64, PageUse)>,
    pub(super) kind: FileKind,
}

impl FileUse {
    /// Adds a part of the file; `by_group`: also to the group to which its pages are charged.
    pub(super) fn add_part(&mut self, part: &CachedRange, by_group: bool) {
        let of = &self.kind;
        self.pages.add_part(part, of);
        if !by_group {
            return;
        }
        let group = part.sample.map_or(0, |sample| sample.group);
        match self.groups.iter_mut().find(|(g, _)| *g == group) {
            Some((_, pages)) => pages.add_part(part, of),
            None => {
                let mut pages = PageUse::of_size(0);
                pages.add_part(part, of);
                self.groups.push((group, pages));
            }
        }
    }

    /// Forgets the pages, to read them again.
    pub(super) fn clear(&mut self) {
        let PageUse { size_bytes, read_bytes_per_second, heat, .. } = self.pages;
        self.pages = PageUse { read_bytes_per_second, heat, ..PageUse::of_size(size_bytes) };
        self.groups.clear();
    }

    /// Sets what was observed.
    pub(super) fn set_observed(&mut self, seen: Observed<'_>) {
        seen.reads.into_iter().for_each(|reads| self.set_reads(reads));
        seen.heat.into_iter().for_each(|heat| self.set_heat(heat));
    }

    /// Sets the heat of its pages. Those of each control group are presumed to be as hot as the others.
    fn set_heat(&mut self, heat: &FileHeat) {
        let groups = self.groups.iter_mut().map(|(_, pages)| pages);
        for pages in groups.chain([&mut self.pages]) {
            pages.heat = Some(heat.of(self.id, pages.resident_bytes));
        }
    }

    /// Sets how much is read per second, unless that cannot be observed.
    fn set_reads(&mut self, reads: &FileReadCounts) {
        let bytes = (reads.pages_per_second(self.id) * PAGE_SIZE as f64) as u64;
        self.pages.read_bytes_per_second = Some(bytes).filter(|&n| n > 0 || !self.kind.hides_reads);
    }
}
