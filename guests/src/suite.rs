//! Runs scenarios on kernels, and collects the results.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::guest;
use crate::lab::{Lab, known};
use crate::scenario::Scenario;
use crate::table::{ScenarioRow, Verdict};

/// The number of guests at a time: the number of CPUs that this process may use, because an emulator keeps
/// one busy all the time.
pub fn jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The selected kernels and scenarios; empty: all.
#[derive(Debug)]
pub struct RunOptions {
    /// series of kernels
    pub kernels: Vec<String>,
    /// names of scenarios
    pub scenarios: Vec<String>,
    /// without the scenarios that take long; of the kernels of each other one only the newest, and the oldest of those
    /// that differ on it
    pub few: bool,
    /// the folder in which to keep the output of the guests
    pub keep: Option<PathBuf>,
    /// number of guests at a time
    pub jobs: usize,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions {
            kernels: Vec::new(),
            scenarios: Vec::new(),
            few: false,
            keep: None,
            jobs: jobs(),
        }
    }
}

impl RunOptions {
    fn has(&self, scenario: &Scenario, series: &str) -> bool {
        let named = |names: &[String], name: &str| names.iter().any(|n| n == name);
        let kernel_by_name = scenario.kernels_by_name.iter().any(|k| k == series);
        let too_long = self.few && scenario.not_in_test;
        let by_default = self.scenarios.is_empty()
            && !scenario.by_name
            && !too_long
            && (!kernel_by_name || !self.kernels.is_empty());
        (by_default || named(&self.scenarios, &scenario.name))
            && (self.kernels.is_empty() || named(&self.kernels, series))
    }

    /// The folder for the output of a guest, and an object that removes it.
    fn place(&self, scenario: &str, release: &str) -> Result<(PathBuf, Option<TempDir>)> {
        let Some(keep) = &self.keep else {
            let dir = tempfile::Builder::new().prefix("isotherm-guest-").tempdir()?;
            return Ok((dir.path().to_owned(), Some(dir)));
        };
        let dir = keep.join(format!("{scenario}-{release}"));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).with_context(|| format!("cannot write {}", dir.display()))?;
        Ok((dir.canonicalize()?, None))
    }

    /// Whether all selected scenarios must run.
    fn is_by_name(&self) -> bool {
        !self.scenarios.is_empty() || !self.kernels.is_empty()
    }
}

/// Runs the selected scenarios. `row` receives each result, `say` messages of progress.
pub fn run(
    asked: &RunOptions,
    mut row: impl FnMut(&ScenarioRow) + Send,
    say: impl Fn(&str) + Sync,
) -> Result<bool> {
    let (lab, scenarios) = (Lab::open()?, Scenario::all()?);
    let names = || scenarios.iter().map(|s| s.name.as_str());
    asked.kernels.iter().try_for_each(|k| known(k, lab.kernels.series()))?;
    asked.scenarios.iter().try_for_each(|s| known(s, names()))?;
    let pairs = pairs(asked, &scenarios);
    ensure!(!pairs.is_empty(), "none of these scenarios is for these kernels");
    let series: BTreeSet<&str> = pairs.iter().map(|(_, series)| *series).collect();
    lab.cache.fetch(&lab.kernels, &series.into_iter().collect::<Vec<_>>(), &say)?;
    let one = |(scenario, series): (&Scenario, &str)| match lab.kernel(series) {
        Some(kernel) => {
            let (dir, _temporary) = asked.place(&scenario.name, &kernel.release)?;
            guest::run(&lab, scenario, &kernel, &dir, &say)
        }
        None => Ok(missing(&scenario.name, series, lab.not_built(series), asked.is_by_name())),
    };
    let mut all_ok = true;
    side_by_side(asked.jobs, pairs, one, |outcome| {
        all_ok &= !outcome.failed();
        row(outcome);
    })?;
    Ok(all_ok)
}

/// The longest scenarios come first, so that none of them runs alone at the end.
fn pairs<'a>(asked: &RunOptions, scenarios: &'a [Scenario]) -> Vec<(&'a Scenario, &'a str)> {
    let of_scenario = |s: &'a Scenario| {
        let mut kernels: Vec<_> = s.kernels.keys().filter(|k| asked.has(s, k)).collect();
        if asked.few {
            let kept = usize::from(s.oldest_too && kernels.len() > 1);
            kernels.drain(kept..kernels.len().saturating_sub(1));
        }
        kernels.into_iter().map(move |k| (s, k.as_str()))
    };
    let mut pairs: Vec<_> = scenarios.iter().flat_map(of_scenario).collect();
    pairs.sort_by_key(|(s, _)| Reverse(s.timeout));
    pairs
}

/// Runs `one` for all `pairs`, `jobs` at a time. `row` receives results as they arrive. After an error no
/// further one starts.
fn side_by_side<T: Send>(
    jobs: usize,
    pairs: Vec<T>,
    one: impl Fn(T) -> Result<ScenarioRow> + Sync,
    row: impl FnMut(&ScenarioRow) + Send,
) -> Result<()> {
    let jobs = jobs.clamp(1, pairs.len().max(1));
    let (left, row) = (Mutex::new(pairs.into_iter()), Mutex::new(row));
    let next = || left.lock().ok()?.next();
    let work = || -> Result<()> {
        while let Some(pair) = next() {
            let outcome = one(pair).inspect_err(|_| {
                let _ = left.lock().map(|mut left| left.by_ref().for_each(drop));
            })?;
            if let Ok(mut row) = row.lock() {
                row(&outcome);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        let mut ends = threads.into_iter().map(|t| t.join());
        ends.try_for_each(|end| end.unwrap_or_else(|_| bail!("a guest's thread panicked")))
    })
}

/// The result of a scenario without its kernel.
fn missing(scenario: &str, series: &str, why: String, by_name: bool) -> ScenarioRow {
    ScenarioRow {
        scenario: scenario.to_owned(),
        kernel: series.to_owned(),
        verdict: if by_name { Verdict::Failed(vec![why]) } else { Verdict::NotTried(why) },
        took: Duration::ZERO,
        seen: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(n: u64) -> ScenarioRow {
        ScenarioRow { took: Duration::from_secs(n), ..missing("", "", String::new(), true) }
    }

    #[test]
    fn each_is_done_once_however_many_at_a_time() {
        for jobs in [0, 1, 3, 20, usize::MAX] {
            let mut took = Vec::new();
            let one = |n| Ok(outcome(n));
            side_by_side(jobs, (0..10).collect(), one, |o| took.push(o.took.as_secs())).unwrap();
            took.sort_unstable();
            assert_eq!(took, (0..10).collect::<Vec<u64>>());
        }
    }

    #[test]
    fn an_error_is_not_lost() {
        let begun = Mutex::new(Vec::new());
        let one = |n| {
            begun.lock().unwrap().push(n);
            if n == 3 { bail!("no") } else { Ok(outcome(n)) }
        };
        assert!(side_by_side(1, (0..10).collect(), one, |_| {}).is_err());
        assert_eq!(begun.into_inner().unwrap(), [0, 1, 2, 3], "nothing is begun after it");
    }

    #[test]
    fn a_kernel_that_is_not_built_fails_what_was_asked_for_by_name() {
        let failed = |by_name| missing("a", "b", "not built".to_owned(), by_name).failed();
        assert!(failed(true) && !failed(false));
    }

    #[test]
    fn names_select() {
        let scenarios = Scenario::all().unwrap();
        let asked = RunOptions {
            kernels: vec!["6.12".to_owned()],
            scenarios: vec!["nodes".to_owned()],
            ..RunOptions::default()
        };
        let pairs = pairs(&asked, &scenarios);
        assert_eq!(pairs.len(), 1);
        assert_eq!((pairs[0].0.name.as_str(), pairs[0].1), ("nodes", "6.12"));
        let few = RunOptions { few: true, ..RunOptions::default() };
        let few = super::pairs(&few, &scenarios);
        let of = |name| few.iter().filter(move |(s, _)| s.name == name).map(|(_, kernel)| *kernel);
        assert_eq!(of("nodes").collect::<Vec<_>>(), ["7.2"]);
        assert_eq!(of("record").collect::<Vec<_>>(), ["6.1", "7.2"]);
        assert_eq!(of("five-levels").count(), 1);
        assert_eq!(of("container").count(), 0, "it takes long");
        let all = super::pairs(&RunOptions::default(), &scenarios);
        assert!(!all.is_empty() && all.iter().all(|(s, _)| !s.by_name));
        assert!(all.iter().any(|(s, _)| s.not_in_test));
        let asked =
            RunOptions { scenarios: vec!["side-by-side".to_owned()], ..RunOptions::default() };
        assert_eq!(super::pairs(&asked, &scenarios).len(), 2);
    }
}
