//! Memory touched in a known way, by `isotherm lab workload`.

use std::fs::{File, read_to_string};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use isotherm_core::AddrRange;
use isotherm_sim::workload::{Layout, Named, Workload as Touched};
use rustix::process::Signal;
use serde::Deserialize;

use super::{Done, Length, Reading, Running, Workload, memory_of, started};
use crate::beside::Beside;
use crate::process::{Process, Seat, command, last_words};
use crate::slices::{FEWEST, SLICE, Speeds};
use crate::stop::Stop;
use isotherm_bench::program;

/// It goes on for longer than it is measured, and is then ended.
const LONGER: Duration = Duration::from_secs(30);
/// A CPU is full from this part of the time on.
const FULL: f64 = 0.9;
/// No workload counts in more places, in bytes.
const MOST_COUNTS: u64 = 1 << 20;

/// One of those that `isotherm lab workload --list` names.
#[derive(Debug, Clone)]
pub struct Synthetic {
    /// there
    pub name: String,
    /// of its layout
    pub seed: u64,
    /// in which it is measured, at most
    pub length: Duration,
}

impl Synthetic {
    fn touched(&self) -> Option<Touched> {
        Named::find(&self.name)?.workload().ok()
    }

    /// How long it takes through all its phases, if it has several.
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
        self.touched().map_or(0, |touched| Layout::new(&touched, self.seed).len())
    }

    fn start(&self, place: &Path, stop: &Stop) -> Result<Box<dyn Running>> {
        Ok(Box::new(self.touching(place, stop)?))
    }
}

impl Synthetic {
    fn touching(&self, place: &Path, stop: &Stop) -> Result<Touching> {
        let [ready, said] = ["ready", "said"].map(|name| place.join(name));
        let mut command = command(Seat::Workload, program::beside()?)?;
        command.args(["lab", "workload", &self.name, "--seed", &self.seed.to_string()]);
        // It is ended before.
        let round = self.round();
        let seconds = (self.length + LONGER + round.unwrap_or_default() * (FEWEST + 1)).as_secs();
        command.args(["--duration", &format!("{seconds}s")]);
        command.stdout(File::create(&ready)?).stderr(File::create(&said)?);
        let mut process = Process::start(&self.name, &mut command, Signal::TERM)?;
        let is_ready = || read_to_string(&ready).is_ok_and(|text| text.ends_with('\n'));
        let waited = process.until(stop, Duration::from_secs(120), is_ready);
        waited.with_context(|| last_words(&said))?;
        let ready: Ready = serde_json::from_str(&read_to_string(&ready)?)?;
        let counts = Counts::of(process.pid(), &ready.counts)?;
        let (what, place) = (self.clone(), place.to_owned());
        Ok(Touching { what, place, process, counts, said, round })
    }
}

/// What it says when its memory is there.
#[derive(Debug, Deserialize)]
struct Ready {
    counts: Place,
}

/// Where it counts.
#[derive(Debug, Deserialize)]
struct Place {
    start: u64,
    end: u64,
}

/// Its counts of touches, as it goes on.
#[derive(Debug)]
struct Counts {
    memory: File,
    range: AddrRange,
}

impl Counts {
    fn of(pid: i32, place: &Place) -> Result<Self> {
        let length = place.end.checked_sub(place.start);
        ensure!(length.is_some_and(|l| l <= MOST_COUNTS), "it counts nowhere: {place:?}");
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
    process: Process,
    counts: Counts,
    said: PathBuf,
    /// of phases, in each of which it does something else: only whole ones are held against each other
    round: Option<Duration>,
}

impl Touching {
    /// The same once more, that isotherm knows nothing of.
    fn twin(&self, stop: &Stop) -> Result<Touching> {
        let place = self.place.join("twin");
        std::fs::create_dir(&place)?;
        self.what.touching(&place, stop)
    }

    fn now(&self) -> Result<Reading> {
        Reading::of(&self.process, self.counts.sum()?)
    }

    /// Touches in a second of CPU time, over so long, and how much of that it takes.
    fn speeds(&self, twin: Option<&Touching>, length: Duration, stop: &Stop) -> Result<Speeds> {
        let now = || -> Result<(Reading, Option<Reading>)> {
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
        // Together they are on one CPU: where that is full, each waits for the other, and always has
        // something to do.
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

    /// Its work are touches in a second of its CPU time. As most of them have a pace, what they lose of it is
    /// told as a part of all the time. Where there are phases, whole rounds of them are held against each
    /// other; and where what isotherm does lasts, the work against that of a twin.
    fn work(&mut self, length: Length, beside: &mut Beside<'_>, stop: &Stop) -> Result<Done> {
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
        Ok(Done { apart, ..Done::by_slices(&slices)? })
    }

    /// It looks whether its pages hold what they are to, and reads back all that is in swap for that.
    fn finish(&mut self) -> Result<()> {
        let status = self.process.end()?;
        ensure!(status.success(), "the workload has failed: {}", last_words(&self.said));
        Ok(())
    }
}

/// So many whole rounds that they take at least this time.
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
