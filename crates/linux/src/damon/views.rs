//! Converts DAMON's regions to those of a snapshot.

use std::time::Duration;

use isotherm_core::{AddrRange, RateSupport, RegionView, UnknownPages, rate};

use super::resident::{Presence, Present};
use super::results::RawRegion;

/// The meaning of DAMON's counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    /// sampling intervals per aggregation interval
    pub samples: u32,
    /// measured length of a sampling interval
    pub sample: Duration,
    /// measured length of an aggregation interval
    pub aggr: Duration,
    /// bytes per step of an address
    pub unit: u64,
    /// maximal age of a region: time since the last `exec`
    pub oldest: Duration,
}

/// Minimal number of looks at observable memory over the age of a region; with fewer, the region is unknown. If
/// memory is accessed in two of three sampling intervals, three looks miss it with a probability of 4 %.
const FEW_LOOKS: f64 = 3.0;

/// The mapped parts of `raw`. `areas` are sorted, disjoint and do not touch each other.
///
/// DAMON's regions may cover gaps: for a process, DAMON leaves out only the two largest ones. A sample in a
/// gap, or at a page that is not resident, always looks not accessed. So of n sampling intervals, only the
/// share that the observable memory has of the region counts as looks.
pub(super) fn views(
    raw: &[RawRegion],
    areas: &[AddrRange],
    present: &dyn Present,
    scale: Scale,
) -> Vec<RegionView> {
    let mut views = Vec::with_capacity(raw.len());
    for region in raw {
        let bytes = |addr: u64| addr.saturating_mul(scale.unit);
        let range = AddrRange::new(bytes(region.range.start), bytes(region.range.end));
        let parts: Vec<(AddrRange, Presence)> =
            parts(range, areas).map(|part| (part, present.presence(part))).collect();
        let mut all = Presence::default();
        parts.iter().for_each(|(_, presence)| all += *presence);
        let nr = region.nr_accesses.min(scale.samples);
        let seen = all.seen() as f64 / range.len().max(1) as f64;
        let looks = (f64::from(scale.samples) * seen).max(f64::from(nr));
        let age = scale.aggr.saturating_mul(region.age).min(scale.oldest);
        let ever = looks * (age.as_secs_f64() / scale.aggr.as_secs_f64() + 1.0);
        let parts = parts.into_iter().map(|(part, presence)| match nr == 0 && ever < FEW_LOOKS {
            true => (part, presence.unseen()),
            false => (part, presence),
        });
        let rate = rate(f64::from(nr), looks, looks.ceil() as u64, scale.sample);
        views.extend(parts.map(|(range, presence)| RegionView {
            range,
            accesses_bp: bp(nr.into(), scale.samples.into()),
            age,
            rate,
            touched_bp: if nr > 0 { 10_000 } else { 0 },
            resident_bp: bp(presence.resident, range.len()),
            unknown_bp: UnknownPages(presence.unknown.0.map(|bytes| bp(bytes, range.len()))),
            support: Some(RateSupport::MEASURED),
        }));
    }
    views
}

/// Removes the smallest regions of `targets`, so that at most `most` remain in total: if a process has many
/// areas, DAMON's regions have more parts than the limit allows.
pub(super) fn fit(targets: &mut [Vec<RegionView>], most: usize) {
    let mut sizes: Vec<u64> = targets.iter().flatten().map(|v| v.range.len()).collect();
    let Some(excess) = sizes.len().checked_sub(most).filter(|&n| n > 0) else { return };
    let (_, &mut limit, _) = sizes.select_nth_unstable(excess - 1);
    let mut excess = excess;
    for smaller in [true, false] {
        for views in targets.iter_mut() {
            views.retain(|v| {
                let len = v.range.len();
                let goes = excess > 0 && if smaller { len < limit } else { len == limit };
                excess -= usize::from(goes);
                !goes
            });
        }
    }
}

fn parts(range: AddrRange, areas: &[AddrRange]) -> impl Iterator<Item = AddrRange> {
    let first = areas.partition_point(|a| a.end <= range.start);
    areas.iter().skip(first).map_while(move |a| a.intersect(&range))
}

/// `part` of `whole` in basis points.
fn bp(part: u64, whole: u64) -> u32 {
    u32::try_from(u128::from(part.min(whole)) * 10_000 / u128::from(whole.max(1))).unwrap_or(10_000)
}

#[cfg(test)]
mod tests {
    use isotherm_core::Unknown;

    use super::*;

    const SCALE: Scale = Scale {
        samples: 20,
        sample: Duration::from_millis(5),
        aggr: Duration::from_millis(100),
        unit: 1,
        oldest: Duration::MAX,
    };

    /// Half of all is resident, and from 0x8000 on unknown.
    struct Half;

    impl Present for Half {
        fn presence(&self, range: AddrRange) -> Presence {
            let mut p = Presence { resident: range.len() / 2, ..Presence::default() };
            if range.start >= 0x8000 {
                p.unknown.0[Unknown::Special.index()] = p.resident;
            }
            p
        }
    }

    fn raw(start: u64, end: u64, nr_accesses: u32) -> RawRegion {
        RawRegion { range: AddrRange::new(start, end), nr_accesses, age: 30 }
    }

    fn ranges(views: &[RegionView]) -> Vec<(u64, u64)> {
        views.iter().map(|v| (v.range.start, v.range.end)).collect()
    }

    #[test]
    fn regions_are_cut_to_mapped_memory() {
        let areas = [(0x1000, 0x3000), (0x4000, 0x5000), (0x8000, 0x9000)];
        let areas = areas.map(|(start, end)| AddrRange::new(start, end));
        let raw = [raw(0, 0x2000, 0), raw(0x2000, 0x7000, 5), raw(0xa000, 0xb000, 0)];
        let views = views(&raw, &areas, &Half, SCALE);
        assert_eq!(ranges(&views), [(0x1000, 0x2000), (0x2000, 0x3000), (0x4000, 0x5000)]);
        assert_eq!(views.iter().map(|v| v.accesses_bp).collect::<Vec<_>>(), [0, 2500, 2500]);
        assert!(views.iter().all(|v| v.resident_bp == 5000 && v.age == Duration::from_secs(3)));
    }

    /// Accesses are of the part that is there: a fifth of the region, so that 2 of 4 looks hit.
    #[test]
    fn the_rate_is_that_of_observable_memory() {
        let areas = [AddrRange::new(0, 0x4000)];
        let views = views(&[raw(0, 0xa000, 2)], &areas, &Half, SCALE);
        let want = rate(2.0, 4.0, 4, SCALE.sample);
        assert_eq!(views[0].rate, want);
        assert!((want.hz - 138.6).abs() < 0.1, "-ln(1 - 1/2) / 5 ms");
    }

    #[test]
    fn addresses_may_be_in_steps() {
        let scale = Scale { unit: 0x1000, ..SCALE };
        let views = views(&[raw(2, 4, 1)], &[AddrRange::new(0x1000, 0x3000)], &Half, scale);
        assert_eq!(ranges(&views), [(0x2000, 0x3000)]);
    }

    #[test]
    fn unobservable_regions_have_no_rate() {
        let areas = [AddrRange::new(0x8000, 0x9000)];
        let views = views(&[raw(0x8000, 0x9000, 0)], &areas, &Half, SCALE);
        assert_eq!(views[0].unknown_bp.0[Unknown::Special.index()], 5000);
        assert_eq!((views[0].rate.hz, views[0].rate.high), (0.0, f32::INFINITY));
    }

    #[test]
    fn no_age_is_from_before_an_exec() {
        let scale = Scale { oldest: Duration::from_secs(1), ..SCALE };
        let raw = [3, 30].map(|age| RawRegion { age, ..raw(0, 0x1000, 0) });
        let views = views(&raw, &[AddrRange::new(0, 0x1000)], &Half, scale);
        let ages: Vec<_> = views.iter().map(|v| v.age.as_millis()).collect();
        assert_eq!(ages, [300, 1000]);
    }

    /// A hundredth is resident: it was looked at six times in 31 intervals, and once in 5.
    #[test]
    fn regions_with_few_looks_are_unknown() {
        struct Hundredth;
        impl Present for Hundredth {
            fn presence(&self, range: AddrRange) -> Presence {
                Presence { resident: range.len() / 100, ..Presence::default() }
            }
        }
        let areas = [AddrRange::new(0, 1 << 20)];
        let unseen = |nr_accesses, age| {
            let raw = RawRegion { age, ..raw(0, 1 << 20, nr_accesses) };
            views(&[raw], &areas, &Hundredth, SCALE)[0].unknown_bp.0[Unknown::Unseen.index()]
        };
        assert_eq!([(0, 30), (0, 4), (1, 4)].map(|(nr, age)| unseen(nr, age)), [0, 99, 0]);
    }

    #[test]
    fn the_smallest_are_left_out() {
        let areas = [AddrRange::new(0, 0x10_0000)];
        let of = |all: &[(u64, u64)]| {
            let raw: Vec<_> = all.iter().map(|&(a, b)| raw(a, b, 1)).collect();
            views(&raw, &areas, &Half, SCALE)
        };
        let mut targets = [
            of(&[(0, 0x1000), (0x1000, 0x4000), (0x4000, 0x6000)]),
            of(&[(0, 0x2000), (0x2000, 0x3000)]),
        ];
        fit(&mut targets, 5);
        assert_eq!(targets.iter().map(Vec::len).sum::<usize>(), 5);
        fit(&mut targets, 2);
        let left: Vec<_> = targets.iter().map(|t| ranges(t)).collect();
        assert_eq!(
            left,
            [vec![(0x1000, 0x4000)], vec![(0, 0x2000)]].map(|mut v| {
                v.sort_unstable();
                v
            })
        );
    }
}
