//! Flushing the TLBs of another process, after `clear_refs` has cleared its accessed bits without.
//!
//! No system call is made for that, but two do it by the way; the cheaper and surer one first.

use isotherm_core::{AddrRange, MappingKind, OpsError, PAGE_SIZE, PageMask, align_down};

use crate::ops::clear::advise_cold;
use crate::ops::process::Process;
use crate::ops::shape::{Pages, plan};
use crate::ops::window::resident_and_young;
use crate::sys::monotonic;
use crate::walker::{Walker, Want, in_blocks};
use crate::x86::HUGE_SIZE;

/// A flush of more pages than this (`tlb_single_page_flush_ceiling`) is a flush of all.
const CEILING: u64 = 33;
/// Tables (2 MiB) in which young private memory is sought.
const TRIES: usize = 64;

/// Flushes all of it; `false` if there is no way.
///
/// Where the kernel has no soft-dirty bits, clearing these is nothing but a flush. Elsewhere, clearing
/// two young private pages that lie far apart flushes everything.
pub(super) fn flush(
    walker: &mut Walker,
    process: &mut Process,
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
    process: &mut Process,
) -> Result<bool, OpsError> {
    let Some((range, young)) = far_apart(walker, process)? else { return Ok(false) };
    process.note_touched(align_down(range.start, HUGE_SIZE), &young, monotonic());
    // Where this is not permitted, there is no flush.
    Ok(advise_cold(process, &[range]).is_ok_and(|failed| failed.is_empty()))
}

/// A range that may be cleared as it is and goes from one young page to another one, far behind it; and which
/// pages of the block that it lies in are young.
fn far_apart(
    walker: &mut Walker,
    process: &mut Process,
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
        .take(TRIES)
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
        // Pages mapped more than once would be passed over, and with them the flush.
        let single = |i| answer.folio(i).is_some_and(|f| f.mapped == 1);
        let young = young.and(&PageMask::of(pages, single));
        let level = answer.level;
        let pages = Pages { window: table, area, level, mapped: &mapped, young: &young };
        let ranges = plan(&pages, |i| answer.folio(i)).ranges;
        if let Some(&range) = ranges.iter().find(|r| r.len() > CEILING * PAGE_SIZE) {
            let first = (table.start % HUGE_SIZE / PAGE_SIZE) as usize;
            let in_block = |i: usize| i >= first && young.contains(i - first);
            return Ok(Some((range, PageMask::of(512, in_block))));
        }
    }
    Ok(None)
}
