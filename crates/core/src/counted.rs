//! Regions of memory whose accesses are counted, instead of looked for in accessed bits: the page cache of files.
//!
//! A target is divided into windows. For each window and interval, the caller gives the counted accesses and their
//! exposure. A window keeps the counts of the last intervals, as long as they agree with one rate.
//!
//! Counts are a sample, so that no count does not mean no access. Therefore ages of memory without accesses follow from
//! [`CountedWindow::idle`] and [`CountedWindow::watched`] alone. Histograms of idle ages have the age of a window for
//! each of its pages.

use std::time::Duration;

use crate::age_curve::{MIN_AGE_S, WINDOW_PAGES};
use crate::ages::{AgeHistogram, PageAges, is_row_due};
use crate::bins::llr_is_below;
use crate::borders::{FIRST_PASS, Group, GroupKind, Joined, fit};
use crate::estimator::Rate;
use crate::range::{AddrRange, PAGE_SIZE};
use crate::region::to_bp;
use crate::snapshot::RegionView;
use crate::support::RateSupport;
use crate::time::Nanos;
use crate::unknown::{Pages, Unknown};

/// Maximum number of windows of a target. If it grows beyond, its windows are joined.
const MAX_WINDOWS: u64 = 65_536;
/// Number of intervals whose counts make a rate.
const COUNTED_INTERVALS: u32 = 8;
/// Counts of earlier intervals count less by this factor in each interval.
const COUNT_DECAY: f64 = 1.0 - 1.0 / COUNTED_INTERVALS as f64;
/// The rate of a window has changed if two rates are likelier than one by this log-likelihood ratio.
const CHANGED_LLR: f64 = 8.0;

/// Pages that are touched within this time, in ms, do not return: reports use no shorter idle times.
const MIN_IDLE_MS: u32 = (MIN_AGE_S * 1e3) as u32;

/// The counts of a window in an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CountedWindow {
    /// pages in memory
    pub resident: u32,
    /// pages in memory whose accesses cannot be observed, and the reason
    pub unknown: Option<(Unknown, u32)>,
    /// counted accesses
    pub accesses: f64,
    /// Time for which pages were observed, in page-seconds. If one of n accesses counts, a page counts for the nth
    /// part of the time.
    pub exposure: f64,
    /// time since the last access, if the caller knows of one that is not counted
    pub idle: Option<Duration>,
    /// Share of the interval in which any access sets `idle`. In the rest, accesses may have been missed.
    pub watched: f64,
}

/// The state of a target.
#[derive(Debug)]
pub struct CountedTarget {
    /// size of a window
    window: u64,
    size: u64,
    windows: Vec<Window>,
    /// Windows that are not in memory keep their rates.
    remembers: bool,
    /// end of the last interval, in ms
    observed: u32,
    ages: AgeRows,
}

/// The histograms of idle ages.
#[derive(Debug, Default)]
struct AgeRows {
    /// begin of the counting, and of the present row, also in ms
    begun: Option<(Nanos, u32)>,
    since: (Nanos, u32),
    returned: AgeHistogram,
    /// sum of the errors of the returned ages, in ms
    errors: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Window {
    seen: CountedWindow,
    /// accesses and exposure of the intervals since the last change of the rate
    accesses: f64,
    exposure: f64,
    /// time of that change, in ms
    since: u32,
    /// The last access may have been as late as this, in ms: see [`unsure_ms`].
    touched: u32,
    /// It was accessed since the ages are counted.
    is_known: bool,
    /// pages that were not touched since the window was idle last, and for how long it was, in ms
    untouched: f64,
    idle_ms: u32,
}

impl CountedTarget {
    /// A target with windows of `window` bytes, a power of two and at least a page.
    #[must_use]
    pub fn new(window: u64) -> Self {
        let window = window.next_power_of_two().max(PAGE_SIZE);
        CountedTarget {
            window,
            size: 0,
            windows: Vec::new(),
            remembers: false,
            observed: 0,
            ages: AgeRows::default(),
        }
    }

    /// From now on, a window that leaves the memory keeps its last rate until it is back: for schemes that read hot
    /// memory ahead. Otherwise, the rate of such a window is zero.
    pub fn remember(&mut self) {
        self.remembers = true;
    }

    /// Size of a window in bytes, for a target of `size` bytes.
    pub fn set_size(&mut self, size: u64, now_ms: u32) -> u64 {
        if self.windows.is_empty() {
            self.observed = now_ms;
        }
        self.size = size.next_multiple_of(PAGE_SIZE);
        while self.size.div_ceil(self.window) > MAX_WINDOWS {
            self.window *= 2;
            self.windows.clear();
            // They count for the windows that were.
            self.ages = AgeRows::default();
        }
        let windows = usize::try_from(self.size.div_ceil(self.window)).unwrap_or(usize::MAX);
        let new = Window { since: now_ms, touched: now_ms, ..Window::default() };
        self.windows.resize(windows, new);
        self.window
    }

    /// Begins to observe again at `now_ms`, after a time in which the target was not observed: its ages have not grown in
    /// it. If the target was not in memory meanwhile, an access brought in what is there now.
    pub fn resume(&mut self, was_absent: bool, now_ms: u32) {
        let missed = now_ms.saturating_sub(std::mem::replace(&mut self.observed, now_ms));
        for window in &mut self.windows {
            window.touched = window.touched.saturating_add(missed).min(now_ms);
            window.since = window.since.saturating_add(missed).min(now_ms);
            if was_absent {
                (window.seen, window.untouched) = (CountedWindow::default(), 0.0);
            }
        }
        let ages = &mut self.ages;
        for (at, ms) in ages.begun.iter_mut().chain([&mut ages.since]) {
            (*at, *ms) = (*at + Duration::from_millis(missed.into()), ms.saturating_add(missed));
        }
    }

    /// Adds an interval that ends now. Windows that `seen` does not contain are not in memory.
    pub fn observe(&mut self, mut seen: impl FnMut(usize) -> CountedWindow, now_ms: u32) {
        let length = now_ms.saturating_sub(std::mem::replace(&mut self.observed, now_ms));
        for (i, window) in self.windows.iter_mut().enumerate() {
            let seen = seen(i);
            if self.remembers && seen.resident == 0 {
                window.seen = seen;
                continue;
            }
            let returned = window.observe(seen, length, now_ms);
            if returned > 0 {
                self.ages.returned.add(window.idle_ms.into(), returned);
                // Both accesses are known to an interval.
                self.ages.errors += u64::from(returned) * u64::from(length);
            }
        }
    }

    /// The idle ages of the pages, if they are due: each page has the age of its window.
    pub fn ages(&mut self, now: Nanos, now_ms: u32) -> Option<PageAges> {
        let Some((begun, begun_ms)) = self.ages.begun else {
            let at = (now, now_ms);
            self.ages = AgeRows { begun: Some(at), since: at, ..AgeRows::default() };
            self.windows.iter_mut().for_each(|window| window.is_known = false);
            return None;
        };
        let (since, since_ms) = self.ages.since;
        if !is_row_due(begun_ms, since_ms, now_ms) {
            return None;
        }
        self.ages.since = (now, now_ms);
        let returned = std::mem::take(&mut self.ages.returned);
        let error = std::mem::take(&mut self.ages.errors) / returned.total().max(1);
        let mut row = PageAges {
            since,
            begun,
            // All pages of a window are one event.
            sampling: ((self.window / PAGE_SIZE) as f64 / WINDOW_PAGES).ceil() as u32,
            returned,
            error_ms: u32::try_from(error).unwrap_or(u32::MAX),
            ..PageAges::default()
        };
        for window in &self.windows {
            let pages = window.visible();
            row.idle.add(now_ms.saturating_sub(window.touched).into(), pages);
            row.untouched += if window.is_known { 0 } else { pages };
            row.unknown += window.seen.resident - pages;
        }
        Some(row)
    }

    /// The regions of the target, at most `max` if possible: neighbours whose counts agree are joined. Accesses count
    /// as found if they are within `sample`.
    #[must_use]
    pub fn regions(&self, max: usize, sample: Duration, now_ms: u32) -> Vec<RegionView> {
        let mut joined = Joined::new(FIRST_PASS, false, now_ms);
        for (i, window) in self.windows.iter().enumerate() {
            let range = self.range(i, i + 1);
            joined.push(Group { range, kind: window.kind(self.remembers), windows: None });
        }
        let groups = fit(joined, max);
        groups.iter().map(|group| self.view(group.range, sample, now_ms)).collect()
    }

    fn range(&self, from: usize, to: usize) -> AddrRange {
        let at = |i: usize| (i as u64).saturating_mul(self.window).min(self.size);
        AddrRange::new(at(from), at(to))
    }

    fn view(&self, range: AddrRange, sample: Duration, now_ms: u32) -> RegionView {
        let index = |at: u64| usize::try_from(at.div_ceil(self.window)).unwrap_or(usize::MAX);
        let windows = self.windows.get(index(range.start)..index(range.end)).unwrap_or_default();
        let mut sums = Sums::default();
        let counts = |w: &&Window| w.is_resident() || self.remembers;
        windows.iter().filter(counts).for_each(|window| sums.add(window, now_ms));
        sums.view(range, sample, now_ms)
    }
}

impl Window {
    /// Adds an interval. Returns the number of pages that were touched, after the window was idle for `idle_ms`.
    fn observe(&mut self, seen: CountedWindow, length: u32, now_ms: u32) -> u32 {
        let before = self.touched.saturating_add(unsure_ms(length, seen.watched)).min(now_ms);
        let accessed = match seen.idle {
            _ if seen.accesses > 0.0 => Some(now_ms),
            Some(idle) => {
                let idle = u32::try_from(idle.as_millis()).unwrap_or(u32::MAX);
                Some(now_ms.saturating_sub(idle)).filter(|at| *at > before)
            }
            None => None,
        };
        // An access brought in the new pages.
        let has_grown = seen.resident > self.seen.resident;
        self.touched = if has_grown { now_ms } else { accessed.unwrap_or(before) };
        self.is_known |= has_grown || accessed.is_some();
        if self.touched - before >= MIN_IDLE_MS {
            self.idle_ms = self.touched - before;
            self.untouched = self.visible().into();
        }
        if now_ms - self.touched > length.saturating_mul(COUNTED_INTERVALS) && self.accesses > 0.0 {
            // Alone, no interval without a count contradicts a low rate.
            (self.accesses, self.exposure) = (0.0, 0.0);
            self.since = self.touched;
        }
        let now = (seen.accesses, seen.exposure);
        let before = (self.accesses, self.exposure);
        let agrees = before.1 <= 0.0
            || now.1 <= 0.0
            || now.0 + before.0 <= 0.0
            || llr_is_below(CHANGED_LLR, before, now);
        if agrees {
            (self.accesses, self.exposure) =
                (before.0 * COUNT_DECAY + now.0, before.1 * COUNT_DECAY + now.1);
        } else {
            (self.accesses, self.exposure) = now;
            self.since = now_ms;
        }
        self.seen = seen;
        if accessed.is_some() { self.touch(length) } else { 0 }
    }

    /// Counts the pages that the accesses of an interval touched for the first time since the window was idle. The
    /// accesses are presumed to be spread over the pages.
    fn touch(&mut self, length: u32) -> u32 {
        let pages = f64::from(self.visible());
        self.untouched = self.untouched.min(pages);
        if self.untouched <= 0.0 {
            return 0;
        }
        let seconds = f64::from(length) / 1e3;
        let accesses = self.seen.accesses * pages * seconds / self.seen.exposure.max(1e-9);
        let new = (accesses.max(1.0) * self.untouched / pages).min(self.untouched);
        let before = self.untouched.ceil();
        self.untouched -= new;
        (before - self.untouched.ceil()) as u32
    }

    /// Pages in memory whose accesses can be observed.
    fn visible(&self) -> u32 {
        self.seen.resident - self.unknown().min(self.seen.resident)
    }

    fn unknown(&self) -> u32 {
        self.seen.unknown.map_or(0, |(_, pages)| pages)
    }

    fn is_resident(&self) -> bool {
        self.seen.resident > 0
    }

    fn kind(&self, remembers: bool) -> GroupKind {
        let remembered = remembers && self.accesses > 0.0;
        match self.seen.unknown {
            _ if !self.is_resident() && !remembered => GroupKind::Absent,
            Some((why, _)) if self.is_resident() && self.visible() == 0 => GroupKind::Hidden(why),
            _ => GroupKind::Seen {
                d: self.accesses,
                e: self.exposure,
                reactivated: false,
                lately: self.accesses > 0.0,
                touched: (self.touched, self.touched),
            },
        }
    }
}

/// The part of an interval by which the age of memory without accesses does not grow, if accesses were observed in
/// a share `watched` of it. Memory that is accessed once in the time of its age is then observed with a
/// probability of about 95 %. Example: with a share of one half, the age is 23 % of the time.
fn unsure_ms(length: u32, watched: f64) -> u32 {
    const LN_20: f64 = 2.995_732_273_553_991;
    let sure = -(-watched.clamp(0.0, 1.0)).ln_1p() / LN_20;
    (f64::from(length) * (1.0 - sure.min(1.0))).ceil() as u32
}

/// Sums over the windows of a region, in pages.
#[derive(Debug, Default)]
struct Sums {
    resident: f64,
    visible: f64,
    unknown: [f64; Unknown::ALL.len()],
    accesses: f64,
    exposure: f64,
    /// times since the last change, in page-milliseconds
    kept: f64,
    touched: u32,
}

impl Sums {
    fn add(&mut self, w: &Window, now_ms: u32) {
        let visible = f64::from(w.visible());
        self.resident += f64::from(w.seen.resident);
        self.visible += visible;
        if let Some((why, pages)) = w.seen.unknown {
            self.unknown[why.index()] += f64::from(pages);
        }
        self.accesses += w.accesses;
        self.exposure += w.exposure;
        self.kept += visible * f64::from(now_ms.saturating_sub(w.since));
        self.touched = self.touched.max(w.touched);
    }

    fn view(&self, range: AddrRange, sample: Duration, now_ms: u32) -> RegionView {
        let pages = (range.len() / PAGE_SIZE).max(1) as f64;
        let rate = counted_rate(self.accesses, self.exposure);
        let is_touched = self.accesses > 0.0;
        let found = -(-f64::from(rate.hz) * sample.as_secs_f64()).exp_m1();
        let age = match is_touched {
            true => self.kept / self.visible.max(1.0),
            false if self.visible > 0.0 => f64::from(now_ms.saturating_sub(self.touched)),
            false => 0.0,
        };
        RegionView {
            range,
            accesses_bp: to_bp(found * self.visible / pages).max(u32::from(is_touched)),
            age: Duration::from_millis(age as u64),
            rate,
            touched_bp: if is_touched { 10_000 } else { 0 },
            resident_bp: to_bp(self.resident / pages),
            unknown_bp: Pages(self.unknown.map(|n| to_bp(n / pages))),
            support: Some(RateSupport::MEASURED),
        }
    }
}

/// The rate of a page of which `accesses` were counted in `exposure`, with its 95 % interval: the square root of a
/// Poisson number has a standard deviation of 1/2.
fn counted_rate(accesses: f64, exposure: f64) -> Rate {
    if exposure <= 0.0 {
        return Rate { hz: 0.0, low: 0.0, high: f32::INFINITY };
    }
    let hz = |n: f64| (n / exposure) as f32;
    let low = (accesses.sqrt() - 0.98).max(0.0).powi(2);
    Rate { hz: hz(accesses), low: hz(low), high: hz(((accesses + 1.0).sqrt() + 0.98).powi(2)) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_core::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::heat::{Heat, Thresholds};
    use crate::region::below;

    const WINDOW: u64 = 64 * PAGE_SIZE;
    const SAMPLE: Duration = Duration::from_millis(100);

    fn seen(accesses: f64) -> CountedWindow {
        // One access of 64 counts, for a second.
        CountedWindow {
            resident: 64,
            accesses,
            exposure: 1.0,
            watched: 1.0,
            ..CountedWindow::default()
        }
    }

    fn target(windows: u64) -> CountedTarget {
        let mut target = CountedTarget::new(WINDOW);
        assert_eq!(target.set_size(windows * WINDOW, 0), WINDOW);
        target
    }

    #[test]
    fn hot_and_cold_parts_are_regions() {
        let mut t = target(32);
        for second in 1..=20 {
            t.observe(|i| seen(if (8..16).contains(&i) { 40.0 } else { 0.0 }), second * 1000);
        }
        let regions = t.regions(100, SAMPLE, 20_000);
        let heat = |r: &RegionView| (r.range.start / WINDOW, r.heat(&Thresholds::default()));
        let found: Vec<_> = regions.iter().map(heat).collect();
        assert_eq!(found, [(0, Heat::Cold), (8, Heat::Hot), (16, Heat::Cold)]);
        let hot = &regions[1];
        assert!((hot.rate.hz - 40.0).abs() < 0.1 && hot.rate.low > 35.0 && hot.rate.high < 45.0);
        // The age of the others begins with the first interval.
        assert_eq!((hot.age.as_secs(), regions[0].age.as_secs()), (20, 19));
    }

    #[test]
    fn a_change_counts_at_once() {
        let mut t = target(1);
        (1..=60).for_each(|second| t.observe(|_| seen(30.0), second * 1000));
        t.observe(|_| seen(0.0), 61_000);
        let region = t.regions(9, SAMPLE, 66_000)[0];
        assert_eq!((region.rate.hz, region.age.as_secs()), (0.0, 6));
        t.observe(|_| seen(90.0), 62_000);
        let region = t.regions(9, SAMPLE, 63_000)[0];
        assert_eq!((region.rate.hz, region.age.as_secs()), (90.0, 1));
    }

    #[test]
    fn a_low_rate_ends_with_the_accesses() {
        let mut t = target(1);
        (1..=60).for_each(|second| t.observe(|_| seen(f64::from(second % 2)), second * 1000));
        let rate = t.regions(9, SAMPLE, 60_000)[0].rate.hz;
        assert!((0.4..0.6).contains(&rate), "{rate}");
        (61..=70).for_each(|second| t.observe(|_| seen(0.0), second * 1000));
        let region = t.regions(9, SAMPLE, 70_000)[0];
        assert_eq!((region.rate.hz, region.accesses_bp, region.age.as_secs()), (0.0, 0, 11));
    }

    #[test]
    fn memory_that_comes_back_is_not_idle() {
        let mut t = target(1);
        let resident = |resident| CountedWindow { resident, ..seen(0.0) };
        (1..=20).for_each(|second| t.observe(|_| resident(64), second * 1000));
        assert_eq!(t.regions(9, SAMPLE, 20_000)[0].age.as_secs(), 19);
        t.observe(|_| resident(3), 21_000);
        assert_eq!(t.regions(9, SAMPLE, 21_000)[0].age.as_secs(), 20);
        t.observe(|_| resident(4), 22_000);
        assert_eq!(t.regions(9, SAMPLE, 22_000)[0].age.as_secs(), 0);
    }

    /// Seconds of age after 1000 s without accesses of which this share was watched.
    fn age_after_1000_s(watched: f64) -> u64 {
        let mut t = target(1);
        (0..=1000).for_each(|s| t.observe(|_| CountedWindow { watched, ..seen(0.0) }, s * 1000));
        t.regions(9, SAMPLE, 1_000_000)[0].age.as_secs()
    }

    #[test]
    fn ages_grow_only_as_far_as_accesses_can_be_seen() {
        assert_eq!(age_after_1000_s(1.0), 1000);
        assert!(age_after_1000_s(0.95) >= 999);
        assert_eq!(age_after_1000_s(0.5), 231);
        assert_eq!(age_after_1000_s(0.01), 3);
        assert_eq!(age_after_1000_s(0.0), 0);
    }

    /// Share of the time in which a window is said to be idle for longer than the interval at which it is accessed, if
    /// each access is seen with a probability of `watched`. The interval is in ms, and three times as long as the others.
    fn wrongly_idle(every: u32, watched: f64) -> f64 {
        const INTERVALS: u32 = 60_000;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut t = target(1);
        let mut wrong = 0;
        for interval in 1..=INTERVALS {
            let now = interval * every / 3;
            let is_seen = interval % 3 == 0 && (below(&mut rng, 1000) as f64) < watched * 1000.0;
            let idle = is_seen.then_some(Duration::ZERO);
            t.observe(|_| CountedWindow { watched, idle, ..seen(0.0) }, now);
            let age = t.regions(9, SAMPLE, now)[0].age;
            wrong += u32::from(age.as_millis() > u128::from(every));
        }
        f64::from(wrong) / f64::from(INTERVALS)
    }

    #[test]
    fn memory_in_use_is_seldom_idle() {
        for every in [1000, 60_000] {
            for watched in [0.03, 0.2, 0.5, 0.9] {
                let wrong = wrongly_idle(every, watched);
                assert!(wrong < 0.08, "every {every} ms, watched {watched}: {wrong}");
            }
            assert_eq!(wrongly_idle(every, 1.0), 0.0);
        }
    }

    #[test]
    fn a_window_that_left_the_memory_keeps_its_rate_if_wanted() {
        let regions = |remembers: bool| {
            let mut t = target(2);
            if remembers {
                t.remember();
            }
            for second in 1..=20 {
                t.observe(|i| seen(if i == 0 { 40.0 } else { 0.0 }), second * 1000);
            }
            (21..=60).for_each(|second| t.observe(|_| CountedWindow::default(), second * 1000));
            t.regions(9, SAMPLE, 60_000)
        };
        let of = regions(true);
        let rates: Vec<_> = of.iter().map(|r| (r.resident_bp, r.rate.hz.round())).collect();
        assert_eq!(rates, [(0, 40.0), (0, 0.0)]);
        assert!(regions(false).iter().all(|r| r.rate.hz == 0.0 && r.resident_bp == 0));
    }

    #[test]
    fn ages_and_rates_survive_a_time_that_was_not_observed() {
        let regions = |was_absent: bool| {
            let mut t = target(2);
            let of = |i| seen(if i == 0 { 40.0 } else { 0.0 });
            (1..=20).for_each(|second| t.observe(of, second * 1000));
            t.resume(was_absent, 600_000);
            t.observe(of, 601_000);
            let regions = t.regions(9, SAMPLE, 601_000);
            regions.iter().map(|r| (r.rate.hz.round(), r.age.as_secs())).collect::<Vec<_>>()
        };
        assert_eq!(regions(false), [(40.0, 21), (0.0, 20)]);
        assert_eq!(regions(true), [(40.0, 21), (0.0, 0)], "the other window has come back");
    }

    fn pages(h: &AgeHistogram, seconds: u64) -> u64 {
        h.at_least(seconds as f64).round() as u64
    }

    /// Of three windows, the first is read all the time, the second once a minute as a whole, and the third never.
    #[test]
    fn pages_have_the_ages_of_their_windows_and_return_with_them() {
        let mut t = target(3);
        let mut rows = Vec::new();
        for second in 1..=184 {
            let of = |i| match i {
                0 => seen(20.0),
                1 if second % 60 == 0 => CountedWindow { idle: Some(Duration::ZERO), ..seen(1.0) },
                _ => seen(0.0),
            };
            t.observe(of, second * 1000);
            let now = Nanos(u64::from(second) * 1_000_000_000);
            rows.extend(t.ages(now, second * 1000).map(|ages| (second, ages)));
        }
        let times: Vec<u32> = rows.iter().map(|(second, _)| *second).collect();
        assert_eq!(times[..3], [11, 21, 31], "as of processes");
        let (_, last) = rows.last().unwrap();
        let before = &rows[rows.len() - 2].1;
        assert_eq!((last.idle.total(), last.unknown, last.sampling), (192, 0, 4));
        assert_eq!((pages(&last.idle, 160), pages(&before.idle, 20)), (64, 128));
        assert_eq!(last.untouched, 64, "the one that was never read");
        let mut returned = AgeHistogram::default();
        rows.iter().for_each(|(_, ages)| returned = returned.plus(&ages.returned));
        assert_eq!((returned.total(), pages(&returned, 50)), (192, 192), "three times 64 pages");
        assert_eq!(rows.iter().map(|(_, ages)| ages.error_ms).max(), Some(1000));
        assert!(rows.iter().all(|(_, ages)| ages.begun == Nanos(1_000_000_000)));
        assert!(rows.windows(2).all(|two| two[0].1.since < two[1].1.since));
    }

    /// Windows are read 20 times at random after a minute, and each access counts with a probability of 1/64.
    #[test]
    fn the_number_of_returned_pages_is_right_on_average() {
        const READS: u64 = 20;
        const WINDOWS: u64 = 4000;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut t = target(WINDOWS);
        t.observe(|_| seen(0.0), 1000);
        assert_eq!(t.ages(Nanos(1), 1000), None);
        for second in 2..=60 {
            t.observe(|_| seen(0.0), second * 1000);
        }
        let mut counted = || (0..READS).filter(|_| below(&mut rng, 64) == 0).count() as f64;
        let read = |accesses| CountedWindow { idle: Some(Duration::ZERO), ..seen(accesses) };
        t.observe(|_| read(counted()), 61_000);
        let returned = t.ages(Nanos(2), 61_000).unwrap().returned.total() as f64;
        // Accesses of the same page are one return; each window without a count has one.
        let distinct = 64.0 * -(-(READS as f64) / 64.0).exp_m1();
        let mean = returned / WINDOWS as f64;
        assert!((distinct * 0.95..(distinct + 1.0) * 1.05).contains(&mean), "{mean} of {distinct}");
    }

    #[test]
    fn ages_do_not_count_a_time_that_was_not_observed() {
        let mut t = target(1);
        (1..=20).for_each(|second| t.observe(|_| seen(0.0), second * 1000));
        let at = |second: u64| Nanos(second * 1_000_000_000);
        assert_eq!(t.ages(at(20), 20_000), None);
        t.resume(false, 600_000);
        t.observe(|_| seen(0.0), 601_000);
        assert_eq!(t.ages(at(601), 601_000), None);
        (602..=610).for_each(|second| t.observe(|_| seen(0.0), second * 1000));
        let row = t.ages(at(610), 610_000).unwrap();
        assert_eq!((row.begun, row.since), (at(600), at(600)));
        assert_eq!((pages(&row.idle, 20), pages(&row.idle, 60)), (64, 0));
    }

    #[test]
    fn unknown_and_absent_memory_is_neither_hot_nor_cold() {
        let mut t = target(3);
        let unknown = Some((Unknown::Cache, 64));
        let of = [
            CountedWindow::default(),
            CountedWindow { unknown, exposure: 0.0, ..seen(0.0) },
            seen(0.0),
        ];
        t.observe(|i| of[i], 9000);
        t.observe(|i| of[i], 19_000);
        let regions = t.regions(9, SAMPLE, 19_000);
        let bytes: crate::HeatBytes = regions.iter().map(|r| r.bytes(&Thresholds::default())).sum();
        assert_eq!((bytes.absent, bytes.unknown, bytes.cold), (WINDOW, WINDOW, WINDOW));
    }

    #[test]
    fn a_large_target_has_large_windows() {
        let mut t = CountedTarget::new(WINDOW);
        let window = t.set_size(1 << 40, 0);
        assert_eq!((window, t.windows.len()), (1 << 24, 65_536));
    }

    proptest! {
        #[test]
        fn regions_cover_the_target(
            counts in prop::collection::vec((0u32..=64, 0.0..1e4_f64), 1..200),
            rest in 1u64..WINDOW,
            max in 3usize..50,
        ) {
            let mut t = CountedTarget::new(WINDOW);
            let size = (counts.len() as u64 - 1) * WINDOW + rest;
            t.set_size(size, 0);
            t.observe(|i| CountedWindow { resident: counts[i].0, ..seen(counts[i].1) }, 1000);
            let regions = t.regions(max, SAMPLE, 1000);
            prop_assert_eq!(regions[0].range.start, 0);
            prop_assert!(regions.windows(2).all(|two| two[0].range.end == two[1].range.start));
            prop_assert_eq!(regions.last().unwrap().range.end, size.next_multiple_of(PAGE_SIZE));
            prop_assert!(regions.len() <= max.max(counts.len() / 2 + 2));
        }

        /// If all accesses are observed, no reported idle time exceeds the true one, no matter which accesses are
        /// counted.
        #[test]
        fn nothing_is_idle_for_longer_than_it_is(
            accesses in prop::collection::vec(prop::collection::vec(
                prop::option::weighted(0.2, prop::bool::weighted(0.1)), 6,
            ), 1..80),
            max in 1usize..6,
        ) {
            let mut t = target(6);
            let mut last = [0; 6];
            for (second, windows) in (1..).zip(&accesses) {
                let at = second * 1000;
                t.observe(|i| CountedWindow {
                    idle: windows[i].map(|_| Duration::ZERO),
                    ..seen(f64::from(u8::from(windows[i] == Some(true))))
                }, at);
                (0..6).filter(|&i| windows[i].is_some()).for_each(|i| last[i] = at);
                for region in t.regions(max, SAMPLE, at).iter().filter(|r| r.accesses_bp == 0) {
                    let windows = region.range.start / WINDOW..region.range.end / WINDOW;
                    let idle = windows.map(|i| at - last[i as usize]).min().unwrap();
                    prop_assert!(region.age.as_millis() <= u128::from(idle), "{:?} {}", region, idle);
                }
            }
        }

        #[test]
        fn the_rate_is_within_its_interval(accesses in 0.0..1e6_f64, exposure in 1e-3..1e6_f64) {
            let rate = counted_rate(accesses, exposure);
            prop_assert!(rate.low <= rate.hz && rate.hz <= rate.high);
        }
    }
}
