//! The memory that actions can be applied to: pages and folios whose accesses can be observed.

use isotherm_core::{AddrRange, BLOCK_SIZE, MappingKind, PAGE_SIZE, PageMask};

use crate::ops::process::VaddrTarget;
use crate::ops::survey::{Behind, Special};
use crate::sys::page_nodes;
use crate::walker::{RawBlock, pages_in_block};

/// Memory that an action treats as one: a page, a folio that is mapped whole, or a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// address of its first page
    pub start: u64,
    pub pages: u32,
    /// whether any of its pages is young
    pub young: bool,
    /// whether it would be paged out to swap
    pub swaps: bool,
    /// start of its mapping
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

/// The number of pages in all pieces.
pub(super) fn pages_of(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|p| u64::from(p.pages)).sum()
}

/// The node of each piece. `None` if its memory has gone.
pub(super) fn nodes(process: &VaddrTarget, pieces: &[Piece]) -> Vec<Option<u32>> {
    let heads: Vec<u64> = pieces.iter().map(|p| p.start).collect();
    // The pid belongs to the process only until the process has ended.
    let answer = page_nodes(process.pid, &heads).ok().filter(|_| !process.has_ended());
    let nodes = answer.unwrap_or_else(|| vec![-libc::ESRCH; heads.len()]);
    nodes.into_iter().map(|node| u32::try_from(node).ok()).collect()
}

/// A part of a mapping whose accesses can be observed.
#[derive(Debug, Clone, Copy)]
pub(super) struct VisibleRange {
    pub range: AddrRange,
    area: AddrRange,
    pub swaps: bool,
}

/// The visible parts of `range`, as far as the mappings are known.
pub(super) fn visible_ranges(process: &VaddrTarget, range: AddrRange) -> Vec<VisibleRange> {
    let first = process.mappings.partition_point(|m| m.range.end <= range.start);
    let rest = process.mappings.get(first..).unwrap_or_default();
    let here = rest.iter().take_while(|m| m.range.start < range.end);
    let seen = here.filter(|m| m.unknown.is_none()).filter_map(|m| {
        let swaps = m.kind != MappingKind::File;
        Some(VisibleRange { range: m.range.intersect(&range)?, area: m.range, swaps })
    });
    seen.collect()
}

/// A block, with the memory in it that actions can be applied to.
#[derive(Debug, Clone)]
pub(super) struct BlockPieces {
    pub block: RawBlock,
    visible: VisibleRange,
    /// requested resident pages
    pub resident: PageMask,
    /// those of them that another process maps too, or that share a folio with such a page
    hidden: PageMask,
    /// those whose accesses can be observed, by folio, in ascending order
    pub pieces: Vec<Piece>,
}

impl BlockPieces {
    pub fn of(process: &mut VaddrTarget, block: RawBlock, visible: VisibleRange) -> Self {
        let asked = pages_in_block(block.start, visible.range);
        let resident = block.resident.and(&asked);
        let mut found = BlockPieces {
            block,
            visible,
            resident,
            hidden: PageMask::default(),
            pieces: Vec::new(),
        };
        found.hidden = found.special().pages;
        if !block.huge {
            let plain = block.plain.unwrap_or_default().and(&resident);
            found.pieces =
                plain.iter().map(|page| found.piece(PageMask::span(page, page + 1))).collect();
        } else if found.is_whole() {
            let alone = block.plain.map(|plain| !plain.is_empty());
            if !process.is_huge_shared(block.start, visible.area.start, alone) {
                found.pieces = vec![found.piece(resident)];
            }
        }
        found
    }

    /// Whether the whole block was requested.
    pub fn is_whole(&self) -> bool {
        let range = AddrRange::new(self.block.start, self.block.start + BLOCK_SIZE);
        range.intersect(&self.visible.range) == Some(range)
    }

    /// Whether accesses to all resident memory can be observed, except for pages that are just being put on a
    /// list.
    pub fn is_seen(&self) -> bool {
        self.hidden.is_empty()
    }

    /// Whether no page of a piece is young now, or was young `before`.
    pub fn is_untouched(&self, piece: &Piece, before: &PageMask) -> bool {
        !piece.young && pages_in_block(self.block.start, piece.range()).and(before).is_empty()
    }

    /// The whole block as one piece.
    pub fn as_piece(&self) -> Piece {
        self.piece(PageMask::span(0, 512))
    }

    /// The properties of the block that are neither those of plain pages nor of a huge page.
    pub fn special(&self) -> Special {
        let plain = self.block.plain.filter(|_| !self.block.huge).unwrap_or(self.resident);
        let pages = self.resident.without(&plain);
        Special { block: self.block.start, area: self.visible.area, pages }
    }

    /// A folio is no piece if only a part of it was requested, or if another process maps it.
    pub fn add(&mut self, behind: &Behind) {
        self.hidden = behind.shared.or(&behind.partial);
        for (folio, pages) in &behind.folios {
            let mine = pages.without(&self.resident).is_empty() && folio.on_lru;
            if mine && pages.and(&behind.shared).is_empty() {
                self.pieces.push(self.piece(*pages));
            }
        }
        self.pieces.sort_unstable_by_key(|p| p.start);
    }

    /// These pages as one piece.
    pub fn piece(&self, pages: PageMask) -> Piece {
        let first = pages.iter().next().unwrap_or(0) as u64;
        Piece {
            start: self.block.start + first * PAGE_SIZE,
            pages: pages.count(),
            young: !self.block.young.and(&pages).is_empty(),
            swaps: self.visible.swaps,
            area: self.visible.area.start,
        }
    }
}
