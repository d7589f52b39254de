//! Results on disk, so that an interrupted evaluation can be resumed.

use std::fs::{OpenOptions, create_dir_all, read_to_string};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use isotherm_bench::output::save_json;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of the plan. It increases when a run, or a measured figure, changes its meaning.
pub const PLAN_VERSION: u32 = 7;
const SETUP: &str = "setup.json";

/// The settings that all runs of a folder share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FolderSettings {
    /// version of the plan
    pub version: u32,
    /// approximate memory of a workload, in MiB
    pub size: u64,
    /// duration of the measurement in seconds, if the workload does not end by itself
    pub seconds: u64,
    /// duration of the run before that, in seconds
    pub lead_in: u64,
    /// number of slices in which isotherm is alternately at work and at rest
    #[serde(default)]
    pub slices: u32,
    /// requests per second of the open loop
    pub rate: u64,
    /// seed of the random numbers
    pub seed: u64,
}

impl FolderSettings {
    /// The settings that the runs of a folder share.
    pub fn read(folder: &Path) -> Result<Self> {
        let noted = folder.join(SETUP);
        let text = read_to_string(&noted).with_context(|| cannot_read(&noted))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} is not ours: choose another folder", noted.display()))
    }

    /// The settings that are different now, for example `size 512, now 256`.
    fn changes(&self, now: &FolderSettings) -> Result<String> {
        let [there, now] = [self, now].map(serde_json::to_value);
        let (there, now) = (there?, now?);
        let all = there.as_object().into_iter().flatten();
        let changed = all.filter(|(name, value)| now[name] != **value);
        let changed = changed.map(|(name, value)| format!("{name} {value}, now {}", now[name]));
        Ok(changed.collect::<Vec<_>>().join("; "))
    }
}

/// A run with its outcome: one line of a file of results.
pub trait RunOutcome: Serialize + DeserializeOwned {
    /// the conditions of a run
    type Turn<'a>: PartialEq
    where
        Self: 'a;
    /// name of the file
    const FILE: &'static str;

    /// Its conditions.
    fn turn(&self) -> Self::Turn<'_>;

    /// The reason for its failure, if it has failed.
    fn failure(&self) -> Option<&str>;
}

/// A folder of results.
#[derive(Debug)]
pub struct ResultsFolder<R> {
    path: PathBuf,
    /// the completed runs
    runs: Vec<R>,
}

impl<R: RunOutcome> ResultsFolder<R> {
    /// Creates the folder, or continues with it.
    pub fn open(path: &Path, setup: &FolderSettings) -> Result<Self> {
        create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
        let noted = path.join(SETUP);
        if noted.exists() {
            let there = FolderSettings::read(path)?;
            if there != *setup {
                bail!(
                    "{} holds runs with other settings ({}): use the same ones, or choose another folder",
                    path.display(),
                    there.changes(setup)?
                );
            }
        } else {
            save_json(&noted, setup)?;
        }
        let runs = path.join(R::FILE);
        let created = OpenOptions::new().create(true).append(true).open(&runs);
        created.with_context(|| format!("cannot write {}", runs.display()))?;
        ResultsFolder::read(path)
    }

    /// Opens the folder for reading only.
    pub fn read(path: &Path) -> Result<Self> {
        let runs = path.join(R::FILE);
        let text = read_to_string(&runs).with_context(|| cannot_read(&runs))?;
        // The last line may be incomplete; that run is repeated.
        let runs = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok(ResultsFolder { path: path.to_owned(), runs })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a run exists and did not fail.
    pub fn has<'a>(&'a self, turn: R::Turn<'a>) -> bool {
        self.runs.iter().any(|run| run.turn() == turn && run.failure().is_none())
    }

    /// Adds a run, which replaces a failed one.
    pub fn add(&mut self, run: R) -> Result<()> {
        let path = self.path.join(R::FILE);
        let cannot = || format!("cannot write {}", path.display());
        let mut file = OpenOptions::new().append(true).open(&path).with_context(cannot)?;
        // The leading newline ends a previous line that is incomplete.
        let line = format!("\n{}\n", serde_json::to_string(&run)?);
        file.write_all(line.as_bytes()).with_context(cannot)?;
        file.sync_data().with_context(cannot)?;
        self.runs.push(run);
        Ok(())
    }

    /// The runs that count: the last one of each turn.
    pub fn last<'a>(&'a self) -> Vec<&'a R> {
        let runs = self.runs.iter().enumerate();
        let newer =
            |i: usize, run: &'a R| self.runs.iter().skip(i + 1).any(|r| r.turn() == run.turn());
        runs.filter(|&(i, run)| !newer(i, run)).map(|(_, run)| run).collect()
    }
}

fn cannot_read(path: &Path) -> String {
    format!(
        "cannot read {}: name a folder in which there are results (--out of a run)",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::super::config::Config;
    use super::super::plan::PlannedRun;
    use super::super::run::{Run, RunResult, WorkDone};
    use super::super::sampler::MemoryFigures;
    use super::*;

    const SOME: FolderSettings = FolderSettings {
        version: PLAN_VERSION,
        size: 1,
        seconds: 2,
        lead_in: 3,
        slices: 6,
        rate: 4,
        seed: 5,
    };

    fn run(repetition: u32, ok: bool) -> Run {
        let figures = RunResult {
            work: WorkDone::Seconds(1.5),
            sliced: None,
            seconds: 1.5,
            memory: MemoryFigures::default(),
            major_faults: 3,
            stalls: 0,
            pressure: 0.0,
            own_cpu: None,
            acting: None,
            latency: None,
            windows: None,
        };
        let outcome = if ok { Ok(figures) } else { Err("it was so".to_owned()) };
        Run { workload: "a".to_owned(), config: Config::Prcl, repetition, outcome }
    }

    fn turn(repetition: u32) -> PlannedRun<'static> {
        PlannedRun { workload: "a", config: Config::Prcl, repetition }
    }

    #[test]
    fn goes_on_where_it_was_broken_off() {
        let dir = tempfile::tempdir().unwrap();
        let mut folder: ResultsFolder<Run> = ResultsFolder::open(dir.path(), &SOME).unwrap();
        folder.add(run(0, true)).unwrap();
        folder.add(run(1, false)).unwrap();
        let mut file = OpenOptions::new().append(true).open(dir.path().join(Run::FILE)).unwrap();
        file.write_all(b"{\"workload\":\"a\",\"config\":\"prcl\",\"repe").unwrap();
        let mut folder: ResultsFolder<Run> = ResultsFolder::open(dir.path(), &SOME).unwrap();
        assert!(folder.has(turn(0)) && !folder.has(turn(1)) && !folder.has(turn(2)));
        folder.add(run(1, true)).unwrap();
        let folder: ResultsFolder<Run> = ResultsFolder::read(dir.path()).unwrap();
        assert!(folder.has(turn(1)));
        assert_eq!(folder.last(), [&run(0, true), &run(1, true)]);
    }

    #[test]
    fn another_setup_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        ResultsFolder::<Run>::open(dir.path(), &SOME).unwrap();
        let other = FolderSettings { size: 7, ..SOME };
        let why = ResultsFolder::<Run>::open(dir.path(), &other).unwrap_err().to_string();
        let of_size = format!("(size {}, now 7)", SOME.size);
        assert!(why.contains(&of_size), "{why}");
        assert!(ResultsFolder::<Run>::read(&dir.path().join("none")).is_err());
    }
}
