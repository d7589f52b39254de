//! What is beside a workload while it works, as the workload knows it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use isotherm_linux::swap::Swap;

use super::slices::{Slice, Turns};
use super::watching::Watching;

/// A load has settled after that, at rest.
const SETTLES: Duration = Duration::from_secs(5);

/// isotherm, or nothing; and swap.
pub struct Beside<'a> {
    watching: Option<&'a Watching>,
    turns: Option<Turns>,
    swap: &'a mut Option<Swap>,
    mark: &'a mut dyn FnMut() -> Result<()>,
    /// since when it is at rest, if it is
    resting: Option<Instant>,
    /// for how long it was, before that, since what is measured began
    rested: Duration,
}

impl<'a> Beside<'a> {
    /// Calls `mark` when what is measured begins, and, if it ends before the workload does, when it ends. If
    /// it is watched, who watches takes `turns`, if there are any. What is in swap is brought back for the
    /// last one.
    pub fn new(
        watching: Option<&'a Watching>,
        turns: Option<Turns>,
        swap: &'a mut Option<Swap>,
        mark: &'a mut dyn FnMut() -> Result<()>,
    ) -> Self {
        let turns = watching.and(turns);
        Beside { watching, turns, swap, mark, resting: None, rested: Duration::ZERO }
    }

    fn turns(&self, slice: Duration) -> Option<Turns> {
        self.turns.map(|turns| turns.in_slices_of(slice))
    }

    /// How long [`Beside::before`] works, in slices of this length.
    #[must_use]
    pub fn length_before(&self, slice: Duration) -> Duration {
        match self.turns(slice).map_or(0, Turns::before) {
            0 => Duration::ZERO,
            n => SETTLES + slice * n,
        }
    }

    /// How long [`Beside::slices`] works, for this time or in slices of this length.
    #[must_use]
    pub fn length(&self, time: Duration, slice: Duration) -> Duration {
        self.turns(slice).map_or(time, |turns| {
            slice * (u32::try_from(turns.order().len()).unwrap_or(u32::MAX) + turns.after())
        })
    }

    /// Before anything else: has `work` done in slices of this length while isotherm has not begun, if its
    /// turns want that.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn before<T>(
        &mut self,
        slice: Duration,
        mut work: impl FnMut(Duration) -> Result<T>,
    ) -> Result<Vec<Slice<T>>> {
        let n = self.turns(slice).map_or(0, Turns::before);
        let Some(watching) = self.watching.filter(|_| n > 0) else { return Ok(Vec::new()) };
        self.turn(watching, false)?;
        work(SETTLES)?;
        let slices = at_rest(n, slice, &mut work);
        self.turn(watching, true)?;
        slices
    }

    /// That what is measured begins.
    ///
    /// # Errors
    /// If that cannot be noted.
    pub fn begin(&mut self) -> Result<()> {
        self.rested = Duration::ZERO;
        (self.mark)()
    }

    /// For how long isotherm was at rest while it was measured.
    #[must_use]
    pub fn rested(&self) -> Duration {
        self.rested
    }

    /// Has `work` done for this time at once; or, where isotherm takes turns, in slices of this length.
    ///
    /// # Errors
    /// Those of `work`; isotherm may be at rest then, and is ended all the same.
    pub fn slices<T>(
        &mut self,
        time: Duration,
        slice: Duration,
        mut work: impl FnMut(Duration) -> Result<T>,
    ) -> Result<Vec<Slice<T>>> {
        let Some((watching, turns)) = self.watching.zip(self.turns(slice)) else {
            return Ok(vec![Slice { watched: true, found: work(time)? }]);
        };
        let mut slices = Vec::new();
        for watched in turns.order() {
            self.turn(watching, watched)?;
            slices.push(Slice { watched, found: work(slice)? });
        }
        self.turn(watching, true)?;
        if turns.after() > 0 {
            (self.mark)()?;
            watching.rest()?;
            if let Some(swap) = self.swap.take() {
                swap.end().context("what was paged out cannot be brought back")?;
            }
            slices.extend(at_rest(turns.after(), slice, &mut work)?);
        }
        Ok(slices)
    }

    fn turn(&mut self, watching: &Watching, watched: bool) -> Result<()> {
        match (watched, self.resting) {
            (true, Some(since)) => {
                watching.resume()?;
                self.rested += since.elapsed();
                self.resting = None;
            }
            (false, None) => {
                watching.rest()?;
                self.resting = Some(Instant::now());
            }
            _ => {}
        }
        Ok(())
    }
}

fn at_rest<T>(
    n: u32,
    slice: Duration,
    work: &mut impl FnMut(Duration) -> Result<T>,
) -> Result<Vec<Slice<T>>> {
    (0..n).map(|_| Ok(Slice { watched: false, found: work(slice)? })).collect()
}
