//! Time as columns.

use std::ops::Range;
use std::time::Duration;

use crate::basis::{Basis, GapFigures};

/// The columns of `time` that `part` overlaps, and its seconds in each.
pub(crate) fn column_shares(
    part: &Range<Duration>,
    time: &Range<Duration>,
    columns: usize,
) -> Vec<(usize, f32)> {
    let width = (time.end.saturating_sub(time.start)).as_secs_f64() / columns as f64;
    let seconds = |d: Duration| d.saturating_sub(time.start).as_secs_f64();
    let (start, end) = (seconds(part.start), seconds(part.end.min(time.end)));
    let (first, last) = ((start / width) as usize, (end / width).ceil() as usize);
    (first..last.min(columns))
        .map(|c| (c, end.min((c + 1) as f64 * width) - start.max(c as f64 * width)))
        .filter(|&(_, seconds)| seconds > 0.0)
        .map(|(c, seconds)| (c, seconds as f32))
        .collect()
}

/// The columns that each gap overlaps, where `width` columns show the time of `basis`: at least one per gap.
pub(crate) fn gap_columns(basis: &Basis, width: usize) -> Vec<Range<usize>> {
    let span = (basis.to_ms - basis.from_ms).max(f64::MIN_POSITIVE);
    let at = |ms: f64| ((ms - basis.from_ms) / span).clamp(0.0, 1.0) * width as f64;
    let columns = |g: &GapFigures| {
        let start = (at(g.from_ms).round() as usize).min(width.saturating_sub(1));
        start..(at(g.to_ms).round() as usize).clamp(start + 1, width.max(start + 1))
    };
    basis.gaps.iter().map(columns).collect()
}
