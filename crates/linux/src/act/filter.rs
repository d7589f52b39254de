//! Filters of pages.

use std::time::Duration;

use isotherm_core::{BLOCK_SIZE, PAGE_SIZE, PageFilter, PageKind, PageMask, align_down};

use super::pieces::{Piece, nodes};
use crate::ops::process::VaddrTarget;
use crate::sys::monotonic;

/// Removes the pieces that filters reject.
pub(super) fn let_through(process: &VaddrTarget, filters: &[PageFilter], pieces: &mut Vec<Piece>) {
    if filters.is_empty() || pieces.is_empty() {
        return;
    }
    let nodes = match ask_for_nodes(filters) {
        true => nodes(process, pieces),
        false => Vec::new(),
    };
    let mut nodes = nodes.into_iter();
    let now = monotonic();
    // Pieces are in order of addresses, so the last block is the next one mostly.
    let mut last: Option<(u64, Duration, PageMask)> = None;
    let mut touched = |p: &Piece, within| {
        let Some(history) = &process.touched else { return true };
        let start = align_down(p.start, BLOCK_SIZE);
        if last.is_none_or(|(of, time, _)| (of, time) != (start, within)) {
            last = Some((start, within, history.recent(start, within, now)));
        }
        let page = ((p.start - start) / PAGE_SIZE) as usize;
        last.is_none_or(|(.., recent)| recent.count_in(page, page + p.pages as usize) > 0)
    };
    pieces.retain(|p| lets_through(filters, p, nodes.next().flatten(), |time| touched(p, time)));
}

/// Whether `piece` passes: the first filter that it matches decides. If it matches none, it passes if there
/// is no filter, or if the last one rejects. `node` returns its node, `touched` whether it was touched within
/// a time.
fn lets_through(
    filters: &[PageFilter],
    piece: &Piece,
    node: Option<u32>,
    mut touched: impl FnMut(Duration) -> bool,
) -> bool {
    let mut is_of = |kind: PageKind| match kind {
        PageKind::HugePage { min, max } => (min..=max).contains(&piece.bytes()),
        PageKind::Node(wanted) => node == Some(wanted),
        PageKind::Young => piece.young,
        PageKind::Touched { within } => piece.young || touched(within),
    };
    match filters.iter().find(|f| is_of(f.kind) == f.matching) {
        Some(filter) => filter.allow,
        None => filters.last().is_none_or(|last| !last.allow),
    }
}

/// Whether a filter needs nodes.
fn ask_for_nodes(filters: &[PageFilter]) -> bool {
    filters.iter().any(|f| matches!(f.kind, PageKind::Node(_)))
}

/// Whether a filter needs the time of the last touch.
pub(super) fn ask_for_touched(filters: &[PageFilter]) -> bool {
    filters.iter().any(|f| matches!(f.kind, PageKind::Touched { .. }))
}

/// The time within which the first filter rejects touched pages: no such page passes.
pub(super) fn rejects_within(filters: &[PageFilter]) -> Option<Duration> {
    filters.first().filter(|f| f.matching && !f.allow).and_then(|f| match f.kind {
        PageKind::Touched { within } => Some(within),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_AGO: Duration = Duration::from_secs(9);
    const HUGE: PageKind = PageKind::HugePage { min: 2 << 20, max: 2 << 20 };

    fn lets(filters: &[PageFilter], pages: u32, young: bool, on: u32) -> bool {
        let piece = Piece { start: 0, pages, young, swaps: true, area: 0 };
        lets_through(filters, &piece, Some(on), |time| time > LONG_AGO)
    }

    fn f(kind: PageKind, matching: bool, allow: bool) -> PageFilter {
        PageFilter { kind, matching, allow }
    }

    #[test]
    fn the_first_that_answers_decides() {
        let young_or_huge = [f(PageKind::Young, true, false), f(HUGE, true, true)];
        assert!(!lets(&young_or_huge, 512, true, 0));
        assert!(lets(&young_or_huge, 512, false, 0));
        assert!(!lets(&young_or_huge, 1, false, 0), "the last one allows: all else is held back");
    }

    #[test]
    fn recent_touches_are_recognized_by_time() {
        let not = |s| [f(PageKind::Touched { within: Duration::from_secs(s) }, true, false)];
        assert!(lets(&not(9), 1, false, 0) && !lets(&not(10), 1, false, 0));
        assert!(!lets(&not(9), 1, true, 0), "it is young right now");
        assert!(ask_for_touched(&not(9)) && !ask_for_touched(&[]));
        assert_eq!(rejects_within(&not(9)), Some(Duration::from_secs(9)));
        let huge_first = [f(HUGE, true, true), not(9)[0]];
        assert_eq!(rejects_within(&huge_first), None, "touched huge pages pass");
    }

    #[test]
    fn without_a_matching_filter_the_last_one_decides() {
        assert!(lets(&[], 1, true, 0));
        assert!(lets(&[f(HUGE, true, false)], 1, true, 0));
        assert!(!lets(&[f(HUGE, true, true)], 1, true, 0));
        assert!(lets(&[f(HUGE, false, true)], 1, true, 0), "matching by not being");
        assert!(!lets(&[f(PageKind::Node(1), true, false)], 1, true, 1));
        assert!(lets(&[f(PageKind::Node(1), true, false)], 1, true, 0));
        assert!(ask_for_nodes(&[f(PageKind::Node(1), true, false)]) && !ask_for_nodes(&[]));
    }
}
