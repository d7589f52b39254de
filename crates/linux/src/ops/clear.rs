//! Clears the accessed bits of windows by `MADV_COLD`.

use std::collections::HashSet;
use std::os::fd::AsFd;

use isotherm_core::{AddrRange, Ask, OpsError, PAGE_SIZE};

use super::held::AttachError;
use super::process::VaddrTarget;
use super::shape::is_whole;
use super::window::Window;
use crate::sys::{MemoryAdvice, advise_all, monotonic};
use crate::walker::{Walker, Want, WindowAnswer, fitting};
use crate::x86::Level;

/// Ranges cleared between two time stamps: at 10 to 25 us each, the error of a stamp is at most 1.6 ms.
const WINDOWS_PER_CALL: usize = 64;

/// Decides on the large folios of the plans: they may be cleared only if they are mapped completely.
pub(super) fn check_folios(
    walker: &mut Walker,
    process: &VaddrTarget,
    windows: &mut [Window],
) -> Result<(), OpsError> {
    let works = windows.iter().filter_map(|w| w.work.as_ref());
    let wanted: HashSet<AddrRange> = works.flat_map(|w| w.clear.folios.iter().copied()).collect();
    let mut whole = HashSet::new();
    let mut rest: &[AddrRange] = &wanted.into_iter().collect::<Vec<_>>();
    while !rest.is_empty() {
        let n = fitting(rest.iter().copied()).max(1).min(rest.len());
        let (now, later) = rest.split_at(n);
        let read = walker.read(process.pid, now.iter().map(|&r| (r, Want::Entries)));
        if let Some(batch) = process.as_it_was(read, |batch| Some(batch.identity))? {
            let pairs = now.iter().zip(batch.answers());
            whole.extend(pairs.filter(|(r, a)| is_mapped_whole(**r, a)).map(|(r, _)| *r));
        }
        rest = later;
    }
    for w in windows.iter_mut().filter_map(|w| w.work.as_mut()) {
        for folio in std::mem::take(&mut w.clear.folios) {
            if whole.contains(&folio) {
                w.clear.ranges.push(folio);
            } else {
                w.pages_of(folio).for_each(|page| w.partial.insert(page));
            }
        }
    }
    Ok(())
}

fn is_mapped_whole(range: AddrRange, answer: &WindowAnswer<'_>) -> bool {
    let pages = usize::try_from(range.len() / PAGE_SIZE).unwrap_or(0);
    let frame = |i| Some(answer.entry(i)).filter(|e| e.is_resident()).map(|e| e.frame());
    answer.level == Level::Pte && is_whole((0..pages).map(frame))
}

/// Clears the planned ranges of the asks that request it; returns the number of ranges. If the kernel refuses a
/// range, its window is dropped.
pub(super) fn clear(
    process: &VaddrTarget,
    asks: &[Ask],
    windows: &mut [Window],
) -> Result<u64, OpsError> {
    let mut done = HashSet::new();
    let mut todo: Vec<(AddrRange, usize)> = Vec::new();
    let wanted = asks.iter().zip(windows.iter()).enumerate().filter(|(_, (a, _))| a.clear);
    for (i, w) in wanted.filter_map(|(i, (_, w))| Some((i, w.work.as_ref()?))) {
        // Two windows may lie in one huge page or folio: both were read, but it is cleared once.
        todo.extend(w.clear.ranges.iter().filter(|r| done.insert(**r)).map(|r| (*r, i)));
    }
    let mut cleared = 0;
    for part in todo.chunks(WINDOWS_PER_CALL) {
        let ranges: Vec<AddrRange> = part.iter().map(|(r, _)| *r).collect();
        let failed = advise_cold(process, &ranges)?;
        cleared += (ranges.len() - failed.len()) as u64;
        let at = monotonic();
        for (k, (_, i)) in part.iter().enumerate() {
            if let Some(w) = windows.get_mut(*i) {
                w.seen.cleared_at = at;
                if failed.contains(&k) {
                    *w = Window::dropped();
                }
            }
        }
    }
    Ok(cleared)
}

/// Gives the advice for all `ranges`; returns the indices of the ranges that the kernel refuses.
///
/// # Errors
/// If isotherm may not give advice to this process.
pub(crate) fn advise_cold(
    process: &VaddrTarget,
    ranges: &[AddrRange],
) -> Result<Vec<usize>, OpsError> {
    let failed = advise_all(process.pidfd.as_fd(), ranges, MemoryAdvice::Cold);
    let mut refused = Vec::new();
    for (index, source) in failed {
        if source.raw_os_error() == Some(libc::EPERM) {
            let e = AttachError::NoClearing { pid: process.pid, source };
            return Err(OpsError::Failed(e.to_string()));
        }
        refused.push(index);
    }
    Ok(refused)
}
