//! Memory that `isotherm lab workload` touches in a known way.

use std::fs::{File, read_to_string};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use isotherm_core::AddrRange;
use isotherm_sim::workload::{Named, Workload as Touched, WorkloadLayout};
use rustix::process::Signal;
use serde::Deserialize;

use super::{CounterSample, Length, Running, Workload, WorkloadResult, memory_of, started};
use crate::beside::Companion;
use crate::process::{ChildProcess, ProcessCpus, command, last_words};
use crate::slices::{FEWEST, SLICE, Speeds};
use crate::stop::Stop;
use isotherm_bench::program;

/// The workload runs longer than it is measured by this, and is then ended.
const LONGER: Duration = Duration::from_secs(30);
/// A CPU counts as full from this share of the time on.
const FULL: f64 = 0.9;
/// Upper limit of the counters of a workload, in bytes.
const MAX_COUNTER_BYTES: u64 = 1 << 20;

/// A workload of `isotherm lab workload --list`.
#[derive(Debug, Clone)]
pub struct Synthetic {
    /// its name there
    pub name: String,
    /// seed of its layout
    pub seed: u64,
    /// maximum time of measurement
    pub length: Duration,
}

impl Synthetic {
    fn touched(&self) -> Option<Touched> {
        Named::find(&self.name)?.workload().ok()
    }

    /// The duration of all its phases, if it has several.
    fn round(&self) -> Option<Duration> {
        let phases = self.touched()?.phases;
        (phases.len() > 1).then(|| phases.iter().map(|p| p.duration).sum())
    }
}

impl Workload for Synthetic {
    fn name(&self) -> &str {
        &self.name
    }

    fn memory(&self) -> u64 {
        self.touched().map_or(0, |touched| WorkloadLayout::new(&touched, self.seed).len())
    }

    fn start(&self, place: &Path, stop: &Stop) -> Result<Box<dyn Running>> {
        Ok(Box::new(self.touching(place, stop)?))
    }
}

impl Synthetic {
    fn touching(&self, place: &Path, stop: &Stop) -> Result<Touching> {
        let [ready, said] = ["ready", "said"].map(|name| place.join(name));
        let mut command = command(ProcessCpus::Workload, program::beside()?)?;
        command.args(["lab", "workload", &self.name, "--seed", &self.seed.to_string()]);
        // The workload is ended before that.
        let round = self.round();
        let seconds = (self.length + LONGER + round.unwrap_or_default() * (FEWEST + 1)).as_secs();
        command.args(["--duration", &format!("{seconds}s")]);
        command.stdout(File::create(&ready)?).stderr(File::create(&said)?);
        let mut process = ChildProcess::start(&self.name, &mut command, Signal::TERM)?;
        let is_ready = || read_to_string(&ready).is_ok_and(|text| text.ends_with('\n'));
        let waited = process.until(stop, Duration::from_secs(120), is_ready);
        waited.with_context(|| last_words(&said))?;
        let ready: Ready = serde_json::from_str(&read_to_string(&ready)?)?;
        let counts = Counts::of(process.pid(), &ready.counts)?;
        let (what, place) = (self.clone(), place.to_owned());
        Ok(Touching { what, place, process, counts, said, round })
    }
}

/// The line that it prints when its memory exists.
#[derive(Debug, Deserialize)]
struct Ready {
    counts: Place,
}

/// The addresses of its counters.
#[derive(Debug, Deserialize)]
struct Place {
    start: u64,
    end: u64,
}

/// Its counters of touches while it runs.
#[derive(Debug)]
struct Counts {
    memory: File,
    range: AddrRange,
}

impl Counts {
    fn of(pid: i32, place: &Place) -> Result<Self> {
        let length = place.end.checked_sub(place.start);
        ensure!(length.is_some_and(|l| l <= MAX_COUNTER_BYTES), "it counts nowhere: {place:?}");
        let range = AddrRange::new(place.start, place.end);
        Ok(Counts { memory: File::open(format!("/proc/{pid}/mem"))?, range })
    }

    fn sum(&self) -> Result<u64> {
        let mut bytes = vec![0; usize::try_from(self.range.len())?];
        self.memory
            .read_exact_at(&mut bytes, self.range.start)
            .context("the workload has ended early")?;
        Ok(bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes)).sum())
    }
}

struct Touching {
    what: Synthetic,
    place: PathBuf,
    process: ChildProcess,
    counts: Counts,
    said: PathBuf,
    /// duration of its phases, which have different accesses: only whole rounds are compared
    round: Option<Duration>,
}

impl Touching {
    /// A second workload that isotherm does not know.
    fn twin(&self, stop: &Stop) -> Result<Touching> {
        let place = self.place.join("twin");
        std::fs::create_dir(&place)?;
        self.what.touching(&place, stop)
    }

    fn now(&self) -> Result<CounterSample> {
        CounterSample::of(&self.process, self.counts.sum()?)
    }

    /// Touches per second of CPU time over `length`, and its share of a CPU.
    fn speeds(&self, twin: Option<&Touching>, length: Duration, stop: &Stop) -> Result<Speeds> {
        let now = || -> Result<(CounterSample, Option<CounterSample>)> {
            Ok((self.now()?, twin.map(Touching::now).transpose()?))
        };
        let (begin, before) = (Instant::now(), now()?);
        stop.sleep(length)?;
        let (time, after) = (begin.elapsed(), now()?);
        let twin = after.1.zip(before.1);
        let (own_cpu, twin_cpu) = (
            after.0.cpu_since(before.0),
            twin.map_or(0.0, |(after, before)| after.cpu_since(before)),
        );
        // Both run on one CPU. If that is full, each waits for the other, and always has work.
        let time = time.as_secs_f64();
        let busy = if own_cpu + twin_cpu > FULL * time { 1.0 } else { own_cpu / time };
        let twin = twin.map_or(1.0, |(after, before)| after.pace_since(before));
        Ok(Speeds { own: after.0.pace_since(before.0), twin, busy })
    }
}

impl Running for Touching {
    fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Its work is touches per second of CPU time. Most workloads have a pace, so their loss of it is
    /// reported as a share of all time. With phases, whole rounds are compared. If the effect of isotherm
    /// lasts, the work is compared with that of a twin.
    fn work(
        &mut self,
        length: Length,
        beside: &mut Companion<'_>,
        stop: &Stop,
    ) -> Result<WorkloadResult> {
        let (round, mut twin) = (self.round.unwrap_or(SLICE), None);
        let mut slices = beside.before(round, |length| {
            let twin = started(&mut twin, || self.twin(stop))?;
            self.speeds(Some(twin), length, stop)
        })?;
        stop.sleep(length.lead_in)?;
        beside.begin()?;
        let measured = self.round.map_or(length.measured, |r| whole(length.measured, r));
        let work = |length| self.speeds(twin.as_ref(), length, stop);
        slices.extend(beside.slices(measured, round, work)?);
        let apart = twin.as_ref().map_or(0, |twin| memory_of(twin.pid()));
        Ok(WorkloadResult { apart, ..WorkloadResult::by_slices(&slices)? })
    }

    /// The workload checks that its pages hold their data, and reads everything in swap back for that.
    fn finish(&mut self) -> Result<()> {
        let status = self.process.end()?;
        ensure!(status.success(), "the workload has failed: {}", last_words(&self.said));
        Ok(())
    }
}

/// The shortest time of whole rounds that is at least `time`.
fn whole(time: Duration, round: Duration) -> Duration {
    let rounds = time.as_nanos().div_ceil(round.as_nanos().max(1));
    round * u32::try_from(rounds).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_whole() {
        let of = |time, round| whole(Duration::from_secs(time), Duration::from_secs(round));
        let all = [(5, 26), (26, 26), (0, 26), (60, 26)].map(|(t, r)| of(t, r).as_secs());
        assert_eq!(all, [26, 26, 0, 78]);
        assert_eq!(of(5, 0), Duration::ZERO);
    }

    #[test]
    fn who_has_phases_has_rounds() {
        let round = |name: &str| {
            let length = Duration::from_secs(60);
            Synthetic { name: name.to_owned(), seed: 1, length }.round()
        };
        assert!(round("phases").is_some_and(|r| r > Duration::from_secs(1)));
        assert_eq!(["zipf", "hot-warm-cold", "moving-window"].map(round), [None; 3]);
    }
}
