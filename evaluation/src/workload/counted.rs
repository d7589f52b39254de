//! Programs that count their work, measured together with a second process of the same program that isotherm does
//! not know.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::{CounterSample, Length, Running, WorkloadResult, memory_of};
use crate::beside::Companion;
use crate::process::ChildProcess;
use crate::run::WorkDone;
use crate::slices::{SLICE, Slice, Sliced, Speeds};
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
            let n = length.measured.div_duration_f64(SLICE).round().max(1.0) as u32;
            let slices: Result<Vec<_>> = (0..n).map(|_| self.speeds(SLICE, stop)).collect();
            against_twin(&slices?)?
        };
        let apart = self.twin.as_ref().map_or(0, |twin| memory_of(twin.process().pid()));
        Ok(WorkloadResult { apart, ..result })
    }
}

/// Each slice is a pair: the work of the process, and that of its twin.
fn against_twin(slices: &[Speeds]) -> Result<WorkloadResult> {
    let both = |s: &Speeds| {
        [Slice { watched: true, found: s.own }, Slice { watched: false, found: s.twin }]
    };
    let pairs: Vec<_> = slices.iter().flat_map(both).collect();
    let both_worked = pairs.iter().all(|slice| slice.found > 0.0);
    let sliced =
        Sliced::of(&pairs).filter(|_| both_worked).context("the workload has done nothing")?;
    let work = WorkDone::PerSecond(sliced.watched);
    Ok(WorkloadResult { sliced: Some(sliced), ..WorkloadResult::at_once(work) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_as_fast_again_as_its_twin() {
        let slice = |own, twin| Speeds { own, twin, busy: 1.0 };
        let result = against_twin(&[slice(100.0, 50.0), slice(60.0, 30.0)]).unwrap();
        let sliced = result.sliced.unwrap();
        assert!((sliced.slowdown.value + 50.0).abs() < 1e-9, "{sliced:?}");
        assert_eq!(sliced.pairs.len(), 2);
        assert!(against_twin(&[slice(1.0, 0.0)]).is_err());
        assert!(against_twin(&[slice(0.0, 1.0)]).is_err());
    }
}
