//! Ranges for each action, from the histories of blocks.

use isotherm_core::AddrRange;

use super::history::Block;
use super::layout::{Layout, Place};
use super::rows::{AdvisedAction, RangeRow};
use crate::basis::ms;
use crate::names::label_of;
use crate::units::percent;

/// Size of a huge page.
const HUGE: u64 = 2 << 20;
/// Minimum share of its target's lifetime for which hot memory must be hot.
const MIN_HOT_SHARE: f64 = 0.75;
/// Minimum share of a huge page that must be resident and touched: 448 of 512 pages, as where
/// isotherm itself makes huge pages.
const DENSE: f64 = 448.0 / 512.0;

/// Minimum share of locked memory that must be resident and touched, in the snapshot in which most of it is. In memory
/// with fewer touched pages, a lock would keep more cold pages than hot ones; the kernel keeps those few by itself.
const LOCKED_SHARE: f64 = 0.5;
/// Blocks whose rates differ more are different ranges to lock, so that a smaller limit can choose among them.
const SIMILAR: f64 = 4.0;

/// A block and its place.
#[derive(Clone, Copy)]
pub(super) struct Stretch<'a> {
    place: &'a Place,
    range: AddrRange,
    block: &'a Block,
    /// seconds for which its target existed
    seconds: f64,
}

impl Stretch<'_> {
    fn is_hot(&self) -> bool {
        !self.block.is_unknown && self.block.hot_s >= MIN_HOT_SHARE * self.seconds
    }

    /// Whether it is touched repeatedly at this rate on average, and never idle for the minimum age.
    fn is_reused(&self, hot_hz: f64) -> bool {
        let block = self.block;
        let is_busy = block.returns == 0 && block.idle_since.is_none() && !block.is_unknown;
        is_busy && block.seen_s >= MIN_HOT_SHARE * self.seconds && self.rate() >= hot_hz
    }

    fn is_worth_a_lock(&self, hot_hz: f64) -> bool {
        (self.is_hot() || self.is_reused(hot_hz)) && self.block.peak >= LOCKED_SHARE
    }

    fn rate(&self) -> f64 {
        self.block.touches / self.block.byte_s.max(f64::MIN_POSITIVE)
    }

    fn cold(&self) -> Option<AdvisedAction> {
        self.block.idle_since?;
        Some(if self.block.returns == 0 { AdvisedAction::Pageout } else { AdvisedAction::Cold })
    }

    fn is_dense(&self) -> bool {
        self.block.touched_s >= DENSE * self.block.seen_s
    }

    fn is_similar(&self, to: &Stretch) -> bool {
        let (a, b) = (self.rate(), to.rate());
        a.max(b) <= SIMILAR * a.min(b)
    }
}

/// All blocks, in the order of targets and addresses.
pub(super) fn stretches<'a>(
    layout: &'a Layout,
    blocks: &'a [Block],
    seconds: impl Fn(&Place) -> f64,
) -> Vec<Stretch<'a>> {
    let of = |place: &'a Place| {
        let seconds = seconds(place);
        let stretch =
            move |(i, range)| Some(Stretch { place, range, block: blocks.get(i)?, seconds });
        layout.blocks(place, place.range).filter_map(stretch)
    };
    layout.places.iter().flat_map(of).collect()
}

/// The ranges for each action, the best first: hot ranges by rate, cold ranges by size.
pub(super) fn ranges(
    all: &[Stretch],
    action: AdvisedAction,
    (lock_limit, hot_hz): (u64, f64),
    touches: f64,
) -> Vec<RangeRow> {
    let chosen = match action {
        AdvisedAction::Lock => lock(all, lock_limit, hot_hz),
        AdvisedAction::Hugepage => huge(all),
        AdvisedAction::Pageout | AdvisedAction::Cold => {
            all.iter().filter(|s| s.cold() == Some(action)).copied().collect()
        }
    };
    let joins = |a: &Stretch, b: &Stretch| {
        let same =
            (a.place.target, a.place.mapping.range) == (b.place.target, b.place.mapping.range);
        let fits = action != AdvisedAction::Lock || a.is_similar(b);
        same && fits && a.range.end == b.range.start
    };
    let rows = chosen.chunk_by(joins).filter_map(|run| row(action, run, touches));
    let mut rows: Vec<RangeRow> = rows.collect();
    match action {
        AdvisedAction::Lock | AdvisedAction::Hugepage => {
            rows.sort_by(|a, b| b.rate_hz.total_cmp(&a.rate_hz))
        }
        AdvisedAction::Pageout | AdvisedAction::Cold => {
            rows.sort_by_key(|r| std::cmp::Reverse(r.resident_bytes));
        }
    }
    rows
}

/// The hottest blocks that fit in the limit.
fn lock<'a>(all: &[Stretch<'a>], limit: u64, hot_hz: f64) -> Vec<Stretch<'a>> {
    let mut hot: Vec<(usize, &Stretch)> =
        all.iter().enumerate().filter(|s| s.1.is_worth_a_lock(hot_hz)).collect();
    hot.sort_by(|a, b| b.1.rate().total_cmp(&a.1.rate()));
    let mut left = limit;
    hot.retain(|(_, s)| {
        let fits = s.range.len() <= left;
        left -= if fits { s.range.len() } else { 0 };
        fits
    });
    hot.sort_by_key(|s| s.0);
    hot.into_iter().map(|(_, s)| *s).collect()
}

/// Huge pages that are completely in their mapping, completely hot, and almost completely touched.
fn huge<'a>(all: &[Stretch<'a>]) -> Vec<Stretch<'a>> {
    let number = |s: &Stretch| (s.place.target, s.place.mapping.range.start, s.range.start / HUGE);
    let whole = |page: &&[Stretch]| {
        page.iter().all(|s| s.is_hot() && s.is_dense() && can_be_huge(s.place))
            && page.iter().map(|s| s.range.len()).sum::<u64>() >= HUGE
            && page.first().is_some_and(|s| s.range.start.is_multiple_of(HUGE))
            && page.last().is_some_and(|s| s.range.end.is_multiple_of(HUGE))
    };
    let pages = all.chunk_by(|a, b| number(a) == number(b));
    pages.filter(whole).flatten().copied().collect()
}

/// Files get huge pages by other means.
fn can_be_huge(place: &Place) -> bool {
    use isotherm_core::MappingKind::{Anonymous, Heap};
    matches!(place.mapping.kind, Anonymous | Heap)
}

fn row(action: AdvisedAction, run: &[Stretch], touches: f64) -> Option<RangeRow> {
    let (first, last) = (run.first()?, run.last()?);
    let sum = |of: fn(&Stretch) -> f64| run.iter().map(of).sum::<f64>();
    let range = AddrRange::new(first.range.start, last.range.end);
    let mapping = &first.place.mapping;
    let offset = range.start - mapping.range.start;
    let length = range.len() as f64;
    let since = run.iter().filter_map(|s| s.block.idle_since).max();
    let is_cold = matches!(action, AdvisedAction::Pageout | AdvisedAction::Cold);
    let hot = |s: &Stretch| s.block.hot_s / s.seconds.max(f64::MIN_POSITIVE) * s.range.len() as f64;
    let own = sum(|s| s.block.touches);
    Some(RangeRow {
        action,
        target: first.place.target.0,
        mapping: label_of(mapping).to_owned(),
        mapping_range: mapping.range,
        offset_bytes: offset,
        size_bytes: range.len(),
        range,
        resident_bytes: Some(sum(|s| s.block.bytes).round() as u64),
        rate_hz: own / sum(|s| s.block.byte_s).max(f64::MIN_POSITIVE),
        access_percent: percent(own, touches),
        hot_percent: (run.iter().map(hot).sum::<f64>() / length * 100.0).min(100.0),
        idle_since_ms: since.filter(|_| is_cold).map(ms),
        returns: run.iter().map(|s| u64::from(s.block.returns)).sum(),
        call: call(action, offset, range.len()),
    })
}

fn call(action: AdvisedAction, offset: u64, length: u64) -> String {
    match action {
        AdvisedAction::Lock => format!("mlock((char *)base + {offset:#x}, {length:#x});"),
        _ => format!("madvise((char *)base + {offset:#x}, {length:#x}, {});", action.c_name()),
    }
}
