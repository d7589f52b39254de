//! The program that runs concurrently with a workload, as the workload sees it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use isotherm_linux::swap::Swap;

use super::slices::{Slice, SliceOrder};
use super::watching::Watching;

/// Time in which a load settles after isotherm was stopped.
const SETTLES: Duration = Duration::from_secs(5);

/// isotherm, or nothing, and swap.
pub struct Companion<'a> {
    watching: Option<&'a Watching>,
    turns: Option<SliceOrder>,
    swap: &'a mut Option<Swap>,
    mark: &'a mut dyn FnMut() -> Result<()>,
    /// since when it has been at rest; `None` if it is at work
    resting: Option<Instant>,
    /// for how long it was at rest earlier, since the start of the measurement
    rested: Duration,
}

impl<'a> Companion<'a> {
    /// Calls `mark` at the start of the measurement, and at its end if that is before the end of the workload.
    /// If the workload is watched, isotherm takes `turns`, if there are any. Swapped memory is read back before
    /// the last turn.
    pub fn new(
        watching: Option<&'a Watching>,
        turns: Option<SliceOrder>,
        swap: &'a mut Option<Swap>,
        mark: &'a mut dyn FnMut() -> Result<()>,
    ) -> Self {
        let turns = watching.and(turns);
        Companion { watching, turns, swap, mark, resting: None, rested: Duration::ZERO }
    }

    fn turns(&self, slice: Duration) -> Option<SliceOrder> {
        self.turns.map(|turns| turns.in_slices_of(slice))
    }

    /// Whether isotherm is alternately at work and at rest.
    pub fn takes_turns(&self) -> bool {
        self.turns.is_some()
    }

    /// Duration of [`Companion::before`], in slices of this length.
    pub fn length_before(&self, slice: Duration) -> Duration {
        match self.turns(slice).map_or(0, SliceOrder::before) {
            0 => Duration::ZERO,
            n => SETTLES + slice * n,
        }
    }

    /// Duration of [`Companion::slices`], for this time or in slices of this length.
    pub fn length(&self, time: Duration, slice: Duration) -> Duration {
        self.turns(slice).map_or(time, |turns| {
            slice * (u32::try_from(turns.order().len()).unwrap_or(u32::MAX) + turns.after())
        })
    }

    /// Before the measurement: does `work` in slices of this length before isotherm has started, if its turns
    /// require that.
    pub fn before<T>(
        &mut self,
        slice: Duration,
        mut work: impl FnMut(Duration) -> Result<T>,
    ) -> Result<Vec<Slice<T>>> {
        let n = self.turns(slice).map_or(0, SliceOrder::before);
        let Some(watching) = self.watching.filter(|_| n > 0) else { return Ok(Vec::new()) };
        self.turn(watching, false)?;
        work(SETTLES)?;
        let slices = at_rest(n, slice, &mut work);
        self.turn(watching, true)?;
        slices
    }

    /// Starts the measurement.
    pub fn begin(&mut self) -> Result<()> {
        self.rested = Duration::ZERO;
        (self.mark)()
    }

    /// Time for which isotherm was at rest during the measurement.
    pub fn rested(&self) -> Duration {
        self.rested
    }

    /// Does `work` for this time at once; or, if isotherm takes turns, in slices of this length.
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
