//! Joins snapshots to one of a longer interval.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, HugeAges, PageAges, Rate, RateSupport, RegionView, Snapshot, TargetId, TargetView,
    UnknownPages,
};

use super::left_out;

/// Regions whose shares of accesses differ by less than this, in basis points, may become one.
const SAME_BP: u32 = 100;
/// Regions whose rates differ by a greater factor never become one, so that a small hot region does not make a large
/// one hot.
const SAME_RATE: f32 = 2.0;

/// The longest time that a record can hold.
const MAX_TIME: Duration = Duration::from_nanos(u64::MAX);

/// One snapshot of all of `parts`, which are in order of time; `None` if there are none. Its aggregation interval is at
/// least `aggr`. The regions of a single part stay as they are. Of several, shares are means over time, rates are
/// medians, and ages and mappings are those of the last one. A target that was not in all of them has its last view, and
/// its memory counts for the part of the time in which it was there.
#[must_use]
pub fn aggregate(parts: &[&Snapshot], aggr: Duration) -> Option<Snapshot> {
    let (first, last) = (parts.first()?, parts.last()?);
    let mut joined = Snapshot::clone(last);
    joined.start = first.start;
    joined.attrs.aggr = aggr.max(last.attrs.aggr);
    if parts.len() == 1 {
        return Some(joined);
    }
    for part in parts.iter().rev().skip(1) {
        joined.cost += part.cost;
    }
    joined.cost.cpu = joined.cost.cpu.min(MAX_TIME);
    joined.cost.lost = joined.cost.lost.min(MAX_TIME);
    let ns = |s: &Snapshot| s.end.0.saturating_sub(s.start.0).max(1);
    let all = parts.iter().map(|s| u128::from(ns(s))).sum();
    let mut views = BTreeMap::<TargetId, Vec<Weighed<'_>>>::new();
    for part in parts {
        for view in &part.targets {
            views.entry(view.id).or_default().push((view, ns(part)));
        }
    }
    joined.targets = views.values().filter_map(|views| target(views, all)).collect();
    Some(joined)
}

/// A view, and the time for which it counts, in ns.
type Weighed<'a> = (&'a TargetView, u64);

/// The view of a target over all parts, which are `all` ns long.
fn target(views: &[Weighed<'_>], all: u128) -> Option<TargetView> {
    let most = views.iter().map(|(v, _)| v.regions.len()).max().unwrap_or(0);
    let mut regions = similar(regions(views), most);
    let mut ages = ages(views);
    let present: u128 = views.iter().map(|(_, ns)| u128::from(*ns)).sum();
    if present < all {
        let share = present as f64 / all as f64;
        regions.iter_mut().for_each(|r| lessen(r, share));
        ages = ages.map(|ages| Arc::new(lessened(&ages, share)));
    }
    let ran = views.iter().map(|(v, _)| v.ran).sum::<Option<Duration>>();
    let (last, _) = views.last()?;
    // Joined snapshots stay in memory in services.
    regions.shrink_to_fit();
    let mut view =
        TargetView { ran: ran.map(|d| d.min(MAX_TIME)), regions, ages, ..TargetView::clone(last) };
    view.left_out = left_out(&view);
    Some(view)
}

/// Reduces resident memory to a share of it.
fn lessen(r: &mut RegionView, share: f64) {
    let part = |bp: &mut u32| *bp = (f64::from(*bp) * share).round() as u32;
    part(&mut r.resident_bp);
    r.unknown_bp.0.iter_mut().for_each(part);
}

/// The ages with a share of the pages that the target has. Returned pages are counts of the interval, and are not scaled.
fn lessened(ages: &PageAges, share: f64) -> PageAges {
    let pages = |n: u32| (f64::from(n) * share).round() as u32;
    let huge = ages.huge.as_ref();
    PageAges {
        idle: ages.idle.scaled(share),
        untouched: pages(ages.untouched),
        unknown: pages(ages.unknown),
        swapped: ages.swapped.scaled(share),
        huge: huge.map(|h| Box::new(HugeAges { idle: h.idle.scaled(share), ..**h })),
        ..ages.clone()
    }
}

/// Means over time in pieces between all borders of regions, within the regions of the last view. Rates are medians: the
/// mean of a rate that is high for a moment is that of memory that is hot all the time. Adjacent pieces that differ
/// little are one. A sweep over the addresses adds each region once and removes it once, so `n` regions take `n log n`
/// steps.
fn regions(views: &[Weighed<'_>]) -> Vec<RegionView> {
    let Some((last, _)) = views.last() else { return Vec::new() };
    let mut all: Vec<(&RegionView, u64)> = Vec::new();
    for (view, ns) in views {
        let some = view.regions.iter().filter(|r| r.range.start < r.range.end);
        all.extend(some.map(|r| (r, *ns)));
    }
    all.sort_by(|(a, _), (b, _)| a.rate.hz.total_cmp(&b.rate.hz));
    let ordered = |border: fn(&AddrRange) -> u64| {
        let mut order: Vec<(u64, usize)> =
            all.iter().enumerate().map(|(i, (r, _))| (border(&r.range), i)).collect();
        order.sort_unstable();
        order.into_iter().peekable()
    };
    let (mut begins, mut ends) = (ordered(|r| r.start), ordered(|r| r.end));
    let mut newest = last.regions.iter().peekable();
    let mut mean = Mean::default();
    let mut rates = Weights::new(all.len());
    let mut out = Vec::new();
    while let Some(&(end, _)) = ends.peek() {
        // The next border.
        let start = begins.peek().map_or(end, |(begin, _)| end.min(*begin));
        while let Some((_, i)) = begins.next_if(|(begin, _)| *begin == start) {
            let (r, ns) = all[i];
            mean.add(r, ns);
            rates.add(i, touched(r, ns));
        }
        while let Some((_, i)) = ends.next_if(|(end, _)| *end == start) {
            let (r, ns) = all[i];
            mean.remove(r, ns);
            rates.remove(i, touched(r, ns));
        }
        let Some(&(end, _)) = ends.peek() else { break };
        let end = begins.peek().map_or(end, |(begin, _)| end.min(*begin));
        while newest.next_if(|r| r.range.end <= start).is_some() {}
        // What the last view does not have is no longer mapped.
        if let Some(newest) = newest.peek().filter(|r| r.range.contains(start)) {
            let piece = mean.region(AddrRange::new(start, end), newest.age);
            let rate = all.get(rates.median()).map_or(Rate::default(), |(r, _)| r.rate);
            push_similar(&mut out, RegionView { rate, ..piece });
        }
    }
    out
}

/// The weight of a region's rate, which is that of its touched pages.
fn touched(r: &RegionView, weight: u64) -> u128 {
    u128::from(r.touched_bp.max(1)) * u128::from(weight)
}

/// Weights in a given order, for the median of those that are present: a binary indexed tree.
struct Weights {
    /// The sum of the last weights up to each place, as many as the lowest bit of its number, counted from 1.
    sums: Vec<u128>,
    all: u128,
}

impl Weights {
    fn new(len: usize) -> Self {
        Weights { sums: vec![0; len], all: 0 }
    }

    fn add(&mut self, i: usize, weight: u128) {
        self.all += weight;
        self.change(i, |sum| *sum += weight);
    }

    fn remove(&mut self, i: usize, weight: u128) {
        self.all -= weight;
        self.change(i, |sum| *sum -= weight);
    }

    fn change(&mut self, i: usize, change: impl Fn(&mut u128)) {
        let mut place = i + 1;
        while let Some(sum) = self.sums.get_mut(place - 1) {
            steps::count();
            change(sum);
            place += place & place.wrapping_neg();
        }
    }

    /// The first that has at least half of the weight together with those before it.
    fn median(&self) -> usize {
        let (mut place, mut rest) = (0, self.all.div_ceil(2));
        let mut step = self.sums.len().checked_ilog2().map_or(0, |log| 1 << log);
        while step > 0 {
            steps::count();
            match self.sums.get(place + step - 1) {
                Some(sum) if *sum < rest => {
                    rest -= sum;
                    place += step;
                }
                _ => {}
            }
            step /= 2;
        }
        place
    }
}

/// A mean of regions, by weight. The sums are exact, so that a region that is removed leaves nothing.
#[derive(Default)]
struct Mean {
    weight: u128,
    shares: [u128; 3],
    unknown: UnknownPages<u128>,
    support: [u128; 2],
    /// regions whose support is not known
    unsupported: usize,
}

impl Mean {
    fn add(&mut self, r: &RegionView, weight: u64) {
        self.change(r, weight, |sum, part| *sum += part);
        self.unsupported += usize::from(r.support.is_none());
    }

    fn remove(&mut self, r: &RegionView, weight: u64) {
        self.change(r, weight, |sum, part| *sum -= part);
        self.unsupported -= usize::from(r.support.is_none());
    }

    fn change(&mut self, r: &RegionView, weight: u64, change: impl Fn(&mut u128, u128)) {
        steps::count();
        change(&mut self.weight, weight.into());
        let support = r.support.map_or([0; 2], |s| [s.measured_bp, s.extended_bp]);
        let shares = [r.accesses_bp, r.touched_bp, r.resident_bp];
        let bps = shares.iter().chain(&r.unknown_bp.0).chain(&support);
        let sums = self.shares.iter_mut().chain(&mut self.unknown.0).chain(&mut self.support);
        sums.zip(bps).for_each(|(sum, bp)| change(sum, u128::from(*bp) * u128::from(weight)));
    }

    /// A region with the means, without a rate.
    fn region(&self, range: AddrRange, age: Duration) -> RegionView {
        let weight = self.weight.max(1);
        let bp = |sum: &u128| ((sum + weight / 2) / weight).min(10_000) as u32;
        // An access in any part is one in the whole.
        let [accesses_bp, touched_bp, resident_bp] =
            self.shares.each_ref().map(|sum| bp(sum).max(u32::from(*sum > 0)));
        let support = (self.unsupported == 0).then(|| {
            let measured_bp = bp(&self.support[0]);
            RateSupport { measured_bp, extended_bp: bp(&self.support[1]).min(10_000 - measured_bp) }
        });
        RegionView {
            range,
            accesses_bp,
            age,
            rate: Rate::default(),
            touched_bp,
            resident_bp,
            unknown_bp: UnknownPages(self.unknown.0.each_ref().map(bp)),
            support,
        }
    }
}

/// Joins adjacent regions that differ ever more until there are no more than `most`.
fn similar(mut regions: Vec<RegionView>, most: usize) -> Vec<RegionView> {
    let mut limit = SAME_BP;
    while regions.len() > most && limit <= 10_000 {
        limit *= 2;
        regions.dedup_by(|r, before| {
            let same = are_similar(before, r, limit);
            if same {
                *before = join(before, r);
            }
            same
        });
    }
    regions
}

/// Adds a region, or joins it to the one before it if that differs little.
fn push_similar(regions: &mut Vec<RegionView>, r: RegionView) {
    match regions.last_mut() {
        Some(before) if are_similar(before, &r, SAME_BP) => *before = join(before, &r),
        _ => regions.push(r),
    }
}

fn are_similar(a: &RegionView, b: &RegionView, limit: u32) -> bool {
    let near = |a: u32, b: u32| a.abs_diff(b) < limit;
    let (slow, fast) = (a.rate.hz.min(b.rate.hz), a.rate.hz.max(b.rate.hz));
    a.range.end == b.range.start
        && near(a.accesses_bp, b.accesses_bp)
        && near(a.touched_bp, b.touched_bp)
        && near(a.resident_bp, b.resident_bp)
        && (a.accesses_bp > 0) == (b.accesses_bp > 0)
        && fast <= slow * SAME_RATE
}

/// The mean of two adjacent regions by their sizes; the age of the larger one. Rates also have the weight of their
/// touched pages.
fn join(a: &RegionView, b: &RegionView) -> RegionView {
    let mut mean = Mean::default();
    mean.add(a, a.range.len());
    mean.add(b, b.range.len());
    let age = if a.range.len() >= b.range.len() { a.age } else { b.age };
    let [of_a, of_b] = [a, b].map(|r| touched(r, r.range.len()) as f64);
    let hz = |of: fn(&Rate) -> f32| {
        let sum = f64::from(of(&a.rate)) * of_a + f64::from(of(&b.rate)) * of_b;
        (sum / (of_a + of_b)) as f32
    };
    let rate = Rate { hz: hz(|r| r.hz), low: hz(|r| r.low), high: hz(|r| r.high) };
    let range = AddrRange::new(a.range.start, b.range.end);
    RegionView { rate, ..mean.region(range, age) }
}

/// The newest idle ages, with all pages that returned.
fn ages(views: &[Weighed<'_>]) -> Option<Arc<PageAges>> {
    let mut all = views.iter().filter_map(|(v, _)| v.ages.as_ref());
    let first = Arc::clone(all.next()?);
    Some(all.fold(first, |sum, ages| Arc::new(ages.joined_to(&sum))))
}

/// Counts the steps of a join, in tests.
mod steps {
    #[cfg(test)]
    thread_local! {
        pub static COUNT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    pub fn count() {
        #[cfg(test)]
        COUNT.set(COUNT.get() + 1);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use isotherm_core::{Attrs, Cost, MappingKind, Nanos};
    use proptest::prelude::*;

    use super::*;

    /// `snapshots` of `regions`, all borders of which differ.
    pub(in crate::edit) fn scattered(snapshots: u64, regions: u64) -> Vec<Snapshot> {
        let mapping = isotherm_core::Mapping {
            range: AddrRange::new(0, regions << 24),
            kind: MappingKind::Anonymous,
            name: "".into(),
            unknown: None,
        };
        let mappings = Arc::new(vec![mapping]);
        let region = |seq: u64, i: u64| {
            let border =
                |i: u64| if i.is_multiple_of(regions) { i << 24 } else { (i << 24) + (seq << 12) };
            let touched_bp = (i * 37 + seq * 11) as u32 % 10_001;
            let hz = touched_bp as f32 / 7.0;
            RegionView {
                range: AddrRange::new(border(i), border(i + 1)),
                accesses_bp: touched_bp,
                age: Duration::ZERO,
                rate: Rate { hz, low: hz, high: hz },
                touched_bp,
                resident_bp: 10_000,
                unknown_bp: UnknownPages::default(),
                support: None,
            }
        };
        let snapshot = |seq| Snapshot {
            seq,
            start: Nanos(seq * 1_000_000_000),
            end: Nanos((seq + 1) * 1_000_000_000),
            attrs: Attrs::default(),
            cost: Cost { looks: 1, ..Cost::default() },
            quality: None,
            targets: vec![TargetView {
                id: TargetId(0),
                ran: None,
                mappings: Arc::clone(&mappings),
                left_out: 0,
                dirty: None,
                ages: None,
                regions: (0..regions).map(|i| region(seq, i)).collect(),
            }],
        };
        (0..snapshots).map(snapshot).collect()
    }

    /// Found by an audit: the time of a join grew with the square of the number of snapshots.
    #[test]
    fn the_steps_of_a_join_grow_little_faster_than_its_regions() {
        let steps = |snapshots| {
            let all = scattered(snapshots, 20);
            let before = steps::COUNT.get();
            let joined = aggregate(&all.iter().collect::<Vec<_>>(), Duration::ZERO).unwrap();
            assert!((1..=20).contains(&joined.nr_regions()));
            steps::COUNT.get() - before
        };
        let few = steps(50);
        assert!(few > 50 * 20, "{few}");
        let many = steps(800);
        assert!(many < few * 16 * 2, "{few} steps for 50 snapshots, {many} for 800");
    }

    /// What [`regions`] computes, by its definition: each piece between two borders on its own.
    fn by_definition(views: &[Weighed<'_>]) -> Vec<RegionView> {
        let ranges = views.iter().flat_map(|(v, _)| v.regions.iter().map(|r| r.range));
        let ranges = ranges.filter(|r| !r.is_empty());
        let mut borders: Vec<u64> = ranges.flat_map(|r| [r.start, r.end]).collect();
        borders.sort_unstable();
        borders.dedup();
        let mut out = Vec::new();
        for piece in borders.windows(2) {
            let in_view =
                |v: &TargetView| v.regions.iter().find(|r| r.range.contains(piece[0])).copied();
            let Some(newest) = views.last().and_then(|(v, _)| in_view(v)) else { continue };
            let mut here: Vec<(RegionView, u64)> =
                views.iter().filter_map(|(v, ns)| Some((in_view(v)?, *ns))).collect();
            here.sort_by(|(a, _), (b, _)| a.rate.hz.total_cmp(&b.rate.hz));
            let mut mean = Mean::default();
            here.iter().for_each(|(r, ns)| mean.add(r, *ns));
            let all: u128 = here.iter().map(|(r, ns)| touched(r, *ns)).sum();
            let mut sum = 0;
            let median = here.iter().find(|(r, ns)| {
                sum += touched(r, *ns);
                sum * 2 >= all
            });
            let rate = median.unwrap().0.rate;
            let r = mean.region(AddrRange::new(piece[0], piece[1]), newest.age);
            push_similar(&mut out, RegionView { rate, ..r });
        }
        out
    }

    /// A view of regions of a few pages, many of them adjacent, some of them empty, whose rates are often the same.
    fn any_view() -> impl Strategy<Value = TargetView> {
        let bp = || prop_oneof![Just(0), Just(10_000), 0..=10_000u32];
        let support = prop::option::of((0..=5_000u32, 0..=5_000u32));
        let region = (0..3u64, 0..5u64, 0..4u16, (bp(), bp(), bp(), bp()), 0..9u64, support);
        prop::collection::vec(region, 0..12).prop_map(|all| {
            let mut view = scattered(1, 0).remove(0).targets.remove(0);
            let mut at = 0;
            for (gap, len, hz, (accesses_bp, touched_bp, resident_bp, unknown), age, s) in all {
                let range = AddrRange::new(at + gap / 2, at + gap / 2 + len);
                at = range.end;
                let hz = f32::from(hz);
                view.regions.push(RegionView {
                    range,
                    accesses_bp,
                    age: Duration::from_secs(age),
                    // The lower bound shows which of several equal rates is the median.
                    rate: Rate { hz, low: accesses_bp as f32, high: f32::INFINITY },
                    touched_bp,
                    resident_bp,
                    unknown_bp: UnknownPages([unknown; 9]),
                    support: s
                        .map(|(measured_bp, extended_bp)| RateSupport { measured_bp, extended_bp }),
                });
            }
            view
        })
    }

    proptest! {
        #[test]
        fn a_join_is_what_its_definition_says(
            views in prop::collection::vec((any_view(), prop_oneof![1..4u64, any::<u64>()]), 1..9),
        ) {
            let views: Vec<Weighed<'_>> = views.iter().map(|(v, ns)| (v, *ns)).collect();
            prop_assert_eq!(regions(&views), by_definition(&views));
        }
    }
}
