//! `make harden`: faults of many kinds, drawn at random from a seed, against the program.
//!
//! An [`Experiment`] knows one kind of fault and what the program must do about it. A [`campaign`] repeats its trials,
//! keeps their results in a file, and continues where it was interrupted. Trials run in a [`sandbox`] of their own
//! namespaces, so that no trial can reach a process of the machine.

mod agents;
mod arguments;
mod calls;
mod campaign;
mod kills;
mod processes;
mod random;
mod run;
mod sandbox;
mod shorten;
mod soak;
mod target;
mod targets;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::random::Random;
use crate::sandbox::{Privileges, WORK_DIR};
use crate::shorten::Plan;
use crate::target::Behaviour;

/// The outcome of one trial.
#[derive(Debug, Serialize, Deserialize)]
pub struct Trial {
    /// class of outcomes in which it is counted, for example `exit 2`
    pub class: String,
    /// the fault of the program; `None` if there was none
    pub fault: Option<String>,
}

/// One kind of fault.
pub trait Experiment {
    /// Carries out one trial. An error means that the trial itself failed, not the program.
    fn trial(&mut self, random: &mut Random) -> Result<Trial>;
}

/// The experiments, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExperimentKind {
    /// generated argument vectors over all commands
    Arguments,
    /// kills of commands that watch processes, at random moments, each followed by a start
    Kills,
    /// kills of commands that change settings of the machine; not in the short form
    Settings,
    /// kills of agents while they write to their lakes; a trial is twenty kills and takes two minutes; not in the
    /// short form; `make test` runs two trials beside other tests
    Agents,
    /// system calls that fail, or that succeed in part, at random places
    Calls,
    /// all cells of the matrix of commands, system calls, faults and places, in order; not in the short form
    Matrix,
    /// targets that misbehave, and a process that the program must not touch
    Targets,
    /// programs that follow processes as they start and end; a trial is a minute
    Soak,
}

impl ExperimentKind {
    /// Its name on the command line and in results.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Number of trials of the short form and of the long one.
    fn trials(self, short: bool) -> u64 {
        match self {
            ExperimentKind::Arguments => [100_000, 400][usize::from(short)],
            ExperimentKind::Kills => [1000, 10][usize::from(short)],
            ExperimentKind::Settings => [1000, 0][usize::from(short)],
            ExperimentKind::Agents => [10, 0][usize::from(short)],
            ExperimentKind::Calls => [10_000, 20][usize::from(short)],
            ExperimentKind::Matrix => [calls::Matrix::cells(), 0][usize::from(short)],
            ExperimentKind::Targets => [10_000, 8][usize::from(short)],
            ExperimentKind::Soak => [60, 0][usize::from(short)],
        }
    }

    /// The privileges of its trials.
    pub fn privileges(self) -> Privileges {
        match self {
            ExperimentKind::Arguments => Privileges::None,
            ExperimentKind::Kills
            | ExperimentKind::Settings
            | ExperimentKind::Agents
            | ExperimentKind::Calls
            | ExperimentKind::Matrix
            | ExperimentKind::Targets
            | ExperimentKind::Soak => Privileges::Root,
        }
    }

    fn experiment(self) -> Result<Box<dyn Experiment>> {
        Ok(match self {
            ExperimentKind::Arguments => Box::new(arguments::Arguments::new()?),
            ExperimentKind::Agents => Box::new(agents::Agents::new()?),
            ExperimentKind::Calls => Box::new(calls::Calls::new()?),
            ExperimentKind::Matrix => Box::new(calls::Matrix::new()?),
            ExperimentKind::Targets => Box::new(targets::Targets::new()?),
            ExperimentKind::Soak => Box::new(soak::Soak::new()?),
            ExperimentKind::Kills => Box::new(kills::Kills::of_watching()?),
            ExperimentKind::Settings => Box::new(kills::Kills::of_settings()?),
        })
    }
}

/// Provoke faults of many kinds, drawn at random from a seed, and check what the program does about them.
///
/// Exit status 1 if a trial found a fault.
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run experiments, or continue them
    Run {
        /// experiments; all if there are none
        kinds: Vec<ExperimentKind>,
        /// program to test
        #[arg(long)]
        program: PathBuf,
        /// folder of the results, in which an interrupted campaign of the same seed continues
        #[arg(long)]
        folder: Option<PathBuf>,
        /// seed of all random numbers
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// number of trials of each experiment, which includes those before --from [default: hours of work]
        #[arg(long)]
        trials: Option<u64>,
        /// number of the first trial, to share the trials among several campaigns, each with a folder of its own
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// two minutes of trials, none of which changes settings of the machine; without root, nothing
        #[arg(long)]
        short: bool,
        /// only this trial, without the results of others
        #[arg(long)]
        only: Option<u64>,
    },
    /// Carry out trials inside the sandbox, and print a line of JSON for each
    #[command(hide = true)]
    Inside { kind: ExperimentKind, seed: u64, from: u64, to: u64 },
    /// Become a command whose transfers are shortened
    #[command(hide = true)]
    Shorten {
        log: PathBuf,
        #[command(flatten)]
        plan: Plan,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Shorten the transfers of a process
    #[command(hide = true)]
    Attach {
        log: PathBuf,
        #[command(flatten)]
        plan: Plan,
        pid: i32,
    },
    /// Be a process to watch
    #[command(hide = true)]
    Target { deed: Behaviour },
}

/// A process in the background of a script ignores SIGINT, and so would all programs that it starts.
fn heed_interrupts() {
    // SAFETY: it only sets the kernel's default.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
}

fn main() -> Result<ExitCode> {
    match Options::parse().task {
        Task::Inside { kind, seed, from, to } => {
            heed_interrupts();
            inside(kind, seed, from, to).map(|()| ExitCode::SUCCESS)
        }
        Task::Shorten { log, plan, command } => {
            shorten::run(&log, &plan, &command).map(|()| ExitCode::SUCCESS)
        }
        Task::Attach { log, plan, pid } => {
            shorten::attach(&log, &plan, pid).map(|()| ExitCode::SUCCESS)
        }
        Task::Target { deed } => target::be(deed).map(|()| ExitCode::SUCCESS),
        Task::Run { kinds, program, folder, seed, trials, from, short, only } => {
            if !rustix::process::geteuid().is_root() {
                let required = !short || std::env::var_os("ISOTHERM_REQUIRE_ALL").is_some();
                ensure!(!required, "namespaces require root: run it as root");
                println!("skipped: namespaces require root");
                return Ok(ExitCode::SUCCESS);
            }
            let program =
                program.canonicalize().with_context(|| format!("no {}", program.display()))?;
            let kinds =
                if kinds.is_empty() { ExperimentKind::value_variants().to_vec() } else { kinds };
            let are_sound = all(&kinds, |kind| {
                let trials = trials.unwrap_or_else(|| kind.trials(short));
                if trials == 0 {
                    return Ok(0);
                }
                ensure!(
                    from < trials,
                    "no trial remains: give --from less than {trials}, the number of trials"
                );
                if kind == ExperimentKind::Targets && !has_pids_of_its_own()? {
                    println!(
                        "targets: skipped: before Linux 6.14, all processes share one pid_max"
                    );
                    return Ok(0);
                }
                match only {
                    Some(n) => campaign::repeat(kind, &program, seed, n),
                    None => campaign::run(kind, &program, folder.as_deref(), seed, from..trials),
                }
            });
            Ok(if are_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

/// Runs one experiment after the other, and returns whether none found a fault. `run` returns the number of faults. An
/// experiment that cannot run here does not prevent the next one.
fn all(kinds: &[ExperimentKind], mut run: impl FnMut(ExperimentKind) -> Result<usize>) -> bool {
    let mut are_sound = true;
    for kind in kinds {
        are_sound &= run(*kind).map_or_else(
            |e| {
                eprintln!("{}: {e:#}", kind.name());
                false
            },
            |faults| faults == 0,
        );
    }
    are_sound
}

/// Whether a limit of pids in a namespace leaves those of the machine alone: since Linux 6.14.
fn has_pids_of_its_own() -> Result<bool> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").context("osrelease")?;
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    Ok((next(), next()) >= (6, 14))
}

/// Trials write nothing but their lines to standard output.
fn inside(kind: ExperimentKind, seed: u64, from: u64, to: u64) -> Result<()> {
    std::env::set_current_dir(WORK_DIR).context(WORK_DIR)?;
    let mut experiment = kind.experiment()?;
    for n in from..to {
        let trial = experiment.trial(&mut Random::new(seed, n));
        println!("{}", serde_json::to_string(&trial.with_context(|| format!("trial {n}"))?)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by an audit: an experiment that could not run ended the campaign, again and again.
    #[test]
    fn an_experiment_that_cannot_run_does_not_prevent_the_next_one() {
        let kinds = [ExperimentKind::Settings, ExperimentKind::Calls];
        let mut ran = Vec::new();
        let are_sound = all(&kinds, |kind| {
            ran.push(kind);
            anyhow::ensure!(kind != ExperimentKind::Settings, "it cannot run");
            Ok(0)
        });
        assert!(!are_sound);
        assert_eq!(ran, kinds);
        assert!(all(&kinds, |_| Ok(0)));
        assert!(!all(&kinds, |_| Ok(1)));
    }
}
