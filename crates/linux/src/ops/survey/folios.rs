//! Pages that are not plain: of large folios, mapped more than once, or too new.

use isotherm_core::{AddrRange, BLOCK_SIZE, OpsError, PAGE_SIZE, PageMask, Unknown};

use super::clear::Sorted;
use crate::ops::process::Process;
use crate::ops::shape::{is_whole, whole};
use crate::walker::{Answer, WalkError, Walker, Want, fitting};
use crate::x86::{Folio, Level};

/// Finds out about the pages of `sorted` that are not plain.
pub(super) fn sort_folios(
    walker: &mut Walker,
    process: &mut Process,
    sorted: &mut [Sorted],
) -> Result<(), OpsError> {
    let mut open: Vec<&mut Sorted> =
        sorted.iter_mut().filter(|s| !s.special().is_empty()).collect();
    let mut rest = &mut open[..];
    while !rest.is_empty() {
        let n = fitting(rest.iter().map(|s| s.window())).clamp(1, rest.len());
        let (now, later) = rest.split_at_mut(n);
        match walker.read(process.pid, now.iter().map(|s| (s.window(), Want::Folios))) {
            Ok(batch) if batch.identity == process.identity => {
                now.iter_mut().zip(batch.answers()).for_each(|(s, a)| s.sort_folios(process, &a));
            }
            Ok(_) | Err(WalkError::NoTask(_) | WalkError::NoMemory(_)) => {
                now.iter_mut().for_each(|s| s.keep(Unknown::Unseen, s.special()));
            }
            Err(e) => return Err(OpsError::Failed(e.to_string())),
        }
        rest = later;
    }
    Ok(())
}

impl Sorted {
    /// What is neither plain nor told yet.
    fn special(&self) -> PageMask {
        match self.block.plain {
            Some(plain) if self.hidden.is_empty() => self.block.resident.without(&plain),
            _ => PageMask::default(),
        }
    }

    fn window(&self) -> AddrRange {
        AddrRange::new(self.block.start, self.block.start + BLOCK_SIZE)
    }

    fn sort_folios(&mut self, process: &mut Process, answer: &Answer<'_>) {
        let special = self.special();
        if answer.level != Level::Pte {
            // Another table, or a huge page by now.
            self.keep(Unknown::Unseen, special);
            return;
        }
        let shared = self.shared(process, answer, special);
        let (mut rest, mut partial) = (special, PageMask::default());
        let first = |rest: PageMask| rest.iter().next();
        while let Some(page) = first(rest) {
            let folio = answer.folio(page);
            let whole = folio.and_then(|f| Some((f, self.pages_of(page, f, answer)?)));
            if let Some((folio, pages)) = whole {
                self.sort_folio(folio, pages, shared);
                rest = rest.without(&pages);
            } else {
                partial.insert(page);
                rest = rest.without(&PageMask::span(page, page + 1));
            }
        }
        self.hidden.push((Unknown::Shared, shared));
        self.hidden.push((Unknown::Partial, partial.and(&self.block.young)));
        self.kept = self.kept.or(&partial);
    }

    /// Which of the pages that are not plain are mapped more than once.
    fn shared(&self, process: &mut Process, answer: &Answer<'_>, special: PageMask) -> PageMask {
        let mapped = |page| answer.folio(page).map_or(0, |f| f.mapped);
        if special.iter().all(|page| mapped(page) > 0) {
            let shared = PageMask::of(512, |page| special.contains(page) && mapped(page) > 1);
            return process.note_shared(shared, self.area.start);
        }
        // Kernels that do not count single pages of large folios.
        process.shared(self.window(), self.area.start).and(&special)
    }

    /// Decides on a folio all of whose `pages` are mapped. No range ends within it, so that it may be
    /// covered; the kernel passes over what is shared, or on no list.
    fn sort_folio(&mut self, folio: Folio, pages: PageMask, shared: PageMask) {
        let young = self.block.young.and(&pages);
        if !shared.and(&pages).is_empty() {
            self.hidden.push((Unknown::Shared, pages));
        } else if young.is_empty() {
            // It will show as it is.
        } else if !folio.on_lru {
            self.hidden.push((Unknown::Unseen, young));
        } else if young.and(&self.asked).is_empty() {
            self.kept = self.kept.or(&pages);
        } else {
            self.wanted = self.wanted.or(&pages);
            self.kept = self.kept.without(&pages);
        }
    }

    /// The pages of the folio that `page` belongs to, if all of them are mapped here, one after the
    /// other.
    fn pages_of(&self, page: usize, folio: Folio, answer: &Answer<'_>) -> Option<PageMask> {
        if folio.order == 0 {
            return Some(PageMask::span(page, page + 1));
        }
        let range = whole(self.block.start + page as u64 * PAGE_SIZE, folio, self.area)?;
        let first = usize::try_from(range.start.checked_sub(self.block.start)? / PAGE_SIZE).ok()?;
        let end = first + (1usize << folio.order);
        let frame = |i| Some(answer.entry(i)).filter(|e| e.is_resident()).map(|e| e.frame());
        let all = first == page && is_whole((first..end).map(frame));
        all.then_some(PageMask::span(first, end))
    }
}
