//! Pages and folios: what moves as one.

use isotherm_core::{AddrRange, PAGE_SIZE};

use crate::proc::{KPageFlags, Pagemap, PagemapEntry, ProcError};

/// No folio that moves has more pages: a huge page.
const MOST_PAGES: u64 = 512;

/// What moves as one: a page, or a folio of 2^order pages that is mapped whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// the address of its first page
    pub start: u64,
    /// 0 is a page
    pub order: u32,
}

impl Piece {
    /// Pages of 4 KiB in it.
    #[must_use]
    pub fn pages(&self) -> u64 {
        1 << self.order
    }
}

/// What is known of a present page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Page {
    addr: u64,
    frame: u64,
    /// another one than the first of its folio
    tail: bool,
}

/// Finds the pieces of a range.
#[derive(Debug)]
pub(super) struct Pieces {
    pagemap: Pagemap,
    /// without it, each page is one
    flags: Option<KPageFlags>,
}

/// Pieces of a range, and pages of it that are part of a folio which is not in it whole.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub pieces: Vec<Piece>,
    pub partial: u64,
}

impl Pieces {
    pub fn new(pagemap: Pagemap, flags: Option<KPageFlags>) -> Self {
        Pieces { pagemap, flags }
    }

    pub fn pagemap(&mut self) -> &mut Pagemap {
        &mut self.pagemap
    }

    /// Those of `range`.
    pub fn of(&mut self, range: AddrRange) -> Result<Found, ProcError> {
        let entries: Vec<PagemapEntry> = self.pagemap.read(range).collect();
        let addrs = (range.start..range.end).step_by(PAGE_SIZE as usize);
        let present = addrs.zip(entries).filter(|(_, e)| e.is_present());
        let mut pages: Vec<Page> =
            present.map(|(addr, e)| Page { addr, frame: e.frame(), tail: false }).collect();
        let Some(flags) = &self.flags else { return Ok(found(&pages, |_| 0)) };
        let failed = |source| ProcError::Read { path: "/proc/kpageflags".into(), source };
        let frames: Vec<u64> = pages.iter().map(|p| p.frame).collect();
        for (page, flags) in pages.iter_mut().zip(flags.of(&frames).map_err(failed)?) {
            // Frame 0 is one that is hidden.
            page.tail = flags.is_tail() && page.frame != 0;
        }
        let behind = |last: Page| tails(flags, last.frame).unwrap_or(MOST_PAGES);
        Ok(found(&pages, behind))
    }
}

/// Frames right behind `last` that are tails, and so of its folio.
fn tails(flags: &KPageFlags, last: u64) -> std::io::Result<u64> {
    let next: Vec<u64> = (1..=MOST_PAGES).map(|i| last.saturating_add(i)).collect();
    Ok(flags.of(&next)?.iter().take_while(|f| f.is_tail()).count() as u64)
}

/// Heads with the tails that follow them. `behind` tells how many frames after the last page are tails.
fn found(pages: &[Page], behind: impl Fn(Page) -> u64) -> Found {
    let follows = |a: &Page, b: &Page| {
        b.tail && b.addr == a.addr + PAGE_SIZE && b.frame == a.frame.wrapping_add(1)
    };
    let mut found = Found::default();
    let runs: Vec<&[Page]> = pages.chunk_by(follows).collect();
    for (i, run) in runs.iter().enumerate() {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
        let len = run.len() as u64;
        // Only a last one may be cut off by the end; one between would have shown its tails.
        let is_last = i + 1 == runs.len() && len <= MOST_PAGES;
        let whole = len.is_power_of_two() && !(is_last && last.frame != 0 && behind(*last) > 0);
        if !first.tail && whole {
            found.pieces.push(Piece { start: first.addr, order: len.ilog2() });
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

    /// Pages one after the other: `h` begins a folio or is a page, `t` goes on with it.
    fn pages(text: &str) -> Vec<Page> {
        let page = |(i, c)| Page {
            addr: BASE + i as u64 * PAGE_SIZE,
            frame: 100 + i as u64,
            tail: c == 't',
        };
        text.chars().enumerate().filter(|(_, c)| *c != '.').map(page).collect()
    }

    fn orders(text: &str, behind: u64) -> (Vec<(u64, u32)>, u64) {
        let found = found(&pages(text), |_| behind);
        let place = |p: &Piece| ((p.start - BASE) / PAGE_SIZE, p.order);
        (found.pieces.iter().map(place).collect(), found.partial)
    }

    #[test]
    fn folios_are_heads_with_their_tails() {
        assert_eq!(orders("hhtth", 0).1, 3, "no power of two is mapped in part");
        assert_eq!(orders("hhth.httt", 0), (vec![(0, 0), (1, 1), (3, 0), (5, 2)], 0));
    }

    #[test]
    fn parts_of_folios_are_none() {
        assert_eq!(orders("tth", 0), (vec![(2, 0)], 2), "the head lies before");
        assert_eq!(orders("hht", 2), (vec![(0, 0)], 2), "tails lie behind");
        assert_eq!(orders("ht.t", 0), (vec![(0, 1)], 1), "a hole");
        assert_eq!(orders("", 0), (vec![], 0));
    }

    #[test]
    fn frames_that_are_not_adjacent_are_not_one_folio() {
        let mut pages = pages("ht");
        pages[1].frame = 7;
        assert_eq!(found(&pages, |_| 0).partial, 1);
    }
}
