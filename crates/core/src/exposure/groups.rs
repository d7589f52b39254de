//! Groups of adjacent windows that the data cannot distinguish.

use std::ops::Range;

use super::piece::Piece;
use super::summary::WindowRow;
use super::timing::ExposureTerms;
use crate::bins::PAGES_PER_INDEPENDENT_OBSERVATION;
use crate::borders::{
    FIRST_PASS, GroupKind, Joined, MERGE_EQUAL, MergeThresholds, WindowGroup, as_old, cover, fit,
};
use crate::range::AddrRange;
use crate::tuning::MAX_REGION_TURN;
use crate::unknown::Unknown;

/// Pages of a huge page that count as one independent observation: a huge page has one accessed bit.
const PAGES_PER_INDEPENDENT_OBSERVATION_OF_HUGE: f64 = 64.0;
/// A touched part of each region is cleared again within this time, in ms.
const CLEARED_LATELY_MS: u32 = MAX_REGION_TURN.as_millis() as u32;

/// The windows of `pieces` as groups that cover `areas` (sorted, disjoint), at most `max` of them if
/// possible. With `all`, only windows without any difference are joined.
///
/// Neighbours are joined if neither was touched, for about the same time; if their rates differ little; or if
/// two rates are hardly more likely than one. The threshold rises in steps to its full value, so that the
/// most similar neighbours are joined first. It rises further until at most `max` groups remain.
pub(super) fn groups(
    pieces: &[Piece],
    areas: &[AddrRange],
    t: &ExposureTerms,
    now: u32,
    max: usize,
    all: bool,
) -> Vec<WindowGroup> {
    let first = if all { MERGE_EQUAL } else { FIRST_PASS };
    let mut joined = Joined::new(first, all, now);
    let parts = |p: &Piece, i: usize, out: &mut Joined| {
        if let Some(kind) = calm(p, t, first, now) {
            let windows = Some(((i, 0), (i, p.nr_windows())));
            return out.push(WindowGroup { range: p.range, kind, windows });
        }
        let lately = p.is_cleared_within(CLEARED_LATELY_MS, now);
        let push = |row: &WindowRow, out: &mut Joined| {
            let first = row.end - row.windows;
            let range =
                AddrRange::new(p.window_range(first).start, p.window_range(row.end - 1).end);
            let windows = Some(((i, first), (i, row.end)));
            out.push_row(
                WindowGroup { range, kind: row.kind.at(now, lately), windows },
                row.windows,
            );
        };
        match p.summary() {
            Some(summary) => summary.rows.iter().for_each(|row| push(row, out)),
            None => {
                let rows = rows(p, &p.runs(0..p.nr_windows()), t);
                rows.iter().for_each(|row| push(row, out));
            }
        }
    };
    cover(pieces, |p| p.range, parts, areas, &mut joined);
    fit(joined, max)
}

/// The group of a calm piece as a whole. Most memory is cold and needs no work per window.
fn calm(piece: &Piece, t: &ExposureTerms, first: MergeThresholds, now: u32) -> Option<GroupKind> {
    let calm = piece.calm().filter(|c| as_old(c.touched, first, now))?;
    let e = piece.idle(t).1
        / if piece.huge {
            PAGES_PER_INDEPENDENT_OBSERVATION_OF_HUGE
        } else {
            PAGES_PER_INDEPENDENT_OBSERVATION
        };
    Some(GroupKind::Seen { d: 0.0, e, reactivated: false, lately: false, touched: calm.touched })
}

/// The state of each of these windows, independent of the present time: see [`GroupKind::at`].
fn kinds<'a>(
    piece: &'a Piece,
    windows: impl Iterator<Item = usize> + 'a,
    t: &'a ExposureTerms,
) -> impl Iterator<Item = GroupKind> + 'a {
    let hidden = piece.unseen_pages();
    let unseen = if piece.is_seen() { None } else { Some(Unknown::Unseen) };
    windows.map(move |i| {
        let resident = piece.resident_in(i);
        let lost = piece.count(&hidden, i).saturating_sub(piece.window(i).reported);
        if resident == 0 {
            return GroupKind::Absent;
        }
        if lost > resident / 2 {
            let why = piece.hidden().map(|(why, _)| why).next();
            return GroupKind::Hidden(why.unwrap_or(Unknown::Unseen));
        }
        if let Some(why) = unseen {
            return GroupKind::Hidden(why);
        }
        let evidence = piece.evidence(i, t);
        let alike = match evidence.d {
            _ if piece.huge => PAGES_PER_INDEPENDENT_OBSERVATION_OF_HUGE,
            0.0 => PAGES_PER_INDEPENDENT_OBSERVATION,
            // Pages touched together count as two observations; a page that is always touched counts as one.
            _ => f64::from(piece.window(i).touched_at_once())
                .clamp(1.0, PAGES_PER_INDEPENDENT_OBSERVATION),
        };
        let (d, e) = (f64::from(evidence.d) / alike, f64::from(evidence.e) / alike);
        let touched = piece.touched(i);
        let reactivated = piece.is_reactivated(i);
        let lately = !reactivated && piece.is_found(i);
        GroupKind::Seen { d, e, reactivated, lately, touched: (touched, touched) }
    })
}

/// The windows of a piece, see [`Piece::runs`], in rows of equal windows, independent of the present time: see
/// [`GroupKind::at`].
pub(super) fn rows(piece: &Piece, runs: &[Range<usize>], t: &ExposureTerms) -> Box<[WindowRow]> {
    let mut rows: Vec<WindowRow> = Vec::new();
    let kinds = kinds(piece, runs.iter().map(|run| run.start), t);
    for (kind, run) in kinds.zip(runs) {
        let (windows, end) = (run.len(), run.end);
        match rows.last_mut().filter(|row| row.kind == kind) {
            Some(row) => (row.windows, row.end) = (row.windows + windows, end),
            None => rows.push(WindowRow { kind, windows, end }),
        }
    }
    rows.into()
}
