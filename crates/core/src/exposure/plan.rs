//! What to clear next, within what may be spent.

use std::ops::Range;
use std::time::Duration;

use super::budget::Prices;
use super::coarse::{is_hot, is_large};
use super::piece::Piece;
use super::published::{PublishedRegion, is_sampled};
use super::stretches::{Seams, WokenStretch, hot_cells, sampled, within};
use super::timing::ExposureTerms;
use crate::range::{AddrRange, PAGE_SIZE};
use crate::snapshot::Restraint;
use crate::time::Nanos;
use crate::tuning::{
    LEAST_SAMPLE_PAGES, LONG_REGION_TURN, LONGEST_REGION_TURN, SAMPLED_HZ, TURNING,
};

/// What may be cleared at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowance {
    /// of our time and the target's, in s
    pub seconds: f64,
    /// in runs, each a shootdown
    pub runs: u32,
    /// below zero, for what was touched after a long time, in s
    pub urgent: f64,
    /// above that, for memory that was never cleared, in s
    pub sweep: f64,
    /// From one turn of a region to the next.
    pub turn: Duration,
    /// The same at most, for a little region.
    pub longest: Duration,
    pub restraint: Restraint,
}

/// Adjacent pieces to be cleared, by their indices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClearRun {
    pub pieces: Range<usize>,
    /// of the one piece, what is cleared, if not all
    pub sample: Option<AddrRange>,
    /// young pages in them, a huge one counted once
    pub pages: u64,
}

/// What is known of stretches.
#[derive(Clone, Copy)]
pub(super) struct StretchState<'a> {
    /// what woke, and of which not enough has been cleared since
    pub woken: &'a [WokenStretch],
    pub seams: &'a Seams,
    /// when something last woke or fell idle all at once
    pub turned: Option<Nanos>,
    pub terms: ExposureTerms,
}

/// A page is cleared again after that at the earliest where its target is short of memory.
const CLEARED_AGAIN_S: f64 = 5.0;
/// Runs of what was touched after a long time: what is hot anew is to be seen soon.
const MOST_REACTIVATED: usize = 16;
/// Of what may be spent, memory that was never cleared gets so much.
const NEVER_SHARE: f64 = 0.8;
/// Of a region, one in so many pieces is cleared at a time, and not more than 16 MiB.
const SHORT: usize = 4;
const MOST_IN_REGION: usize = 8;
/// What is touched less often than that is not disturbed.
const SLOW_HZ: f64 = 2.0;
/// A region whose heat is so many times as old as its turn is long is asked less often, but not less than
/// each few seconds: see [`LONG_REGION_TURN`].
const SETTLED: u32 = 4;
/// Of a region of less bytes, a shootdown tells of as much as those of others do of more: see [`LONGEST_REGION_TURN`].
const LITTLE: u64 = 1 << 20;
/// Whose turns are further apart is not sampled.
const LONGEST_SAMPLED_TURN: Duration = Duration::from_secs(8);
/// Of what woke, one in so many pieces is sampled.
const WOKEN_CELL: usize = 16;
/// What is hot was sampled just now if it was so long before something turned.
const JUST_SAMPLED: Duration = Duration::from_millis(50);
/// And else a piece of each cell so often.
const OFTEN: Duration = Duration::from_millis(200);
/// Of more cells than these, that would take too much.
const FEW_CELLS: usize = 16;
/// More seldom where nothing has turned for so long: then the turns of regions are enough for most.
const RESTLESS: Duration = Duration::from_secs(10);
const SPARSE: Duration = Duration::from_millis(1_500);
/// It is the same one for so long.
const STAY_NS: u64 = 8_000_000_000;
/// Pieces in a run of memory that was never cleared: 64 MiB.
const LONG_RUN: usize = 32;
/// Samples that nobody touches are taken elsewhere in their pieces after so long, in one of so many places.
const ELSEWHERE: Duration = Duration::from_secs(60);
const PLACES: usize = 32;

/// Chooses runs among `pieces` (sorted). `regions` are those published last, `reactivated` the addresses of
/// pieces that were touched after a long time.
///
/// Samples of what woke come first, and while something changes, of all that is hot. Then what was touched after a
/// long time: a short run of each stretch of it. Then memory that was never cleared, in long runs. Then, where nothing
/// changes, a sample of each stretch that is hot now and then, and sentinels. Then a run in each region that is touched,
/// from the piece on that was cleared longest ago: those regions first of which nothing was cleared for long. Then what
/// of slow regions was not cleared for long. Memory that is not young is never cleared.
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
        is_large: is_large(pieces.len()),
        terms: stretches.terms,
        saves_up: false,
        out: Vec::new(),
    };
    p.sample(regions, stretches);
    p.reactivated(reactivated);
    p.never();
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
    /// Few regions are sampled.
    few: bool,
    /// It is known by samples.
    is_large: bool,
    terms: ExposureTerms,
    /// What a region wants is not affordable yet.
    saves_up: bool,
    out: Vec<ClearRun>,
}

/// Samples that are to be taken of a cell: as many at most, unless there was one since then.
struct WantedSamples {
    cell: Range<usize>,
    most: usize,
    since: Nanos,
}

/// Whether few of its pages have their bits set again soon.
fn is_slow(region: &PublishedRegion) -> bool {
    region.hz * region.share < SLOW_HZ
}

fn price(piece: &Piece) -> u64 {
    // Of a coarse piece it is not known what is young.
    let spent = if piece.is_coarse() { piece.nr_resident() } else { piece.spent() };
    let spent = u64::from(spent);
    if piece.huge { spent.min(1) } else { spent }
}

impl Planner<'_> {
    fn follows(&self, i: usize) -> bool {
        i > 0 && self.pieces[i - 1].range.end == self.pieces[i].range.start
    }

    fn may_clear(&self, i: usize) -> bool {
        let piece = &self.pieces[i];
        let seldom = self.allowance.restraint == Restraint::ShortRuns;
        let lately = |at: Nanos| seldom && self.now.since(at).as_secs_f64() < CLEARED_AGAIN_S;
        !self.taken[i] && !piece.cleared_at().is_some_and(lately)
    }

    /// What was cleared and has not been touched since would only be forgotten.
    fn is_due(&self, i: usize) -> bool {
        !self.pieces[i].was_cleared() || self.pieces[i].spent() > 0
    }

    /// The same of what of it lies within a region: its neighbours have turns of their own.
    fn is_due_in(&self, i: usize, range: &AddrRange) -> bool {
        match self.pieces[i].was_cleared() {
            true => self.pieces[i].spent_in(range) > 0,
            // What is sampled for the first time has a turn of its own.
            false => !self.pieces[i].is_coarse(),
        }
    }

    /// Takes adjacent pieces from `first` on and below `end`, as long as `seconds` last, and at least
    /// one.
    fn take(&mut self, first: usize, end: usize, seconds: f64) -> f64 {
        if self.pieces[first].is_coarse() {
            return self.take_coarse(first, (0, 1));
        }
        let mut pages = price(&self.pieces[first]);
        let mut last = first + 1;
        self.taken[first] = true;
        let goes_on = |p: &Self, i| p.follows(i) && p.may_clear(i) && p.is_due(i);
        while last < end && !self.pieces[last].is_coarse() && goes_on(self, last) {
            let more = pages + price(&self.pieces[last]);
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

    /// Takes a few pages of a coarse piece, in the nth of so many parts.
    fn take_coarse(&mut self, i: usize, (nth, parts): (usize, usize)) -> f64 {
        let piece = &self.pieces[i];
        let sample = if piece.huge { piece.range } else { piece.sample_of(nth, parts) };
        let pages = if piece.huge { 1 } else { sample.len() / PAGE_SIZE };
        self.taken[i] = true;
        self.out.push(ClearRun { pieces: i..i + 1, sample: Some(sample), pages });
        self.allowance.runs = self.allowance.runs.saturating_sub(1);
        self.prices.of(1, pages)
    }

    /// Takes a young window of a piece, if that is affordable with `credit`; says whether it was.
    fn take_sample(&mut self, i: usize, credit: f64) -> bool {
        let piece = &self.pieces[i];
        if piece.is_coarse() {
            let price = self.prices.of(1, u64::from(LEAST_SAMPLE_PAGES));
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

    /// The middles of so many parts of `cell`, the coarsest first.
    fn middles(cell: &Range<usize>, parts: usize) -> impl Iterator<Item = usize> + use<> {
        let (start, len) = (cell.start, cell.len());
        let parts = parts.clamp(1, len);
        (0..parts).map(move |k| start + (2 * k + 1) * len / (2 * parts))
    }

    /// Samples of what woke, and where something has just turned, of all that is hot, since more may have changed: the
    /// middle of each cell first, then halves, quarters, and so on, as far as it can be paid.
    fn sample(&mut self, regions: &[PublishedRegion], stretches: &StretchState<'_>) {
        let pieces = self.pieces;
        let woken = stretches.woken.iter().flat_map(|w| {
            let cells = stretches.seams.cells(pieces, within(pieces, &w.range)).into_iter();
            cells.map(|cell| WantedSamples {
                most: cell.len().div_ceil(WOKEN_CELL),
                cell,
                since: w.at,
            })
        });
        let woken: Vec<WantedSamples> = woken.collect();
        let hot = self.wanted_hot(regions, stretches);
        let most = woken.iter().chain(&hot).map(|w| w.most).max().unwrap_or(0);
        let levels = (0..).map(|level| 1 << level).take_while(|parts| *parts <= most);
        for parts in levels {
            let credit = if parts == 1 { self.allowance.urgent } else { 0.0 };
            let affordable = woken.iter().all(|w| self.take_middles(w, parts, credit))
                && hot.iter().all(|w| self.take_middles(w, parts, 0.0));
            if !affordable {
                return;
            }
        }
    }

    /// What is hot, where something has just turned; that first which was looked at longest ago.
    fn wanted_hot(
        &self,
        regions: &[PublishedRegion],
        stretches: &StretchState<'_>,
    ) -> Vec<WantedSamples> {
        let turned = stretches.turned.filter(|_| self.turns(stretches) && self.samples_in_time());
        let Some(at) = turned else { return Vec::new() };
        let cells = hot_cells(self.pieces, &sampled(self.pieces, regions), stretches.seams);
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

    /// Takes samples in the middles of so many parts of a cell, where none was taken since; says whether that was
    /// affordable.
    fn take_middles(&mut self, wanted: &WantedSamples, parts: usize, credit: f64) -> bool {
        let pieces = self.pieces;
        let had = |i: usize| pieces[i].cleared_at().is_some_and(|at| at >= wanted.since);
        parts > wanted.most
            || Self::middles(&wanted.cell, parts)
                .filter(|i| !had(*i))
                .all(|i| self.take_sample(i, credit))
    }

    /// Where all has been as it is, a sample of each cell that is hot now and then: whether it still is.
    fn check(&mut self, regions: &[PublishedRegion], stretches: &StretchState<'_>) {
        if self.turns(stretches) || !self.samples_in_time() {
            return;
        }
        let cells = hot_cells(self.pieces, &sampled(self.pieces, regions), stretches.seams);
        let lately = stretches.turned.is_some_and(|at| self.now.since(at) < RESTLESS);
        let since =
            self.now.before(if lately && cells.len() <= FEW_CELLS { OFTEN } else { SPARSE });
        // The same for a while: what is sampled is not measured as a whole.
        let nth = usize::try_from(self.now.0 / STAY_NS).unwrap_or(0).wrapping_mul(13);
        for cell in cells {
            let had = |p: &Piece| p.cleared_at().is_some_and(|at| at >= since);
            let i = cell.start + nth % cell.len();
            if !self.pieces[cell].iter().any(had) && !self.take_sample(i, 0.0) {
                return;
            }
        }
    }

    /// Whether samples would find out any sooner than turns: not where very many targets make rounds long.
    fn samples_in_time(&self) -> bool {
        self.allowance.turn <= LONGEST_SAMPLED_TURN
    }

    /// Whether something has just woken or fallen idle.
    fn turns(&self, stretches: &StretchState<'_>) -> bool {
        // Three rounds.
        let turning = TURNING.max(self.allowance.turn.mul_f64(0.75));
        stretches.turned.is_some_and(|at| self.now.since(at) < turning)
    }

    /// Sentinels: a sample of each piece that is presumed idle, and would not show that it wakes.
    fn watch_idle(&mut self) {
        let is_idle = |p: &Piece| p.presumed_hz().is_some_and(|hz| hz < SAMPLED_HZ);
        let wants = |p: &Piece| p.was_cleared() && is_idle(p) && p.sentinels() < LEAST_SAMPLE_PAGES;
        // A few of all first.
        for apart in [WOKEN_CELL, WOKEN_CELL / 4, 1] {
            for i in (apart / 2..self.pieces.len()).step_by(apart) {
                if wants(&self.pieces[i]) && !self.taken[i] && !self.take_sample(i, 0.0) {
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
            if goes_on || !affordable || runs == MOST_REACTIVATED || !self.may_clear(i) {
                continue;
            }
            runs += 1;
            self.allowance.seconds -= self.take(i, i + 1, 0.0);
        }
    }

    fn never(&mut self) {
        let never: Vec<usize> =
            (0..self.pieces.len()).filter(|&i| !self.pieces[i].was_cleared()).collect();
        let share = self.allowance.seconds.max(0.0) * NEVER_SHARE;
        let mut left = share + self.allowance.sweep;
        if self.is_large {
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

    /// Takes samples of what was never cleared, beside what is hot first, and then at even distances: so each round
    /// makes what is known finer. Says what that costs.
    fn never_sampled(&mut self, never: &[usize], seconds: f64) -> f64 {
        let pieces = self.pieces;
        let price = self.prices.of(1, u64::from(LEAST_SAMPLE_PAGES));
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

    /// Of what nobody touches, samples elsewhere in their pieces, as what is hot there may be less than a piece: at
    /// even distances among those that had theirs long ago.
    fn stale_samples(&mut self, seconds: f64) {
        let is_stale = |p: &Piece| {
            let cleared = p.cleared_at().filter(|_| p.is_coarse() && p.is_quiet());
            cleared.is_some_and(|at| self.now.since(at) >= ELSEWHERE)
        };
        let stale: Vec<usize> = (0..self.pieces.len())
            .filter(|&i| is_stale(&self.pieces[i]) && self.may_clear(i))
            .collect();
        let price = self.prices.of(1, u64::from(LEAST_SAMPLE_PAGES));
        let most = ((seconds / price).max(0.0) as usize).min(stale.len());
        let nth = usize::try_from(self.now.0 / 1_000_000).unwrap_or(0);
        for k in 0..most.min(self.allowance.runs as usize) {
            let i = stale[(2 * k + 1) * stale.len() / (2 * most)];
            self.allowance.seconds -= self.take_coarse(i, ((nth + i) % PLACES, PLACES));
        }
    }

    /// The pieces of which something lies in `range`.
    fn within(&self, range: &AddrRange) -> Range<usize> {
        let first = self.pieces.partition_point(|p| p.range.end <= range.start);
        let inside = self.pieces[first..].iter().take_while(|p| p.range.start < range.end);
        first..first + inside.count()
    }

    /// How long the next turn of a region is away whose heat is as old as this: what has been as it is
    /// for long is asked less often.
    fn turn(&self, region: &PublishedRegion) -> Duration {
        let turn = self.allowance.turn;
        let long = match region.range.len() {
            ..LITTLE => self.allowance.longest,
            // It may fall idle. Of many such regions, samples must tell.
            _ if is_sampled(region) && self.few => turn,
            _ => LONG_REGION_TURN,
        };
        (region.age / SETTLED).clamp(turn, turn.max(long))
    }

    /// Of what is left, a part goes to slow memory that was cleared longest ago: its regions have had their
    /// turns, but few of their pieces in each. What it was like a minute ago says little.
    fn stale(&mut self, regions: &[PublishedRegion], stretches: &StretchState<'_>) {
        if self.allowance.restraint != Restraint::None || self.saves_up {
            return;
        }
        // Changes are to find something left, the more while there are any.
        let share = if self.turns(stretches) { 0.25 } else { 0.5 };
        if self.is_large {
            return self.stale_samples(self.allowance.seconds * share);
        }
        let old = |at: Nanos| self.now.since(at) >= LONGEST_REGION_TURN;
        let is_stale = |i: usize| {
            let cleared = self.pieces[i].whole_at();
            cleared.is_some_and(old) && self.may_clear(i) && self.is_due(i)
        };
        let mut stale: Vec<bool> = (0..self.pieces.len()).map(is_stale).collect();
        for PublishedRegion { range, .. } in regions.iter().filter(|k| !is_slow(k)) {
            stale[self.within(range)].fill(false);
        }
        let mut by_age: Vec<usize> = (0..stale.len()).filter(|&i| stale[i]).collect();
        by_age.sort_by_key(|&i| self.pieces[i].whole_at());
        let mut left = self.allowance.seconds * share;
        for i in by_age {
            if self.taken[i] {
                continue;
            }
            if self.allowance.runs == 0 || self.prices.of(1, price(&self.pieces[i])) > left {
                break;
            }
            let most = stale[i..].iter().take(LONG_RUN).take_while(|s| **s).count();
            left -= self.take(i, i + most, left);
        }
    }

    fn regions(&mut self, regions: &[PublishedRegion]) {
        let mut wanting: Vec<(Nanos, Range<usize>, AddrRange, usize)> = Vec::new();
        for known in regions {
            let r = &known.range;
            let Range { start: first, end } = self.within(r);
            let due = |&i: &usize| self.may_clear(i) && self.is_due_in(i, r);
            let lately = (first..end).filter_map(|i| self.pieces[i].whole_at()).max();
            let turn = self.turn(known);
            let had = lately.is_some_and(|at| self.now.since(at) < turn);
            let doubted = || (first..end).any(|i| self.pieces[i].is_doubted());
            if (!had || doubted()) && (first..end).any(|i| due(&i)) {
                // Who has to set bits again in all of a region touches it less often.
                let short = ((end - first) / SHORT).clamp(1, MOST_IN_REGION);
                // Who is asked less often is asked about more.
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
            // What is not affordable yet is saved up for.
            if self.prices.of(1, price(&self.pieces[first])) > self.allowance.seconds {
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

    /// `n` blocks from the start of memory, cleared at this time, and so many of its pages touched since.
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
                piece.clear(&cleared, at, &TERMS);
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
        let (longest, restraint) = (LONGEST_REGION_TURN, Restraint::None);
        Allowance { seconds, runs: 256, urgent: 0.0, sweep: 0.0, turn, longest, restraint }
    }

    /// The pieces that are cleared as a whole.
    fn chosen(pieces: &[Piece], regions: &[PublishedRegion], allowance: &Allowance) -> Vec<usize> {
        let now = moment(NOW).at;
        let seams = Seams::default();
        let stretches = StretchState { woken: &[], seams: &seams, turned: None, terms: TERMS };
        let runs = plan(pieces, regions, &stretches, &[], allowance, &Prices::default(), now);
        runs.into_iter().filter(|r| r.sample.is_none()).flat_map(|r| r.pieces).collect()
    }

    const TURN: Duration = Duration::from_secs(3);

    /// A region of all pieces, of which the first one was cleared just now and the others `ago` seconds
    /// before: how many of them are cleared.
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

    /// Which is when no region waits for its turn.
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

    /// A fast region wants 341 us for one of its pieces; a piece of the slow one, which has had its turn,
    /// takes 69.
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
