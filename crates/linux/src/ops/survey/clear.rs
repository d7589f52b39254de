//! Clearing in long runs. Each step reads, classifies, clears and reports up to 64 MiB, so that little changes
//! in between.

use isotherm_core::{AddrRange, BLOCK_SIZE, Cleared, Nanos, OpsError, PageMask, Unknown};

use super::folios::sort_folios;
use super::runs::{BRIDGED_BYTES, Runs};
use crate::ops::clear::advise_cold;
use crate::ops::process::VaddrTarget;
use crate::sys::monotonic;
use crate::walker::{Plain, RawBlock, Span, SpanReader, Walker, in_blocks, pages_in_block};

/// Ranges cleared between two time stamps: each takes at most half a millisecond.
const WINDOWS_PER_CALL: usize = 4;

/// Work and side effects of one clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ClearCost {
    /// blocks read
    pub blocks: u64,
    /// entries read
    pub entries: u64,
    /// ranges cleared
    pub clears: u64,
    /// pages that were young
    pub young: u64,
}

/// One block with its classified pages.
#[derive(Debug, Clone)]
pub(super) struct ClassifiedBlock {
    pub block: RawBlock,
    pub area: AddrRange,
    pub asked: PageMask,
    /// pages to be cleared
    pub wanted: PageMask,
    /// pages that no range may cover
    pub kept: PageMask,
    /// pages that cannot be observed, requested or not, with the reason
    pub hidden: Vec<(Unknown, PageMask)>,
    cleared_at: Nanos,
}

/// One stretch to read for several runs: runs with short gaps between them are read together.
struct ClearSpan {
    span: Span,
    area: AddrRange,
    unknown: Option<Unknown>,
    runs: Vec<AddrRange>,
}

/// Clears the accessed bits of `runs`: see [`isotherm_core::Survey::clear`].
pub(crate) fn clear(
    walker: &mut Walker,
    process: &mut VaddrTarget,
    runs: &[AddrRange],
    out: &mut Vec<Cleared>,
) -> Result<ClearCost, OpsError> {
    let stretches = stretches(process, runs);
    let spans: Vec<Span> = stretches.iter().map(|s| s.span).collect();
    let mut reader = SpanReader::new(&spans);
    let mut cost = ClearCost::default();
    let mut blocks = Vec::new();
    loop {
        blocks.clear();
        let read = reader.run(walker, process.pid, &mut blocks);
        let Some(Some(_)) = process.as_it_was(read, |read| *read)? else { return Ok(cost) };
        cost.blocks += blocks.len() as u64;
        cost.entries += blocks.iter().map(RawBlock::entries).sum::<u64>();
        let of = |b: &RawBlock| Some(sort(process, *b, stretches.get(b.span)?));
        let mut sorted: Vec<ClassifiedBlock> = blocks.iter().filter_map(of).collect();
        sort_folios(walker, process, &mut sorted)?;
        clear_wanted(process, &mut sorted, &mut cost)?;
        for s in &sorted {
            process.note_touched(s.block.start, &s.wanted.and(&s.block.young), s.cleared_at);
        }
        out.extend(sorted.iter().filter_map(ClassifiedBlock::cleared));
    }
}

/// Joins near runs of the same area: only pages between runs of one area can be covered without harm.
fn stretches(process: &VaddrTarget, runs: &[AddrRange]) -> Vec<ClearSpan> {
    let mut out: Vec<ClearSpan> = Vec::new();
    for run in runs {
        let Some(mapping) = process.mapping_at(run.start) else { continue };
        let Some(run) = run.intersect(&mapping.range) else { continue };
        let (area, unknown) = (mapping.range, mapping.unknown);
        match out.last_mut() {
            Some(s) if s.area == area && are_near(s.span.range, run) => {
                s.span.range.end = run.end;
                s.runs.push(run);
            }
            _ => {
                let plain =
                    if process.is_sharing(area.start) { Plain::Everywhere } else { Plain::IfYoung };
                out.push(ClearSpan {
                    span: Span { range: run, plain },
                    area,
                    unknown,
                    runs: vec![run],
                });
            }
        }
    }
    out
}

/// Whether one range may clear both, or they meet within a block.
fn are_near(before: AddrRange, after: AddrRange) -> bool {
    after.start.saturating_sub(before.end) <= BRIDGED_BYTES
        || after.start / BLOCK_SIZE == before.end / BLOCK_SIZE
}

/// Classifies all pages except those of folios that are not plain.
fn sort(process: &mut VaddrTarget, block: RawBlock, stretch: &ClearSpan) -> ClassifiedBlock {
    let whole = AddrRange::new(block.start, block.start + BLOCK_SIZE);
    let first = stretch.runs.partition_point(|r| r.end <= whole.start);
    let runs = stretch.runs.get(first..).unwrap_or_default();
    let asked = runs
        .iter()
        .take_while(|r| r.start < whole.end)
        .fold(PageMask::default(), |asked, r| asked.or(&pages_in_block(block.start, *r)));
    let area = stretch.area;
    let (none, cleared_at) = (PageMask::default(), block.read_at);
    let mut sorted = ClassifiedBlock {
        block,
        area,
        asked,
        wanted: none,
        kept: none,
        hidden: Vec::new(),
        cleared_at,
    };
    let young = block.young.and(&asked);
    if let Some(why) = stretch.unknown {
        sorted.hidden.push((why, block.resident));
    } else if block.huge && !young.is_empty() {
        let alone = block.plain.map(|plain| !plain.is_empty());
        if whole.intersect(&area) != Some(whole) {
            sorted.keep(Unknown::Partial, block.resident);
        } else if process.is_huge_shared(block.start, area.start, alone) {
            sorted.keep(Unknown::Shared, block.resident);
        } else {
            sorted.wanted = block.resident;
        }
    } else if let Some(plain) = block.plain {
        sorted.wanted = young.and(&plain);
        sorted.kept = block.young.without(&asked);
    }
    sorted
}

impl ClassifiedBlock {
    /// Marks pages that cannot be observed, and that no range may cover.
    pub fn keep(&mut self, why: Unknown, pages: PageMask) {
        self.hidden.push((why, pages));
        self.kept = self.kept.or(&pages);
    }

    /// The result for the caller; `None` if no requested page is resident.
    fn cleared(&self) -> Option<Cleared> {
        let resident = self.block.resident.and(&self.asked);
        let (start, huge, cleared_at) = (self.block.start, self.block.huge, self.cleared_at);
        let mut cleared = Cleared { start, huge, armed: resident, hidden: Vec::new(), cleared_at };
        self.hidden.iter().for_each(|(why, pages)| cleared.hide(*why, pages));
        (!resident.is_empty()).then_some(cleared)
    }
}

/// Clears the wanted pages. If a range fails, it is tried again block by block, and pages that still fail
/// become unknown.
fn clear_wanted(
    process: &VaddrTarget,
    sorted: &mut [ClassifiedBlock],
    cost: &mut ClearCost,
) -> Result<(), OpsError> {
    let mut runs = Runs::default();
    for s in sorted.iter() {
        runs.add(s.block.start, s.area, &s.wanted, &s.kept);
        let young = u64::from(s.wanted.and(&s.block.young).count());
        // A huge page has one accessed bit: the target has to set only that one again.
        cost.young += if s.block.huge { young.min(1) } else { young };
    }
    let ranges = runs.ranges();
    for part in ranges.chunks(WINDOWS_PER_CALL) {
        let failed = advise_cold(process, part)?;
        let pieces = failed.iter().filter_map(|&i| part.get(i)).flat_map(|r| in_blocks(*r));
        let pieces: Vec<AddrRange> = pieces.collect();
        let lost = advise_cold(process, &pieces)?;
        cost.clears += (part.len() + pieces.len()) as u64;
        let at = monotonic();
        for range in part {
            of_range(sorted, *range).for_each(|s| s.cleared_at = at);
        }
        for piece in lost.iter().filter_map(|&i| pieces.get(i)) {
            for s in of_range(sorted, *piece) {
                let pages = pages_in_block(s.block.start, *piece);
                s.hidden.push((Unknown::Unseen, pages));
            }
        }
    }
    Ok(())
}

/// The blocks that overlap `range`.
fn of_range(
    sorted: &mut [ClassifiedBlock],
    range: AddrRange,
) -> impl Iterator<Item = &mut ClassifiedBlock> {
    let first = sorted.partition_point(|s| s.block.start + BLOCK_SIZE <= range.start);
    let rest = sorted.get_mut(first..).unwrap_or_default();
    rest.iter_mut().take_while(move |s| s.block.start < range.end)
}
