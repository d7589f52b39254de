//! Regions of memory whose accesses are counted, instead of looked for in accessed bits: the page cache of files.
//!
//! A target is divided into windows. For each window and interval, the caller gives the counted accesses and their
//! exposure. A window keeps the counts of the last intervals, as long as they agree with one rate. Memory and time do
//! not depend on the size of a target: a window exists from its first page in memory, or its first access, until
//! [`CountedTarget::limit`].
//!
//! Counts are a sample, so that no count does not mean no access. Therefore ages of memory without accesses follow from
//! [`CountedWindow::idle`] and [`CountedWindow::watched`] alone. Histograms of idle ages have the age of a window for
//! each of its pages.

use std::time::Duration;

use crate::age_curve::{MIN_AGE_S, WINDOW_PAGES};
use crate::ages::{AgeHistogram, PageAges, is_row_due};
use crate::bins::llr_is_below;
use crate::borders::{FIRST_PASS, GroupKind, Joined, WindowGroup, fit};
use crate::estimator::Rate;
use crate::range::{AddrRange, PAGE_SIZE};
use crate::region::to_bp;
use crate::snapshot::RegionView;
use crate::support::RateSupport;
use crate::time::Nanos;
use crate::unknown::{Unknown, UnknownPages};

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
    /// sorted by their numbers
    windows: Vec<Window>,
    /// Windows that are not in memory keep their rates.
    remembers: bool,
    /// end of the last interval, in ms
    observed: Option<u32>,
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
    number: u64,
    /// pages in memory, and those whose accesses cannot be observed
    resident: u32,
    unknown: Option<(Unknown, u32)>,
    /// end of the last interval in which it was in memory or accessed, in ms
    seen: u32,
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
            observed: None,
            ages: AgeRows::default(),
        }
    }

    /// From now on, a window that leaves the memory keeps its last rate until it is back: for schemes that read hot
    /// memory ahead. Otherwise, the rate of such a window is zero.
    pub fn remember(&mut self) {
        self.remembers = true;
    }

    /// Sets the size of the target, and that of a window if it is larger than before: then windows are joined.
    pub fn set_size(&mut self, size: u64, window: u64, now_ms: u32) {
        self.observed.get_or_insert(now_ms);
        self.size = size.next_multiple_of(PAGE_SIZE);
        while self.window < window {
            self.window = self.window.saturating_mul(2);
            self.windows.iter_mut().for_each(|window| window.number /= 2);
            self.windows.dedup_by(|next, window| {
                let is_same = next.number == window.number;
                if is_same {
                    window.join(next);
                }
                is_same
            });
        }
        let end = self.size.div_ceil(self.window);
        self.windows.truncate(self.windows.partition_point(|window| window.number < end));
    }

    /// Number of windows that use memory.
    #[must_use]
    pub fn nr_windows(&self) -> usize {
        self.windows.len()
    }

    /// Forgets windows that are not in memory, those first that left it first, so that the targets together have at
    /// most `max` windows if possible. Of a target whose last interval ended before `now_ms`, that may be all windows.
    pub fn limit(targets: &mut [&mut CountedTarget], max: usize, now_ms: u32) {
        let all: usize = targets.iter().map(|target| target.nr_windows()).sum();
        let Some(surplus) = all.checked_sub(max).filter(|surplus| *surplus > 0) else { return };
        let windows = targets.iter().flat_map(|target| &target.windows);
        let mut absent: Vec<u32> =
            windows.map(|window| window.seen).filter(|seen| *seen < now_ms).collect();
        let Some(last) = absent.len().checked_sub(1) else { return };
        let last = last.min(surplus - 1);
        let (first, &mut until, _) = absent.select_nth_unstable(last);
        // Of those that left at the same time, no more than necessary.
        let mut ties = last + 1 - first.iter().filter(|seen| **seen < until).count();
        for target in targets {
            target.windows.retain(|window| {
                let is_tie = window.seen == until && ties > 0;
                ties -= usize::from(is_tie);
                window.seen >= until && !is_tie
            });
        }
    }

    /// Subtracts `ms` from all times, because the caller's clock has a later origin; times before it become 0.
    pub fn rebase(&mut self, ms: u32) {
        let ages = &mut self.ages;
        let rows = ages.begun.iter_mut().chain([&mut ages.since]).map(|(_, at)| at);
        let windows =
            self.windows.iter_mut().flat_map(|w| [&mut w.touched, &mut w.since, &mut w.seen]);
        let all = self.observed.iter_mut().chain(rows).chain(windows);
        all.for_each(|at| *at = at.saturating_sub(ms));
    }

    /// Begins to observe again at `now_ms`, after a time in which the target was not observed: its ages have not grown in
    /// it. If the target was not in memory meanwhile, an access brought in what is there now.
    pub fn resume(&mut self, was_absent: bool, now_ms: u32) {
        let missed = now_ms.saturating_sub(self.observed.replace(now_ms).unwrap_or(now_ms));
        for window in &mut self.windows {
            for at in [&mut window.touched, &mut window.since, &mut window.seen] {
                *at = at.saturating_add(missed).min(now_ms);
            }
            if was_absent {
                (window.resident, window.unknown, window.untouched) = (0, None, 0.0);
            }
        }
        let ages = &mut self.ages;
        for (at, ms) in ages.begun.iter_mut().chain([&mut ages.since]) {
            (*at, *ms) = (*at + Duration::from_millis(missed.into()), ms.saturating_add(missed));
        }
    }

    /// Adds an interval that ends now. Windows that `seen` does not contain are not in memory; the others have numbers
    /// in ascending order.
    pub fn observe(&mut self, seen: impl Iterator<Item = (u64, CountedWindow)>, now_ms: u32) {
        let start = self.observed.replace(now_ms).unwrap_or(now_ms);
        let length = now_ms.saturating_sub(start);
        let earlier = std::mem::take(&mut self.windows);
        let mut windows = Vec::with_capacity(earlier.len());
        let mut earlier = earlier.into_iter().peekable();
        let remembers = self.remembers;
        // The size may be older than the counts of a file that grows.
        let end = self.size.div_ceil(self.window);
        let in_use = |(number, seen): &(u64, CountedWindow)| {
            *number < end && (seen.resident > 0 || seen.accesses > 0.0 && !remembers)
        };
        for (number, seen) in seen.filter(in_use) {
            while let Some(window) = earlier.next_if(|window| window.number < number) {
                windows.push(window.absent());
            }
            let mut window = match earlier.next_if(|window| window.number == number) {
                Some(mut window) => {
                    if !remembers {
                        window.skip(start, length);
                    }
                    window
                }
                None => Window { number, since: start, touched: now_ms, ..Window::default() },
            };
            let returned = window.observe(seen, length, now_ms);
            if returned > 0 {
                self.ages.returned.add(window.idle_ms.into(), returned);
                // Both accesses are known to an interval.
                self.ages.errors += u64::from(returned) * u64::from(length);
            }
            windows.push(window);
        }
        windows.extend(earlier.map(Window::absent));
        self.windows = windows;
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
            row.unknown += window.resident - pages;
        }
        Some(row)
    }

    /// The regions of the target, at most `max` if possible: neighbours whose counts agree are joined. Accesses count
    /// as found if they are within `sample`.
    #[must_use]
    pub fn regions(&self, max: usize, sample: Duration, now_ms: u32) -> Vec<RegionView> {
        let mut joined = Joined::new(FIRST_PASS, false, now_ms);
        let mut push = |range, kind| joined.push(WindowGroup { range, kind, windows: None });
        let mut end = 0;
        for window in &self.windows {
            if window.number > end {
                push(self.range(end, window.number), GroupKind::Absent);
            }
            end = window.number + 1;
            push(self.range(window.number, end), window.kind(self.remembers));
        }
        let all = self.size.div_ceil(self.window);
        if end < all {
            push(self.range(end, all), GroupKind::Absent);
        }
        let groups = fit(joined, max);
        groups.iter().map(|group| self.view(group.range, sample, now_ms)).collect()
    }

    fn range(&self, from: u64, to: u64) -> AddrRange {
        let at = |number: u64| number.saturating_mul(self.window).min(self.size);
        AddrRange::new(at(from), at(to))
    }

    fn view(&self, range: AddrRange, sample: Duration, now_ms: u32) -> RegionView {
        let index = |at: u64| {
            let number = at.div_ceil(self.window);
            self.windows.partition_point(|window| window.number < number)
        };
        let windows = self.windows.get(index(range.start)..index(range.end)).unwrap_or_default();
        let mut sums = Sums::default();
        let counts = |w: &&Window| w.is_resident() || self.remembers;
        windows.iter().filter(counts).for_each(|window| sums.add(window, now_ms));
        sums.view(range, sample, now_ms)
    }
}

impl Window {
    /// The same without its pages in memory.
    fn absent(self) -> Window {
        Window { resident: 0, unknown: None, ..self }
    }

    /// The time until `start` in which it was not in memory: its age has not grown, and its counts count less.
    fn skip(&mut self, start: u32, length: u32) {
        let absent = start.saturating_sub(self.seen);
        self.touched = self.touched.saturating_add(absent);
        self.since = self.since.saturating_add(absent);
        let kept = COUNT_DECAY.powf(f64::from(absent) / f64::from(length.max(1)));
        (self.accesses, self.exposure) = (self.accesses * kept, self.exposure * kept);
    }

    /// Adds another window to this one.
    fn join(&mut self, other: &Window) {
        let why = self.unknown.or(other.unknown);
        self.unknown = why.map(|(why, _)| (why, self.nr_unknown() + other.nr_unknown()));
        self.resident = self.resident.saturating_add(other.resident);
        self.accesses += other.accesses;
        self.exposure += other.exposure;
        self.untouched += other.untouched;
        self.is_known |= other.is_known;
        for (own, other) in [
            (&mut self.seen, other.seen),
            (&mut self.since, other.since),
            (&mut self.touched, other.touched),
            (&mut self.idle_ms, other.idle_ms),
        ] {
            *own = other.max(*own);
        }
    }

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
        let has_grown = seen.resident > self.resident;
        (self.resident, self.unknown, self.seen) = (seen.resident, seen.unknown, now_ms);
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
        if accessed.is_some() { self.touch(&seen, length) } else { 0 }
    }

    /// Counts the pages that the accesses of an interval touched for the first time since the window was idle. The
    /// accesses are presumed to be spread over the pages.
    fn touch(&mut self, seen: &CountedWindow, length: u32) -> u32 {
        let pages = f64::from(self.visible());
        self.untouched = self.untouched.min(pages);
        if self.untouched <= 0.0 {
            return 0;
        }
        let seconds = f64::from(length) / 1e3;
        let accesses = seen.accesses * pages * seconds / seen.exposure.max(1e-9);
        let new = (accesses.max(1.0) * self.untouched / pages).min(self.untouched);
        let before = self.untouched.ceil();
        self.untouched -= new;
        (before - self.untouched.ceil()) as u32
    }

    /// Pages in memory whose accesses can be observed.
    fn visible(&self) -> u32 {
        self.resident - self.nr_unknown().min(self.resident)
    }

    fn nr_unknown(&self) -> u32 {
        self.unknown.map_or(0, |(_, pages)| pages)
    }

    fn is_resident(&self) -> bool {
        self.resident > 0
    }

    fn kind(&self, remembers: bool) -> GroupKind {
        let remembered = remembers && self.accesses > 0.0;
        match self.unknown {
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
        self.resident += f64::from(w.resident);
        self.visible += visible;
        if let Some((why, pages)) = w.unknown {
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
            unknown_bp: UnknownPages(self.unknown.map(|n| to_bp(n / pages))),
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
        target.set_size(windows * WINDOW, WINDOW, 0);
        target
    }

    /// An interval with these counts of all windows.
    fn observe(t: &mut CountedTarget, mut seen: impl FnMut(usize) -> CountedWindow, now_ms: u32) {
        let all = 0..t.size.div_ceil(t.window);
        t.observe(all.map(|number| (number, seen(number as usize))), now_ms);
    }

    #[test]
    fn hot_and_cold_parts_are_regions() {
        let mut t = target(32);
        for second in 1..=20 {
            observe(&mut t, |i| seen(if (8..16).contains(&i) { 40.0 } else { 0.0 }), second * 1000);
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
        (1..=60).for_each(|second| observe(&mut t, |_| seen(30.0), second * 1000));
        observe(&mut t, |_| seen(0.0), 61_000);
        let region = t.regions(9, SAMPLE, 66_000)[0];
        assert_eq!((region.rate.hz, region.age.as_secs()), (0.0, 6));
        observe(&mut t, |_| seen(90.0), 62_000);
        let region = t.regions(9, SAMPLE, 63_000)[0];
        assert_eq!((region.rate.hz, region.age.as_secs()), (90.0, 1));
    }

    #[test]
    fn a_low_rate_ends_with_the_accesses() {
        let mut t = target(1);
        (1..=60).for_each(|second| observe(&mut t, |_| seen(f64::from(second % 2)), second * 1000));
        let rate = t.regions(9, SAMPLE, 60_000)[0].rate.hz;
        assert!((0.4..0.6).contains(&rate), "{rate}");
        (61..=70).for_each(|second| observe(&mut t, |_| seen(0.0), second * 1000));
        let region = t.regions(9, SAMPLE, 70_000)[0];
        assert_eq!((region.rate.hz, region.accesses_bp, region.age.as_secs()), (0.0, 0, 11));
    }

    #[test]
    fn memory_that_comes_back_is_not_idle() {
        let mut t = target(1);
        let resident = |resident| CountedWindow { resident, ..seen(0.0) };
        (1..=20).for_each(|second| observe(&mut t, |_| resident(64), second * 1000));
        assert_eq!(t.regions(9, SAMPLE, 20_000)[0].age.as_secs(), 19);
        observe(&mut t, |_| resident(3), 21_000);
        assert_eq!(t.regions(9, SAMPLE, 21_000)[0].age.as_secs(), 20);
        observe(&mut t, |_| resident(4), 22_000);
        assert_eq!(t.regions(9, SAMPLE, 22_000)[0].age.as_secs(), 0);
    }

    /// Seconds of age after 1000 s without accesses of which this share was watched.
    fn age_after_1000_s(watched: f64) -> u64 {
        let mut t = target(1);
        (0..=1000)
            .for_each(|s| observe(&mut t, |_| CountedWindow { watched, ..seen(0.0) }, s * 1000));
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
            observe(&mut t, |_| CountedWindow { watched, idle, ..seen(0.0) }, now);
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
                observe(&mut t, |i| seen(if i == 0 { 40.0 } else { 0.0 }), second * 1000);
            }
            (21..=60)
                .for_each(|second| observe(&mut t, |_| CountedWindow::default(), second * 1000));
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
            (1..=20).for_each(|second| observe(&mut t, of, second * 1000));
            t.resume(was_absent, 600_000);
            observe(&mut t, of, 601_000);
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
            observe(&mut t, of, second * 1000);
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
        observe(&mut t, |_| seen(0.0), 1000);
        assert_eq!(t.ages(Nanos(1), 1000), None);
        for second in 2..=60 {
            observe(&mut t, |_| seen(0.0), second * 1000);
        }
        let mut counted = || (0..READS).filter(|_| below(&mut rng, 64) == 0).count() as f64;
        let read = |accesses| CountedWindow { idle: Some(Duration::ZERO), ..seen(accesses) };
        observe(&mut t, |_| read(counted()), 61_000);
        let returned = t.ages(Nanos(2), 61_000).unwrap().returned.total() as f64;
        // Accesses of the same page are one return; each window without a count has one.
        let distinct = 64.0 * -(-(READS as f64) / 64.0).exp_m1();
        let mean = returned / WINDOWS as f64;
        assert!((distinct * 0.95..(distinct + 1.0) * 1.05).contains(&mean), "{mean} of {distinct}");
    }

    #[test]
    fn ages_do_not_count_a_time_that_was_not_observed() {
        let mut t = target(1);
        (1..=20).for_each(|second| observe(&mut t, |_| seen(0.0), second * 1000));
        let at = |second: u64| Nanos(second * 1_000_000_000);
        assert_eq!(t.ages(at(20), 20_000), None);
        t.resume(false, 600_000);
        observe(&mut t, |_| seen(0.0), 601_000);
        assert_eq!(t.ages(at(601), 601_000), None);
        (602..=610).for_each(|second| observe(&mut t, |_| seen(0.0), second * 1000));
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
        observe(&mut t, |i| of[i], 9000);
        observe(&mut t, |i| of[i], 19_000);
        let regions = t.regions(9, SAMPLE, 19_000);
        let bytes: crate::HeatBytes = regions.iter().map(|r| r.bytes(&Thresholds::default())).sum();
        assert_eq!((bytes.absent, bytes.unknown, bytes.cold), (WINDOW, WINDOW, WINDOW));
    }

    /// Of 16 TiB, three windows are in memory, one of them for some time only.
    #[test]
    fn a_target_costs_by_its_memory_and_not_by_its_size() {
        let mut t = CountedTarget::new(WINDOW);
        t.set_size(1 << 44, WINDOW, 0);
        let far = (1 << 43) / WINDOW;
        for second in 1..=20 {
            let leaves = (second <= 10).then_some((far + 9, seen(0.0)));
            let all = [(0, seen(40.0)), (far, seen(0.0))].into_iter().chain(leaves);
            t.observe(all, second * 1000);
        }
        assert_eq!(t.nr_windows(), 3);
        let regions = t.regions(9, SAMPLE, 20_000);
        let found: Vec<_> = regions
            .iter()
            .map(|r| (r.range.start / WINDOW, r.resident_bp, r.rate.hz.round()))
            .collect();
        let rest = (far + 1, 0, 0.0);
        assert_eq!(found, [(0, 10_000, 40.0), (1, 0, 0.0), (far, 10_000, 0.0), rest]);
        CountedTarget::limit(&mut [&mut t], 1, 20_000);
        assert_eq!(t.nr_windows(), 2, "what is in memory stays");
        t.set_size(WINDOW, WINDOW, 20_000);
        assert_eq!(t.nr_windows(), 1, "the file was made shorter");
    }

    #[test]
    fn windows_that_left_first_are_forgotten_first() {
        let mut all = [target(100), target(100)];
        for second in 1..=100 {
            let in_memory =
                |i: usize| if i < second { seen(0.0) } else { CountedWindow::default() };
            let leaves = |i: usize| if i >= second { seen(0.0) } else { CountedWindow::default() };
            observe(&mut all[0], in_memory, second as u32 * 1000);
            observe(&mut all[1], leaves, second as u32 * 1000);
        }
        let [first, second] = &mut all;
        let mut numbers = |max| {
            CountedTarget::limit(&mut [&mut *first, &mut *second], max, 100_000);
            let numbers = second.windows.iter().map(|window| window.number);
            (first.nr_windows(), numbers.collect::<Vec<_>>())
        };
        assert_eq!(numbers(199), (100, (1..100).collect()));
        assert_eq!(numbers(130), (100, (70..100).collect()));
        assert_eq!(numbers(0), (100, vec![]));
    }

    #[test]
    fn of_windows_that_left_at_once_no_more_than_necessary_are_forgotten() {
        let mut t = target(100);
        observe(&mut t, |_| seen(0.0), 1000);
        let half = |i: usize| if i < 50 { seen(0.0) } else { CountedWindow::default() };
        observe(&mut t, half, 2000);
        for (max, left) in [(90, 90), (60, 60), (10, 50)] {
            CountedTarget::limit(&mut [&mut t], max, 2000);
            assert_eq!(t.nr_windows(), left);
        }
    }

    #[test]
    fn what_a_file_has_grown_by_is_left_out_until_its_size_is_known() {
        let mut t = target(1);
        let all = || [(0, seen(40.0)), (2, seen(40.0))].into_iter();
        let nr_regions = |t: &CountedTarget, at| {
            let regions = t.regions(9, SAMPLE, at);
            assert!(regions.iter().all(|r| !r.range.is_empty()), "{regions:?}");
            regions.len()
        };
        t.observe(all(), 1000);
        assert_eq!((t.nr_windows(), nr_regions(&t, 1000)), (1, 1));
        t.set_size(3 * WINDOW, WINDOW, 1000);
        t.observe(all(), 2000);
        assert_eq!((t.nr_windows(), nr_regions(&t, 2000)), (2, 3));
    }

    #[test]
    fn the_age_of_a_rate_does_not_grow_while_a_window_is_not_in_memory() {
        let mut t = target(1);
        (1..=20).for_each(|second| observe(&mut t, |_| seen(40.0), second * 1000));
        (21..=60).for_each(|second| observe(&mut t, |_| CountedWindow::default(), second * 1000));
        observe(&mut t, |_| seen(40.0), 61_000);
        let region = t.regions(9, SAMPLE, 61_000)[0];
        assert_eq!((region.rate.hz.round(), region.age.as_secs()), (40.0, 21));
    }

    #[test]
    fn joined_windows_have_the_pages_and_rates_of_both() {
        let mut t = target(5);
        for second in 1..=20 {
            observe(&mut t, |i| seen([40.0, 20.0, 0.0, 0.0, 8.0][i]), second * 1000);
        }
        t.set_size(5 * WINDOW, 2 * WINDOW, 20_000);
        assert_eq!(t.nr_windows(), 3);
        let regions = t.regions(9, SAMPLE, 20_000);
        let of: Vec<_> = regions
            .iter()
            .map(|r| (r.range.len() / WINDOW, r.resident_bp, r.rate.hz.round()))
            .collect();
        assert_eq!(of, [(2, 10_000, 30.0), (2, 10_000, 0.0), (1, 10_000, 8.0)]);
        assert_eq!(regions.iter().map(|r| r.age.as_secs()).collect::<Vec<_>>(), [20, 19, 20]);
    }

    #[test]
    fn a_later_origin_changes_no_age() {
        let at = |second: u32| 3_000_000_000 + second * 1000;
        let mut t = CountedTarget::new(WINDOW);
        t.set_size(2 * WINDOW, WINDOW, at(0));
        observe(&mut t, |_| seen(40.0), at(1));
        assert_eq!(t.ages(Nanos(1), at(1)), None);
        observe(&mut t, |i| seen(if i == 0 { 40.0 } else { 0.0 }), at(2));
        let off = 2_900_000_000;
        t.rebase(off);
        let later = |second| at(second) - off;
        observe(&mut t, |i| seen(if i == 0 { 40.0 } else { 0.0 }), later(20));
        let regions = t.regions(9, SAMPLE, later(20));
        assert_eq!(regions.iter().map(|r| r.age.as_secs()).collect::<Vec<_>>(), [20, 19]);
        let ages = t.ages(Nanos(2), later(20)).unwrap();
        assert_eq!((ages.begun, pages(&ages.idle, 16)), (Nanos(1), 64));
    }

    /// A window is idle for a minute, then not in memory for an hour, then read: only the minute counts.
    #[test]
    fn a_window_that_returns_has_the_age_with_which_it_left() {
        let mut t = target(1);
        observe(&mut t, |_| seen(40.0), 1000);
        assert_eq!(t.ages(Nanos(1), 1000), None);
        observe(&mut t, |_| seen(40.0), 2000);
        (3..=62).for_each(|second| observe(&mut t, |_| seen(0.0), second * 1000));
        (63..=3662).for_each(|second| observe(&mut t, |_| CountedWindow::default(), second * 1000));
        observe(&mut t, |_| seen(40.0), 3_663_000);
        let returned = t.ages(Nanos(2), 3_663_000).unwrap().returned;
        assert_eq!((pages(&returned, 40), pages(&returned, 300)), (returned.total(), 0));
        assert!(returned.total() > 0);
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
            t.set_size(size, WINDOW, 0);
            observe(&mut t, |i| CountedWindow { resident: counts[i].0, ..seen(counts[i].1) }, 1000);
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
                observe(&mut t, |i| CountedWindow {
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
