//! What is beside a workload while it works, as the workload knows it.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::slices::{SLICE, Slice, order};
use super::watching::Watching;

/// isotherm, or nothing.
pub struct Beside<'a> {
    watching: Option<&'a Watching>,
    /// it takes turns at work and at rest in so many slices
    slices: Option<u32>,
    begin: &'a mut dyn FnMut() -> Result<()>,
    /// since when it is at rest, if it is
    resting: Option<Instant>,
    /// for how long it was, before that
    rested: Duration,
}

impl<'a> Beside<'a> {
    /// Calls `begin` when what is measured begins. If it is watched, and `slices` are asked for, who
    /// watches takes turns.
    pub fn new(
        watching: Option<&'a Watching>,
        slices: Option<u32>,
        begin: &'a mut dyn FnMut() -> Result<()>,
    ) -> Self {
        let slices = watching.and(slices);
        Beside { watching, slices, begin, resting: None, rested: Duration::ZERO }
    }

    /// That what is measured begins.
    ///
    /// # Errors
    /// If that cannot be noted.
    pub fn begin(&mut self) -> Result<()> {
        (self.begin)()
    }

    /// For how long isotherm was at rest.
    #[must_use]
    pub fn rested(&self) -> Duration {
        self.rested
    }

    /// How long [`Beside::slices`] takes for this time.
    #[must_use]
    pub fn length(&self, time: Duration) -> Duration {
        self.slices.map_or(time, |n| SLICE * n)
    }

    /// Has `work` done for this time at once; or, where isotherm takes turns, slice by slice. It is at work
    /// before and behind.
    ///
    /// # Errors
    /// Those of `work`; isotherm may be at rest then, and is ended all the same.
    pub fn slices<T>(
        &mut self,
        time: Duration,
        mut work: impl FnMut(Duration) -> Result<T>,
    ) -> Result<Vec<Slice<T>>> {
        let Some((watching, n)) = self.watching.zip(self.slices) else {
            return Ok(vec![Slice { watched: true, found: work(time)? }]);
        };
        let mut slices = Vec::new();
        for watched in order(n) {
            self.turn(watching, watched)?;
            slices.push(Slice { watched, found: work(SLICE)? });
        }
        self.turn(watching, true)?;
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
