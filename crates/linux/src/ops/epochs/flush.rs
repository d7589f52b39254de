//! Flushes the TLBs of another process after `clear_refs` has cleared its accessed bits without a flush.
//!
//! No system call exists for that, but two have it as a side effect. The cheaper and more reliable one is tried
//! first.

use isotherm_core::{AddrRange, MappingKind, OpsError, PAGE_SIZE, PageMask, align_down};

use crate::ops::clear::advise_cold;
use crate::ops::process::VaddrTarget;
use crate::ops::shape::{WindowPages, plan};
use crate::ops::window::resident_and_young;
use crate::sys::monotonic;
use crate::walker::{Walker, Want, in_blocks};
use crate::x86::HUGE_SIZE;

/// A flush of more pages than this (`tlb_single_page_flush_ceiling`) flushes the complete TLB.
const CEILING: u64 = 33;
/// Number of page tables (2 MiB each) that are searched for young private memory.
const MAX_SEARCHED_TABLES: usize = 64;

/// Flushes all translations of the process; returns `false` if that is impossible.
///
/// On kernels without soft-dirty bits, clearing those bits only flushes. On other kernels, clearing two young
/// private pages with a large distance flushes everything.
pub(super) fn flush(
    walker: &mut Walker,
    process: &mut VaddrTarget,
    soft_dirty: bool,
) -> Result<bool, OpsError> {
    if !soft_dirty && process.refs.as_mut().is_some_and(|refs| refs.flush().is_ok()) {
        return Ok(true);
    }
    flush_by_advice(walker, process)
}

/// The same, without `clear_refs`.
pub(crate) fn flush_by_advice(
    walker: &mut Walker,
    process: &mut VaddrTarget,
) -> Result<bool, OpsError> {
    let Some((range, young)) = far_apart(walker, process)? else { return Ok(false) };
    process.note_touched(align_down(range.start, HUGE_SIZE), &young, monotonic());
    // If this is not permitted, there is no flush.
    Ok(advise_cold(process, &[range]).is_ok_and(|failed| failed.is_empty()))
}

/// A range that may be cleared unchanged, and that begins and ends with a young page at a large distance. Also the
/// young pages of the block that contains it.
fn far_apart(
    walker: &mut Walker,
    process: &mut VaddrTarget,
) -> Result<Option<(AddrRange, PageMask)>, OpsError> {
    use MappingKind::{Anonymous, Heap, Stack};
    let private = process.mappings.iter().filter(|m| {
        matches!(m.kind, Anonymous | Heap | Stack)
            && m.unknown.is_none()
            && !process.is_sharing(m.range.start)
    });
    let tables: Vec<(AddrRange, AddrRange)> = private
        .flat_map(|m| in_blocks(m.range).map(move |table| (table, m.range)))
        .filter(|(table, _)| table.len() > CEILING * PAGE_SIZE)
        .take(MAX_SEARCHED_TABLES)
        .collect();
    let zero = walker.zero_frames().to_vec();
    for (table, area) in tables {
        let windows = std::iter::once((table, Want::FoliosIfYoung));
        let read = walker.read(process.pid, windows);
        let Some(batch) = process.as_it_was(read, |batch| Some(batch.identity))? else {
            return Ok(None);
        };
        let Some(answer) = batch.answers().next() else { continue };
        let pages = usize::try_from(table.len() / PAGE_SIZE).unwrap_or(0);
        let (mapped, young) = resident_and_young(&answer, pages, &zero);
        // The kernel would skip pages that are mapped more than once, and would then not flush.
        let single = |i| answer.folio(i).is_some_and(|f| f.mapped == 1);
        let young = young.and(&PageMask::of(pages, single));
        let level = answer.level;
        let pages = WindowPages { window: table, area, level, mapped: &mapped, young: &young };
        let ranges = plan(&pages, |i| answer.folio(i)).ranges;
        if let Some(&range) = ranges.iter().find(|r| r.len() > CEILING * PAGE_SIZE) {
            let first = (table.start % HUGE_SIZE / PAGE_SIZE) as usize;
            let in_block = |i: usize| i >= first && young.contains(i - first);
            return Ok(Some((range, PageMask::of(512, in_block))));
        }
    }
    Ok(None)
}
