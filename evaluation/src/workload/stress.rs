//! `stress-ng --vm`: memory written and checked in many ways, one after the other.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::{Length, Running, Workload, WorkloadResult};
use crate::beside::Companion;
use crate::process::{ChildProcess, ProcessCpus, command};
use crate::run::WorkDone;
use crate::stop::Stop;

/// The workload.
#[derive(Debug, Clone, Copy)]
pub struct Stress {
    /// that it writes to
    pub bytes: u64,
    /// before it is measured, whatever it runs under: what it counts hangs on which ways it came to
    pub lead_in: Duration,
}

impl Workload for Stress {
    fn name(&self) -> &str {
        "stress-vm"
    }

    fn memory(&self) -> u64 {
        self.bytes * 5 / 4
    }

    fn start(&self, place: &Path, stop: &Stop) -> Result<Box<dyn Running>> {
        let output = place.join("told.yaml");
        let mut command = command(ProcessCpus::Workload, "stress-ng")?;
        command.args(["--vm", "1", "--vm-keep", "--vm-bytes", &self.bytes.to_string()]);
        command.args(["--metrics", "--yaml"]).arg(&output).current_dir(place);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = ChildProcess::start("stress-ng", &mut command, Signal::INT)?;
        stop.sleep(Duration::from_secs(1))?;
        process.check().context("stress-ng is not installed, or does not run")?;
        Ok(Box::new(Stressing { process, output, lead_in: self.lead_in }))
    }
}

struct Stressing {
    process: ChildProcess,
    output: PathBuf,
    lead_in: Duration,
}

impl Running for Stressing {
    fn pid(&self) -> i32 {
        self.process.pid()
    }

    fn family(&self) -> bool {
        true
    }

    /// Its work is its count per second of its CPU time, including the lead-in, which it does not report separately.
    fn work(
        &mut self,
        length: Length,
        beside: &mut Companion<'_>,
        stop: &Stop,
    ) -> Result<WorkloadResult> {
        stop.sleep(self.lead_in)?;
        beside.begin()?;
        stop.sleep(length.measured)?;
        self.process.check()?;
        self.process.end()?;
        let output = read_to_string(&self.output).context("stress-ng printed nothing")?;
        let rate = rate(&output).context("stress-ng printed no rate")?;
        Ok(WorkloadResult::at_once(WorkDone::PerSecond(rate)))
    }
}

fn rate(output: &str) -> Option<f64> {
    let key = "bogo-ops-per-second-usr-sys-time:";
    output.lines().find_map(|line| line.trim().strip_prefix(key)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stress_ng_tells() {
        let output = "metrics:\n    - stressor: vm\n      bogo-ops: 12\n      \
                    bogo-ops-per-second-usr-sys-time: 5301.250000\n";
        assert_eq!(rate(output), Some(5301.25));
    }
}
