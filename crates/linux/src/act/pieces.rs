//! What can be acted on: pages and folios whose accesses can be seen.

use isotherm_core::{AddrRange, BLOCK_SIZE, MappingKind, OpsError, PAGE_SIZE, PageMask};

use crate::ops::process::Process;
use crate::ops::survey::{Behind, Special, behind};
use crate::walker::{Plain, RawBlock, Reader, Span, Walker, pages_in_block};

/// What is acted on as one: a page, or a folio that is mapped whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// address of its first page
    pub start: u64,
    pub pages: u32,
    /// any of its pages
    pub young: bool,
    /// It goes to swap.
    pub swaps: bool,
    /// where its mapping begins
    pub area: u64,
}

impl Piece {
    pub fn bytes(&self) -> u64 {
        u64::from(self.pages) * PAGE_SIZE
    }

    pub fn range(&self) -> AddrRange {
        AddrRange::new(self.start, self.start + self.bytes())
    }
}

/// Pages in all of them.
pub(super) fn pages_of(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|p| u64::from(p.pages)).sum()
}

/// A stretch of a mapping whose accesses can be seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    pub range: AddrRange,
    area: AddrRange,
    pub swaps: bool,
}

/// Those of `range`, as far as the mappings are known.
pub(super) fn stretches(process: &Process, range: AddrRange) -> Vec<Stretch> {
    let first = process.mappings.partition_point(|m| m.range.end <= range.start);
    let rest = process.mappings.get(first..).unwrap_or_default();
    let here = rest.iter().take_while(|m| m.range.start < range.end);
    let seen = here.filter(|m| m.unknown.is_none()).filter_map(|m| {
        let swaps = m.kind != MappingKind::File;
        Some(Stretch { range: m.range.intersect(&range)?, area: m.range, swaps })
    });
    seen.collect()
}

/// To be read with what is told of single pages, or without: then there are pieces of huge pages alone.
pub(super) fn spans(stretches: &[Stretch], plain: Plain) -> Vec<Span> {
    stretches.iter().map(|s| Span { range: s.range, plain }).collect()
}

/// A block, and what of it can be acted on.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub block: RawBlock,
    stretch: Stretch,
    /// resident pages that were asked for
    pub resident: PageMask,
    /// those of them that somebody else maps too, or with them a part of a folio
    hidden: PageMask,
    /// those whose accesses can be seen, by the folio, ascending
    pub pieces: Vec<Piece>,
}

/// What the next run of a [`Reader`] has brought.
pub(super) enum Next {
    Found(Vec<Found>),
    /// all is read
    End,
    /// The process has ended, or is another program by now.
    Gone,
}

/// Reads on, over `stretches`, of which `reader` has the [`spans`].
pub(super) fn next(
    walker: &mut Walker,
    process: &mut Process,
    reader: &mut Reader<'_>,
    stretches: &[Stretch],
) -> Result<Next, OpsError> {
    let mut blocks = Vec::new();
    match process.as_it_was(reader.run(walker, process.pid, &mut blocks), |read| *read)? {
        Some(Some(_)) => {}
        Some(None) => return Ok(Next::End),
        None => return Ok(Next::Gone),
    }
    let of = |b: RawBlock| Some(Found::of(process, b, *stretches.get(b.span)?));
    let mut found: Vec<Found> = blocks.into_iter().filter_map(of).collect();
    let open = found.iter_mut().map(|f| (f.special(), f));
    let (asked, open): (Vec<Special>, Vec<&mut Found>) =
        open.filter(|(special, _)| !special.pages.is_empty()).unzip();
    let behind = behind(walker, process, &asked)?;
    let told = open.into_iter().zip(behind).filter_map(|(f, b)| Some((f, b?)));
    told.for_each(|(f, b)| f.add(&b));
    Ok(Next::Found(found))
}

impl Found {
    fn of(process: &mut Process, block: RawBlock, stretch: Stretch) -> Self {
        let asked = pages_in_block(block.start, stretch.range);
        let resident = block.resident.and(&asked);
        let mut found =
            Found { block, stretch, resident, hidden: PageMask::default(), pieces: Vec::new() };
        found.hidden = found.special().pages;
        if !block.huge {
            let plain = block.plain.unwrap_or_default().and(&resident);
            found.pieces =
                plain.iter().map(|page| found.piece(PageMask::span(page, page + 1))).collect();
        } else if found.is_whole() {
            let alone = block.plain.map(|plain| !plain.is_empty());
            if !process.is_huge_shared(block.start, stretch.area.start, alone) {
                found.pieces = vec![found.piece(resident)];
            }
        }
        found
    }

    /// Whether all of the block was asked for.
    pub fn is_whole(&self) -> bool {
        let range = AddrRange::new(self.block.start, self.block.start + BLOCK_SIZE);
        range.intersect(&self.stretch.range) == Some(range)
    }

    /// Whether accesses to all that is resident can be seen, but for pages that are just being put on a
    /// list.
    pub fn is_seen(&self) -> bool {
        self.hidden.is_empty()
    }

    /// Pieces of which no page is young, nor was `before`.
    pub fn untouched(&self, before: &PageMask) -> Vec<Piece> {
        let was_young =
            |p: &Piece| !pages_in_block(self.block.start, p.range()).and(before).is_empty();
        self.pieces.iter().filter(|p| !p.young && !was_young(p)).copied().collect()
    }

    /// All of the block as one.
    pub fn as_piece(&self) -> Piece {
        self.piece(PageMask::span(0, 512))
    }

    fn special(&self) -> Special {
        let plain = self.block.plain.filter(|_| !self.block.huge).unwrap_or(self.resident);
        let pages = self.resident.without(&plain);
        Special { block: self.block.start, area: self.stretch.area, pages }
    }

    /// Folios of which another part was not asked for, or that somebody else maps, are no pieces.
    fn add(&mut self, behind: &Behind) {
        self.hidden = behind.shared.or(&behind.partial);
        for (folio, pages) in &behind.folios {
            let mine = pages.without(&self.resident).is_empty() && folio.on_lru;
            if mine && pages.and(&behind.shared).is_empty() {
                self.pieces.push(self.piece(*pages));
            }
        }
        self.pieces.sort_unstable_by_key(|p| p.start);
    }

    fn piece(&self, pages: PageMask) -> Piece {
        let first = pages.iter().next().unwrap_or(0) as u64;
        Piece {
            start: self.block.start + first * PAGE_SIZE,
            pages: pages.count(),
            young: !self.block.young.and(&pages).is_empty(),
            swaps: self.stretch.swaps,
            area: self.stretch.area.start,
        }
    }
}

/// The pieces as ranges, neighbours in one.
pub(super) fn ranges(pieces: &[Piece]) -> Vec<AddrRange> {
    isotherm_core::join_touching(pieces.iter().map(Piece::range))
}
