//! Pages that are not plain: of large folios, mapped more than once, or too new.

use isotherm_core::{AddrRange, BLOCK_SIZE, OpsError, PAGE_SIZE, PageMask, Unknown};

use super::clear::ClassifiedBlock;
use crate::ops::process::VaddrTarget;
use crate::ops::shape::{is_whole, whole};
use crate::walker::{Walker, Want, WindowAnswer, fitting, pages_in_block};
use crate::x86::{Folio, Level};

/// Pages of a block that are not plain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Special {
    /// address of the first page of the block
    pub block: u64,
    /// the mapping it lies in
    pub area: AddrRange,
    pub pages: PageMask,
}

/// The folios of such pages.
#[derive(Debug, Clone, Default)]
pub(crate) struct Behind {
    /// pages mapped more than once
    pub shared: PageMask,
    /// folios with all of their pages, if all are mapped in order
    pub folios: Vec<(Folio, PageMask)>,
    /// pages of folios that are not mapped completely in order, or of unknown folios
    pub partial: PageMask,
    /// pages of the folios that a clear splits
    pub splits: PageMask,
}

/// Finds the folios of all `asked` pages, in the same order; `None` where the page table was replaced or a huge
/// page is mapped now.
pub(crate) fn behind(
    walker: &mut Walker,
    process: &mut VaddrTarget,
    asked: &[Special],
) -> Result<Vec<Option<Behind>>, OpsError> {
    let mut out = Vec::with_capacity(asked.len());
    let mut rest = asked;
    while !rest.is_empty() {
        let n = fitting(rest.iter().map(Special::window)).clamp(1, rest.len());
        let (now, later) = rest.split_at(n);
        let read = walker.read(process.pid, now.iter().map(|s| (s.window(), Want::Folios)));
        match process.as_it_was(read, |batch| Some(batch.identity))? {
            Some(batch) => {
                out.extend(now.iter().zip(batch.answers()).map(|(s, a)| s.behind(process, &a)));
            }
            None => out.extend(now.iter().map(|_| None)),
        }
        rest = later;
    }
    Ok(out)
}

impl Special {
    fn window(&self) -> AddrRange {
        AddrRange::new(self.block, self.block + BLOCK_SIZE)
    }

    fn behind(&self, process: &mut VaddrTarget, answer: &WindowAnswer<'_>) -> Option<Behind> {
        if answer.level != Level::Pte {
            return None;
        }
        let shared = self.shared(process, answer);
        let mut behind = Behind { shared, ..Behind::default() };
        let mut rest = self.pages;
        let first = |rest: PageMask| rest.iter().next();
        while let Some(page) = first(rest) {
            let folio = answer.any_folio(page);
            let whole = folio.and_then(|f| Some((f, self.pages_of(page, f, answer)?)));
            if let Some((folio, pages)) = whole {
                behind.folios.push((folio, pages));
                if answer.folio(page).is_none() {
                    behind.splits = behind.splits.or(&pages);
                }
                rest = rest.without(&pages);
            } else {
                behind.partial.insert(page);
                rest = rest.without(&PageMask::span(page, page + 1));
            }
        }
        Some(behind)
    }

    /// The pages that are mapped more than once.
    fn shared(&self, process: &mut VaddrTarget, answer: &WindowAnswer<'_>) -> PageMask {
        // Pages of the block outside of the area are no evidence about it.
        let noted = (pages_in_block(self.block, self.area), self.area.start);
        process.shared(self.block, &self.pages, noted, |page| answer.mapped(page))
    }

    /// The pages of the folio that contains `page`, if all of them are mapped here, in order.
    fn pages_of(&self, page: usize, folio: Folio, answer: &WindowAnswer<'_>) -> Option<PageMask> {
        if folio.order == 0 {
            return Some(PageMask::span(page, page + 1));
        }
        let range = whole(self.block + page as u64 * PAGE_SIZE, folio, self.area)?;
        let first = usize::try_from(range.start.checked_sub(self.block)? / PAGE_SIZE).ok()?;
        let end = first + (1usize << folio.order);
        let frame = |i| Some(answer.entry(i)).filter(|e| e.is_resident()).map(|e| e.frame());
        let all = first == page && is_whole((first..end).map(frame));
        all.then_some(PageMask::span(first, end))
    }
}

/// Classifies the pages of `sorted` that are not plain.
pub(super) fn sort_folios(
    walker: &mut Walker,
    process: &mut VaddrTarget,
    sorted: &mut [ClassifiedBlock],
) -> Result<(), OpsError> {
    let open = sorted.iter_mut().map(|s| (s.special(), s));
    let (asked, open): (Vec<Special>, Vec<&mut ClassifiedBlock>) =
        open.filter(|(special, _)| !special.pages.is_empty()).unzip();
    let found = behind(walker, process, &asked)?;
    for ((s, special), behind) in open.into_iter().zip(&asked).zip(found) {
        match behind {
            Some(behind) => s.sort_folios(&behind),
            None => s.keep(Unknown::Unseen, special.pages),
        }
    }
    Ok(())
}

impl ClassifiedBlock {
    /// The pages that are neither plain nor classified yet.
    fn special(&self) -> Special {
        let pages = match self.block.plain {
            Some(plain) if self.hidden.is_empty() && !self.block.huge => {
                self.block.resident.without(&plain)
            }
            _ => PageMask::default(),
        };
        Special { block: self.block.start, area: self.area, pages }
    }

    fn sort_folios(&mut self, behind: &Behind) {
        let is_kept = |pages: &PageMask| behind.splits.and(pages).is_empty();
        for (folio, pages) in behind.folios.iter().filter(|(_, pages)| is_kept(pages)) {
            self.sort_folio(*folio, *pages, behind.shared);
        }
        let partial = behind.partial.or(&behind.splits);
        self.hidden.push((Unknown::Shared, behind.shared));
        self.hidden.push((Unknown::Partial, partial.and(&self.block.young)));
        self.kept = self.kept.or(&partial);
    }

    /// Classifies a folio whose `pages` are all mapped. No range ends inside it, so that a range may cover it:
    /// the kernel skips folios that are shared or on no LRU list.
    fn sort_folio(&mut self, folio: Folio, pages: PageMask, shared: PageMask) {
        let young = self.block.young.and(&pages);
        if !shared.and(&pages).is_empty() {
            self.hidden.push((Unknown::Shared, pages));
        } else if young.is_empty() {
            // Its accesses will be observed; nothing to clear.
        } else if !folio.on_lru {
            self.hidden.push((Unknown::Unseen, young));
        } else if young.and(&self.asked).is_empty() {
            self.kept = self.kept.or(&pages);
        } else {
            self.wanted = self.wanted.or(&pages);
            self.kept = self.kept.without(&pages);
        }
    }
}
