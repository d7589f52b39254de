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
        let young = self.block.young.and(&special);
        if answer.level != Level::Pte {
            // Another table, or a huge page by now.
            self.keep(Unknown::Unseen, special);
            return;
        }
        let told = |page| answer.folio(page);
        let counted = special.iter().all(|page| told(page).is_some_and(|f| f.mapped > 0));
        let shared = if counted {
            PageMask::of(512, |page| {
                special.contains(page) && told(page).is_some_and(|f| f.mapped > 1)
            })
        } else {
            process.shared(self.window(), self.area.start).and(&special)
        };
        process.note_shared(shared, self.area.start);
        let (mut new, mut partial) = (PageMask::default(), PageMask::default());
        let mut page = 0;
        while page < 512 {
            let this = page;
            page += 1;
            if !special.contains(this) {
                continue;
            }
            let Some(folio) = told(this) else {
                partial.insert(this);
                continue;
            };
            let Some(pages) = self.pages_of(this, folio, answer) else {
                partial.insert(this);
                continue;
            };
            page = pages.end;
            let all = PageMask::span(pages.start, pages.end);
            let (touched, asked) = (young.and(&all), young.and(&all).and(&self.asked));
            if touched.is_empty() || !shared.and(&all).is_empty() {
            } else if !folio.on_lru {
                new = new.or(&touched);
            } else if asked.is_empty() {
                self.kept = self.kept.or(&all);
            } else {
                self.wanted = self.wanted.or(&all);
                self.kept = self.kept.without(&all);
            }
        }
        self.hidden.push((Unknown::Shared, shared));
        self.hidden.push((Unknown::Unseen, new.without(&shared)));
        self.hidden.push((Unknown::Partial, partial.and(&young).without(&shared)));
        self.kept = self.kept.or(&partial);
    }

    /// The pages of the folio that `page` belongs to, if all of them are mapped here, one after the
    /// other.
    fn pages_of(
        &self,
        page: usize,
        folio: Folio,
        answer: &Answer<'_>,
    ) -> Option<std::ops::Range<usize>> {
        if folio.order == 0 {
            return Some(page..page + 1);
        }
        let range = whole(self.block.start + page as u64 * PAGE_SIZE, folio, self.area)?;
        let first = usize::try_from(range.start.checked_sub(self.block.start)? / PAGE_SIZE).ok()?;
        let pages = first..first + (1usize << folio.order);
        let frame = |i| Some(answer.entry(i)).filter(|e| e.is_resident()).map(|e| e.frame());
        (pages.start == page && is_whole(pages.clone().map(frame))).then_some(pages)
    }
}
