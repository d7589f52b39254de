//! Time as columns.

use std::ops::Range;
use std::time::Duration;

/// The columns of `time` that `part` lies in, and its seconds in each.
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
