//! Memory touched in a known way, by `isotherm workload`.

use std::fs::{File, read_to_string};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use isotherm_core::Nanos;
use isotherm_linux::sys::{monotonic, process_cpu};
use isotherm_sim::GroundTruth;
use isotherm_sim::workload::{Layout, Named};
use rustix::process::Signal;

use super::{Begin, Done, Length, Running, Workload};
use crate::evaluate::figures::Work;
use crate::evaluate::process::{Process, Seat, command, last_words};
use crate::evaluate::stop::Stop;
use crate::program;

/// It goes on for longer than it is measured, and is then ended.
const LONGER: Duration = Duration::from_secs(30);

/// One of those that `isotherm workload --list` names.
#[derive(Debug, Clone)]
pub struct Synthetic {
    /// there
    pub name: String,
    /// of its layout
    pub seed: u64,
    /// in which it is measured, at most
    pub length: Duration,
}

impl Workload for Synthetic {
    fn name(&self) -> &str {
        &self.name
    }

    fn memory(&self) -> u64 {
        let workload = Named::find(&self.name).and_then(|named| named.workload().ok());
        workload.map_or(0, |w| Layout::new(&w, self.seed).len())
    }

    fn start(&self, place: &Path, stop: &Stop) -> Result<Box<dyn Running>> {
        let [truth, ready, said] = ["truth.json", "ready", "said"].map(|name| place.join(name));
        let mut command = command(Seat::Workload, program::beside()?)?;
        command.args(["workload", &self.name, "--seed", &self.seed.to_string()]);
        // It is ended before.
        let seconds = (self.length + LONGER).as_secs();
        command.args(["--duration", &format!("{seconds}s"), "--truth"]).arg(&truth);
        command.stdout(File::create(&ready)?).stderr(File::create(&said)?);
        let mut process = Process::start(&self.name, &mut command, Signal::TERM)?;
        let is_ready = || read_to_string(&ready).is_ok_and(|text| text.ends_with('\n'));
        let ready = process.until(stop, Duration::from_secs(120), is_ready);
        ready.with_context(|| last_words(&said))?;
        Ok(Box::new(Touching { process, truth, said }))
    }
}

#[derive(Debug)]
struct Touching {
    process: Process,
    truth: PathBuf,
    said: PathBuf,
}

impl Running for Touching {
    fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Its work are touches in a second of its CPU time, as most of them have a pace.
    fn work(&mut self, length: Length, begin: Begin<'_>, stop: &Stop) -> Result<Done> {
        let cpu = |p: &Process| process_cpu(p.pid()).context("the workload has ended early");
        stop.sleep(length.lead_in)?;
        begin()?;
        let (start, used) = (monotonic(), cpu(&self.process)?);
        stop.sleep(length.measured)?;
        let (end, used) = (monotonic(), cpu(&self.process)?.saturating_sub(used));
        let status = self.process.end()?;
        ensure!(status.success(), "the workload has failed: {}", last_words(&self.said));
        let truth = GroundTruth::read(File::open(&self.truth)?)?;
        let share = used.as_secs_f64() / end.since(start).as_secs_f64();
        let rate = touches(&truth, start, end).context("the workload has touched nothing")?;
        Ok(Done { work: Work::PerSecond(rate / share), latency: None })
    }
}

/// Touches a second between two times, of whole intervals.
fn touches(truth: &GroundTruth, start: Nanos, end: Nanos) -> Option<f64> {
    let within = truth.intervals.iter().filter(|i| i.start() >= start && i.end() <= end);
    let (count, time) = within.fold((0, Duration::ZERO), |(count, time), i| {
        (count + i.touches.iter().sum::<u64>(), time + i.end().since(i.start()))
    });
    (count > 0).then(|| count as f64 / time.as_secs_f64())
}
