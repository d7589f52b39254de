//! Groups pages to regions, and makes the regions of a snapshot.

use std::collections::BTreeMap;
use std::time::Duration;

use super::piece::{Page, ScannedPiece};
use crate::borders::{GroupKind, WindowGroup, join_first};
use crate::estimator::{Rate, rate};
use crate::range::{AddrRange, PAGE_SIZE};
use crate::region::to_bp;
use crate::snapshot::RegionView;
use crate::support::RateSupport;
use crate::survey::BLOCK_SIZE;
use crate::tuning::{NO_HEAT_HZ, PARTLY_TOUCHED_LLR, UNTOUCHED_LEVEL};
use crate::unknown::{Unknown, UnknownPages};

/// The pages of a piece as groups of similar pages; with `exact`, of equal pages.
pub(super) fn parts(piece: &ScannedPiece, now: u32, exact: bool) -> Vec<WindowGroup> {
    let unseen = piece.unseen().without(&piece.reported);
    let mut out: Vec<WindowGroup> = Vec::new();
    let mut before = None;
    for (i, page) in piece.pages(piece.range) {
        let kind = if !piece.resident.contains(i) {
            GroupKind::Absent
        } else if unseen.contains(i) {
            GroupKind::Hidden(why(piece, i))
        } else if page.seen == 0 {
            GroupKind::Hidden(Unknown::Unseen)
        } else {
            kind(page, piece.exposure(), now)
        };
        let start = piece.block() + i as u64 * PAGE_SIZE;
        match out.last_mut().filter(|_| before == Some(kind)) {
            Some(last) => {
                last.range.end = start + PAGE_SIZE;
                // A huge page has one accessed bit.
                if let (GroupKind::Seen { d, e, .. }, GroupKind::Seen { d: d1, e: e1, .. }, false) =
                    (&mut last.kind, kind, piece.huge)
                {
                    (*d, *e) = (*d + d1, *e + e1);
                }
            }
            None => {
                let range = AddrRange::new(start, start + PAGE_SIZE);
                out.push(WindowGroup { range, kind, windows: None });
            }
        }
        before = Some(kind);
    }
    if !exact {
        join_first(&mut out, now);
    }
    out
}

fn why(piece: &ScannedPiece, page: usize) -> Unknown {
    let mut hidden = piece.hidden.iter().filter(|(_, mask)| mask.contains(page));
    hidden.next().map_or(Unknown::Unseen, |(why, _)| *why)
}

/// Number of touches of a page that count as one independent observation: among very many pages, some differ
/// by chance.
const TOUCHES_PER_INDEPENDENT_OBSERVATION: f64 = 2.0;

/// Touches, and the time before them, whose ratio is the rate of the page. An untouched page counts as
/// untouched for as long as it is known.
fn kind(page: &Page, sample: Duration, now: u32) -> GroupKind {
    let (young, seen) = (f64::from(page.young), f64::from(page.seen));
    let sample = sample.as_secs_f64();
    if page.young == 0 {
        let idle = f64::from(now.saturating_sub(page.touched)) / 1e3;
        let touched = (page.touched, page.touched);
        return GroupKind::Seen {
            d: 0.0,
            e: idle.max(seen * sample) / TOUCHES_PER_INDEPENDENT_OBSERVATION,
            reactivated: false,
            lately: false,
            touched,
        };
    }
    let hz = -(-(young / seen).min(1.0 - 0.5 / seen)).ln_1p() / sample.max(1e-6);
    let (d, e) = (
        young / TOUCHES_PER_INDEPENDENT_OBSERVATION,
        young / hz / TOUCHES_PER_INDEPENDENT_OBSERVATION,
    );
    GroupKind::Seen { d, e, reactivated: false, lately: true, touched: (now, now) }
}

/// Sums over the pages of a region.
#[derive(Debug, Default)]
struct PageCounts {
    resident: u64,
    unknown: [u64; Unknown::ALL.len()],
    /// pages with at least one sample
    visible: f64,
    /// of these, pages touched in this interval
    touched: f64,
    /// samples of these pages, and samples in which they were touched
    samples: f64,
    young: f64,
    /// sum over the pages of the share of samples in which the page was touched
    shares: f64,
    /// sum over the pages of the time of one sample, in s
    exposure: f64,
    windows: u64,
    /// time of the last touch of any page, in ms
    last: u32,
}

/// Makes the region of `range` for a snapshot; stores the heat in its pages.
pub(super) fn view(
    range: AddrRange,
    pieces: &mut BTreeMap<u64, ScannedPiece>,
    window: u64,
    now: u32,
) -> RegionView {
    let first = range.start.saturating_sub(BLOCK_SIZE);
    let mut counts = PageCounts::default();
    for (_, piece) in pieces.range(first..range.end) {
        counts.add(piece, range, window);
    }
    let pages = (range.len() / PAGE_SIZE).max(1) as f64;
    let known = pages - counts.unknown.iter().sum::<u64>() as f64;
    let (rate, share) = counts.rate();
    let hz = f64::from(rate.hz) * share;
    let mut kept = 0.0;
    for (_, piece) in pieces.range_mut(first..range.end) {
        kept += keep(piece, range, hz, now);
    }
    let is_touched = counts.young > 0.0;
    let age = match is_touched {
        true => kept / counts.visible.max(1.0),
        false if counts.visible > 0.0 => f64::from(now.saturating_sub(counts.last)),
        false => 0.0,
    };
    RegionView {
        range,
        accesses_bp: to_bp(counts.shares / known.max(1.0)).max(u32::from(is_touched)),
        age: Duration::from_millis(age as u64),
        rate,
        touched_bp: if is_touched { to_bp(share).max(1) } else { 0 },
        resident_bp: to_bp(counts.resident as f64 / pages),
        unknown_bp: UnknownPages(counts.unknown.map(|n| to_bp(n as f64 / pages))),
        support: Some(RateSupport::MEASURED),
    }
}

impl PageCounts {
    fn add(&mut self, piece: &ScannedPiece, range: AddrRange, window: u64) {
        let unseen = piece.unseen().without(&piece.reported);
        let exposure = piece.exposure().as_secs_f64();
        let mut in_window = None;
        for (i, page) in piece.pages(range).filter(|(i, _)| piece.resident.contains(*i)) {
            self.resident += 1;
            if unseen.contains(i) || page.seen == 0 {
                self.unknown[why(piece, i).index()] += 1;
                continue;
            }
            let (young, seen) = (f64::from(page.young), f64::from(page.seen));
            self.visible += 1.0;
            self.touched += f64::from(u8::from(page.young > 0));
            (self.samples, self.young) = (self.samples + seen, self.young + young);
            self.shares += young / seen;
            self.exposure += exposure;
            self.last = self.last.max(page.touched);
            let of = if piece.huge { 0 } else { i as u64 * PAGE_SIZE / window };
            self.windows += u64::from(in_window != Some(of));
            in_window = Some(of);
        }
    }

    /// The rate of the touched pages, and their share.
    fn rate(&self) -> (Rate, f64) {
        if self.resident == 0 {
            return (Rate::default(), 0.0);
        }
        let exposure = Duration::from_secs_f64(self.exposure / self.visible.max(1.0));
        let each = self.samples / self.visible.max(1.0);
        let share = touched_share(self.visible, self.touched, each, self.young).unwrap_or(1.0);
        let looks = (self.windows as f64 * each * share).ceil() as u64;
        (rate(self.young, self.samples * share, looks, exposure), share)
    }
}

/// The fraction of `pages` that are touched at all, if `touched` of them were touched, in `young` samples,
/// with `each` samples per page. `None` if all of them may be touched.
///
/// This is the maximum-likelihood zero-inflated binomial. Touched pages are touched in the fraction p of the
/// samples for which `p / (1 - (1 - p)^n)` is the mean over the pages that were touched.
/// `touched / (1 - (1 - p)^n)` of the pages are touched at all. Example: 10 of 160 pages touched in all of 20
/// samples give 1/16; 160 pages touched in one sample each give all of them.
fn touched_share(pages: f64, touched: f64, each: f64, young: f64) -> Option<f64> {
    if touched <= 0.0 || touched >= pages {
        return None;
    }
    let found = |p: f64| -(each * (-p).ln_1p()).exp_m1();
    let mean = young / (touched * each);
    let (mut low, mut high) = (1e-9, 1.0 - 1e-9);
    for _ in 0..40 {
        let p = (low + high) / 2.0;
        *if p / found(p) < mean { &mut low } else { &mut high } = p;
    }
    let share = touched / pages / found(low);
    let likelihood = |share: f64, p: f64| {
        let term = |n: f64, p: f64| if n > 0.0 { n * p.max(1e-300).ln() } else { 0.0 };
        term(pages - touched, 1.0 - share * found(p))
            + term(touched, share)
            + term(young, p)
            + term(touched * each - young, 1.0 - p)
    };
    let alone = likelihood(1.0, young / (pages * each));
    (share < 0.9 && likelihood(share, low) - alone > PARTLY_TOUCHED_LLR).then_some(share)
}

/// Stores the rate in the pages of a piece within `range`. Returns the sum of the times for which the pages
/// have kept their rate, in ms.
fn keep(piece: &mut ScannedPiece, range: AddrRange, hz: f64, now: u32) -> f64 {
    let level = hz.max(NO_HEAT_HZ).log2().round() as i8;
    let unseen = piece.unseen().without(&piece.reported);
    let places = piece.pages(range).map(|(i, _)| i);
    let seen = |i: &usize| piece.resident.contains(*i) && !unseen.contains(*i);
    let places: Vec<usize> = places.filter(seen).collect();
    let mut sum = 0.0;
    for i in places {
        let Some(page) = piece.page_mut(i).filter(|p| p.seen > 0) else { continue };
        if page.level == UNTOUCHED_LEVEL {
            page.kept = if hz > NO_HEAT_HZ { now } else { page.touched };
        } else if page.level.abs_diff(level) > 1 {
            page.kept = now;
        }
        if page.level == UNTOUCHED_LEVEL || page.level.abs_diff(level) > 1 {
            page.level = level;
        }
        sum += f64::from(now.saturating_sub(page.kept));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_touched_is_distinguished_from_pages_touched_seldom() {
        let share = touched_share(160.0, 10.0, 20.0, 200.0).unwrap();
        assert!((share - 1.0 / 16.0).abs() < 1e-6, "{share}");
        assert_eq!(touched_share(160.0, 53.0, 20.0, 64.0), None, "1 Hz: a third of them in 0.4 s");
        assert_eq!(touched_share(160.0, 0.0, 20.0, 0.0), None);
        assert_eq!(touched_share(160.0, 160.0, 20.0, 3000.0), None);
    }
}
