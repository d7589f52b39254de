//! Tests the walker on pages of our own, whose state is known, because reading page tables by BPF is no
//! stable interface.

mod blocks;

use std::io;
use std::sync::{Mutex, PoisonError};

use isotherm_core::AddrRange;
use rustix::mm::Advice;

use crate::sys::{OwnPages, SleepingChild};
use crate::walker::{WalkError, Walker, Want, own_pid};
use crate::x86::{Folio, HUGE_SIZE, LeafEntry, Level};

/// The walker's result differs from the true state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{page} should be seen as {expected}, but was seen as {seen}")]
pub struct ProofError {
    page: &'static str,
    expected: String,
    seen: String,
}

/// The result for one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct View {
    level: Level,
    resident: bool,
    young: bool,
    frame: u64,
    folio: Option<Folio>,
}

/// Number of attempts. Others clear accessed bits now and then, so a young page may look old. A thread that
/// moves to another CPU leaves new pages behind that cannot be cleared for a while.
const MAX_TRIES: u32 = 10;
/// Up to 31 new pages wait on their CPU, and cannot be cleared until more follow.
const SETTLE_PAGES: u64 = 64;

/// The results of the test.
pub(crate) struct Proven {
    /// frames of the zero pages
    pub zero_frames: Vec<u64>,
    /// whether the data about large folios could be tested
    pub large_folios: bool,
    /// whether the kernel counts the entries that map each of their pages
    pub counts_pages: bool,
}

/// The results for huge pages.
struct Huge {
    zero_frame: Option<u64>,
    counts_pages: bool,
}

/// A child that another thread forks maps the pages of this thread, too. Then a write to a huge page makes a small copy, and
/// large folios would count as not available.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Tests every state that is available here.
pub(crate) fn prove(walker: &mut Walker) -> Result<Proven, WalkError> {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut result = try_all(walker);
    for _ in 1..MAX_TRIES {
        if matches!(result, Err(WalkError::Proof(_))) {
            result = try_all(walker);
        }
    }
    result
}

fn try_all(walker: &mut Walker) -> Result<Proven, WalkError> {
    let mut zero_frames = vec![small_pages(walker)?];
    let huge = huge_pages(walker)?;
    zero_frames.extend(huge.as_ref().and_then(|h| h.zero_frame));
    let counts_pages = huge.as_ref().is_some_and(|h| h.counts_pages);
    Ok(Proven { zero_frames, large_folios: huge.is_some(), counts_pages })
}

/// Pages 0..6: never touched, young, made old, PROT_NONE, only read (two of them).
fn small_pages(walker: &mut Walker) -> Result<u64, WalkError> {
    let mut own = OwnPages::map(6 + SETTLE_PAGES)?;
    (1..=3).chain(6..6 + SETTLE_PAGES).for_each(|page| own.write(page, page));
    let before = first(walker, own.range(3, 1))?;
    own.protect_none(3, 1)?;
    let zeros = own.read(4) + own.read(5);
    own.advise(2..3, Advice::LinuxCold)?;
    let seen = look(walker, own.range(0, 6), Want::FoliosIfYoung)?;
    let [absent, young, old, none, zero, zero2] = seen[..] else {
        return Err(mismatch("a window of six pages", "six pages", &seen).into());
    };
    let young_page = View { level: Level::Pte, resident: true, young: true, ..young };
    expect("a page never touched", View { resident: false, young: false, ..absent }, absent)?;
    expect("a page just written", View { folio: order0(), ..young_page }, young)?;
    expect(
        "a page written, then cleared",
        View { young: false, frame: old.frame, ..young_page }.with(order0()),
        old,
    )?;
    expect("a PROT_NONE page", View { young: none.young, ..before }.with(order0()), none)?;
    let frames = [young.frame, old.frame, none.frame];
    if frames.contains(&0) || young.frame == old.frame || old.frame == none.frame {
        return Err(mismatch("three pages", "three frames", &frames).into());
    }
    expect("an untouched page just read", View { frame: zero2.frame, ..zero }, zero)?;
    blocks::agree("six pages, as bits", walker, own.range(0, 6), &seen, Some(zero.frame))?;
    expect_twice("a page that a child has too", walker, own.range(1, 1), young)?;
    if zeros != 0 || !zero.resident {
        return Err(mismatch("an untouched page just read", "the zero page", &zero).into());
    }
    Ok(zero.frame)
}

/// A huge page, young and old, which this must not split; then mapped by single entries. `None` if no huge
/// page is available.
fn huge_pages(walker: &mut Walker) -> Result<Option<Huge>, WalkError> {
    let pages = HUGE_SIZE / isotherm_core::PAGE_SIZE;
    let mut own = OwnPages::map_aligned(2 * HUGE_SIZE, HUGE_SIZE)?;
    // Without this advice the second page is small. The first one can still be made by collapsing.
    let _ = own.advise(0..2 * pages, Advice::LinuxHugepage);
    let read = own.read(pages);
    own.write(0, 1 + read);
    let mut young = first(walker, own.range(0, 16))?;
    if young.level != Level::Pmd && own.collapse(0..pages).is_ok() {
        own.write(0, 1);
        young = first(walker, own.range(0, 16))?;
    }
    if young.level != Level::Pmd {
        return Ok(None);
    }
    let order = pages.ilog2();
    let folio = Some(Folio { order, index: 0, on_lru: true, mapped: 1 });
    let want = View { resident: true, young: true, frame: young.frame, folio, ..young };
    expect("a huge page just written", want, young)?;
    own.advise(0..pages, Advice::LinuxCold)?;
    let old = first(walker, own.range(0, 16))?;
    expect("a huge page written, then cleared", View { young: false, ..want }, old)?;
    blocks::agree("a huge page, as bits", walker, own.range(0, 1), &[old], None)?;
    expect_twice("a huge page that a child has too", walker, own.range(0, 1), old)?;
    own.write(0, 2);
    let zero = first(walker, own.range(pages, 16))?;
    own.protect_read(16, 16)?;
    let index = 5;
    let _ = own.read(index);
    let mapped = first(walker, own.range(index, 1))?;
    // Not every kernel counts mappings of single pages of a huge page.
    let counted = mapped.folio.map_or(0, |f| f.mapped).min(1);
    let index_in = u32::try_from(index).unwrap_or(0);
    let folio = Some(Folio { order, index: index_in, on_lru: true, mapped: counted });
    let frame = young.frame + index;
    let want = View { level: Level::Pte, resident: true, young: true, frame, folio };
    expect("a page of a huge page mapped by single entries", want, mapped)?;
    blocks::agree("such a page, as bits", walker, own.range(index, 1), &[mapped], None)?;
    expect_twice("such a page that a child has too", walker, own.range(index, 1), mapped)?;
    let zero_frame = (zero.level == Level::Pmd && zero.resident).then_some(zero.frame);
    Ok(Some(Huge { zero_frame, counts_pages: counted > 0 }))
}

impl View {
    fn with(self, folio: Option<Folio>) -> View {
        View { folio, ..self }
    }
}

fn order0() -> Option<Folio> {
    Some(Folio { order: 0, index: 0, on_lru: true, mapped: 1 })
}

fn look(walker: &mut Walker, range: AddrRange, want: Want) -> Result<Vec<View>, WalkError> {
    let pages = usize::try_from(range.len() / isotherm_core::PAGE_SIZE).unwrap_or(0);
    let batch = walker.read(own_pid(), std::iter::once((range, want)))?;
    let Some(answer) = batch.answers().next() else { return Ok(Vec::new()) };
    let view = |i| {
        let entry: LeafEntry = answer.entry(i);
        View {
            level: answer.level,
            resident: entry.is_resident(),
            young: entry.is_young(),
            frame: entry.frame(),
            folio: answer.folio(i),
        }
    };
    Ok((0..pages).map(view).collect())
}

fn first(walker: &mut Walker, range: AddrRange) -> Result<View, WalkError> {
    let no_answer = || WalkError::OwnPages(io::Error::other("no answer for a window"));
    look(walker, range, Want::FoliosIfYoung)?.first().copied().ok_or_else(no_answer)
}

fn expect(page: &'static str, expected: View, seen: View) -> Result<(), ProofError> {
    if expected == seen { Ok(()) } else { Err(mismatch(page, &format!("{expected:?}"), &seen)) }
}

/// Checks that the number of mappings of a page becomes two if a child maps it too, and that nothing else
/// changes. Kernels that do not count mappings of single pages of large folios report 0 before and after.
fn expect_twice(
    page: &'static str,
    walker: &mut Walker,
    range: AddrRange,
    alone: View,
) -> Result<(), WalkError> {
    let _child = SleepingChild::fork().map_err(WalkError::Fork)?;
    let seen = look(walker, range, Want::Folios)?.into_iter().next();
    let folio = alone.folio.map(|f| Folio { mapped: 2 * f.mapped, ..f });
    // This check ignores whether the page is young.
    let view = seen.map(|seen| View { young: alone.young, ..seen });
    match view.filter(|view| view.folio.is_some() && *view == View { folio, ..alone }) {
        Some(view) => {
            let young = seen.is_some_and(|seen| seen.young);
            blocks::agree(page, walker, range, &[View { young, ..view }], None)
        }
        None => Err(mismatch(page, &format!("{:?}", View { folio, ..alone }), &seen).into()),
    }
}

fn mismatch(page: &'static str, expected: &str, seen: &impl std::fmt::Debug) -> ProofError {
    ProofError { page, expected: expected.to_owned(), seen: format!("{seen:?}") }
}
