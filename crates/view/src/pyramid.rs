//! The heat of one target over time, in levels: a column of a level stands for four columns of the level below it. The
//! memory for all columns is bounded.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, TargetView};

use crate::cell::{CellState, CellSum, Rates, StateRun};
use crate::moment::ALLOCATION_BYTES;

/// Columns of a level that become one of the next.
const FAN: usize = 4;
/// Levels above the first. The coarsest column stands for 4^12 snapshots, two months of four a second.
const LEVELS: usize = 13;
/// Maximum number of runs in a column: several times the rows of a screen.
const MAX_RUNS: usize = 8192;
/// The least of them, however many targets there are.
const MIN_RUNS: usize = 16;
/// Maximum number of pauses of a recording over which no column extends: each of them adds a column to each level.
const MAX_PAUSES: usize = 64;
/// Columns that wait to be joined may use 1/`WAITING_SHARE` of the memory.
const WAITING_SHARE: usize = 2;

/// The memory of one target over some time: its runs, in ascending order of address. The last one is unmapped.
#[derive(Debug, Clone)]
pub struct HeatColumn {
    /// time, since the start of the recording
    pub time: Range<Duration>,
    /// seconds of that time that snapshots cover
    seconds: f32,
    runs: Arc<[StateRun]>,
}

impl HeatColumn {
    /// The state of a target in a snapshot that covers `time`.
    #[must_use]
    pub fn of(view: &TargetView, time: Range<Duration>) -> Self {
        let mut runs = Runs::default();
        let mut end = None;
        for r in &view.regions {
            if let Some(end) = end.filter(|end| *end < r.range.start) {
                runs.push(end, CellState::UNMAPPED);
            }
            runs.push(r.range.start, CellState::of(r));
            end = Some(r.range.end);
        }
        runs.close(end.unwrap_or(0), MAX_RUNS);
        let seconds = (time.end.saturating_sub(time.start)).as_secs_f32();
        HeatColumn { time, seconds, runs: runs.0.into() }
    }

    /// One column for several, which are in order of time, of at most so many runs.
    fn join(parts: &[HeatColumn], rates: &Rates, max_runs: usize) -> Self {
        let mut runs = Runs::default();
        let mut at = vec![0; parts.len()];
        let next = |at: &[usize]| {
            let starts = parts.iter().zip(at).filter_map(|(p, &i)| p.runs.get(i));
            starts.map(|run| run.start()).min()
        };
        let mut last = 0;
        while let Some(start) = next(&at) {
            let mut sum = CellSum::default();
            for (part, i) in parts.iter().zip(&mut at) {
                *i += usize::from(part.runs.get(*i).is_some_and(|run| run.start() == start));
                if let Some(run) = i.checked_sub(1).and_then(|i| part.runs.get(i)) {
                    sum.add(rates, run.state(), part.seconds);
                }
            }
            runs.push(start, sum.state());
            last = start;
        }
        runs.close(last, max_runs);
        let time = |of: fn(&HeatColumn) -> Duration| parts.iter().map(of);
        let start = time(|c| c.time.start).min().unwrap_or_default();
        let end = time(|c| c.time.end).max().unwrap_or_default();
        HeatColumn {
            time: start..end,
            seconds: parts.iter().map(|c| c.seconds).sum(),
            runs: runs.0.into(),
        }
    }

    /// The memory that it occupies, in bytes; a queue of columns may have room for as many again.
    fn bytes(&self) -> usize {
        size_of_val(&*self.runs) + 2 * size_of::<HeatColumn>() + ALLOCATION_BYTES
    }

    /// The runs from the one that contains `address` on.
    fn from(&self, address: u64) -> &[StateRun] {
        let first = self.runs.partition_point(|run| run.start() <= address).saturating_sub(1);
        &self.runs[first..]
    }

    /// Calls `each` for every mapped run that overlaps `range`, with the range of the whole run.
    pub fn each(&self, range: &AddrRange, mut each: impl FnMut(AddrRange, CellState)) {
        for pair in self.from(range.start).windows(2) {
            let (start, end) = (pair[0].start(), pair[1].start());
            if start >= range.end {
                break;
            }
            if end > range.start && pair[0].state() != CellState::UNMAPPED {
                each(AddrRange::new(start, end), pair[0].state());
            }
        }
    }
}

/// Runs that are being collected: none equals the one before it.
#[derive(Default)]
struct Runs(Vec<StateRun>);

impl Runs {
    fn push(&mut self, start: u64, state: CellState) {
        if self.0.last().is_none_or(|last| last.state() != state) {
            self.0.push(StateRun::new(start, state));
        }
    }

    /// Ends the runs at `end`, and merges neighbours if there are more than `most`: the hotter state remains.
    fn close(&mut self, end: u64, most: usize) {
        self.push(end, CellState::UNMAPPED);
        while self.0.len() > most {
            let all = std::mem::take(&mut self.0);
            let before = all.len();
            for pair in all.chunks(2) {
                let states = pair.iter().map(|run| run.state());
                if states.clone().any(|state| state == CellState::UNMAPPED) {
                    pair.iter().for_each(|run| self.push(run.start(), run.state()));
                } else if let Some(hotter) = states.max_by_key(|state| state.rank()) {
                    self.push(pair[0].start(), hotter);
                }
            }
            if self.0.len() == before {
                break;
            }
        }
    }
}

/// The data to drop when memory is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// The finest level, over all time: for a record.
    Evenly,
    /// The oldest columns of the largest level: for what is happening now. Coarser levels reach back further.
    Newest,
}

#[derive(Debug, Default)]
struct Level {
    /// complete columns, the oldest first
    columns: VecDeque<HeatColumn>,
    /// complete columns that wait to be joined
    waiting: Vec<HeatColumn>,
    /// bytes of `columns` and `waiting`; those that are in both count twice
    bytes: usize,
    /// whether the columns are given up as they come
    dropped: bool,
    /// length of the last column that stands for as many as it should
    width: Duration,
}

impl Level {
    /// Adds a column. If that completes one of the next level, returns it.
    fn push(&mut self, column: HeatColumn, rates: &Rates, max_runs: usize) -> Option<HeatColumn> {
        self.bytes += column.bytes();
        self.waiting.push(column.clone());
        self.keep(column);
        if self.waiting.len() < FAN { None } else { self.join(rates, max_runs) }
    }

    fn keep(&mut self, column: HeatColumn) {
        if !self.dropped {
            self.bytes += column.bytes();
            self.columns.push_back(column);
        }
    }

    /// One column for those that wait; `None` if there are none.
    fn join(&mut self, rates: &Rates, max_runs: usize) -> Option<HeatColumn> {
        let joined =
            (!self.waiting.is_empty()).then(|| HeatColumn::join(&self.waiting, rates, max_runs));
        self.bytes -= self.waiting.drain(..).map(|c| c.bytes()).sum::<usize>();
        joined
    }

    /// Drops the oldest columns.
    fn drop_first(&mut self, columns: usize) {
        self.bytes -= self.columns.drain(..columns).map(|c| c.bytes()).sum::<usize>();
        self.columns.shrink_to_fit();
    }
}

/// The levels of one target.
#[derive(Debug)]
pub struct Pyramid {
    levels: [Level; LEVELS],
    /// end of the last column
    end: Option<Duration>,
    /// number of pauses over which no column extends
    pauses: usize,
}

impl Default for Pyramid {
    fn default() -> Self {
        Pyramid { levels: std::array::from_fn(|_| Level::default()), end: None, pauses: 0 }
    }
}

impl Pyramid {
    /// Maximum number of runs in a joined column of each of `targets` targets that share so much memory. Columns that
    /// wait to be joined cannot be dropped, so they must fit.
    #[must_use]
    pub fn max_runs(memory: usize, targets: usize) -> usize {
        let waiting = memory / WAITING_SHARE / (LEVELS * FAN * size_of::<StateRun>());
        (waiting / targets.max(1)).clamp(MIN_RUNS, MAX_RUNS)
    }

    /// Adds the next column. Columns that are joined have at most `max_runs` runs.
    pub fn push(&mut self, column: HeatColumn, rates: &Rates, max_runs: usize) {
        let length = column.time.end.saturating_sub(column.time.start);
        let before = self.end.replace(column.time.end).unwrap_or(column.time.start);
        if column.time.start.saturating_sub(before) > 2 * length && self.pauses < MAX_PAUSES {
            self.pauses += 1;
            self.finish(rates, max_runs);
        }
        let mut next = Some(column);
        for level in &mut self.levels {
            let Some(column) = next else { return };
            level.width = column.time.end.saturating_sub(column.time.start);
            next = level.push(column, rates, max_runs);
        }
    }

    /// Completes columns that stand for fewer than four, because nothing follows.
    pub fn finish(&mut self, rates: &Rates, max_runs: usize) {
        let mut rest: Option<HeatColumn> = None;
        for level in &mut self.levels {
            let complete = rest.take().and_then(|column| level.push(column, rates, max_runs));
            rest = complete.or_else(|| level.join(rates, max_runs));
        }
    }

    /// The memory that it occupies, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.levels.iter().map(|level| level.bytes).sum()
    }

    /// Gives up a part of the memory: see [`Retention`].
    pub fn shrink(&mut self, retention: Retention) {
        if retention == Retention::Evenly {
            let finest = self.levels.iter_mut().find(|l| !l.dropped && !l.columns.is_empty());
            if let Some(level) = finest {
                level.drop_first(level.columns.len());
                level.dropped = true;
            }
        } else {
            // One whose columns all wait has nothing to drop.
            let droppable = self.levels.iter_mut().filter(|level| !level.columns.is_empty());
            if let Some(level) = droppable.max_by_key(|level| level.bytes) {
                level.drop_first(level.columns.len().div_ceil(2));
            }
        }
    }

    /// The columns that describe `time` best if a pixel is as wide as `pixel`. They are of the coarsest level
    /// whose columns are not wider, or of coarser ones where that has none. Newer than those are the columns that
    /// wait for others.
    pub fn columns(&self, time: &Range<Duration>, pixel: Duration) -> Vec<&HeatColumn> {
        let length = |c: &HeatColumn| c.time.end.saturating_sub(c.time.start);
        // The last column of a record, and those before a pause, may stand for fewer than the others.
        let wide = |level: &Level| {
            let ends = [level.columns.front()?, level.columns.back()?];
            ends.map(length).into_iter().chain([level.width]).max()
        };
        // A level is too coarse if a finer one is.
        let fits = |level: &&Level| wide(level).is_none_or(|wide| wide <= pixel);
        let fitting = self.levels.iter().take_while(fits).count();
        let has_columns = |level: &Level| !level.columns.is_empty();
        let fine = self.levels[..fitting].iter().rposition(has_columns);
        let chosen = fine.or_else(|| self.levels.iter().position(has_columns)).unwrap_or(0);
        let mut found = Vec::new();
        // Times that are not covered yet: before the columns of the chosen level, and after them.
        let mut before = time.end;
        for level in &self.levels[chosen..] {
            let start = level.columns.partition_point(|c| c.time.end <= time.start);
            let end = level.columns.partition_point(|c| c.time.start < before);
            let part = level.columns.range(start..end.max(start));
            found.extend(part.clone());
            before = before.min(level.columns.front().map_or(before, |c| c.time.start));
            if before <= time.start {
                break;
            }
        }
        let mut after = self.levels[chosen].columns.back().map_or(time.start, |c| c.time.end);
        for level in self.levels[..chosen].iter().rev() {
            let newer = level.waiting.iter().filter(|c| c.time.start >= after);
            found.extend(newer.filter(|c| c.time.start < time.end && c.time.end > time.start));
            after = level.waiting.last().map_or(after, |c| c.time.end);
        }
        found
    }

    /// Addresses that were resident at any time, by the coarsest columns.
    pub fn each_resident(&self, mut each: impl FnMut(AddrRange)) {
        let all = Duration::ZERO..Duration::MAX;
        for column in self.columns(&all, Duration::MAX) {
            column.each(&AddrRange::new(0, u64::MAX), |range, state| {
                if state.was_resident() {
                    each(range);
                }
            });
        }
    }
}

/// Rows of a picture that show some addresses: row 0 is at the lowest address.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Segment {
    /// addresses
    pub range: AddrRange,
    /// the first and the last row's borders, which need not be whole
    pub rows: (f64, f64),
}

/// Draws columns: `width` cells of time by `height` cells of address, a byte each, column by column.
#[must_use]
pub fn draw<'a>(
    columns: impl IntoIterator<Item = &'a HeatColumn>,
    time: &Range<Duration>,
    segments: &[Segment],
    (width, height): (usize, usize),
    rates: &Rates,
) -> Vec<u8> {
    let mut cells = vec![NO_DATA; width * height];
    // Of pixels that a column does not fill: several columns may share them.
    let mut shared: BTreeMap<usize, Vec<CellSum>> = BTreeMap::new();
    let mut now = vec![CellState::UNMAPPED; height];
    let mut bytes = vec![NO_DATA; height];
    let pixel = (time.end.saturating_sub(time.start)).as_secs_f64() / width as f64;
    let place = |at: Duration| (at.saturating_sub(time.start)).as_secs_f64() / pixel;
    for column in columns {
        let (from, to) = (place(column.time.start), place(column.time.end.min(time.end)));
        if to <= from {
            continue;
        }
        now.fill(CellState::UNMAPPED);
        for segment in segments {
            fill(&mut now, column, segment);
        }
        bytes.iter_mut().zip(&now).for_each(|(byte, state)| *byte = state.byte());
        for x in from as usize..(to.ceil() as usize).min(width) {
            let share = to.min((x + 1) as f64) - from.max(x as f64);
            if share >= 1.0 {
                shared.remove(&x);
                cells[x * height..(x + 1) * height].copy_from_slice(&bytes);
                continue;
            }
            let sums = shared.entry(x).or_insert_with(|| vec![CellSum::default(); height]);
            for (sum, state) in sums.iter_mut().zip(&now) {
                sum.add(rates, *state, (share * pixel) as f32);
            }
        }
    }
    for (x, sums) in &shared {
        // Neighbours are often equal, and the level of a rate takes a logarithm.
        let mut last = (CellSum::default(), CellState::UNMAPPED.byte());
        for (cell, sum) in cells[x * height..(x + 1) * height].iter_mut().zip(sums) {
            if *sum != last.0 {
                last = (*sum, sum.state().byte());
            }
            *cell = last.1;
        }
    }
    cells
}

/// Byte of a cell for whose time there are no data.
pub const NO_DATA: u8 = 3;

/// Sets the rows of a segment to the hottest state in their addresses.
fn fill(now: &mut [CellState], column: &HeatColumn, s: &Segment) {
    let scale = (s.rows.1 - s.rows.0) / s.range.len().max(1) as f64;
    let row = |addr: u64| {
        s.rows.0 + (addr.clamp(s.range.start, s.range.end) - s.range.start) as f64 * scale
    };
    let runs = column.from(s.range.start);
    let mut to = runs.first().map_or(0.0, |run| row(run.start()));
    for pair in runs.windows(2) {
        if pair[0].start() >= s.range.end {
            break;
        }
        // A run ends where the next one begins: each border is computed once, for this runs for millions of them.
        let from = to;
        to = row(pair[1].start());
        let state = pair[0].state();
        if state == CellState::UNMAPPED || pair[1].start() <= s.range.start {
            continue;
        }
        // Rounded; at least one row, so that no region vanishes.
        let (mut first, mut last) = ((from + 0.5) as usize, (to + 0.5) as usize);
        if first >= last {
            first = ((from + to) / 2.0) as usize;
            last = first + 1;
        }
        let last = last.min(now.len());
        for cell in now.get_mut(first..last).into_iter().flatten() {
            if state.rank() > cell.rank() {
                *cell = state;
            }
        }
    }
}

#[cfg(test)]
#[path = "pyramid_tests.rs"]
mod tests;
