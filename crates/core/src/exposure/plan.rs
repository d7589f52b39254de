//! The plan: which memory to clear next within an allowance.

use std::ops::Range;
use std::time::Duration;

use super::age_counter::Sampling;
use super::budget::Prices;
use super::coarse::is_hot;
use super::piece::Piece;
use super::published::{PublishedRegion, is_sampled};
use super::stretches::{Borders, InOrder, ReactivatedStretch, hot_cells, sampled, within};
use super::timing::ExposureTerms;
use crate::range::{AddrRange, PAGE_SIZE};
use crate::snapshot::Restraint;
use crate::time::Nanos;
use crate::tuning::{
    CHANGE_SAMPLING_TIME, LONG_REGION_TURN, MAX_REGION_TURN, MIN_SAMPLE_PAGES, SAMPLED_HZ,
};

/// Limits for the clears of one target in one round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowance {
    /// time of ours and of the target's, in s
    pub seconds: f64,
    /// runs; each costs a shootdown
    pub runs: u32,
    /// permitted overdraft of `seconds` for memory that was touched after a long idle time, in s
    pub urgent: f64,
    /// additional time for memory that was never cleared, in s
    pub sweep: f64,
    /// Time between two turns of a region.
    pub turn: Duration,
    /// Maximum of this time for a small region.
    pub longest: Duration,
    pub restraint: Restraint,
}

/// Adjacent pieces to clear, as a range of indices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClearRun {
    pub pieces: Range<usize>,
    /// the range to clear within the single piece, if it is not cleared as a whole
    pub sample: Option<AddrRange>,
    /// young pages in the run; a huge page counts once
    pub pages: u64,
}

/// The state of a target's stretches.
#[derive(Clone, Copy)]
pub(super) struct StretchState<'a> {
    /// reactivated stretches of which not enough was cleared since
    pub reactivated: &'a [ReactivatedStretch],
    pub borders: &'a Borders,
    /// time of the last change: a stretch was reactivated or became idle
    pub turned: Option<Nanos>,
    pub terms: ExposureTerms,
    /// windows whose pages' ages are counted
    pub ages: Sampling,
    /// The target is observed by samples.
    pub is_large: bool,
}

/// While its target is short of memory, a page is cleared again after this time at the earliest, in s.
const CLEARED_AGAIN_S: f64 = 5.0;
/// Maximum number of runs for memory touched after a long idle time: newly hot memory must be measured soon.
const MAX_REACTIVATED_RUNS: usize = 16;
/// In a large target, the blocks whose pages' ages are counted are cleared again after this time ...
const AGED_BLOCK_CLEAR_INTERVAL: Duration = Duration::from_secs(5);
/// ... with up to this share of the allowance.
const WHOLE_SHARE: f64 = 0.25;
/// Share of the allowance for memory that was never cleared.
const NEVER_CLEARED_SHARE: f64 = 0.8;
/// One turn clears 1/4 of the pieces of a region, and at most 16 MiB.
const TURN_DIVISOR: usize = 4;
const MAX_TURN_PIECES: usize = 8;
/// Memory with a lower rate in Hz is slow: few of its bits are set again soon after a clear.
const SLOW_HZ: f64 = 2.0;
/// A region whose age is more than this many times its turn gets turns less often, but at least every few
/// seconds: see [`LONG_REGION_TURN`].
const SETTLED_TURNS: u32 = 4;
/// A region with fewer bytes is small: a shootdown there measures less memory than elsewhere: see
/// [`MAX_REGION_TURN`].
const SMALL_REGION_BYTES: u64 = 1 << 20;
/// If turns are further apart than this, hot memory is not sampled.
const MAX_SAMPLED_TURN: Duration = Duration::from_secs(8);
/// One in this many pieces of reactivated memory is sampled.
const PIECES_PER_REACTIVATION_SAMPLE: usize = 16;
/// A sample taken at most this long before a change still counts.
const JUST_SAMPLED: Duration = Duration::from_millis(50);
/// Share of the allowance that is kept for the next round, after one sample of each hot cell. A round without any
/// allowance finds no memory that has become idle.
const KEPT_SHARE: f64 = 0.5;
/// Interval of the samples of each hot cell after a recent change.
const RECENT_SAMPLE_INTERVAL: Duration = Duration::from_millis(200);
/// With more cells than this, that interval would be too expensive.
const FEW_CELLS: usize = 16;
/// If nothing has changed for this time, the sparse interval applies; the turns of regions then measure most
/// memory.
pub(super) const QUIET_AFTER: Duration = Duration::from_secs(10);
const SPARSE: Duration = Duration::from_millis(1_500);
/// The same piece of a cell is sampled for this time, in ns.
const SAMPLE_DWELL_NS: u64 = 8_000_000_000;
/// Maximum number of pieces in a run of memory that was never cleared: 64 MiB.
const LONG_RUN: usize = 32;
/// An untouched sample is replaced by one elsewhere in its piece after this time, in one of `PLACES` places.
const SAMPLE_RELOCATION_INTERVAL: Duration = Duration::from_secs(60);
const PLACES: usize = 32;

/// Chooses runs among `pieces` (sorted). `regions` are the regions of the last snapshot, and `reactivated`
/// the addresses of pieces that were touched after a long idle time.
///
/// The order of priority is:
///
/// 1. samples of reactivated memory, and while a change is recent, of all hot memory;
/// 2. a short run in each stretch that was touched after a long idle time;
/// 3. memory that was never cleared, in long runs;
/// 4. in a large target, the blocks whose pages' ages are counted;
/// 5. while nothing changes, occasional samples of each hot cell, and sentinels;
/// 6. a run in each touched region, from its least recently cleared piece on; regions without a recent clear
///    are first;
/// 7. pieces of slow regions that were not cleared for a long time.
///
/// Memory that is not young is never cleared, because the clear would only discard its evidence.
pub(super) fn plan(
    pieces: &[Piece],
    regions: &[PublishedRegion],
    stretches: &StretchState<'_>,
    reactivated: &[u64],
    allowance: &Allowance,
    prices: &Prices,
    now: Nanos,
) -> Vec<ClearRun> {
    if allowance.restraint == Restraint::ReadOnly {
        return Vec::new();
    }
    let mut p = Planner {
        pieces,
        prices,
        now,
        allowance: *allowance,
        taken: vec![false; pieces.len()],
        few: regions.iter().filter(|k| is_sampled(k)).count() <= FEW_CELLS,
        restless: is_restless(stretches.turned, now),
        is_large: stretches.is_large,
        terms: stretches.terms,
        ages: stretches.ages,
        saves_up: false,
        out: Vec::new(),
        never: Vec::new(),
        whole: Vec::new(),
        blind: Vec::new(),
        stale: Vec::new(),
    };
    p.classify();
    p.sample(regions, stretches);
    p.reactivated(reactivated);
    p.never();
    p.whole();
    p.check(regions, stretches);
    p.watch_idle();
    p.regions(regions);
    p.stale(regions, stretches);
    p.out.sort_unstable_by_key(|r| r.pieces.start);
    p.out
}

struct Planner<'a> {
    pieces: &'a [Piece],
    prices: &'a Prices,
    now: Nanos,
    allowance: Allowance,
    taken: Vec<bool>,
    /// At most [`FEW_CELLS`] regions are sampled.
    few: bool,
    /// A stretch was reactivated or became idle within [`QUIET_AFTER`].
    restless: bool,
    /// The target is observed by samples.
    is_large: bool,
    terms: ExposureTerms,
    /// blocks whose pages' ages are counted
    ages: Sampling,
    /// A region waits for a clear that is not affordable yet.
    saves_up: bool,
    out: Vec<ClearRun>,
    /// Indices of pieces, ascending: never cleared
    never: Vec<usize>,
    /// of a large target, observed as a whole
    whole: Vec<usize>,
    /// presumed idle, and without a sample that would show a touch
    blind: Vec<usize>,
    /// of a large target, with an untouched sample that is old
    stale: Vec<usize>,
}

/// Samples wanted in a cell: at most `most`, and none where one was taken at `since` or later.
struct WantedSamples {
    cell: Range<usize>,
    most: usize,
    since: Nanos,
}

/// Whether the last change is recent.
pub(super) fn is_restless(turned: Option<Nanos>, now: Nanos) -> bool {
    turned.is_some_and(|at| now.since(at) < QUIET_AFTER)
}

/// Whether only few of its pages are touched again soon after a clear.
fn is_slow(region: &PublishedRegion) -> bool {
    region.hz * region.share < SLOW_HZ
}

/// Whether the piece has a sample cleared at `since` or later, or an untouched one that may still prove idle: a
/// target that runs little takes longer to show that.
fn has_sample(piece: &Piece, since: Nanos, now: Nanos) -> bool {
    piece.may_be_idle(now).is_some() || piece.cleared_at().is_some_and(|at| at >= since)
}

fn price(piece: &Piece, now: Nanos) -> u64 {
    let young = u64::from(match () {
        // Its young pages are not known.
        () if piece.is_coarse() => piece.nr_resident(),
        // Pages that are no longer hidden are cleared too.
        () if piece.may_have_shown(now) => piece.nr_young(),
        () => piece.spent(),
    });
    if piece.huge { young.min(1) } else { young }
}

impl Planner<'_> {
    /// Finds the pieces that need one of several kinds of clears, in one pass: a large target has a million pieces, and
    /// each access to one misses the CPU caches.
    fn classify(&mut self) {
        for (i, p) in self.pieces.iter().enumerate() {
            let is_idle = || p.presumed_hz().is_some_and(|hz| hz < SAMPLED_HZ);
            let cleared = p.cleared_at();
            if cleared.is_none() {
                self.never.push(i);
            } else if is_idle() && p.sentinels() < MIN_SAMPLE_PAGES {
                self.blind.push(i);
            }
            if !self.is_large {
                continue;
            }
            if !p.is_coarse() && self.ages.has_block(p.block()) {
                self.whole.push(i);
            }
            let is_old = |at| self.now.since(at) >= SAMPLE_RELOCATION_INTERVAL;
            if cleared.is_some_and(is_old) && p.is_coarse() && p.is_quiet() {
                self.stale.push(i);
            }
        }
    }

    fn follows(&self, i: usize) -> bool {
        i > 0 && self.pieces[i - 1].range.end == self.pieces[i].range.start
    }

    fn may_clear(&self, i: usize) -> bool {
        let piece = &self.pieces[i];
        let seldom = self.allowance.restraint == Restraint::ShortRuns;
        let lately = |at: Nanos| seldom && self.now.since(at).as_secs_f64() < CLEARED_AGAIN_S;
        !self.taken[i] && !piece.cleared_at().is_some_and(lately)
    }

    /// Whether a clear of the piece gives information: a cleared piece without a touch would only lose its
    /// evidence.
    fn is_due(&self, i: usize) -> bool {
        let piece = &self.pieces[i];
        !piece.was_cleared() || piece.spent() > 0 || piece.may_have_shown(self.now)
    }

    /// The same for the part of the piece within a region: neighbouring regions have turns of their own.
    fn is_due_in(&self, i: usize, range: &AddrRange) -> bool {
        match self.pieces[i].was_cleared() {
            true => self.pieces[i].spent_in(range) > 0 || self.pieces[i].may_have_shown(self.now),
            // Pieces that get their first sample are planned separately.
            false => !self.pieces[i].is_coarse(),
        }
    }

    /// Adds a run of adjacent pieces from `first` up to `end`, as many as `seconds` can pay for, and at least
    /// one. Returns its price in s.
    fn take(&mut self, first: usize, end: usize, seconds: f64) -> f64 {
        if self.pieces[first].is_coarse() {
            return self.take_coarse(first, (0, 1));
        }
        let mut pages = price(&self.pieces[first], self.now);
        let mut last = first + 1;
        self.taken[first] = true;
        let goes_on = |p: &Self, i| p.follows(i) && p.may_clear(i) && p.is_due(i);
        while last < end && !self.pieces[last].is_coarse() && goes_on(self, last) {
            let more = pages + price(&self.pieces[last], self.now);
            if self.prices.of(1, more) > seconds {
                break;
            }
            self.taken[last] = true;
            pages = more;
            last += 1;
        }
        self.out.push(ClearRun { pieces: first..last, sample: None, pages });
        self.allowance.runs = self.allowance.runs.saturating_sub(u32::from(pages > 0));
        self.prices.of(u32::from(pages > 0), pages)
    }

    /// Adds a run of a few pages of a coarse piece, in the `nth` of `parts` parts. Returns its price in s.
    fn take_coarse(&mut self, i: usize, (nth, parts): (usize, usize)) -> f64 {
        let piece = &self.pieces[i];
        let sample = if piece.huge { piece.range } else { piece.sample_of(nth, parts) };
        let pages = if piece.huge { 1 } else { sample.len() / PAGE_SIZE };
        self.taken[i] = true;
        self.out.push(ClearRun { pieces: i..i + 1, sample: Some(sample), pages });
        self.allowance.runs = self.allowance.runs.saturating_sub(1);
        self.prices.of(1, pages)
    }

    /// Adds a young window of a piece as a sample if `credit` and the allowance can pay for it. Returns
    /// whether they can.
    fn take_sample(&mut self, i: usize, credit: f64) -> bool {
        let piece = &self.pieces[i];
        if piece.is_coarse() {
            let price = self.prices.of(1, u64::from(MIN_SAMPLE_PAGES));
            if self.allowance.seconds + credit < price || self.allowance.runs == 0 {
                return false;
            }
            if self.may_clear(i) {
                self.allowance.seconds -= self.take_coarse(i, (0, 1));
            }
            return true;
        }
        let nth = usize::try_from(self.now.0 / 1_000_000).unwrap_or(0).wrapping_mul(7) + i * 5;
        let sample = if piece.huge { Some(piece.range) } else { piece.young_window(nth) };
        let Some(sample) = sample.filter(|_| self.may_clear(i)) else { return true };
        let pages = if piece.huge { 1 } else { u64::from(piece.spent_in(&sample)) };
        let price = self.prices.of(1, pages);
        if self.allowance.seconds + credit < price || self.allowance.runs == 0 {
            return false;
        }
        self.taken[i] = true;
        self.out.push(ClearRun { pieces: i..i + 1, sample: Some(sample), pages });
        self.allowance.runs -= 1;
        self.allowance.seconds -= price;
        true
    }

    /// The middles of `parts` equal parts of `cell`.
    fn middles(cell: &Range<usize>, parts: usize) -> impl Iterator<Item = usize> + use<> {
        let (start, len) = (cell.start, cell.len());
        let parts = parts.clamp(1, len);
        (0..parts).map(move |k| start + (2 * k + 1) * len / (2 * parts))
    }

    /// Adds samples of reactivated memory, and after a recent change of all hot memory, because more may have
    /// changed: the middle of each cell first, then the middles of halves, quarters and so on, while the
    /// allowance lasts. A part of it is kept: more samples of a cell are worth less than the first one in the next round.
    fn sample(&mut self, regions: &[PublishedRegion], stretches: &StretchState<'_>) {
        let pieces = self.pieces;
        let reactivated = stretches.reactivated.iter().flat_map(|w| {
            let cells = stretches.borders.cells(pieces, within(pieces, &w.range)).into_iter();
            cells.map(|cell| WantedSamples {
                most: cell.len().div_ceil(PIECES_PER_REACTIVATION_SAMPLE),
                cell,
                since: w.at,
            })
        });
        let reactivated: Vec<WantedSamples> = reactivated.collect();
        let hot = self.wanted_hot(regions, stretches);
        let most = reactivated.iter().chain(&hot).map(|w| w.most).max().unwrap_or(0);
        let levels = (0..).map(|level| 1 << level).take_while(|parts| *parts <= most);
        let mut kept = 0.0;
        for parts in levels {
            let credit = if parts == 1 { self.allowance.urgent } else { -kept };
            let affordable = reactivated.iter().all(|w| self.take_middles(w, parts, credit))
                && hot.iter().all(|w| self.take_middles(w, parts, credit.min(0.0)));
            if !affordable {
                break;
            }
            if parts == 1 && !hot.is_empty() {
                kept = self.allowance.seconds.max(0.0) * KEPT_SHARE;
            }
        }
        self.allowance.seconds -= kept;
    }

    /// The hot cells after a recent change; the cell without a clear for the longest time is first.
    fn wanted_hot(
        &self,
        regions: &[PublishedRegion],
        stretches: &StretchState<'_>,
    ) -> Vec<WantedSamples> {
        let turned = stretches.turned.filter(|_| self.turns(stretches) && self.samples_in_time());
        let Some(at) = turned else { return Vec::new() };
        let cells =
            hot_cells(self.pieces, &sampled(self.pieces, regions, self.now), stretches.borders);
        let wanted = |cell: Range<usize>| WantedSamples {
            most: cell.len(),
            cell,
            since: at.before(JUST_SAMPLED),
        };
        let mut hot: Vec<WantedSamples> = cells.into_iter().map(wanted).collect();
        let pieces = self.pieces;
        hot.sort_by_cached_key(|w| pieces[w.cell.clone()].iter().map(Piece::cleared_at).max());
        hot
    }

    /// Adds samples in the middles of `parts` parts of a cell that have no recent sample. Returns whether
    /// they were affordable.
    fn take_middles(&mut self, wanted: &WantedSamples, parts: usize, credit: f64) -> bool {
        let pieces = self.pieces;
        let now = self.now;
        let had = |i: usize| has_sample(&pieces[i], wanted.since, now);
        parts > wanted.most
            || Self::middles(&wanted.cell, parts)
                .filter(|i| !had(*i))
                .all(|i| self.take_sample(i, credit))
    }

    /// While nothing changes, samples each hot cell from time to time to see whether it is still hot.
    fn check(&mut self, regions: &[PublishedRegion], stretches: &StretchState<'_>) {
        if !self.samples_in_time() {
            return;
        }
        let cells =
            hot_cells(self.pieces, &sampled(self.pieces, regions, self.now), stretches.borders);
        if self.turns(stretches) && cells.len() > FEW_CELLS {
            return;
        }
        let often = self.restless && cells.len() <= FEW_CELLS;
        let since = self.now.before(if often { RECENT_SAMPLE_INTERVAL } else { SPARSE });
        // The same piece for a while: a piece that is sampled is not measured as a whole.
        let nth = usize::try_from(self.now.0 / SAMPLE_DWELL_NS).unwrap_or(0).wrapping_mul(13);
        for cell in cells {
            let now = self.now;
            let had = |p: &Piece| has_sample(p, since, now);
            let i = cell.start + nth % cell.len();
            if !self.pieces[cell].iter().any(had) && !self.take_sample(i, 0.0) {
                return;
            }
        }
    }

    /// Whether samples find changes earlier than turns do: not if very many targets make rounds long.
    fn samples_in_time(&self) -> bool {
        self.allowance.turn <= MAX_SAMPLED_TURN
    }

    /// Whether a stretch was recently reactivated or has become idle.
    fn turns(&self, stretches: &StretchState<'_>) -> bool {
        // Three rounds.
        let turning = CHANGE_SAMPLING_TIME.max(self.allowance.turn.mul_f64(0.75));
        stretches.turned.is_some_and(|at| self.now.since(at) < turning)
    }

    /// Adds sentinels: a sample in each piece that is presumed idle and would not show its reactivation.
    fn watch_idle(&mut self) {
        let blind = std::mem::take(&mut self.blind);
        // A coarse subset of the pieces first.
        for apart in [PIECES_PER_REACTIVATION_SAMPLE, PIECES_PER_REACTIVATION_SAMPLE / 4, 1] {
            for &i in blind.iter().filter(|&i| i % apart == apart / 2) {
                if !self.taken[i] && !self.take_sample(i, 0.0) {
                    return;
                }
            }
        }
    }

    fn reactivated(&mut self, reactivated: &[u64]) {
        let mut end = None;
        let mut runs = 0;
        for &start in reactivated {
            let goes_on = end == Some(start);
            let Ok(i) = self.pieces.binary_search_by_key(&start, |p| p.range.start) else {
                continue;
            };
            end = Some(self.pieces[i].range.end);
            let left = self.allowance.seconds + self.allowance.urgent;
            let affordable = left > 0.0 && self.allowance.runs > 0;
            if goes_on || !affordable || runs == MAX_REACTIVATED_RUNS || !self.may_clear(i) {
                continue;
            }
            runs += 1;
            self.allowance.seconds -= self.take(i, i + 1, 0.0);
        }
    }

    fn never(&mut self) {
        let never = std::mem::take(&mut self.never);
        let share = self.allowance.seconds.max(0.0) * NEVER_CLEARED_SHARE;
        let mut left = share + self.allowance.sweep;
        if self.is_large {
            // The few blocks that are observed as a whole come first.
            let is_whole = |i: &usize| self.whole.binary_search(i).is_ok();
            let (whole, never) = never.into_iter().partition::<Vec<_>, _>(is_whole);
            for i in whole {
                if !self.taken[i] && left > 0.0 && self.allowance.runs > 0 {
                    left -= self.take(i, i + 1, 0.0);
                }
            }
            left -= self.never_sampled(&never, left);
            let spent = share + self.allowance.sweep - left;
            self.allowance.seconds -= (spent - self.allowance.sweep).max(0.0);
            return;
        }
        let short = self.allowance.restraint != Restraint::None;
        let mut at = 0;
        while let Some(&i) = never.get(at).filter(|_| left > 0.0 && self.allowance.runs > 0) {
            if self.taken[i] {
                at += 1;
                continue;
            }
            let stretch = never[at..].iter().enumerate().take_while(|(k, j)| **j == i + k).count();
            let most = stretch.min(if short { 1 } else { LONG_RUN });
            let before = self.out.len();
            left -= self.take(i, i + most, left);
            at += self.out[before..].iter().map(|r| r.pieces.len()).sum::<usize>().max(1);
        }
        let spent = share + self.allowance.sweep - left;
        self.allowance.seconds -= (spent - self.allowance.sweep).max(0.0);
    }

    /// Adds touched blocks of a large target that are observed as a whole, the least recently cleared first: a touch
    /// of a page is only seen after a clear.
    fn whole(&mut self) {
        let since = |i: &usize| self.pieces[*i].cleared_at();
        let is_due = |i: &usize| {
            since(i).is_some_and(|at| self.now.since(at) >= AGED_BLOCK_CLEAR_INTERVAL)
                && self.pieces[*i].spent() > 0
                && self.may_clear(*i)
        };
        let mut due: Vec<usize> = self.whole.iter().copied().filter(is_due).collect();
        due.sort_by_key(since);
        let mut left = self.allowance.seconds.max(0.0) * WHOLE_SHARE;
        for i in due {
            if left <= 0.0 || self.allowance.runs == 0 {
                return;
            }
            let price = self.take(i, i + 1, 0.0);
            left -= price;
            self.allowance.seconds -= price;
        }
    }

    /// Adds samples of memory that was never cleared: beside hot pieces first, then at equal distances, so
    /// that each round refines the map. Returns their price in s.
    fn never_sampled(&mut self, never: &[usize], seconds: f64) -> f64 {
        let pieces = self.pieces;
        let price = self.prices.of(1, u64::from(MIN_SAMPLE_PAGES));
        let affordable = ((seconds / price).max(0.0) as usize).min(self.allowance.runs as usize);
        let hot = |i: usize| pieces.get(i).is_some_and(|p| is_hot(p, &self.terms) == Some(true));
        let beside = |i: usize| {
            i > 0 && self.follows(i) && hot(i - 1)
                || i + 1 < pieces.len() && self.follows(i + 1) && hot(i + 1)
        };
        let first: Vec<usize> =
            never.iter().copied().filter(|&i| beside(i)).take(affordable).collect();
        let rest = (affordable - first.len()).min(never.len());
        let even = (0..rest).map(|k| never[(2 * k + 1) * never.len() / (2 * rest)]);
        let mut spent = 0.0;
        for i in first.into_iter().chain(even).collect::<Vec<_>>() {
            if !self.taken[i] {
                spent += self.take_coarse(i, (0, 1));
            }
        }
        spent
    }

    /// Adds samples elsewhere in untouched pieces, because a hot place may be smaller than a piece: at equal
    /// distances among the pieces whose sample is old.
    fn stale_samples(&mut self, seconds: f64) {
        let stale: Vec<usize> = self.stale.iter().copied().filter(|&i| self.may_clear(i)).collect();
        let price = self.prices.of(1, u64::from(MIN_SAMPLE_PAGES));
        let most = ((seconds / price).max(0.0) as usize).min(stale.len());
        let nth = usize::try_from(self.now.0 / 1_000_000).unwrap_or(0);
        for k in 0..most.min(self.allowance.runs as usize) {
            let i = stale[(2 * k + 1) * stale.len() / (2 * most)];
            self.allowance.seconds -= self.take_coarse(i, ((nth + i) % PLACES, PLACES));
        }
    }

    /// Time between two turns of a region. It grows with the age of the region's heat.
    fn turn(&self, region: &PublishedRegion) -> Duration {
        let turn = self.allowance.turn;
        let long = match region.range.len() {
            ..SMALL_REGION_BYTES => self.allowance.longest,
            // The region may become idle. Samples must detect that if there are many such regions, or after a
            // recent change.
            _ if is_sampled(region) && self.few && !self.restless => turn,
            _ => LONG_REGION_TURN,
        };
        (region.age / SETTLED_TURNS).clamp(turn, turn.max(long))
    }

    /// Spends a part of the remaining allowance on slow memory without a clear for the longest time: its
    /// regions have had their turns, but each turn clears few of their pieces. Evidence that is a minute old
    /// describes the present poorly.
    fn stale(&mut self, regions: &[PublishedRegion], stretches: &StretchState<'_>) {
        if self.allowance.restraint != Restraint::None || self.saves_up {
            return;
        }
        // Some of the allowance must remain for changes, and more of it while there are changes.
        let share = if self.turns(stretches) { 0.25 } else { 0.5 };
        if self.is_large {
            return self.stale_samples(self.allowance.seconds * share);
        }
        let old = |at: Nanos| self.now.since(at) >= MAX_REGION_TURN;
        let is_stale = |i: usize| {
            let cleared = self.pieces[i].whole_at();
            cleared.is_some_and(old) && self.may_clear(i) && self.is_due(i)
        };
        let mut stale: Vec<bool> = (0..self.pieces.len()).map(is_stale).collect();
        let mut lookup = InOrder::default();
        for PublishedRegion { range, .. } in regions.iter().filter(|k| !is_slow(k)) {
            stale[lookup.overlapping(self.pieces, range)].fill(false);
        }
        let mut by_age: Vec<usize> = (0..stale.len()).filter(|&i| stale[i]).collect();
        by_age.sort_by_key(|&i| self.pieces[i].whole_at());
        let mut left = self.allowance.seconds * share;
        for i in by_age {
            if self.taken[i] {
                continue;
            }
            if self.allowance.runs == 0
                || self.prices.of(1, price(&self.pieces[i], self.now)) > left
            {
                break;
            }
            let most = stale[i..].iter().take(LONG_RUN).take_while(|s| **s).count();
            left -= self.take(i, i + most, left);
        }
    }

    fn regions(&mut self, regions: &[PublishedRegion]) {
        let mut wanting: Vec<(Nanos, Range<usize>, AddrRange, usize)> = Vec::new();
        let mut lookup = InOrder::default();
        for known in regions {
            let r = &known.range;
            let Range { start: first, end } = lookup.overlapping(self.pieces, r);
            let due = |&i: &usize| self.may_clear(i) && self.is_due_in(i, r);
            let lately = (first..end).filter_map(|i| self.pieces[i].whole_at()).max();
            let turn = self.turn(known);
            let had = lately.is_some_and(|at| self.now.since(at) < turn);
            let doubted = || (first..end).any(|i| self.pieces[i].is_doubted());
            if (!had || doubted()) && (first..end).any(|i| due(&i)) {
                // Clearing all of a region would slow its target, which would then touch the region less
                // often.
                let short = ((end - first) / TURN_DIVISOR).clamp(1, MAX_TURN_PIECES);
                // A region with fewer turns gets longer runs.
                let turns = turn.as_secs_f64() / self.allowance.turn.as_secs_f64().max(0.1);
                let more = (short as f64 * turns) as usize;
                let most = more.min((end - first) / 2).max(short);
                let most = if is_slow(known) { LONG_RUN } else { most };
                wanting.push((lately.unwrap_or_default(), first..end, *r, most));
            }
        }
        wanting.sort_by_key(|(lately, ..)| *lately);
        let runs = wanting.len().min(self.allowance.runs as usize);
        for (k, (_, pieces, range, most)) in wanting.into_iter().take(runs).enumerate() {
            if self.allowance.seconds <= 0.0 {
                break;
            }
            let share = self.allowance.seconds / (runs - k) as f64;
            let share = if self.allowance.restraint == Restraint::None { share } else { 0.0 };
            let end = pieces.end;
            let due = |&i: &usize| self.may_clear(i) && self.is_due_in(i, &range);
            let Some(first) = pieces.filter(due).min_by_key(|&i| self.pieces[i].whole_at()) else {
                continue;
            };
            // If a clear is not affordable yet, its region saves the allowance for it.
            if self.prices.of(1, price(&self.pieces[first], self.now)) > self.allowance.seconds {
                self.saves_up = true;
                continue;
            }
            self.allowance.seconds -= self.take(first, end.min(first + most), share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::timing::Moment;
    use super::*;
    use crate::page_mask::PageMask;
    use crate::survey::{BLOCK_SIZE, Block, Cleared};

    const TERMS: ExposureTerms = ExposureTerms { share: 1.0, recent: 0, long: 8.0 };
    const NOW: u64 = 100;
    const PIECES: u64 = 64;

    fn moment(s: u64) -> Moment {
        Moment { at: Nanos(s * 1_000_000_000), ms: (s * 1000) as u32, ran: None }
    }

    /// Block `n`, cleared at `cleared` s, with `pages` of its pages touched since then.
    fn young_piece(n: u64, cleared: u64, pages: usize) -> Piece {
        let start = n * BLOCK_SIZE;
        let range = AddrRange::new(start, start + BLOCK_SIZE);
        let all = PageMask::span(0, (BLOCK_SIZE / PAGE_SIZE) as usize);
        let mut piece = Piece::new(range, 64 << 10, 0);
        for (s, young) in [(cleared, all), (NOW - 1, PageMask::span(0, pages))] {
            let at = moment(s);
            let young = Block { start, huge: false, resident: all, young, read_at: at.at };
            piece.read(&young, 10, &at, &TERMS);
            if s == cleared {
                let cleared =
                    Cleared { start, huge: false, armed: all, hidden: vec![], cleared_at: at.at };
                piece.clear(&cleared, at, None, &TERMS);
            }
        }
        piece
    }

    fn piece(n: u64, cleared: u64) -> Piece {
        young_piece(n, cleared, (BLOCK_SIZE / PAGE_SIZE) as usize)
    }

    fn region(blocks: Range<u64>, hz: f64, share: f64) -> PublishedRegion {
        let range = AddrRange::new(blocks.start * BLOCK_SIZE, blocks.end * BLOCK_SIZE);
        PublishedRegion { range, hz, share, age: Duration::from_secs(60), extended: false }
    }

    fn allowance(seconds: f64, turn: Duration) -> Allowance {
        let (longest, restraint) = (MAX_REGION_TURN, Restraint::None);
        Allowance { seconds, runs: 256, urgent: 0.0, sweep: 0.0, turn, longest, restraint }
    }

    /// The state of a target that has not changed for long.
    fn calm_state(borders: &Borders) -> StretchState<'_> {
        StretchState {
            reactivated: &[],
            borders,
            turned: None,
            terms: TERMS,
            ages: Sampling::default(),
            is_large: false,
        }
    }

    /// The pieces that are cleared as a whole.
    fn chosen(pieces: &[Piece], regions: &[PublishedRegion], allowance: &Allowance) -> Vec<usize> {
        let now = moment(NOW).at;
        let borders = Borders::default();
        let stretches = calm_state(&borders);
        let runs = plan(pieces, regions, &stretches, &[], allowance, &Prices::default(), now);
        runs.into_iter().filter(|r| r.sample.is_none()).flat_map(|r| r.pieces).collect()
    }

    /// After a change, one hot cell of 64 pieces has many samples; a part of the allowance is kept for the next round.
    #[test]
    fn samples_leave_a_part_of_the_allowance() {
        let pieces: Vec<Piece> = (0..PIECES).map(|n| piece(n, NOW - 2)).collect();
        let now = moment(NOW).at;
        let borders = Borders::default();
        let stretches = StretchState { turned: Some(now), ..calm_state(&borders) };
        let prices = Prices::default();
        let priced = |seconds: f64| {
            let (regions, allowance) = ([region(0..PIECES, 40.0, 1.0)], allowance(seconds, TURN));
            let runs = plan(&pieces, &regions, &stretches, &[], &allowance, &prices, now);
            runs.iter().map(|r| prices.of(1, r.pages)).sum::<f64>()
        };
        let one = priced(100e-6);
        assert!(one > 0.0 && one <= 100e-6, "the first sample may cost all: {one}");
        let many = priced(2e-3);
        assert!((0.8e-3..=1.1e-3).contains(&many), "{many} of 2 ms");
    }

    const TURN: Duration = Duration::from_secs(3);

    /// The number of cleared pieces in a region of all pieces. The first piece was cleared 2 s ago, and the
    /// others `ago` seconds ago.
    fn cleared(hz: f64, share: f64, ago: u64, seconds: f64, turn: Duration) -> usize {
        let pieces: Vec<Piece> =
            (0..PIECES).map(|n| piece(n, NOW - if n == 0 { 2 } else { ago })).collect();
        chosen(&pieces, &[region(0..PIECES, hz, share)], &allowance(seconds, turn)).len()
    }

    #[test]
    fn what_is_left_goes_to_slow_memory_that_was_not_looked_at_for_long() {
        let all = PIECES as usize - 1;
        let cleared = |hz, share, ago, seconds| cleared(hz, share, ago, seconds, TURN);
        assert_eq!(cleared(1.0, 1.0, 20, 1.0), all);
        assert_eq!(cleared(500.0, 1.0 / 512.0, 20, 1.0), all, "few of its pages are touched");
        assert_eq!(cleared(500.0, 1.0, 20, 1.0), 0, "its bits are soon set again");
        assert_eq!(cleared(1.0, 1.0, 4, 1.0), 0, "it was looked at");
        let some = cleared(1.0, 1.0, 20, 0.01);
        assert!((1..all / 2).contains(&some), "half of what there is: {some}");
    }

    /// This holds while no region waits for its turn.
    #[test]
    fn slow_memory_has_a_turn_while_there_are_changes() {
        let fast: Vec<Piece> = (0..4).map(|n| piece(n, NOW - 2)).collect();
        let slow = (4..PIECES).map(|n| young_piece(n, NOW - 20, 16));
        let pieces: Vec<Piece> = fast.into_iter().chain(slow).collect();
        let regions = [region(0..4, 500.0, 1.0), region(4..PIECES, 1.0, 0.03)];
        let taken = chosen(&pieces, &regions, &allowance(0.1, Duration::ZERO));
        let count = taken.iter().filter(|&&i| i >= 4).count();
        assert!(count > LONG_RUN, "more than a turn of its region: {count}");
    }

    /// A fast region needs 341 us for one of its pieces; a piece of the slow region, which has had its turn,
    /// needs 69 us.
    #[test]
    fn what_a_region_saves_up_for_is_not_spent_elsewhere() {
        let pieces = |fast: u64| -> Vec<Piece> {
            let slow = (4..PIECES).map(|n| young_piece(n, NOW - if n == 4 { 2 } else { 20 }, 16));
            (0..4).map(|n| piece(n, NOW - fast)).chain(slow).collect()
        };
        let regions = [region(0..4, 500.0, 1.0), region(4..PIECES, 1.0, 0.03)];
        let taken = |fast| chosen(&pieces(fast), &regions, &allowance(300e-6, TURN));
        assert!(!taken(2).is_empty(), "all have had their turn");
        assert_eq!(taken(4), [0; 0]);
    }
}
