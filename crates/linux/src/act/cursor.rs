//! Reading the memory of a work, part by part.

use std::ops::Range;

use isotherm_core::{AddrRange, BLOCK_SIZE, OpsError, PAGE_SIZE, PageMask};

use super::memory::ProcessMemory;
use super::pieces::{BlockPieces, VisibleRange, visible_ranges};
use crate::ops::process::VaddrTarget;
use crate::ops::survey::{Special, behind};
use crate::walker::{MAX_ENTRIES, Plain, RawBlock, Span, SpanReader, Want, in_blocks};
use crate::x86::Level;

/// Blocks read between two readings of the clock, if only huge pages are of interest.
const HUGE_AT_ONCE: u32 = 256;
/// Ranges read at once, if they are small: no more memory than one block.
const MAX_RANGES_AT_ONCE: usize = 64;
/// Bytes in which absent pages are sought at once: as much as the walker reads in one run.
const ABSENT_AT_ONCE: u64 = MAX_ENTRIES as u64 * PAGE_SIZE;

/// The memory to read for an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalkTarget {
    /// resident folios, so many blocks at once: these are read before the action on the first of them
    Resident { blocks: u32 },
    /// huge pages
    Huge,
    /// pages that the kernel could read in: those in swap, and unmapped pages of files
    Absent,
}

/// The next part of the memory.
pub(super) enum Next {
    Blocks(Vec<BlockPieces>),
    /// no part remains
    End,
    /// The process has ended, or runs another program.
    Gone,
}

/// Reads those parts of a range whose accesses can be observed.
pub(super) struct Cursor {
    end: u64,
    ranges: Vec<VisibleRange>,
    place: Place,
}

enum Place {
    Resident(Batch),
    /// the number of ranges read, and an address in the next one
    Absent(usize, u64),
}

/// Ranges that are read at once.
struct Batch {
    reader: SpanReader<'static>,
    /// the first range, and the one after the last
    ranges: Range<usize>,
    plain: Plain,
    /// blocks at once of a batch of one range
    blocks: u32,
}

impl Batch {
    /// The batch that begins with the range `first`: one range, or several small ones.
    fn new(ranges: &[VisibleRange], first: usize, plain: Plain, blocks: u32) -> Self {
        let rest = ranges.get(first..).unwrap_or_default();
        let mut bytes = 0;
        let fits = rest.iter().take(MAX_RANGES_AT_ONCE).take_while(|r| {
            bytes += r.range.len();
            bytes <= BLOCK_SIZE
        });
        let count = fits.count().max(1).min(rest.len());
        let spans = rest.iter().take(count).map(|r| Span { range: r.range, plain });
        let reader = SpanReader::new(spans.collect::<Vec<_>>());
        let reader = if count > 1 { reader } else { reader.at_most(blocks) };
        Batch { reader, ranges: first..first + count, plain, blocks }
    }

    /// The next batch, if there is one.
    fn next(&self, ranges: &[VisibleRange]) -> Option<Batch> {
        let first = self.ranges.end;
        (first < ranges.len()).then(|| Batch::new(ranges, first, self.plain, self.blocks))
    }
}

impl Cursor {
    /// Reads `parts`, which are in order and end before `end`.
    pub fn new(process: &VaddrTarget, parts: &[AddrRange], end: u64, reads: WalkTarget) -> Self {
        let ranges: Vec<VisibleRange> =
            parts.iter().flat_map(|part| visible_ranges(process, *part)).collect();
        let start = ranges.first().map_or(end, |r| r.range.start);
        let place = match reads {
            WalkTarget::Resident { blocks } => {
                Place::Resident(Batch::new(&ranges, 0, Plain::Everywhere, blocks))
            }
            WalkTarget::Huge => Place::Resident(Batch::new(&ranges, 0, Plain::Huge, HUGE_AT_ONCE)),
            WalkTarget::Absent => Place::Absent(0, start),
        };
        Cursor { end, ranges, place }
    }

    /// Where the next part begins.
    pub fn position(&self) -> u64 {
        match &self.place {
            Place::Resident(batch) => {
                let next = self.ranges.get(batch.ranges.end).map(|r| r.range.start);
                batch.reader.position().or(next).unwrap_or(self.end)
            }
            Place::Absent(done, _) if *done == self.ranges.len() => self.end,
            Place::Absent(_, at) => *at,
        }
    }

    /// Reads the next part.
    pub fn next(&mut self, memory: &mut ProcessMemory<'_>) -> Result<Next, OpsError> {
        match &mut self.place {
            Place::Resident(batch) => {
                if batch.reader.position().is_none()
                    && let Some(next) = batch.next(&self.ranges)
                {
                    *batch = next;
                }
                let ranges = self.ranges.get(batch.ranges.clone()).unwrap_or_default();
                resident(memory, &mut batch.reader, ranges)
            }
            Place::Absent(done, at) => {
                let Some(visible) = self.ranges.get(*done) else { return Ok(Next::End) };
                let start = visible.range.start.max(*at);
                let part = AddrRange::new(start, visible.range.end.min(start + ABSENT_AT_ONCE));
                *at = part.end;
                *done += usize::from(part.end == visible.range.end);
                absent(memory, part, visible)
            }
        }
    }
}

/// The next blocks of `reader`, which has the spans of `ranges`, with their folios.
fn resident(
    memory: &mut ProcessMemory<'_>,
    reader: &mut SpanReader<'_>,
    ranges: &[VisibleRange],
) -> Result<Next, OpsError> {
    let ProcessMemory { walker, process } = memory;
    let mut blocks = Vec::new();
    match process.as_it_was(reader.run(walker, process.pid, &mut blocks), |read| *read)? {
        Some(Some(_)) => {}
        Some(None) => return Ok(Next::End),
        None => return Ok(Next::Gone),
    }
    let of = |b: RawBlock| Some(BlockPieces::of(process, b, *ranges.get(b.span)?));
    let mut found: Vec<BlockPieces> = blocks.into_iter().filter_map(of).collect();
    let open = found.iter_mut().map(|f| (f.special(), f));
    let (asked, open): (Vec<Special>, Vec<&mut BlockPieces>) =
        open.filter(|(special, _)| !special.pages.is_empty()).unzip();
    let behind = behind(walker, process, &asked)?;
    let pairs = open.into_iter().zip(behind).filter_map(|(f, b)| Some((f, b?)));
    pairs.for_each(|(f, b)| f.add(&b));
    Ok(Next::Blocks(found))
}

/// The absent pages of `part`: of a file the pages that are not mapped, of other memory those in swap.
fn absent(
    memory: &mut ProcessMemory<'_>,
    part: AddrRange,
    visible: &VisibleRange,
) -> Result<Next, OpsError> {
    let windows: Vec<AddrRange> = in_blocks(part).collect();
    let asked = windows.iter().map(|&window| (window, Want::Entries));
    let ProcessMemory { walker, process } = memory;
    let read = walker.read(process.pid, asked);
    let Some(batch) = process.as_it_was(read, |batch| Some(batch.identity))? else {
        return Ok(Next::Gone);
    };
    let found = windows.iter().zip(batch.answers()).map(|(window, answer)| {
        let is_absent = |i: &usize| {
            let entry = answer.entry(*i);
            let can_be_read = entry.is_swapped() || !(visible.swaps || entry.is_resident());
            can_be_read && answer.level != Level::Changed
        };
        let block = RawBlock { start: window.start, ..RawBlock::default() };
        let mut found = BlockPieces::of(process, block, *visible);
        let pages = 0..usize::try_from(window.len() / PAGE_SIZE).unwrap_or(0);
        let absent =
            pages.filter(is_absent).map(|page| found.piece(PageMask::span(page, page + 1)));
        found.pieces = absent.collect();
        found
    });
    Ok(Next::Blocks(found.collect()))
}
