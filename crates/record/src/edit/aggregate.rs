//! Joins snapshots to one of a longer interval.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, HugeAges, PageAges, Pages, Rate, RateSupport, RegionView, Snapshot, TargetId,
    TargetView,
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
    let ids: BTreeSet<TargetId> = parts.iter().flat_map(|s| &s.targets).map(|v| v.id).collect();
    joined.targets = ids.into_iter().filter_map(|id| target(parts, id)).collect();
    Some(joined)
}

/// The view of a target over all parts.
fn target(parts: &[&Snapshot], id: TargetId) -> Option<TargetView> {
    let seconds = |s: &Snapshot| s.end.since(s.start).as_secs_f64().max(1e-9);
    let views: Vec<(&TargetView, f64)> = parts
        .iter()
        .filter_map(|s| {
            let place = s.targets.binary_search_by_key(&id, |v| v.id).ok()?;
            Some((s.targets.get(place)?, seconds(s)))
        })
        .collect();
    let most = views.iter().map(|(v, _)| v.regions.len()).max().unwrap_or(0);
    let mut regions = similar(regions(&views), most);
    let mut ages = ages(&views);
    if views.len() < parts.len() {
        let present = views.iter().map(|(_, seconds)| seconds).sum::<f64>();
        let share = present / parts.iter().map(|s| seconds(s)).sum::<f64>();
        regions.iter_mut().for_each(|r| lessen(r, share));
        ages = ages.map(|ages| Arc::new(lessened(&ages, share)));
    }
    let ran = views.iter().map(|(v, _)| v.ran).sum::<Option<Duration>>();
    let (last, _) = views.last()?;
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
/// mean of a rate that is high for a moment is that of memory that is hot all the time.
fn regions(views: &[(&TargetView, f64)]) -> Vec<RegionView> {
    let Some((last, _)) = views.last() else { return Vec::new() };
    let ranges = views.iter().flat_map(|(v, _)| v.regions.iter().map(|r| r.range));
    let mut borders: Vec<u64> = ranges.flat_map(|r| [r.start, r.end]).collect();
    borders.sort_unstable();
    borders.dedup();
    let mut next = vec![0; views.len()];
    let mut out = Vec::with_capacity(borders.len());
    let mut rates = Vec::with_capacity(views.len());
    for (start, end) in borders.iter().zip(borders.iter().skip(1)) {
        let range = AddrRange::new(*start, *end);
        let mut mean = Mean::default();
        let mut newest = None;
        rates.clear();
        for ((view, seconds), next) in views.iter().zip(&mut next) {
            while view.regions.get(*next).is_some_and(|r| r.range.end <= range.start) {
                *next += 1;
            }
            let here = view.regions.get(*next).filter(|r| r.range.contains(range.start));
            if let Some(r) = here {
                mean.add(r, *seconds);
                rates.push((r.rate, seconds * touched(r)));
            }
            newest = here;
        }
        // what the last view does not have is no longer mapped
        if let Some(newest) = newest.filter(|_| !last.regions.is_empty()) {
            out.push(RegionView { rate: median(&mut rates), ..mean.region(range, newest.age) });
        }
    }
    out
}

/// The weight of a region's rate, which is that of its touched pages.
fn touched(r: &RegionView) -> f64 {
    f64::from(r.touched_bp.max(1))
}

/// The median of rates with weights.
fn median(rates: &mut [(Rate, f64)]) -> Rate {
    rates.sort_unstable_by(|(a, _), (b, _)| a.hz.total_cmp(&b.hz));
    let half = rates.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    let middle = rates.iter().find(|(_, weight)| {
        sum += weight;
        sum >= half
    });
    middle.or(rates.last()).map_or(Rate::default(), |(rate, _)| *rate)
}

/// A mean of regions, by weight. Rates also have the weight of their touched pages.
#[derive(Default)]
struct Mean {
    weight: f64,
    touched: f64,
    shares: [f64; 3],
    unknown: Pages<f64>,
    rates: [f64; 3],
    support: Option<[f64; 2]>,
}

impl Mean {
    fn add(&mut self, r: &RegionView, weight: f64) {
        let support = r.support.map(|s| [s.measured_bp, s.extended_bp].map(f64::from));
        self.support = match (self.weight > 0.0, self.support, support) {
            (false, _, Some(s)) => Some(s.map(|bp| bp * weight)),
            (true, Some(sum), Some(s)) => Some([sum[0] + s[0] * weight, sum[1] + s[1] * weight]),
            // One of them is not known.
            _ => None,
        };
        self.weight += weight;
        for (sum, bp) in self.shares.iter_mut().zip([r.accesses_bp, r.touched_bp, r.resident_bp]) {
            *sum += f64::from(bp) * weight;
        }
        for (sum, bp) in self.unknown.0.iter_mut().zip(&r.unknown_bp.0) {
            *sum += f64::from(*bp) * weight;
        }
        let weight = weight * touched(r);
        self.touched += weight;
        for (sum, hz) in self.rates.iter_mut().zip([r.rate.hz, r.rate.low, r.rate.high]) {
            *sum += f64::from(hz) * weight;
        }
    }

    fn region(&self, range: AddrRange, age: Duration) -> RegionView {
        let bp = |sum: &f64| (sum / self.weight).round().min(10_000.0) as u32;
        // An access in any part is one in the whole.
        let [accesses_bp, touched_bp, resident_bp] =
            self.shares.each_ref().map(|sum| bp(sum).max(u32::from(*sum > 0.0)));
        let hz = |i: usize| (self.rates[i] / self.touched) as f32;
        RegionView {
            range,
            accesses_bp,
            age,
            rate: Rate { hz: hz(0), low: hz(1), high: hz(2) },
            touched_bp,
            resident_bp,
            unknown_bp: Pages(self.unknown.0.each_ref().map(bp)),
            support: self.support.map(|s| {
                let measured_bp = bp(&s[0]);
                RateSupport { measured_bp, extended_bp: bp(&s[1]).min(10_000 - measured_bp) }
            }),
        }
    }
}

/// Joins adjacent regions that differ little, and ever more until there are no more than `most`.
fn similar(mut regions: Vec<RegionView>, most: usize) -> Vec<RegionView> {
    let mut limit = SAME_BP;
    loop {
        let mut joined: Vec<RegionView> = Vec::with_capacity(regions.len());
        for r in &regions {
            match joined.last_mut() {
                Some(before) if are_similar(before, r, limit) => *before = join(before, r),
                _ => joined.push(*r),
            }
        }
        if joined.len() <= most || limit > 10_000 {
            return joined;
        }
        (regions, limit) = (joined, limit * 2);
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

/// The mean of two adjacent regions by their sizes; the age of the larger one.
fn join(a: &RegionView, b: &RegionView) -> RegionView {
    let mut mean = Mean::default();
    mean.add(a, a.range.len() as f64);
    mean.add(b, b.range.len() as f64);
    let age = if a.range.len() >= b.range.len() { a.age } else { b.age };
    mean.region(AddrRange::new(a.range.start, b.range.end), age)
}

/// The newest idle ages, with all pages that returned.
fn ages(views: &[(&TargetView, f64)]) -> Option<Arc<PageAges>> {
    let mut all = views.iter().filter_map(|(v, _)| v.ages.as_ref());
    let first = Arc::clone(all.next()?);
    Some(all.fold(first, |sum, ages| Arc::new(ages.joined_to(&sum))))
}
