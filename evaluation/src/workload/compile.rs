//! A compiler that works on a generated program.

use std::fmt::Write;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::process::Signal;

use super::{Length, Running, Workload, WorkloadResult};
use crate::beside::Companion;
use crate::process::{ChildProcess, ProcessCpus, command, last_words};
use crate::run::WorkDone;
use crate::stop::Stop;

/// Approximate number of functions that rustc compiles per second.
const A_SECOND: u64 = 8;
/// Minimum duration in s. There is no lead-in, and a shorter compilation has hardly any memory that is cold
/// for 5 s.
pub const MIN_SECONDS: u64 = 60;
/// Time limit of a compilation.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// The workload.
#[derive(Debug, Clone, Copy)]
pub struct Compile {
    /// its name in the tables
    pub name: &'static str,
    /// its approximate duration
    pub seconds: u64,
    /// seed of the program
    pub seed: u64,
}

impl Workload for Compile {
    fn name(&self) -> &str {
        self.name
    }

    fn memory(&self) -> u64 {
        2 << 30
    }

    fn start(&self, place: &Path, _stop: &Stop) -> Result<Box<dyn Running>> {
        let source = place.join("source.rs");
        std::fs::write(&source, program(self.seconds * A_SECOND, self.seed))?;
        let said = place.join("said");
        let mut command = command(ProcessCpus::Workload, "rustc")?;
        command.args(["--crate-type", "lib", "-C", "opt-level=2", "-C", "codegen-units=1", "-o"]);
        command.arg(place.join("compiled.rlib")).arg(source);
        command.stdout(Stdio::null()).stderr(File::create(&said)?);
        let begin = Instant::now();
        let process = ChildProcess::start("rustc", &mut command, Signal::TERM)?;
        Ok(Box::new(Compiling { process, begin, said }))
    }
}

struct Compiling {
    process: ChildProcess,
    begin: Instant,
    said: PathBuf,
}

impl Running for Compiling {
    fn pid(&self) -> i32 {
        self.process.pid()
    }

    fn family(&self) -> bool {
        true
    }

    fn work(
        &mut self,
        _: Length,
        beside: &mut Companion<'_>,
        stop: &Stop,
    ) -> Result<WorkloadResult> {
        beside.begin()?;
        let mut end = None;
        while end.is_none() {
            stop.check()?;
            ensure!(self.begin.elapsed() < TIMEOUT, "rustc takes too long");
            std::thread::sleep(Duration::from_millis(5));
            end = self.process.ended()?;
        }
        let seconds = self.begin.elapsed().as_secs_f64();
        let done = end.is_some_and(|status| status.success());
        ensure!(done, "rustc has failed: {}", last_words(&self.said));
        Ok(WorkloadResult::at_once(WorkDone::Seconds(seconds)))
    }
}

/// A program with `functions` different functions.
fn program(functions: u64, seed: u64) -> String {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut text = String::new();
    for i in 0..functions {
        let mut number = || random.next_u32() % 1000 + 1;
        // Writing to memory cannot fail.
        let _ = write!(
            text,
            "pub fn f{i}(v: &mut Vec<u64>, m: &mut std::collections::BTreeMap<u64, String>) -> u64 {{\n\
             let mut s = {};\n\
             for (i, x) in v.iter_mut().enumerate() {{\n\
             *x = match *x % 7 {{ 0 => *x * {}, 1 => *x ^ {}, 2 => (*x).rotate_left({} % 63), \
             3 => x.wrapping_add(s), _ => i as u64 + {} }};\n\
             s ^= *x;\n\
             if s % {} == 0 {{ m.insert(s, format!(\"{{}} {{:?}} {i}\", s, x)); }}\n\
             }}\n\
             v.sort_by_key(|x| x % {});\n\
             v.retain(|x| x % {} != 0);\n\
             m.values().map(|t| t.len() as u64).fold(s, |a, b| a * 31 + b)\n}}\n",
            number(),
            number(),
            number(),
            number(),
            number(),
            number(),
            number(),
            number()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_tells_the_program() {
        assert_eq!(program(3, 1), program(3, 1));
        assert_ne!(program(3, 1), program(3, 2));
        assert_eq!(program(3, 1).matches("pub fn").count(), 3);
    }
}
