//! Repeats the trials of an experiment, counts their outcomes, and keeps the results in a file.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::{ExperimentKind, Trial, sandbox};

/// Number of trials after which a new sandbox begins.
const SANDBOX_TRIALS: u64 = 100;

/// The results so far.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Results {
    seed: u64,
    /// hash of the tested program
    program: u64,
    /// number of the next trial
    done: u64,
    classes: BTreeMap<String, u64>,
    /// by number of the trial
    faults: BTreeMap<u64, String>,
}

impl Results {
    /// Those of an interrupted campaign of this seed and program, or empty ones.
    fn load(path: &Path, seed: u64, program: u64) -> Result<Self> {
        let new = Results { seed, program, ..Results::default() };
        let Ok(text) = fs::read(path) else { return Ok(new) };
        let earlier: Results = serde_json::from_slice(&text)
            .with_context(|| format!("{} has no results: remove it", path.display()))?;
        Ok(if (earlier.seed, earlier.program) == (seed, program) { earlier } else { new })
    }

    fn save(&self, path: &Path) -> Result<()> {
        let new = path.with_extension("new");
        fs::create_dir_all(path.parent().unwrap_or(path)).context("cannot create a folder")?;
        fs::write(&new, serde_json::to_vec_pretty(self)?).context("cannot write results")?;
        fs::rename(&new, path).context("cannot write results")
    }

    fn count(&mut self, trial: Trial) {
        *self.classes.entry(trial.class).or_default() += 1;
        if let Some(fault) = trial.fault {
            self.faults.insert(self.done, fault);
        }
        self.done += 1;
    }

    /// Adds the trials of a command. Each is saved at once, because a later one may fail or be interrupted.
    fn extend(&mut self, command: &mut Command, path: Option<&Path>, name: &str) -> Result<()> {
        outcomes(command, |trial| {
            if let Some(fault) = &trial.fault {
                eprintln!("{name}, seed {}, trial {}: {fault}", self.seed, self.done);
            }
            self.count(trial);
            path.map_or(Ok(()), |path| self.save(path))
        })
    }
}

/// Runs `trials` that it has not run yet, and continues the campaign in `folder`. Returns the number of faults.
pub fn run(
    kind: ExperimentKind,
    program: &Path,
    folder: Option<&Path>,
    seed: u64,
    trials: Range<u64>,
) -> Result<usize> {
    let path: Option<PathBuf> = folder.map(|folder| folder.join(kind.name() + ".json"));
    let mut results = match &path {
        Some(path) => Results::load(path, seed, hash(program)?)?,
        None => Results { seed, ..Results::default() },
    };
    results.done = results.done.max(trials.start);
    while results.done < trials.end {
        let to = trials.end.min(results.done + SANDBOX_TRIALS);
        let mut command = sandbox::command(kind, program, seed, results.done, to)?;
        results.extend(&mut command, path.as_deref(), &kind.name())?;
    }
    let classes: Vec<String> = results.classes.iter().map(|(c, n)| format!("{c}: {n}")).collect();
    let (name, faults) = (kind.name(), results.faults.len());
    let done: u64 = results.classes.values().sum();
    println!("{name}: {done} trials of seed {seed}, {faults} faults; {}", classes.join(", "));
    Ok(faults)
}

/// A hash of a file, to distinguish results of different builds.
fn hash(file: &Path) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    hasher.write(&fs::read(file).with_context(|| file.display().to_string())?);
    Ok(hasher.finish())
}

/// Repeats one trial, and prints its result. Returns the number of faults.
pub fn repeat(kind: ExperimentKind, program: &Path, seed: u64, n: u64) -> Result<usize> {
    let mut faults = 0;
    outcomes(&mut sandbox::command(kind, program, seed, n, n + 1)?, |trial| {
        println!("{}: {}", trial.class, trial.fault.as_deref().unwrap_or("no fault"));
        faults += usize::from(trial.fault.is_some());
        Ok(())
    })?;
    Ok(faults)
}

/// Calls `each` with the outcome of each trial, as the command prints it. An error of `each` ends the command.
fn outcomes(command: &mut Command, mut each: impl FnMut(Trial) -> Result<()>) -> Result<()> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start unshare")?;
    let mut lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
    let done = lines.try_for_each(|line| {
        each(serde_json::from_str(&line?).context("a trial printed something else")?)
    });
    if done.is_err() {
        child.kill()?;
    }
    let status = child.wait()?;
    done?;
    ensure!(status.success(), "a trial could not be carried out: {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(fault: Option<&str>) -> Trial {
        Trial { class: "exit 1".to_owned(), fault: fault.map(str::to_owned) }
    }

    #[test]
    fn results_continue_only_with_the_same_seed_and_program() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("a.json");
        let mut results = Results::load(&path, 7, 1).unwrap();
        results.count(trial(None));
        results.count(trial(Some("a panic")));
        results.save(&path).unwrap();
        let again = Results::load(&path, 7, 1).unwrap();
        assert_eq!(again, results);
        assert_eq!((again.done, again.faults[&1].as_str()), (2, "a panic"));
        assert_eq!(Results::load(&path, 8, 1).unwrap().done, 0);
        assert_eq!(Results::load(&path, 7, 2).unwrap().done, 0);
    }

    /// Found by an audit: a trial that failed, or an interruption, discarded all trials since the last hundredth.
    #[test]
    fn trials_before_a_failed_one_are_kept() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("a.json");
        let lines = r#"{"class":"a","fault":null}\n{"class":"a","fault":"a panic"}\n"#;
        let mut command = Command::new("sh");
        command.args(["-c", &format!("printf '{lines}'; exit 1")]);
        let mut results = Results::load(&path, 7, 1).unwrap();
        let failed = results.extend(&mut command, Some(&path), "calls").unwrap_err();
        assert!(failed.to_string().contains("exit status: 1"), "{failed}");
        let again = Results::load(&path, 7, 1).unwrap();
        assert_eq!((again.done, again.faults.len()), (2, 1));
        command = Command::new("sh");
        command.args(["-c", "echo nonsense; exec sleep 600"]);
        assert!(results.extend(&mut command, Some(&path), "calls").is_err(), "it does not wait");
    }
}
