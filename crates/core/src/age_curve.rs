//! How much memory is idle for T or more, and how much of such memory is touched again.

use std::sync::Arc;

use crate::ages::PageAges;
use crate::range::PAGE_SIZE;
use crate::time::Nanos;

/// Shortest idle time in s that is known well: a page is cleared some seconds after its touch.
pub const MIN_AGE_S: f64 = 5.0;
/// Known ages reach up to this share of the time for which ages were counted.
pub const KNOWN_SHARE: f64 = 2.0 / 3.0;
/// Largest share of unknown memory with which a record answers how much memory is needed.
const MAX_UNKNOWN_SHARE: f64 = 0.25;
/// Shortest record in s whose counts are believed where no age says how long it has to be.
pub const MIN_RECORD_S: f64 = 60.0;
/// If no event was counted, up to this many are likely, with a probability of 95 % (the rule of three).
pub(crate) const LIKELY_EVENTS: f64 = 3.0;
/// Why a record without idle ages gives no answer.
pub const NO_AGES: &str = "the record has no idle ages: record for at least a minute with the default monitor (other \
                           monitors, and isotherm before record version 5, do not count them)";
/// Why there is no answer about memory of which this share is unknown; `None` if it is small enough.
#[must_use]
pub fn too_much_unknown(share: f64) -> Option<String> {
    (share > MAX_UNKNOWN_SHARE).then(|| {
        format!(
            "{:.0} % of the resident memory is unknown, as its accesses cannot be observed: isotherm report summary \
             names the reasons",
            share * 100.0
        )
    })
}

/// Factor between two idle times of [`idle_times`].
const IDLE_TIME_FACTOR: f64 = 1.02;
/// Pages of a counted window: they are not independent.
pub(crate) const WINDOW_PAGES: f64 = 16.0;

/// Idle times in s to choose from, the shortest first, up to `longest`.
pub fn idle_times(longest: f64) -> impl Iterator<Item = f64> {
    idle_times_from(MIN_AGE_S, longest)
}

/// Idle times in s from `shortest` up to `longest`. Those below [`MIN_AGE_S`] are known less well.
pub fn idle_times_from(shortest: f64, longest: f64) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(shortest), |age| Some(age * IDLE_TIME_FACTOR))
        .take_while(move |age| *age <= longest)
}

/// Histograms of one target at one time; times in s since the begin of the clock.
#[derive(Debug, Clone)]
struct AgeRow {
    since: f64,
    end: f64,
    ages: Arc<PageAges>,
}

impl AgeRow {
    /// Whether the row looks back on `age` s.
    fn knows(&self, age: f64) -> bool {
        self.looks_back() >= age && self.end > self.since
    }

    /// Whether most pages had been counted for longer than `age` s when it ended: the first pages are counted some
    /// seconds after the begin.
    fn knows_well(&self, age: f64) -> bool {
        self.knows(age) && self.known() >= age
    }

    /// The longest age that it knows well, in s.
    fn known(&self) -> f64 {
        self.looks_back().min((self.end - seconds(self.ages.begun)) * KNOWN_SHARE)
    }

    /// For how long its pages had been counted when it began, in s.
    fn looks_back(&self) -> f64 {
        self.since - seconds(self.ages.begun)
    }

    /// The weight of the row: rows are short at first, and long later.
    fn seconds(&self) -> f64 {
        (self.end - self.since).max(1e-9)
    }

    /// All memory in bytes, with what is unknown.
    fn bytes(&self) -> u64 {
        let a = &self.ages;
        (a.idle.total() + a.swapped.total() + u64::from(a.unknown)) * PAGE_SIZE
    }

    /// The part of it that is not idle for `age` s or more.
    fn kept(&self, age: f64) -> u64 {
        let idle = self.ages.idle.at_least(age) + self.ages.swapped.at_least(age);
        self.bytes().saturating_sub((idle * PAGE_SIZE as f64).round() as u64)
    }
}

/// The ages of a target over time.
#[derive(Debug, Clone, Default)]
pub struct AgeCurve {
    rows: Vec<AgeRow>,
}

/// The figures of the memory that is idle for T or more.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct IdleMemory {
    /// bytes idle for T or more, mean over the time
    pub idle: f64,
    /// the rest of the memory whose ages are known, mean over the same time
    pub kept: f64,
    /// resident memory whose ages are not known, mean over the same time
    pub unknown: f64,
    /// such bytes that were touched, per second
    pub returned: f64,
    /// number of windows in which such touches were counted: the weight of `returned`
    pub counted: f64,
    /// bytes per second for which one counted window stands
    pub bytes_per_s_of_one_window: f64,
    /// what one more touch of a counted page would add to `returned` for the pages that are not counted
    pub bytes_per_s_of_one_touch: f64,
}

impl IdleMemory {
    /// The bytes per second that return if counts are wrong within their error: -1 is the upper end of their 95 %
    /// interval, 1 the lower end.
    ///
    /// Of n counted windows, n + 2 sqrt(n) + 3 are expected at most: with none, 3.
    #[must_use]
    pub fn returned_at(&self, doubt: f64) -> f64 {
        let spread = 1.0 + 2.0 / self.counted.max(1.0).sqrt();
        self.returned * spread.powf(-doubt)
            + (-doubt).max(0.0) * LIKELY_EVENTS * self.bytes_per_s_of_one_window
    }

    fn plus(self, o: IdleMemory) -> IdleMemory {
        IdleMemory {
            idle: self.idle + o.idle,
            kept: self.kept + o.kept,
            unknown: self.unknown + o.unknown,
            returned: self.returned + o.returned,
            counted: self.counted + o.counted,
            bytes_per_s_of_one_window: self
                .bytes_per_s_of_one_window
                .max(o.bytes_per_s_of_one_window),
            bytes_per_s_of_one_touch: self.bytes_per_s_of_one_touch.max(o.bytes_per_s_of_one_touch),
        }
    }
}

impl AgeCurve {
    /// Adds the ages of a snapshot that ended at `end`.
    pub fn push(&mut self, ages: &Arc<PageAges>, end: Nanos) {
        let (since, end) = (seconds(ages.since), seconds(end));
        // Rows of files beside processes are published with the next snapshot of the processes, after they have ended.
        if let Some(last) = self.rows.last_mut() {
            last.end = last.end.min(since);
        }
        self.rows.push(AgeRow { since, end, ages: Arc::clone(ages) });
    }

    /// Forgets rows that ended before `time`.
    pub fn forget_before(&mut self, time: Nanos) {
        self.rows.retain(|r| r.end >= seconds(time));
    }

    /// The rows that ended after `time`, or else the last one.
    #[must_use]
    pub fn after(&self, time: Nanos) -> AgeCurve {
        let from = self.rows.partition_point(|r| r.end <= seconds(time));
        let from = from.min(self.rows.len().saturating_sub(1));
        AgeCurve { rows: self.rows.get(from..).unwrap_or_default().to_vec() }
    }

    /// The rows that look back on `age` s.
    #[must_use]
    pub fn knowing(&self, age: f64) -> AgeCurve {
        AgeCurve { rows: self.rows.iter().filter(|r| r.knows(age)).cloned().collect() }
    }

    /// The end of the last row in s, since the begin of the clock.
    #[must_use]
    pub fn end(&self) -> Option<f64> {
        self.rows.last().map(|r| r.end)
    }

    /// For how long ages were counted, in s.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        let begun = self.rows.first().map_or(0.0, |r| seconds(r.ages.begun));
        self.rows.last().map_or(0.0, |r| r.end - begun)
    }

    /// For how long touches were counted, in s: less than [`AgeCurve::seconds`] if ages of an earlier monitor are
    /// known.
    #[must_use]
    pub fn observed(&self) -> f64 {
        self.rows.first().zip(self.rows.last()).map_or(0.0, |(first, last)| last.end - first.since)
    }

    /// The longest age that is known well, in s. It may be known before the end only: pages whose ages
    /// restarted have no earlier ages.
    #[must_use]
    pub fn longest(&self) -> f64 {
        self.rows.iter().map(AgeRow::known).fold(0.0, f64::max)
    }

    /// The longest age that is known well at the end, in s.
    #[must_use]
    pub fn longest_at_end(&self) -> f64 {
        self.rows.last().map_or(0.0, AgeRow::known)
    }

    /// Whether it has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn mean(&self, of: impl Fn(&PageAges) -> f64) -> f64 {
        let sum: f64 = self.rows.iter().map(|r| r.seconds() * of(&r.ages)).sum();
        let seconds: f64 = self.rows.iter().map(AgeRow::seconds).sum();
        sum / seconds.max(1e-9)
    }

    /// Memory whose ages are known, in bytes: resident or in swap.
    #[must_use]
    pub fn bytes(&self) -> f64 {
        self.mean(|a| (a.idle.total() + a.swapped.total()) as f64) * PAGE_SIZE as f64
    }

    /// Memory in swap, in bytes.
    #[must_use]
    pub fn swapped(&self) -> f64 {
        self.mean(|a| a.swapped.total() as f64) * PAGE_SIZE as f64
    }

    /// Memory in swap at the end, in bytes.
    #[must_use]
    pub fn swapped_at_end(&self) -> f64 {
        self.rows.last().map_or(0, |r| r.ages.swapped.total() * PAGE_SIZE) as f64
    }

    /// Resident memory whose accesses cannot be observed, in bytes.
    #[must_use]
    pub fn unknown(&self) -> f64 {
        self.mean(|a| a.unknown.into()) * PAGE_SIZE as f64
    }

    /// Memory in huge pages, in bytes.
    #[must_use]
    pub fn huge(&self) -> f64 {
        let huge = |a: &PageAges| a.huge.as_ref().map_or(0.0, |h| h.idle.total() as f64);
        self.mean(huge) * PAGE_SIZE as f64
    }

    /// Mean error of an age, in s.
    #[must_use]
    pub fn error(&self) -> f64 {
        let weight = |r: &AgeRow| r.ages.returned.total() as f64;
        let all: f64 = self.rows.iter().map(weight).sum();
        let errors = self.rows.iter().map(|r| weight(r) * f64::from(r.ages.error_ms) / 1e3);
        errors.sum::<f64>() / all.max(1.0)
    }

    /// What holds for memory idle for `age` s or more. Ages beyond the time that a row looks back on are not
    /// known: such rows do not count.
    #[must_use]
    pub fn beyond(&self, age: f64) -> IdleMemory {
        let mut sum = IdleMemory::default();
        let (mut seconds, mut sampling) = (0.0, 1.0);
        for row in self.rows.iter().filter(|row| row.knows(age)) {
            let a = &row.ages;
            let returned = a.returned.at_least(age);
            let idle = a.idle.at_least(age) + a.swapped.at_least(age);
            sum.idle += idle * row.seconds();
            sum.kept += ((a.idle.total() + a.swapped.total()) as f64 - idle) * row.seconds();
            sum.unknown += f64::from(a.unknown) * row.seconds();
            sum.returned += returned;
            sampling = f64::max(sampling, f64::from(a.sampling));
            sum.counted += returned / f64::from(a.sampling.max(1)) / WINDOW_PAGES;
            seconds += row.seconds();
        }
        let page = PAGE_SIZE as f64;
        if seconds == 0.0 {
            return IdleMemory { kept: self.bytes(), unknown: self.unknown(), ..sum };
        }
        IdleMemory {
            idle: sum.idle / seconds * page,
            kept: sum.kept / seconds * page,
            unknown: sum.unknown / seconds * page,
            returned: sum.returned / seconds * page,
            counted: sum.counted,
            bytes_per_s_of_one_window: WINDOW_PAGES * sampling / seconds * page,
            bytes_per_s_of_one_touch: (sampling - 1.0) / seconds * page,
        }
    }
}

/// The figures of several targets together.
#[must_use]
pub fn together<'a>(curves: impl Iterator<Item = &'a AgeCurve>, age: f64) -> IdleMemory {
    curves.map(|c| c.beyond(age)).fold(IdleMemory::default(), IdleMemory::plus)
}

/// The memory of several targets that is not idle for `age` s or more, with what is unknown: spans of time in s, and the
/// bytes in each.
///
/// Spans in which no target knows this age well are left out. In the others a target that does not keeps as much as before,
/// or else all of its memory.
#[must_use]
pub fn kept_together<'a>(curves: impl Iterator<Item = &'a AgeCurve>, age: f64) -> Vec<(f64, u64)> {
    // Times, and how much larger the kept bytes and the number of rows that know the age are from then on.
    let mut changes: Vec<(f64, i64, i64)> = Vec::new();
    for curve in curves {
        let mut before = u64::MAX;
        for row in &curve.rows {
            let knows = row.knows_well(age);
            let kept = if knows { row.kept(age) } else { before.min(row.bytes()) };
            if knows {
                before = kept;
            }
            let (kept, knows) = (kept.cast_signed(), i64::from(knows));
            changes.push((row.since, kept, knows));
            changes.push((row.end, -kept, -knows));
        }
    }
    changes.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (mut since, mut kept, mut knowing) = (0.0, 0_i64, 0_i64);
    let mut spans = Vec::new();
    for (at, bytes, rows) in changes {
        if at > since && knowing > 0 {
            spans.push((at - since, kept.cast_unsigned()));
        }
        (since, kept, knowing) = (at, kept + bytes, knowing + rows);
    }
    spans
}

fn seconds(at: Nanos) -> f64 {
    at.0 as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: f64) -> Nanos {
        Nanos((s * 1e9) as u64)
    }

    /// Rows of 10 s, in each of which 10 pages return after 20 s.
    #[test]
    fn ages_are_known_once_they_could_be_reached() {
        let mut curve = AgeCurve::default();
        for i in 0..6 {
            let since = 100.0 + f64::from(i) * 10.0;
            let mut ages =
                PageAges { since: at(since), begun: at(100.0), sampling: 1, ..PageAges::default() };
            ages.idle.add(20_200, 100);
            ages.idle.add(0, 50);
            ages.returned.add(20_200, 10);
            curve.push(&Arc::new(ages), at(since + 10.0));
        }
        assert_eq!((curve.seconds(), curve.bytes()), (60.0, 150.0 * 4096.0));
        let page = PAGE_SIZE as f64;
        let b = curve.beyond(20.0);
        assert_eq!((b.idle.round(), b.returned.round()), (100.0 * page, page));
        // The rows at 120 to 150 s know that age; 4 x 10 pages were counted in 2.5 windows.
        assert_eq!(
            (b.counted, b.bytes_per_s_of_one_window.round()),
            (2.5, (16.0 * page / 40.0).round())
        );
        let high = 1.0 + 2.0 / 2.5_f64.sqrt();
        assert_eq!(
            b.returned_at(-1.0).round(),
            (page * high + 3.0 * b.bytes_per_s_of_one_window).round()
        );
        assert_eq!(b.returned_at(1.0).round(), (page / high).round());
        assert_eq!(b.returned_at(0.0), b.returned);
        assert_eq!(curve.beyond(49.0).idle, 0.0);
        assert_eq!(curve.beyond(51.0), IdleMemory { kept: curve.bytes(), ..IdleMemory::default() });
        assert_eq!(together([&curve, &curve].into_iter(), 20.0).idle.round(), 200.0 * page);
    }

    /// The ages of pages restart shortly before the end.
    #[test]
    fn ages_that_were_known_before_the_end_are_known() {
        let mut curve = AgeCurve::default();
        for (begun, since, end) in [(0.0, 0.0, 500.0), (0.0, 500.0, 990.0), (990.0, 995.0, 1000.0)]
        {
            let (since, begun) = (at(since), at(begun));
            let mut ages = PageAges { since, begun, sampling: 1, ..PageAges::default() };
            ages.idle.add(400_000, 100);
            curve.push(&Arc::new(ages), at(end));
        }
        assert_eq!((curve.longest(), curve.longest_at_end()), (500.0, 5.0));
        assert_eq!((curve.beyond(100.0).idle / PAGE_SIZE as f64).round(), 100.0);
    }

    /// The rows of a file beside processes begin every 10 s, and are published 1 s after their end.
    #[test]
    fn rows_that_are_published_late_do_not_overlap() {
        let mut curve = AgeCurve::default();
        for since in [0.0, 10.0, 20.0, 30.0] {
            let mut ages = PageAges { since: at(since), sampling: 1, ..PageAges::default() };
            ages.idle.add(0, 100);
            curve.push(&Arc::new(ages), at(since + 11.0));
        }
        let kept = kept_together([&curve].into_iter(), 5.0);
        assert!(!kept.is_empty() && kept.iter().all(|k| k.1 == 100 * PAGE_SIZE), "{kept:?}");
    }

    /// Two targets keep 10 of 300 pages, but all of them in one row each. The second target begins 10 s later.
    #[test]
    fn kept_memory_of_several_targets_is_added_up_over_time() {
        let curve = |first: u32, busy: u32| {
            let mut curve = AgeCurve::default();
            for i in first..6 {
                let begun = at(f64::from(first) * 10.0);
                let since = f64::from(i) * 10.0;
                let mut ages =
                    PageAges { since: at(since), begun, sampling: 1, ..PageAges::default() };
                let idle = if i == busy { 0 } else { 290 };
                ages.idle.add(50_000, idle);
                ages.idle.add(0, 299 - idle);
                ages.unknown = 1;
                curve.push(&Arc::new(ages), at(since + 10.0));
            }
            curve
        };
        let (a, b) = (curve(0, 2), curve(1, 3));
        let pages = |curves: &[&AgeCurve], age| {
            let spans = kept_together(curves.iter().copied(), age).into_iter();
            spans.map(|(s, bytes)| (s, bytes / PAGE_SIZE)).collect::<Vec<_>>()
        };
        assert_eq!(pages(&[&a], 10.0), [10, 300, 10, 10, 10].map(|n| (10.0, n)));
        // The second target does not know this age before its second row.
        assert_eq!(pages(&[&a, &b], 10.0), [310, 310, 310, 20, 20].map(|n| (10.0, n)));
        assert!(pages(&[&b], 100.0).is_empty());
        // The row from 30 s to 40 s knows ages up to 30 s, but those up to 26.7 s only are known well.
        assert_eq!(pages(&[&a], 26.0), [10; 3].map(|n| (10.0, n)));
        assert_eq!(pages(&[&a], 29.0), [10; 2].map(|n| (10.0, n)));
    }

    /// 100 s with 300 pages, of which 200 are idle, in a row; then 400 s with 100 pages at work, in rows of 20 s.
    #[test]
    fn rows_count_by_their_length() {
        let mut curve = AgeCurve::default();
        let long = (100.0, 200.0, 200);
        let short =
            (0..20).map(|i| 200.0 + 20.0 * f64::from(i)).map(|since| (since, since + 20.0, 0));
        for (since, end, idle) in std::iter::once(long).chain(short) {
            let mut ages = PageAges { since: at(since), sampling: 1, ..PageAges::default() };
            ages.idle.add(50_000, idle);
            ages.idle.add(0, 100);
            ages.unknown = idle;
            curve.push(&Arc::new(ages), at(end));
        }
        let pages = |bytes: f64| (bytes / PAGE_SIZE as f64).round();
        assert_eq!([curve.bytes(), curve.unknown()].map(pages), [140.0, 40.0]);
        let b = curve.beyond(10.0);
        assert_eq!([b.idle, b.kept].map(pages), [40.0, 100.0]);
    }
}
