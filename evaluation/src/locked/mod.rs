//! Hot memory locked while memory is short: programs in a control group with less memory than they use, as they are
//! and with the advice of an earlier run (`isotherm exec`).

mod swap;
mod table;

use std::ffi::OsString;
use std::fmt::{self, Display};
use std::fs::{create_dir_all, read_to_string, write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use isotherm_bench::limited::Limited;
use isotherm_bench::program;
use serde::{Deserialize, Serialize};

use self::swap::RunSwap;
pub use self::swap::SwapKind;
pub use self::table::{bounds, tables};
use super::beside::Companion;
use super::folder::{FolderSettings, ResultsFolder, RunOutcome};
use super::machine::{HugePages, drop_caches};
use super::process::last_words;
use super::stop::Stop;
use super::watching::Watching;
use super::workload::{Computation, ComputeKernel, Keys, Length, Postgres, Redis, Workload};

/// Limits, in percent of the memory that a program uses.
const LIMITS: [u64; 3] = [90, 70, 50];
/// How long a program is recorded for advice, after its lead-in.
const RECORDED: Duration = Duration::from_secs(20);
/// Memory that is touched at this rate or more may be locked: everything that a program passes through at least
/// once in ten seconds.
const HOT: &str = "0.1Hz";
/// Swap beyond the memory of a program, in bytes.
const SPARE: u64 = 256 << 20;

/// The names of all programs.
pub const NAMES: [&str; 6] = ["redis", "postgres", "sort", "graph", "stencil", "join"];

/// The conditions of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunConditions {
    /// name of the program
    pub program: String,
    /// where memory is swapped to
    pub swap: SwapKind,
    /// limit, in percent of the memory that the program uses
    pub limit: u64,
    /// number of the repetition, from 0
    pub repetition: u32,
    /// whether the advice was applied
    pub locked: bool,
}

impl Display for RunConditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunConditions { program, swap, limit, repetition, locked } = self;
        let how = if *locked { "with locks" } else { "without locks" };
        write!(f, "{program}, {swap}, {limit} %, {how}, {}", repetition + 1)
    }
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LockedRun {
    /// its conditions
    #[serde(flatten)]
    pub conditions: RunConditions,
    /// the results, or the reason for the failure
    pub outcome: Result<LockedResults, String>,
}

impl RunOutcome for LockedRun {
    type Turn<'a> = &'a RunConditions;
    const FILE: &'static str = "locked.jsonl";

    fn turn(&self) -> &RunConditions {
        &self.conditions
    }

    fn failure(&self) -> Option<&str> {
        self.outcome.as_ref().err().map(String::as_str)
    }
}

/// The results of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LockedResults {
    /// memory that the program uses without a limit, in bytes
    pub used: u64,
    /// work per second
    pub rate: f64,
    /// major faults of the group per second
    pub faults: f64,
    /// locked memory of the group at the end, in bytes
    pub locked_bytes: u64,
}

/// The programs: redis and PostgreSQL, whose load reads hot data, and all data from time to time; and the kernels.
pub fn programs(setup: &FolderSettings) -> Vec<Box<dyn Workload>> {
    let (bytes, rate, seed) = (setup.size << 20, setup.rate, setup.seed);
    let kernels = NAMES.into_iter().filter_map(ComputeKernel::find);
    let kernels = kernels
        .map(|kernel| Box::new(Computation { kernel, bytes, twin: false }) as Box<dyn Workload>);
    let servers: [Box<dyn Workload>; 2] = [
        Box::new(Redis { keys: Keys::Scanned, bytes, rate, seed }),
        Box::new(Postgres { bytes, scans: true, seed }),
    ];
    servers.into_iter().chain(kernels).collect()
}

/// Runs everything that is not in `folder` yet. Notes each result or failure there at once, and continues. It ends if the advice of a program cannot be made.
pub fn run_all(
    programs: &[Box<dyn Workload>],
    setup: &FolderSettings,
    times: u32,
    folder: &mut ResultsFolder<LockedRun>,
    stop: &Stop,
) -> Result<()> {
    let (lead_in, measured) =
        (Duration::from_secs(setup.lead_in), Duration::from_secs(setup.seconds));
    let length = Length { lead_in, measured, slices: 0 };
    for repetition in 0..times {
        for program in programs {
            let advice = Advice::of(&**program, folder.path(), length, stop)?;
            for (swap, limit) in SwapKind::ALL.into_iter().flat_map(|s| LIMITS.map(|l| (s, l))) {
                // The order alternates, so that a drift of the machine affects both alike.
                for locked in [repetition % 2 == 1, repetition % 2 == 0] {
                    let program_name = program.name().to_owned();
                    let conditions =
                        RunConditions { program: program_name, swap, limit, repetition, locked };
                    if folder.has(&conditions) {
                        continue;
                    }
                    // The kernel may kill a program that is short of memory.
                    let outcome =
                        run(&**program, &conditions, &advice, length, folder.path(), stop);
                    stop.check()?;
                    let run =
                        LockedRun { conditions, outcome: outcome.map_err(|e| format!("{e:#}")) };
                    eprintln!("{}", serde_json::to_string(&run)?);
                    folder.add(run)?;
                }
            }
        }
    }
    Ok(())
}

/// The advice of a run without a limit.
struct Advice {
    path: PathBuf,
    /// memory that the program uses, in bytes
    used: u64,
}

impl Advice {
    /// Records the program without a limit, unless the advice is in the folder.
    fn of(program: &dyn Workload, folder: &Path, length: Length, stop: &Stop) -> Result<Self> {
        let path = folder.join(format!("{}.json", program.name()));
        let note = folder.join(format!("{}.used", program.name()));
        if let Some(used) = read_to_string(&note).ok().and_then(|text| text.trim().parse().ok()) {
            return Ok(Advice { path, used });
        }
        let place = tempfile::tempdir()?;
        let group = Limited::start(1 << 40)?;
        let mut running = group.within(|| program.start(place.path(), stop))?;
        let record = place.path().join("record.rec");
        let words = ["record", "--children", "-o"].map(OsString::from);
        let words = [&words[..], &[record.clone().into()]].concat();
        let watching = Watching::with(&words, None, running.pid(), place.path())?;
        let length = Length { measured: RECORDED.max(length.measured), ..length };
        running.work(length, &mut Companion::new(None, None, &mut None, &mut || Ok(())), stop)?;
        let stat = group.group().memory_stat()?;
        watching.end()?;
        drop(running);
        let mut report = Command::new(program::beside()?);
        report.args(["report", "advice", "--json", "--hot", HOT, "--lock-limit", "1T", "-i"]);
        let output = report.arg(&record).stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "isotherm report advice has failed");
        write(&path, output.stdout)?;
        let used = stat.anon + stat.shmem;
        write(note, used.to_string())?;
        Ok(Advice { path, used })
    }
}

fn run(
    program: &dyn Workload,
    turn: &RunConditions,
    advice: &Advice,
    length: Length,
    folder: &Path,
    stop: &Stop,
) -> Result<LockedResults> {
    let _huge = HugePages::set(Path::new("/"), false)?;
    let _swap = RunSwap::start(turn.swap, program.memory() * 2 + SPARE, folder)?;
    drop_caches()?;
    let place = tempfile::tempdir()?;
    let group = Limited::start(advice.used * turn.limit / 100)?;
    let mut running = group.within(|| program.start(place.path(), stop))?;
    let words = [OsString::from("exec"), "--advice".into(), advice.path.clone().into()];
    let dir = place.path().join("isotherm");
    create_dir_all(&dir)?;
    let start = || Watching::with(&words, None, running.pid(), &dir);
    let watching = turn.locked.then(start).transpose()?;
    let (mut before, mut since) = (0, Instant::now());
    let mut mark = || {
        before = group.group().memory_stat()?.major_faults;
        since = Instant::now();
        Ok(())
    };
    let work = running.work(length, &mut Companion::new(None, None, &mut None, &mut mark), stop);
    let rate = work.with_context(|| last_words(&dir.join("isotherm")))?.work.number();
    // A load may run for longer than it is measured.
    let (stat, time) = (group.group().memory_stat()?, since.elapsed());
    watching.map_or(Ok(()), Watching::end)?;
    let faults = stat.major_faults.saturating_sub(before) as f64 / time.as_secs_f64();
    Ok(LockedResults { used: advice.used, rate, faults, locked_bytes: stat.unevictable })
}
