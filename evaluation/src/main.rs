//! The evaluation of the mails that isotherm is built on, on this machine: workloads under several
//! configurations, resumable, in tables of the same form.

use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser};
use isotherm_bench::output::save_json;
use isotherm_bench::program;
use isotherm_evaluation::config::Config;
use isotherm_evaluation::folder::{FolderSettings, PLAN_VERSION, ResultsFolder, RunOutcome};
use isotherm_evaluation::names::NameList;
use isotherm_evaluation::one::one;
use isotherm_evaluation::pace::RemainingTime;
use isotherm_evaluation::plan::{PlannedRun, turns};
use isotherm_evaluation::results::Results;
use isotherm_evaluation::run::Run;
use isotherm_evaluation::slices::SLICE;
use isotherm_evaluation::stop::Stop;
use isotherm_evaluation::table::TableFormat;
use isotherm_evaluation::verdict::Verdict;
use isotherm_evaluation::verdicts::{BY_QUOTAS, verdicts};
use isotherm_evaluation::workload::{Keys, Length, NAMES, Redis, find, kernel, strider};
use isotherm_evaluation::{locked, machine, pressure, small_pages, tables};
use isotherm_linux::swap::Swap;
use rustix::process::geteuid;

#[derive(Parser)]
#[command(args_override_self = true)]
struct Options {
    /// Use these configurations: orig, rec, thp, ethp, prcl, 10ms, 50ms, 200ms, 10ms-oldest and so on
    /// [default: all]; with --report only print these
    #[arg(long, value_name = "NAMES")]
    configs: Option<NameList<Config>>,
    /// Run these workloads, or a FILE.toml [default: all]; with --report only print those with these names
    #[arg(long, value_name = "NAMES")]
    workloads: Option<NameList<String>>,
    /// Number of repetitions
    #[arg(long, default_value_t = 5)]
    times: u32,
    #[command(flatten)]
    size: Size,
    /// Keep results here, and skip finished runs
    #[arg(long, value_name = "FOLDER", default_value = "evaluation-out")]
    out: PathBuf,
    /// Measure latencies of redis while memory is short, with `isotherm reclaim` and without, instead
    #[arg(long, conflicts_with_all = RUNS)]
    pressure: bool,
    /// Measure programs with less memory than they use, with their hot memory locked and without, instead;
    /// with --report only print such results
    #[arg(long, conflicts_with_all = ["pressure", "configs", "slices", "spread", "json"])]
    locked: bool,
    #[command(flatten)]
    output: OutputOptions,
}

/// The options of runs and of their tables.
const RUNS: [&str; 10] = [
    "configs",
    "workloads",
    "seconds",
    "lead_in",
    "slices",
    "out",
    "report",
    "spread",
    "json",
    "check",
];

impl Options {
    fn configs(&self) -> Vec<Config> {
        self.configs.as_ref().map_or_else(Config::all, |names| names.0.clone())
    }

    fn workloads(&self) -> Vec<String> {
        let all = || NAMES.map(str::to_owned).to_vec();
        self.workloads.as_ref().map_or_else(all, |names| names.0.clone())
    }

    /// The runs of a folder that have the chosen names.
    fn chosen<'a>(&self, folder: &'a ResultsFolder<Run>) -> Vec<&'a Run> {
        let mut runs = folder.last();
        if let Some(NameList(names)) = &self.workloads {
            runs.retain(|run| names.contains(&run.workload));
        }
        if let Some(NameList(configs)) = &self.configs {
            runs.retain(|run| configs.contains(&run.config));
        }
        runs
    }
}

#[derive(Args)]
struct Size {
    /// Approximate memory of a workload in MiB
    #[arg(long, default_value_t = 1024)]
    size: u64,
    /// Measured seconds of a workload that does not end by itself
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seconds before that, watched and acted on
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    lead_in: u64,
    /// Number of slices of 2 s that replace --seconds under rec, prcl and quotas, with isotherm at work and
    /// at rest by turns
    #[arg(long, default_value_t = 30)]
    slices: u32,
    /// Requests per second of the open loop
    #[arg(long, default_value_t = 120_000)]
    rate: u64,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct OutputOptions {
    /// Only print the results in this folder
    #[arg(long, value_name = "FOLDER")]
    report: Option<PathBuf>,
    /// Print tables as in the documentation
    #[arg(long)]
    markdown: bool,
    /// Also print average, stdev, min and max
    #[arg(long)]
    spread: bool,
    /// Write all runs to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Exit with status 1 if a bound is broken, a run has failed, or no bound was measured
    #[arg(long)]
    check: bool,
}

/// The requested work.
enum Task {
    Report(FolderSettings, ResultsFolder<Run>),
    Pressure(FolderSettings),
    /// `None`: only print
    Locked(Option<FolderSettings>, ResultsFolder<locked::LockedRun>),
    Runs(FolderSettings, ResultsFolder<Run>),
}

fn main() -> ExitCode {
    if let Err(e) = strider::run_if_asked()
        .and_then(|()| kernel::run_if_asked())
        .and_then(|()| small_pages::run_if_asked())
        .and_then(|()| pressure::run_if_asked())
    {
        return failed(&e, 1);
    }
    let o = Options::parse();
    match task(&o) {
        Ok(task) => done(&o, task).map_or_else(|e| failed(&e, 1), |()| ExitCode::SUCCESS),
        Err(e) => failed(&e, 2),
    }
}

/// Prints to the standard output. Nobody may read it any more, for example `head`: what follows is done all the same.
fn print(text: impl Display) -> Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done.context("cannot print the results"),
    }
}

fn failed(why: &anyhow::Error, status: u8) -> ExitCode {
    eprintln!("evaluate: {why:#}");
    ExitCode::from(status)
}

/// Invalid combinations of options are wrong usage.
fn task(o: &Options) -> Result<Task> {
    if let Some(folder) = &o.output.report {
        if o.locked {
            return Ok(Task::Locked(None, ResultsFolder::read(folder)?));
        }
        let (setup, folder) = (FolderSettings::read(folder)?, ResultsFolder::read(folder)?);
        for name in o.workloads.iter().flat_map(|names| &names.0) {
            ensure!(
                folder.last().iter().any(|run: &&Run| run.workload == *name),
                "no run of {name} in {}: name workloads as --report prints them",
                folder.path().display()
            );
        }
        return Ok(Task::Report(setup, folder));
    }
    ensure!(geteuid().is_root(), "this program makes swap and observes processes: run it as root");
    ensure!((1..=1000).contains(&o.times), "{} times: choose 1 to 1000", o.times);
    program::beside()?;
    let setup = o.size.checked()?;
    if o.pressure {
        return Ok(Task::Pressure(setup));
    }
    if o.locked {
        let folder = ResultsFolder::open(&o.out, &setup)?;
        return Ok(Task::Locked(Some(setup), folder));
    }
    o.workloads().iter().try_for_each(|name| find(name, &setup).map(drop))?;
    let folder = ResultsFolder::open(&o.out, &setup)?;
    Ok(Task::Runs(setup, folder))
}

fn done(o: &Options, task: Task) -> Result<()> {
    match task {
        Task::Report(setup, folder) => o.output.report(&setup, o.chosen(&folder)),
        Task::Pressure(setup) => short_of_memory(o, &setup),
        Task::Locked(setup, mut folder) => with_locked_memory(o, setup.as_ref(), &mut folder),
        Task::Runs(setup, mut folder) => {
            let done = run_all(o, &setup, &mut folder);
            o.output.report(&setup, folder.last())?;
            done
        }
    }
}

impl Size {
    fn checked(&self) -> Result<FolderSettings> {
        let Size { size, seconds, lead_in, slices, rate, seed } = *self;
        ensure!((16..=1 << 16).contains(&size), "a size of {size} MiB: choose 16 to 65536");
        ensure!((2..=3600).contains(&seconds), "{seconds} s: choose 2 to 3600");
        ensure!((1..=3600).contains(&lead_in), "a lead-in of {lead_in} s: choose 1 to 3600");
        let even = (2..=1000).contains(&slices) && slices % 2 == 0;
        ensure!(even, "{slices} slices: choose an even number of 2 to 1000");
        ensure!((1..=10_000_000).contains(&rate), "{rate} requests a second: choose 1 to 10000000");
        Ok(FolderSettings { version: PLAN_VERSION, size, seconds, lead_in, slices, rate, seed })
    }
}

/// Runs everything that is not finished yet. Notes a failure, and continues.
fn run_all(o: &Options, setup: &FolderSettings, folder: &mut ResultsFolder<Run>) -> Result<()> {
    let stop = Stop::at_signals()?;
    let found: Result<Vec<_>> = o.workloads().iter().map(|name| find(name, setup)).collect();
    let found = found?;
    let names: Vec<&str> = found.iter().map(|w| w.name()).collect();
    let all = turns(&names, &o.configs(), o.times, setup.seed);
    let left: Vec<&PlannedRun<'_>> = all.iter().filter(|turn| !folder.has(**turn)).collect();
    let [lead_in, measured] = [setup.lead_in, setup.seconds].map(Duration::from_secs);
    let length = |config: Config| {
        let lead_in = config.lead_in(lead_in);
        Length { lead_in, measured, slices: setup.slices }
    };
    let lengths = left.iter().map(|turn| {
        let sliced =
            turn.config.turns(setup.slices).map_or(Duration::ZERO, |_| SLICE * setup.slices);
        length(turn.config).lead_in + measured.max(sliced)
    });
    let mut pace = RemainingTime::new(lengths);
    eprintln!("{} runs, {} of them are there: {}", all.len(), all.len() - left.len(), pace.left());
    eprintln!("if this program is killed (SIGKILL), restore by hand: {}", how_to_restore());
    for turn in left {
        let PlannedRun { workload, config, repetition } = *turn;
        let which = found.iter().find(|w| w.name() == workload).context("no such workload")?;
        let outcome = one(&**which, config, length(config), &stop);
        stop.check()?;
        let outcome = outcome.map_err(|e| format!("{e:#}"));
        let output =
            outcome.as_ref().map_or_else(|e| format!("failed: {e}"), |_| "done".to_owned());
        folder.add(Run { workload: workload.to_owned(), config, repetition, outcome })?;
        pace.step();
        eprintln!("{workload}, {config}, {}: {output}; {}", repetition + 1, pace.left());
    }
    Ok(())
}

fn short_of_memory(o: &Options, setup: &FolderSettings) -> Result<()> {
    let FolderSettings { size, rate, seed, .. } = *setup;
    let redis = Redis { keys: Keys::Together, bytes: size << 20, rate, seed };
    eprintln!(
        "{} runs of about 100 s; if this program is killed (SIGKILL), restore by hand: {}",
        2 * o.times,
        how_to_restore()
    );
    let table = pressure::pressure(&redis, o.times, &Stop::at_signals()?)?;
    print(table.print(o.output.form()))
}

/// Runs programs with less memory than they use, and prints all results of the folder.
fn with_locked_memory(
    o: &Options,
    setup: Option<&FolderSettings>,
    folder: &mut ResultsFolder<locked::LockedRun>,
) -> Result<()> {
    if let Some(setup) = setup {
        eprintln!(
            "if this program is killed (SIGKILL), restore by hand: {}; swapoff {}",
            how_to_restore(),
            folder.path().join("swap").display()
        );
        let mut programs = locked::programs(setup);
        if let Some(names) = &o.workloads {
            programs.retain(|program| names.0.iter().any(|name| name == program.name()));
            ensure!(
                !programs.is_empty(),
                "no such program: choose from {}",
                locked::NAMES.join(", ")
            );
        }
        locked::run_all(&programs, setup, o.times, folder, &Stop::at_signals()?)?;
    }
    let runs = folder.last();
    locked::tables(&runs).iter().try_for_each(|t| print(t.print(o.output.form())))?;
    let failed = || runs.iter().filter_map(|run| Some((&run.conditions, run.failure()?)));
    failed().try_for_each(|(run, why)| print(format_args!("failed: {run}: {why}")))?;
    let bounds = locked::bounds(&runs);
    bounds.iter().try_for_each(|bound| print(format_args!("- {bound}")))?;
    o.output.check(&bounds, failed().count())
}

fn how_to_restore() -> String {
    let setting =
        machine::HugePages::now(Path::new("/")).map_or(String::new(), |h| h.how_to_restore());
    format!("{setting}; {}", Swap::HOW_TO_REMOVE)
}

impl OutputOptions {
    fn form(&self) -> TableFormat {
        if self.markdown { TableFormat::Markdown } else { TableFormat::Text }
    }

    fn report(&self, setup: &FolderSettings, runs: Vec<&Run>) -> Result<()> {
        if let Some(path) = &self.json {
            let all = serde_json::json!({ "setup": setup, "runs": runs });
            save_json(path, &all)?;
        }
        let results = Results::of(runs);
        let form = self.form();
        let mut all = tables::columns(&results);
        all.extend(self.spread.then(|| tables::spread(&results)).into_iter().flatten());
        all.extend([
            tables::beside_mails(&results),
            tables::grid(&results),
            tables::details(&results),
        ]);
        all.iter().filter(|t| !t.rows.is_empty()).try_for_each(|t| print(t.print(form)))?;
        for (run, why) in results.failed() {
            let (workload, config, number) = (&run.workload, run.config, run.repetition + 1);
            print(format_args!("failed: {workload}, {config}, {number}: {why}"))?;
        }
        let verdicts = verdicts(&results);
        verdicts.iter().try_for_each(|v| print(format_args!("- {v}")))?;
        print(format_args!("- {BY_QUOTAS}"))?;
        self.check(&verdicts, results.failed().count())
    }

    /// Whether the results are as required, if the user asked for that.
    fn check(&self, verdicts: &[Verdict], failed: usize) -> Result<()> {
        let broken = verdicts.iter().filter(|v| v.holds() == Some(false)).count();
        let good = broken == 0 && failed == 0;
        ensure!(!self.check || good, "{broken} bounds are broken, {failed} runs have failed");
        let measured = verdicts.iter().any(|v| v.holds().is_some());
        ensure!(!self.check || measured, "no bound was measured");
        Ok(())
    }
}
