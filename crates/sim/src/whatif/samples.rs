//! Sampled pages of one target: where they lie, and when they are touched.
//!
//! The rows of page ages say how many pages are idle for how long, and how many pages a second are touched by the
//! age before the touch. Samples are touched so that both hold: each row gives the number of touches by age, and
//! at its end the samples get its ages. The samples that were idle for the longest time get the highest ages. The
//! regions of the snapshots give the places. Samples of a region that is untouched as a whole have at least its
//! age, and they are touched together with the region.

use std::collections::VecDeque;
use std::sync::Arc;

use isotherm_core::{
    AGE_BINS, AddrRange, AgeHistogram, PAGE_SIZE, PageAges, RegionView, TargetView,
};

use crate::random::{mix, unit};

/// Resolution of ages, in s: younger pages have the same age.
const AGE_RESOLUTION_S: f64 = 0.01;
/// Of memory that was paged out some time ago, pages whose age is less than this share of the time are other
/// pages: the program has freed the memory since.
const REPLACED: f64 = 0.5;

/// A sampled page, and the memory around it that it stands for. Times are in s.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// number of the page
    page: u64,
    /// the memory
    pub cell: AddrRange,
    /// its pages that are resident in the record, and whose accesses can be observed
    pub pages: f64,
    /// time of the last touch
    pub touched: f64,
    /// share of the pages that is paged out
    pub out: f64,
    /// time of the last page-out
    out_at: f64,
    /// the tier that it lies in; 0 is the fastest
    pub tier: u8,
    /// Its region was untouched as a whole in the last snapshot, and for at least half of the page's age: it is
    /// not touched alone.
    is_idle: bool,
    /// rate of the touched pages of its region in Hz, and their share
    hz: f32,
    share: f32,
    /// in this step, the bin of its age, or the share of its pages that survives untouched
    bin: u8,
    survives: f32,
}

impl Sample {
    /// Two numbers from 0 to 1 that are its own.
    pub fn dice(&self) -> (f64, f64) {
        (unit(mix(self.page, 2)), unit(mix(self.page, 3)))
    }

    /// Pages out this share of its pages.
    pub fn page_out(&mut self, share: f64, now: f64) {
        self.out = (self.out + share).min(1.0);
        self.out_at = now;
    }

    /// The share of the pages of its region that a time of `dt` leaves untouched, if touches are at random.
    fn surviving(&self, dt: f64) -> f32 {
        untouched(self.hz, self.share, dt)
    }
}

/// The share of pages that a time of `dt` leaves untouched, if a `share` of them is touched at random at this rate.
fn untouched(hz: f32, share: f32, dt: f64) -> f32 {
    let touches = hz * dt as f32;
    let left = if touches < 16.0 { (-touches).exp() } else { 0.0 };
    1.0 - share + share * left
}

/// The ages of a target, which were counted from `since` to `end`; times are in s.
#[derive(Debug, Clone)]
struct Row {
    since: f64,
    end: f64,
    ages: Arc<PageAges>,
}

impl Row {
    fn seconds(&self) -> f64 {
        (self.end - self.since).max(1e-3)
    }

    fn pages(&self) -> f64 {
        (self.ages.idle.total() + self.ages.swapped.total()) as f64
    }

    /// The share of the pages that is idle for `age` s or longer.
    fn at_least(&self, age: f64) -> f64 {
        let pages = self.ages.idle.at_least(age) + self.ages.swapped.at_least(age);
        pages / self.pages().max(1.0)
    }

    /// The bins, the oldest first: their ages in s, and their pages.
    fn bins(&self) -> impl Iterator<Item = ((f64, f64), f64)> + '_ {
        let lowest =
            |i| AgeHistogram::lowest_ms(i).map(|ms| (ms as f64 / 1e3).max(AGE_RESOLUTION_S));
        let pages = |i: usize| f64::from(self.ages.idle.0[i]) + f64::from(self.ages.swapped.0[i]);
        let bin = move |i: usize| {
            let from = lowest(i).unwrap_or(AGE_RESOLUTION_S);
            ((from, lowest(i + 1).unwrap_or(from * 2.0)), pages(i))
        };
        (0..AGE_BINS).rev().map(bin).filter(|(_, pages)| *pages > 0.0)
    }
}

/// An age within a bin, which is narrow: `part` is 0 to 1.
fn within((from, to): (f64, f64), part: f64) -> f64 {
    from + (to - from) * part
}

/// The touches of some time.
#[derive(Debug, Clone, Default)]
pub(super) struct Touches {
    /// paged-out pages that were touched
    pub returned: f64,
    /// pages that were touched in each tier
    pub by_tier: Vec<f64>,
}

impl Touches {
    fn note(&mut self, s: &mut Sample, at: f64) {
        self.returned += s.out * s.pages;
        let tier = usize::from(s.tier);
        if self.by_tier.len() <= tier {
            self.by_tier.resize(tier + 1, 0.0);
        }
        if let Some(tier) = self.by_tier.get_mut(tier) {
            *tier += (1.0 - s.out) * s.pages;
        }
        (s.touched, s.out, s.tier) = (at, 0.0, 0);
    }
}

/// The samples of one target, in order of address.
#[derive(Debug, Default)]
pub(super) struct Samples {
    pub all: Vec<Sample>,
    before: Vec<Sample>,
    rows: VecDeque<Row>,
    /// touches of the row in force that are still to come, by age
    due: Option<[f64; AGE_BINS]>,
    now: f64,
    dice: u64,
    /// age of which the schemes page memory out, in s: no younger page stays paged out. 0 if they have none
    floor: f64,
    /// ages and indexes, to sort them
    order: Vec<(u32, u32)>,
}

impl Samples {
    /// Samples from `now` on, of which schemes page out memory that is untouched for `floor` s.
    pub fn new(now: f64, seed: u64, floor: f64) -> Self {
        Samples { now, dice: mix(seed, 0), floor, ..Samples::default() }
    }

    /// Adds the ages of a later snapshot.
    pub fn push(&mut self, ages: &Arc<PageAges>, end: f64) {
        let since = ages.since.0 as f64 / 1e9;
        self.rows.push_back(Row { since, end, ages: Arc::clone(ages) });
    }

    fn throw(&mut self) -> f64 {
        self.dice = self.dice.wrapping_add(1);
        unit(mix(self.dice, 1))
    }

    /// Pages that the samples stand for, in bytes.
    pub fn bytes(&self) -> f64 {
        self.all.iter().map(|s| s.pages).sum::<f64>() * PAGE_SIZE as f64
    }

    /// Pages of them that are paged out, in bytes.
    pub fn out_bytes(&self) -> f64 {
        self.all.iter().map(|s| s.pages * s.out).sum::<f64>() * PAGE_SIZE as f64
    }

    /// Advances the samples to the time and the regions of a snapshot. There is one sample in `stride` pages.
    pub fn advance(&mut self, view: &TargetView, to: f64, stride: u64) -> Touches {
        let mut touches = Touches::default();
        while let Some(end) = self.rows.front().map(|r| r.end).filter(|end| *end <= to) {
            if end > self.now {
                self.pass(end, &mut touches);
                self.take_ages(&mut touches);
            }
            // The last row is in force until the next one.
            if self.rows.len() == 1 {
                break;
            }
            self.rows.pop_front();
            self.due = None;
        }
        self.pass(to, &mut touches);
        self.lay(view, stride, &mut touches);
        touches
    }

    /// Lets time pass until `to`, by the ages of the row in force.
    fn pass(&mut self, to: f64, touches: &mut Touches) {
        let dt = to - self.now;
        let Some(row) = self.rows.front().cloned().filter(|_| dt > 0.0) else {
            self.now = self.now.max(to);
            return;
        };
        let now = self.now;
        let mut due = self.due();
        // The rates of the last row continue.
        let part = if row.end > now { dt / (row.end - now) } else { dt / row.seconds() };
        self.now = to;
        let is_old = |s: &Sample| s.is_idle || now - s.touched >= dt;
        let mut open = [0.0; AGE_BINS];
        let (mut all, mut survivors) = (0.0, 0.0);
        for s in &mut self.all {
            all += s.pages;
            if is_old(s) {
                let bin = AgeHistogram::bin(((now + dt / 2.0 - s.touched).max(0.0) * 1e3) as u64);
                s.bin = bin as u8;
                open[bin] += if s.is_idle { 0.0 } else { s.pages };
            } else {
                s.survives = s.surviving(dt);
                survivors += s.pages * f64::from(s.survives);
            }
        }
        let mut chances = [0.0; AGE_BINS];
        for ((chance, due), open) in chances.iter_mut().zip(&mut due).zip(&open) {
            let touched = f64::min(*due * part, *open);
            *due -= touched;
            *chance = touched / f64::max(*open, 1e-9);
        }
        self.due = (row.end >= to).then_some(due);
        // Young pages survive so that as many are as old as the row has.
        let mut old = 0.0;
        let young = Young::of(&row, dt);
        let mut samples = std::mem::take(&mut self.all);
        for s in samples.iter_mut().filter(|s| is_old(s)) {
            let chance = if s.is_idle { 0.0 } else { chances[usize::from(s.bin)] };
            if chance > 0.0 && self.throw() < chance {
                let at = to - young.age(self.throw());
                touches.note(s, at);
            } else {
                old += s.pages;
            }
        }
        let needed = (row.at_least(dt) * all - old).max(0.0) / survivors.max(1e-9);
        for s in samples.iter_mut().filter(|s| !is_old(s) && s.touched <= now) {
            if self.throw() >= needed * f64::from(s.survives) {
                let at = to - young.age(self.throw());
                touches.note(s, at);
            }
        }
        self.all = samples;
    }

    /// The touches of the row in force that are still to come, by age.
    fn due(&mut self) -> [f64; AGE_BINS] {
        let Some(row) = self.rows.front() else { return [0.0; AGE_BINS] };
        let left = ((row.end - self.now) / row.seconds()).clamp(0.0, 1.0);
        let part = if left > 0.0 { left } else { 1.0 };
        let all = || row.ages.returned.0.map(|pages| f64::from(pages) * part);
        *self.due.get_or_insert_with(all)
    }

    /// Gives the samples the ages of the row in force, in the order of their ages. What is younger then than the age
    /// of the schemes has been touched, also if it was paged out: it has come back, as far as the row has touches left.
    fn take_ages(&mut self, touches: &mut Touches) {
        let due = self.due.take();
        let Some(row) = self.rows.front() else { return };
        let first = AgeHistogram::bin((self.floor * 1e3) as u64);
        let mut left: f64 = due.map_or(0.0, |due| due.iter().skip(first).sum());
        // Nothing is known of the time before.
        let oldest = row.end - row.ages.begun.0 as f64 / 1e9;
        let samples = &mut self.all;
        // The bits of positive numbers are in the order of the numbers.
        let age = |s: &Sample| ((self.now - s.touched).max(0.0) as f32).to_bits();
        self.order.clear();
        self.order.extend(samples.iter().zip(0..).map(|(s, i)| (age(s), i)));
        self.order.sort_unstable();
        let all: f64 = samples.iter().map(|s| s.pages).sum();
        let scale = row.pages() / all.max(1e-9);
        let mut bins = row.bins();
        let Some((mut ages, mut pages)) = bins.next() else { return };
        let (mut at, mut bin_from) = (0.0, 0.0);
        for (_, i) in self.order.iter().rev() {
            let Some(s) = samples.get_mut(*i as usize) else { continue };
            let middle = at + s.pages * scale / 2.0;
            at += s.pages * scale;
            while middle > bin_from + pages {
                let Some(next) = bins.next() else { break };
                bin_from += pages;
                (ages, pages) = next;
            }
            let part = ((middle - bin_from) / pages).clamp(0.0, 1.0);
            let top = ages.1.min(oldest).max(ages.0);
            let age = within((ages.0, top), 1.0 - part);
            s.touched = self.now - age;
            if s.out > 0.0 && age < self.floor {
                let back = (s.out * s.pages).min(left);
                left -= back;
                touches.returned += back;
                s.out = 0.0;
            }
            if s.out > 0.0 && age < REPLACED * (self.now - s.out_at) {
                s.out = 0.0;
            }
        }
    }

    /// Takes over the regions of a snapshot.
    fn lay(&mut self, view: &TargetView, stride: u64, touches: &mut Touches) {
        let before = std::mem::replace(&mut self.all, std::mem::take(&mut self.before));
        self.all.clear();
        let mut rest = before.as_slice();
        let mut due = self.due();
        for region in &view.regions {
            let behind = rest.partition_point(|s| s.page < region.range.start / PAGE_SIZE);
            let inside = rest.partition_point(|s| s.page < region.range.end / PAGE_SIZE);
            let there = rest.get(behind..inside).unwrap_or_default();
            rest = rest.get(inside..).unwrap_or_default();
            self.lay_region(region, there, stride, (&mut due, &mut *touches));
        }
        self.due = Some(due);
        self.before = before;
        self.scale();
    }

    /// Lays the samples of a region: those that are `there`, and new ones. Touches of those that wake are `due` no more.
    fn lay_region(
        &mut self,
        region: &RegionView,
        there: &[Sample],
        stride: u64,
        (due, touches): (&mut [f64; AGE_BINS], &mut Touches),
    ) {
        let visible = visible_share(region);
        if visible <= 0.0 {
            return;
        }
        let first = self.all.len();
        self.place_samples(region, there, stride, visible);
        let mut from = region.range.start;
        let is_idle = is_idle(region);
        let since = self.now - region.age.as_secs_f64();
        let share = region.touched_bp.min(10_000) as f32 / 1e4;
        for i in first..self.all.len() {
            let end = self.all.get(i + 1).map_or(region.range.end, |s| s.page * PAGE_SIZE);
            // A region may be touched so rarely that most of its pages are as idle as before.
            let idle = self.now - self.all[i].touched;
            let is_touched = f64::from(region.rate.hz) * idle >= 0.5;
            let chance =
                if is_touched { share } else { 1.0 - untouched(region.rate.hz, share, idle) };
            let woke = self.all[i].is_idle && !is_idle && self.throw() < f64::from(chance);
            let s = &mut self.all[i];
            s.cell = AddrRange::new(from, end);
            s.pages = (end - from) as f64 / PAGE_SIZE as f64 * visible;
            (s.hz, s.share) = (region.rate.hz, share);
            if is_idle {
                s.touched = s.touched.min(since);
            }
            s.is_idle = is_idle && since - s.touched <= self.now - since;
            if woke {
                // No more samples are touched than the row has. Ages are known to a bin.
                let bin = AgeHistogram::bin((idle.max(0.0) * 1e3) as u64);
                let near = [bin, bin.saturating_sub(1), (bin + 1).min(AGE_BINS - 1)];
                if let Some(bin) = near.into_iter().find(|bin| due[*bin] >= s.pages / 2.0) {
                    due[bin] = (due[bin] - s.pages).max(0.0);
                    touches.note(s, self.now);
                }
            }
            from = end;
        }
    }

    /// Adds the samples of a region, in order of address: those that are `there`, and new ones; at least one.
    fn place_samples(&mut self, region: &RegionView, there: &[Sample], stride: u64, visible: f64) {
        let first = self.all.len();
        // The fewer pages are resident, the wider the grid. Samples of the next finer grid stay, so that they do
        // not come and go when the share varies.
        let sparse = (1.0 / visible).log2().ceil().clamp(0.0, 32.0) as u32;
        let (step, fine) = (stride << sparse, stride << sparse.saturating_sub(1));
        let (start, end) = (region.range.start / PAGE_SIZE, region.range.end / PAGE_SIZE);
        let mut known = there.iter().filter(|s| s.page & (fine - 1) == 0).peekable();
        let mut next = start.div_ceil(step).saturating_mul(step);
        loop {
            match known.peek() {
                Some(s) if s.page <= next || next >= end => {
                    next += if s.page == next { step } else { 0 };
                    self.all.push(**s);
                    known.next();
                }
                _ if next < end => {
                    let sample = self.new_sample(next, region);
                    self.all.push(sample);
                    next = next.saturating_add(step);
                }
                _ => break,
            }
        }
        if self.all.len() == first {
            let lone = there.first().copied().unwrap_or_else(|| self.new_sample(start, region));
            self.all.push(lone);
        }
    }

    /// A sample of a region that is new. Its age is a guess, until the next row comes.
    fn new_sample(&mut self, page: u64, region: &RegionView) -> Sample {
        let mean = f64::from(region.rate.hz) * f64::from(region.touched_bp) / 1e4;
        let age = match is_idle(region) {
            true => region.age.as_secs_f64(),
            false => (-(1.0 - self.throw()).ln() / mean.max(1e-3)).min(region.age.as_secs_f64()),
        };
        Sample {
            page,
            cell: region.range,
            pages: 0.0,
            touched: self.now - age,
            out: 0.0,
            out_at: self.now,
            tier: 0,
            is_idle: false,
            hz: 0.0,
            share: 0.0,
            bin: 0,
            survives: 0.0,
        }
    }

    /// Lets the samples stand for all pages of known age, those in swap included.
    fn scale(&mut self) {
        let all: f64 = self.all.iter().map(|s| s.pages).sum();
        let Some(row) = self.rows.front().filter(|_| all > 0.0) else { return };
        let factor = row.pages() / all;
        self.all.iter_mut().for_each(|s| s.pages *= factor);
    }
}

/// Ages of the pages of a row that are younger than some age.
struct Young {
    bins: Vec<((f64, f64), f64)>,
    pages: f64,
}

impl Young {
    fn of(row: &Row, below: f64) -> Self {
        let cut = |((from, to), pages): ((f64, f64), f64)| {
            let end = f64::min(to, below);
            let part = if end < to { (end / from).ln() / (to / from).ln() } else { 1.0 };
            ((from, end), pages * part)
        };
        let bins: Vec<_> = row.bins().filter(|(b, _)| b.0 < below).map(cut).collect();
        let pages = bins.iter().map(|b| b.1).sum();
        Young { bins, pages }
    }

    /// The age at a share of the pages, 0 to 1.
    fn age(&self, share: f64) -> f64 {
        let mut left = share * self.pages;
        for (ages, pages) in &self.bins {
            if left < *pages {
                return within(*ages, left / pages);
            }
            left -= pages;
        }
        AGE_RESOLUTION_S
    }
}

/// The share of a region that is resident, and whose accesses can be observed.
pub(super) fn visible_share(region: &RegionView) -> f64 {
    let unknown = u32::try_from(region.unknown_bp.total()).unwrap_or(u32::MAX);
    f64::from(region.resident_bp.min(10_000).saturating_sub(unknown)) / 1e4
}

/// Whether a region is untouched as a whole.
fn is_idle(region: &RegionView) -> bool {
    region.accesses_bp == 0 && region.rate.hz == 0.0
}
