//! Pages and folios, which move as a unit.

use std::collections::BTreeSet;

use isotherm_core::{AddrRange, PAGE_SIZE};

use super::error::NumaError;
use crate::proc::{KPageFlags, Pagemap, PagemapEntry, ProcError};

/// A unit of moving: a page, or a folio of 2^order pages that is mapped completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MovablePiece {
    /// the address of its first page
    pub start: u64,
    /// 0 for a single page
    pub order: u32,
}

impl MovablePiece {
    /// Its number of 4 KiB pages.
    #[must_use]
    pub fn pages(&self) -> u64 {
        1 << self.order
    }
}

/// A present page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Page {
    addr: u64,
    frame: u64,
    /// whether it is the first page of a large folio
    head: bool,
    /// whether it is a later page of a large folio
    tail: bool,
}

/// Finds the pieces of a range.
#[derive(Debug)]
pub(super) struct Pieces {
    pagemap: Pagemap,
    flags: KPageFlags,
}

/// The pieces of a range, and the number of pages whose folio lies only partly in the range.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FolioPieces {
    pub pieces: Vec<MovablePiece>,
    pub partial: u64,
}

impl Pieces {
    pub fn new(pagemap: Pagemap, flags: KPageFlags) -> Self {
        Pieces { pagemap, flags }
    }

    pub fn pagemap(&mut self) -> &mut Pagemap {
        &mut self.pagemap
    }

    /// Switches to other page tables.
    pub fn turn_to(&mut self, pagemap: Pagemap) {
        self.pagemap = pagemap;
    }

    /// The pieces of `range`.
    pub fn of(&mut self, range: AddrRange) -> Result<FolioPieces, NumaError> {
        let entries: Vec<PagemapEntry> = self.pagemap.read(range).collect();
        let addrs = (range.start..range.end).step_by(PAGE_SIZE as usize);
        let present = addrs.zip(entries).filter(|(_, e)| e.is_present());
        let mut pages: Vec<Page> =
            present.map(|(addr, e)| Page { addr, frame: e.frame(), ..Page::default() }).collect();
        if pages.iter().any(|p| p.frame == 0) {
            return Err(NumaError::NoFrames);
        }
        let flags = |frames: &[u64]| {
            let path = || "/proc/kpageflags".into();
            self.flags.of(frames).map_err(|source| ProcError::Read { path: path(), source })
        };
        let frames: Vec<u64> = pages.iter().map(|p| p.frame).collect();
        for (page, flags) in pages.iter_mut().zip(flags(&frames)?) {
            (page.head, page.tail) = (flags.is_head(), flags.is_tail());
        }
        let ends: Vec<u64> = ends(&pages).map(|frame| frame.saturating_add(1)).collect();
        let behind = ends.iter().zip(flags(&ends)?);
        let tails: BTreeSet<u64> =
            behind.filter(|(_, flags)| flags.is_tail()).map(|(&frame, _)| frame).collect();
        Ok(found(&pages, |frame| tails.contains(&frame)))
    }
}

/// Whether `b` continues the folio of `a`.
fn follows(a: &Page, b: &Page) -> bool {
    b.tail && b.addr == a.addr + PAGE_SIZE && b.frame == a.frame.wrapping_add(1)
}

/// The last frame of the present part of each folio.
fn ends(pages: &[Page]) -> impl Iterator<Item = u64> + '_ {
    pages
        .chunk_by(follows)
        .filter_map(|run| run.last())
        .filter(|p| p.head || p.tail)
        .map(|p| p.frame)
}

/// Joins heads with the tails that follow them. `is_tail` is asked about the frame after a run.
fn found(pages: &[Page], is_tail: impl Fn(u64) -> bool) -> FolioPieces {
    let mut found = FolioPieces::default();
    for run in pages.chunk_by(follows) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
        let len = run.len() as u64;
        let whole = len.is_power_of_two() && !is_tail(last.frame.wrapping_add(1));
        if !first.tail && whole {
            found.pieces.push(MovablePiece { start: first.addr, order: len.ilog2() });
        } else {
            found.partial += len;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x7f00_0000_0000;

    /// Pages one after the other: `h` begins a folio, `p` is a page, `t` continues a folio.
    fn pages(text: &str) -> Vec<Page> {
        let page = |(i, c)| Page {
            addr: BASE + i as u64 * PAGE_SIZE,
            frame: 100 + i as u64,
            head: c == 'h',
            tail: c == 't',
        };
        text.chars().enumerate().filter(|(_, c)| *c != '.').map(page).collect()
    }

    /// `behind` lists the tails after the mapped frames, as indices into `text`.
    fn orders(text: &str, behind: &[u64]) -> (Vec<(u64, u32)>, u64) {
        let found = found(&pages(text), |frame| behind.contains(&(frame - 100)));
        let place = |p: &MovablePiece| ((p.start - BASE) / PAGE_SIZE, p.order);
        (found.pieces.iter().map(place).collect(), found.partial)
    }

    #[test]
    fn folios_are_heads_with_their_tails() {
        assert_eq!(orders("phtth", &[]).1, 3, "no power of two is mapped in part");
        assert_eq!(orders("ppht.httt", &[]), (vec![(0, 0), (1, 0), (2, 1), (5, 2)], 0));
    }

    #[test]
    fn parts_of_folios_are_none() {
        assert_eq!(orders("ttp", &[]), (vec![(2, 0)], 2), "the head lies before");
        assert_eq!(orders("pht", &[3]), (vec![(0, 0)], 2), "tails lie behind");
        assert_eq!(orders("ht.t", &[2, 4]), (vec![], 3), "a hole, and tails behind it");
        assert_eq!(orders("h.p", &[1]), (vec![(2, 0)], 1), "its tails are unmapped");
        assert_eq!(orders("", &[]), (vec![], 0));
    }

    #[test]
    fn frames_that_are_not_adjacent_are_not_one_folio() {
        let mut pages = pages("ht");
        pages[1].frame = 7;
        assert_eq!(found(&pages, |_| false).partial, 1);
        assert_eq!(found(&pages, |frame| frame == 101).partial, 2, "a tail was copied");
        assert_eq!(ends(&pages).collect::<Vec<_>>(), [100, 7]);
    }
}
