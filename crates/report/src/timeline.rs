//! A value over time, as a limited number of points.

use std::ops::Range;
use std::time::Duration;

use serde::Serialize;

use crate::basis::ms;

/// Maximum number of points. A picture has fewer columns.
const MAX_POINTS: usize = 2048;

/// One snapshot, or several consecutive ones.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TimelinePoint {
    /// start, since the start of the recording
    pub from_ms: f64,
    /// end, since the start of the recording
    pub to_ms: f64,
    /// mean over that time
    pub mean: f64,
    /// minimum over its snapshots
    pub min: u64,
    /// maximum over its snapshots
    pub max: u64,
}

/// Makes points: at first one per snapshot, later one per 2, 4, 8, ... snapshots.
#[derive(Debug, Clone)]
pub(crate) struct Timeline {
    /// with the seconds that its snapshots cover, which may have pauses between them
    points: Vec<(TimelinePoint, f64)>,
    /// snapshots per point
    each: u64,
    in_last: u64,
}

impl Timeline {
    pub(crate) fn new() -> Self {
        Timeline { points: Vec::new(), each: 1, in_last: 0 }
    }

    /// Adds the value of a snapshot.
    pub(crate) fn push(&mut self, time: &Range<Duration>, value: u64) {
        let (from_ms, to_ms) = (ms(time.start), ms(time.end));
        let point = TimelinePoint { from_ms, to_ms, mean: value as f64, min: value, max: value };
        let point = (point, (time.end - time.start).as_secs_f64());
        let is_apart = self.points.last().is_some_and(|last| are_apart(last, &point));
        if self.points.len() >= MAX_POINTS && (is_apart || self.in_last >= self.each) {
            self.points = halved(&self.points);
            // Where only pauses force it, the points are of as few snapshots as before.
            if self.in_last >= self.each {
                self.each *= 2;
            }
            self.in_last = self.each;
        }
        match self.points.last_mut() {
            Some(last) if self.in_last < self.each && !is_apart => {
                *last = join(*last, point);
                self.in_last += 1;
            }
            _ => {
                self.points.push(point);
                self.in_last = 1;
            }
        }
    }

    pub(crate) fn points(self) -> Vec<TimelinePoint> {
        self.points.into_iter().map(|(point, _)| point).collect()
    }
}

/// Whether there is a pause before `b` that is longer than the time that `a` covers.
fn are_apart(a: &(TimelinePoint, f64), b: &(TimelinePoint, f64)) -> bool {
    b.0.from_ms - a.0.to_ms > a.1 * 1e3
}

/// Half as many points. Only if there are too many pauses, points are joined over them.
fn halved(points: &[(TimelinePoint, f64)]) -> Vec<(TimelinePoint, f64)> {
    let join_pair = |pair: &[(TimelinePoint, f64)]| match pair {
        [a, b] if are_apart(a, b) => pair.to_vec(),
        [a, .., b] => vec![join(*a, *b)],
        _ => pair.to_vec(),
    };
    let found: Vec<_> = points.chunks(2).flat_map(join_pair).collect();
    if found.len() < MAX_POINTS / 4 * 3 {
        return found;
    }
    let join_any = |pair: &[(TimelinePoint, f64)]| match pair {
        [a, b] => join(*a, *b),
        _ => pair[0],
    };
    points.chunks(2).map(join_any).collect()
}

fn join((a, of_a): (TimelinePoint, f64), (b, of_b): (TimelinePoint, f64)) -> (TimelinePoint, f64) {
    let point = TimelinePoint {
        from_ms: a.from_ms,
        to_ms: b.to_ms,
        mean: (a.mean * of_a + b.mean * of_b) / (of_a + of_b),
        min: a.min.min(b.min),
        max: a.max.max(b.max),
    };
    (point, of_a + of_b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(n: u64) -> Vec<TimelinePoint> {
        let mut t = Timeline::new();
        let ms = Duration::from_millis;
        (0..n).for_each(|i| t.push(&(ms(i * 100)..ms((i + 1) * 100)), i));
        t.points()
    }

    #[test]
    fn a_point_is_a_snapshot_as_long_as_there_is_room() {
        let points = timeline(3);
        let last = TimelinePoint { from_ms: 200.0, to_ms: 300.0, mean: 2.0, min: 2, max: 2 };
        assert_eq!((points.len(), points[2]), (3, last));
    }

    #[test]
    fn later_points_are_snapshots_that_follow_each_other() {
        for n in [MAX_POINTS as u64 + 1, 5000, 100_001] {
            let points = timeline(n);
            assert!((MAX_POINTS / 2..=MAX_POINTS).contains(&points.len()), "{n}: {}", points.len());
            assert!(points.windows(2).all(|w| w[0].max + 1 == w[1].min), "{n}");
            assert!((points[0].mean - points[0].max as f64 / 2.0).abs() < 1e-6);
            assert_eq!(points.last().map(|p| p.max), Some(n - 1));
        }
    }

    /// A pause of an hour lies between two snapshots that would become one point. Found by a review: the hour had a mean.
    #[test]
    fn points_do_not_extend_over_pauses() {
        let mut t = Timeline::new();
        let s = Duration::from_secs;
        for i in 0..4 * MAX_POINTS as u64 {
            let start = s(i + if i > 4 { 3600 } else { 0 });
            t.push(&(start..start + s(1)), i);
        }
        let points = t.points();
        assert!(points.len() <= MAX_POINTS && points.iter().all(|p| p.to_ms - p.from_ms < 1e5));
        let covered: f64 = points.iter().map(|p| p.to_ms - p.from_ms).sum();
        assert_eq!(covered, 4e3 * MAX_POINTS as f64);
    }

    #[test]
    fn any_number_of_pauses_gives_a_limited_number_of_points() {
        let mut t = Timeline::new();
        let s = Duration::from_secs;
        for i in 0..20_000 {
            t.push(&(s(10 * i)..s(10 * i + 1)), i);
            assert!(t.points.len() <= MAX_POINTS);
        }
        assert_eq!(t.points().last().map(|p| p.max), Some(19_999));
    }
}
