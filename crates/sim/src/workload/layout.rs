//! The placement of a workload's memory, drawn from a seed so that no result is right only because of
//! alignment.
//!
//! Regions keep their order. Each starts at an odd page, after cold memory of random length. Hot islands, which
//! start at odd pages too, are distributed over the cold memory.

use isotherm_core::{AddrRange, PAGE_SIZE};

use super::{ISLAND_SIZE, Workload};
use crate::random::{below, mix};

const ISLAND_PAGES: u64 = ISLAND_SIZE / PAGE_SIZE;
/// Number of pages in a cell of cold memory. A cell contains at most one island.
const CELL: u64 = 128;
/// Maximum number of random pages that are added to a gap.
const JITTER: u64 = 512;
/// Cold memory after the last region, in pages.
const TAIL: u64 = 1024;

/// All memory of a workload, from offset 0 on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadLayout {
    /// consecutive parts without gaps; offsets in bytes, multiples of the page size
    pub parts: Vec<Part>,
}

/// A stretch whose pages have the same access pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// offsets
    pub range: AddrRange,
    /// the region that it belongs to
    pub of: Owner,
    /// kind of memory
    pub memory: MemoryKind,
}

/// The accesses that touch a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Owner {
    /// none
    Cold,
    /// all phases
    Island,
    /// the accesses of the region with this index
    Region(usize),
}

/// The kind of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    /// base pages
    Base,
    /// huge pages where they fit
    Huge,
    /// base pages, mapped by a forked child as well
    Shared,
}

/// The pages that an access touches, numbered from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// index and first page of each part; all parts have the same length
    parts: Vec<(usize, u64)>,
    /// touched pages of a part
    per_part: u64,
    /// pages from one touched page to the next
    stride: u64,
}

impl WorkloadLayout {
    /// The layout of a workload; the same for the same seed.
    #[must_use]
    pub fn new(workload: &Workload, seed: u64) -> Self {
        let mut draft = Draft { seed, ..Draft::default() };
        for (i, region) in workload.regions.iter().enumerate() {
            draft.cold(region.gap / PAGE_SIZE);
            let memory = match (region.huge, region.shared) {
                (true, _) => MemoryKind::Huge,
                (_, true) => MemoryKind::Shared,
                _ => MemoryKind::Base,
            };
            let block = workload.accesses_of(i).find_map(|a| a.order.block());
            let block = block.unwrap_or(region.size) / PAGE_SIZE;
            for _ in 0..region.size / PAGE_SIZE / block {
                draft.push(block, Owner::Region(i), memory);
            }
        }
        draft.cold(TAIL);
        let cells = draft.chosen_cells(workload.islands);
        WorkloadLayout {
            parts: draft.parts.into_iter().flat_map(|p| with_islands(p, &cells, seed)).collect(),
        }
    }

    /// Total length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.parts.last().map_or(0, |p| p.range.end)
    }

    /// Whether the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Maximal stretches of the same kind of memory.
    #[must_use]
    pub fn mappings(&self) -> Vec<(AddrRange, MemoryKind)> {
        let mut out: Vec<(AddrRange, MemoryKind)> = Vec::new();
        for part in &self.parts {
            match out.last_mut() {
                Some((range, memory)) if *memory == part.memory => range.end = part.range.end,
                _ => out.push((part.range, part.memory)),
            }
        }
        out
    }

    /// The pages of a region, or of all islands, each `stride`-th of a part.
    #[must_use]
    pub fn field(&self, of: Owner, stride: u64) -> Field {
        let parts = self.parts.iter().enumerate().filter(|(_, p)| p.of == of);
        let len = parts.clone().next().map_or(0, |(_, p)| p.range.len());
        Field {
            parts: parts.map(|(i, p)| (i, p.range.start / PAGE_SIZE)).collect(),
            per_part: (len / PAGE_SIZE).div_ceil(stride.max(1)),
            stride: stride.max(1),
        }
    }

    /// All of a region.
    #[must_use]
    pub fn range(&self, of: Owner) -> AddrRange {
        let mut parts = self.parts.iter().filter(|p| p.of == of).map(|p| p.range);
        let first = parts.next().unwrap_or_default();
        AddrRange::new(first.start, parts.next_back().unwrap_or(first).end)
    }
}

impl Field {
    /// How many pages there are.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.per_part * self.parts.len() as u64
    }

    /// Touched pages of each part.
    #[must_use]
    pub fn per_part(&self) -> u64 {
        self.per_part
    }

    /// The number of parts, which all have the same length.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The index of its `i`-th part in the layout.
    #[must_use]
    pub fn part(&self, i: usize) -> Option<usize> {
        self.parts.get(i).map(|&(part, _)| part)
    }

    /// The part that contains its `page`-th touched page, and the number of that page counted from offset 0.
    #[must_use]
    pub fn at(&self, page: u64) -> Option<(usize, u64)> {
        // The division is avoided because it takes longer than a touch.
        let i = if self.parts.len() == 1 { 0 } else { page.checked_div(self.per_part)? };
        let part = usize::try_from(i).ok()?;
        let &(_, first) = self.parts.get(part)?;
        Some((part, first + (page - i * self.per_part) * self.stride))
    }
}

/// Number of islands that fit in the gaps for any seed.
pub(super) fn room_for_islands(workload: &Workload) -> u64 {
    let gaps = workload.regions.iter().map(|r| r.gap / PAGE_SIZE).chain([TAIL]);
    gaps.map(|pages| pages / CELL).sum()
}

/// Parts as they come, in pages.
#[derive(Default)]
struct Draft {
    seed: u64,
    parts: Vec<Part>,
    end: u64,
}

impl Draft {
    fn push(&mut self, pages: u64, of: Owner, memory: MemoryKind) {
        let range = AddrRange::new(self.end * PAGE_SIZE, (self.end + pages) * PAGE_SIZE);
        self.parts.push(Part { range, of, memory });
        self.end += pages;
    }

    /// Adds cold memory of at least this many pages, up to an odd page.
    fn cold(&mut self, pages: u64) {
        let jitter = 1 + below(mix(self.seed, self.parts.len() as u64), JITTER - 1);
        let even = (self.end + pages + jitter).is_multiple_of(2);
        self.push(pages + jitter + u64::from(even), Owner::Cold, MemoryKind::Base);
    }

    /// The first pages of the cells that get an island.
    fn chosen_cells(&self, islands: u32) -> Vec<u64> {
        let cold = self.parts.iter().filter(|p| p.of == Owner::Cold).map(|p| p.range);
        let mut cells: Vec<u64> = cold
            .flat_map(|r| {
                (0..r.len() / PAGE_SIZE / CELL).map(move |i| r.start / PAGE_SIZE + i * CELL)
            })
            .collect();
        cells.sort_by_key(|&cell| mix(self.seed ^ CELL, cell));
        cells.truncate(islands as usize);
        cells.sort_unstable();
        cells
    }
}

/// A part, divided by the islands in it.
fn with_islands(part: Part, cells: &[u64], seed: u64) -> Vec<Part> {
    let mut out = Vec::new();
    let mut rest = part.range;
    for &cell in cells.iter().filter(|&&c| part.range.contains(c * PAGE_SIZE)) {
        // An odd page, with cold ones before and behind it in the cell.
        let first = cell + 1 + below(mix(seed, cell), CELL - ISLAND_PAGES - 2);
        let first = if first.is_multiple_of(2) { first + 1 } else { first };
        let island = AddrRange::new(first * PAGE_SIZE, (first + ISLAND_PAGES) * PAGE_SIZE);
        out.push(Part { range: AddrRange::new(rest.start, island.start), ..part });
        out.push(Part { range: island, of: Owner::Island, ..part });
        rest.start = island.end;
    }
    out.push(Part { range: rest, ..part });
    out
}
