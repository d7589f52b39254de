//! How memory is touched.
//!
//! A pattern is a pure function: for a page and a time, it returns the time of the last touch. Therefore the
//! cost of a look does not depend on the elapsed time, all observers get the same answer, and the truth
//! requires no log. Random numbers are hashes of seed, page and time.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::PAGE_SIZE;

use crate::random::{below, mix, poisson_of_one};

/// How the pages of a range are touched, from the moment it is set.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum TouchPattern {
    /// Touches of each page at random times, independent of all other pages.
    Poisson {
        /// mean touches per page and second
        hz: f64,
    },
    /// Touches of each page at regular times, with a phase of its own per page.
    Periodic {
        /// time between two touches of a page
        every: Duration,
    },
    /// Touches from the first page to the last at constant speed, repeatedly.
    Sweep {
        /// time for one round, which is the time between two touches of a page
        every: Duration,
    },
    /// Touches at random times within a window. The window jumps by its own length, and from the end to the
    /// start.
    Moving {
        /// bytes of the window
        window: u64,
        /// time between two jumps
        every: Duration,
        /// touches per page and second while the page is in the window
        hz: f64,
    },
    /// Touches at random times, at a rate per block of pages.
    Blocks {
        /// bytes of a block
        block: u64,
        /// touches per page and second in each block; pages after the last block are not touched
        hz: Arc<[f64]>,
    },
    /// Every n-th page from the first on; the pages between are not touched.
    Sparse {
        /// n
        nth: u64,
        /// pattern of the pages that are touched
        of: Box<TouchPattern>,
    },
}

/// The memory that a pattern covers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PatternArea {
    pub pages: u64,
    pub key: u64,
}

/// Times here are in nanoseconds since the pattern was set; all touches are later than 0.
impl TouchPattern {
    /// The last touch of the `page`-th page in (`after`, `until`].
    pub(crate) fn last_touch(
        &self,
        page: u64,
        f: PatternArea,
        after: u64,
        until: u64,
    ) -> Option<u64> {
        let last = match self {
            TouchPattern::Poisson { hz } => poisson(mix(f.key, page), *hz, after, until),
            TouchPattern::Periodic { every } => {
                let every = nanos(*every);
                last_round(every, 1 + below(mix(f.key, page), every), until)
            }
            TouchPattern::Sweep { every } => {
                let every = nanos(*every);
                last_round(every, sweep_phase(page, f.pages, every), until)
            }
            TouchPattern::Moving { window, every, hz } => {
                let turns = WindowSteps::of(page, f.pages, *window, *every);
                let key = mix(f.key, page);
                let turns = turns.until(until).take_while(|t| t.1 > after);
                let mut last = turns.map(|t| poisson(key, *hz, t.0.max(after), t.1.min(until)));
                last.find_map(|t| t)
            }
            TouchPattern::Blocks { block, hz } => {
                poisson(mix(f.key, page), block_hz(page, *block, hz), after, until)
            }
            TouchPattern::Sparse { nth, of } => {
                let (page, f) = sparse(page, f, *nth)?;
                of.last_touch(page, f, after, until)
            }
        };
        last.filter(|&t| t > after)
    }

    /// Whether all pages have the same expectation.
    pub(crate) fn is_even(&self) -> bool {
        match self {
            TouchPattern::Poisson { .. }
            | TouchPattern::Periodic { .. }
            | TouchPattern::Sweep { .. } => true,
            TouchPattern::Moving { .. } | TouchPattern::Blocks { .. } => false,
            TouchPattern::Sparse { nth, of } => *nth <= 1 && of.is_even(),
        }
    }

    /// How many touches of the `page`-th page are expected in (`from`, `to`].
    pub(crate) fn expected(&self, page: u64, f: PatternArea, from: u64, to: u64) -> f64 {
        let span = to.saturating_sub(from) as f64;
        match self {
            TouchPattern::Poisson { hz } => span / 1e9 * hz,
            TouchPattern::Periodic { every } | TouchPattern::Sweep { every } => {
                span / nanos(*every) as f64
            }
            TouchPattern::Moving { window, every, hz } => {
                let turns = WindowSteps::of(page, f.pages, *window, *every).until(to);
                let inside = turns.take_while(|t| t.1 > from);
                let inside: u64 = inside.map(|t| t.1.min(to) - t.0.max(from)).sum();
                inside as f64 / 1e9 * hz
            }
            TouchPattern::Blocks { block, hz } => span / 1e9 * block_hz(page, *block, hz),
            TouchPattern::Sparse { nth, of } => {
                sparse(page, f, *nth).map_or(0.0, |(page, f)| of.expected(page, f, from, to))
            }
        }
    }
}

/// Whole nanoseconds, at least one.
fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// The last of the times `phase`, `phase + every`, ... that is not after `until`.
fn last_round(every: u64, phase: u64, until: u64) -> Option<u64> {
    until.checked_sub(phase).map(|d| d - d % every + phase)
}

/// The time within a round of `every` at which the `page`-th of `pages` is touched; never 0.
fn sweep_phase(page: u64, pages: u64, every: u64) -> u64 {
    let phase = (u128::from(page) + 1) * u128::from(every) / u128::from(pages.max(1));
    u64::try_from(phase).unwrap_or(u64::MAX).max(1)
}

/// The rate of the block that holds `page`.
fn block_hz(page: u64, block: u64, hz: &[f64]) -> f64 {
    let at = page / (block / PAGE_SIZE).max(1);
    usize::try_from(at).ok().and_then(|at| hz.get(at)).copied().unwrap_or(0.0)
}

/// The index of `page` among the touched pages, and their number.
fn sparse(page: u64, f: PatternArea, nth: u64) -> Option<(u64, PatternArea)> {
    let nth = nth.max(1);
    page.is_multiple_of(nth)
        .then_some((page / nth, PatternArea { pages: f.pages.div_ceil(nth), ..f }))
}

/// The last event in (`after`, `until`] of a Poisson process.
///
/// Time is divided into cells whose length is the mean distance of events. The number of events in a cell
/// (Poisson distributed, 1 expected) and their positions in it (uniform) are hashes of the cell's index.
/// Together they are a Poisson process. On average, fewer than two cells are examined.
fn poisson(key: u64, hz: f64, after: u64, until: u64) -> Option<u64> {
    if hz <= 0.0 || until <= after {
        return None;
    }
    // A float above the biggest integer becomes that one.
    let cell = ((1e9 / hz) as u64).max(1);
    let mut i = (until - 1) / cell;
    loop {
        let last = events(mix(key, i), i * cell, cell).filter(|&t| t <= until).max();
        if last.is_some() || i * cell <= after {
            return last.filter(|&t| t > after);
        }
        i -= 1;
    }
}

/// The events in (`start`, `start + cell`], in no order.
fn events(key: u64, start: u64, cell: u64) -> impl Iterator<Item = u64> {
    let n = poisson_of_one(key);
    (1..=n).map(move |i| start.saturating_add(1 + below(mix(key, i), cell)))
}

/// The intervals in which a moving window holds one page.
struct WindowSteps {
    slot: u64,
    slots: u64,
    every: u64,
}

impl WindowSteps {
    fn of(page: u64, pages: u64, window: u64, every: Duration) -> WindowSteps {
        let window = (window / PAGE_SIZE).max(1);
        WindowSteps {
            slot: page / window,
            slots: pages.div_ceil(window).max(1),
            every: nanos(every),
        }
    }

    /// Those (from, to] that begin before `until`, the latest first.
    fn until(self, until: u64) -> impl Iterator<Item = (u64, u64)> {
        let WindowSteps { slot, slots, every } = self;
        let now = until.saturating_sub(1) / every;
        let latest = now.checked_sub((now + slots - slot % slots) % slots);
        let turns = std::iter::successors(latest, move |e| e.checked_sub(slots));
        turns.map(move |e| (e * every, (e + 1).saturating_mul(every)))
    }
}

#[cfg(test)]
#[path = "pattern_tests.rs"]
mod tests;
