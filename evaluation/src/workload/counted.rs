//! Programs that count their work, measured together with a second process of the same program that isotherm does
//! not know.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::process::Signal;

use super::{CounterSample, Length, Running, WorkloadResult, memory_of};
use crate::beside::Companion;
use crate::process::ChildProcess;
use crate::slices::{SLICE, Speeds};
use crate::stop::Stop;

/// A process that counts its work.
pub trait CountsWork {
    /// The process.
    fn process(&self) -> &ChildProcess;

    /// Its work so far; an error if it has ended.
    fn count(&mut self) -> Result<u64>;
}

/// Such a process, and its twin. The two share a CPU, and so do the same work at the same time.
pub struct CountedProcess<P> {
    own: P,
    /// it has no huge pages, regardless of the setting
    twin: Option<P>,
}

impl<P: CountsWork> CountedProcess<P> {
    /// Starts the process at `place`, and its twin if it shall have one. `start` is told where, and whether huge pages
    /// are permitted.
    pub fn start(
        place: &Path,
        twin: bool,
        start: impl Fn(&Path, bool) -> Result<P>,
    ) -> Result<Self> {
        let own = start(place, true)?;
        let beside = || {
            let place = place.join("twin");
            std::fs::create_dir(&place)?;
            // It waits for its twin, so that both are in the same phase.
            own.process().signal(Signal::STOP)?;
            let twin = start(&place, false);
            own.process().signal(Signal::CONT)?;
            twin
        };
        let twin = twin.then(beside).transpose()?;
        Ok(CountedProcess { own, twin })
    }

    fn now(&mut self) -> Result<(CounterSample, Option<CounterSample>)> {
        Ok((reading(&mut self.own)?, self.twin.as_mut().map(reading).transpose()?))
    }

    /// Work per second of CPU time with a twin: waiting for the CPU is no loss. Otherwise work per second.
    fn speeds(&mut self, length: Duration, stop: &Stop) -> Result<Speeds> {
        let (begin, before) = (Instant::now(), self.now()?);
        stop.sleep(length)?;
        let (time, after) = (begin.elapsed(), self.now()?);
        Ok(match after.1.zip(before.1) {
            Some((twin, twin_before)) => Speeds {
                own: after.0.pace_since(before.0),
                twin: twin.pace_since(twin_before),
                busy: 1.0,
            },
            None => {
                let done = after.0.count.saturating_sub(before.0.count);
                Speeds::alone(done as f64 / time.as_secs_f64())
            }
        })
    }
}

fn reading(of: &mut impl CountsWork) -> Result<CounterSample> {
    let count = of.count()?;
    CounterSample::of(of.process(), count)
}

impl<P: CountsWork> Running for CountedProcess<P> {
    fn pid(&self) -> i32 {
        self.own.process().pid()
    }

    /// If isotherm takes turns, its work is compared with that at rest. Otherwise it is compared with that of its twin,
    /// which is without isotherm and without huge pages.
    fn work(
        &mut self,
        length: Length,
        beside: &mut Companion<'_>,
        stop: &Stop,
    ) -> Result<WorkloadResult> {
        let mut slices = beside.before(SLICE, |length| self.speeds(length, stop))?;
        stop.sleep(length.lead_in)?;
        beside.begin()?;
        let result = if self.twin.is_none() || beside.takes_turns() {
            slices
                .extend(beside.slices(length.measured, SLICE, |length| self.speeds(length, stop))?);
            WorkloadResult::by_slices(&slices)?
        } else {
            WorkloadResult::against_twin(length.measured, |slice| self.speeds(slice, stop))?
        };
        let apart = self.twin.as_ref().map_or(0, |twin| memory_of(twin.process().pid()));
        Ok(WorkloadResult { apart, ..result })
    }
}
