//! A scenario: what to run in a guest, on which kernels, and the expected results.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::room;
use crate::score::RequiredAccuracy;
use crate::topology::Topology;
use crate::watch::SILENCE;

/// Maximum time limit of a script, in seconds of the guest's clock.
const MAX_TIMEOUT_S: u64 = 600;

/// The contents of `scenarios/NAME/scenario.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    about: String,
    topology: String,
    #[serde(default = "two_minutes")]
    timeout_s: u64,
    #[serde(default)]
    kernel_args: Vec<String>,
    kernels: BTreeMap<String, BTreeMap<String, String>>,
    #[serde(default)]
    score: Vec<RequiredAccuracy>,
    #[serde(default)]
    systemd: bool,
    #[serde(default)]
    by_name: bool,
    #[serde(default)]
    kernels_by_name: Vec<String>,
    #[serde(default)]
    oldest_too: bool,
    #[serde(default)]
    not_in_test: bool,
}

fn two_minutes() -> u64 {
    120
}

/// A scenario.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// name of its folder
    pub name: String,
    /// description, in one line
    pub about: String,
    /// its folder
    pub dir: PathBuf,
    /// its machine
    pub topology: Topology,
    /// time limit of its script, by the guest's clock
    pub timeout: Duration,
    /// CPU time without a heartbeat of the guest after which the emulator is ended
    pub silence: Duration,
    /// arguments of the kernel
    pub kernel_args: Vec<String>,
    /// variables of its script, by series
    pub kernels: BTreeMap<String, BTreeMap<String, String>>,
    /// records that it writes, and their required accuracy
    pub score: Vec<RequiredAccuracy>,
    /// It runs under Debian's systemd, with the package.
    pub systemd: bool,
    /// only run if selected by name, because it is a measurement or takes long
    pub by_name: bool,
    /// kernels on which it only runs if it, or the kernel, is selected by name, because other kernels show the
    /// same
    pub kernels_by_name: Vec<String>,
    /// `make test` boots the oldest of the kernels as well as the newest, because isotherm differs there
    pub oldest_too: bool,
    /// `make test` leaves it out, because it takes long; `make guests` runs it
    pub not_in_test: bool,
}

impl Scenario {
    /// All scenarios, by name.
    pub fn all() -> Result<Vec<Self>> {
        let mut folders = Vec::new();
        for folder in std::fs::read_dir(room().join("scenarios"))? {
            folders.push(folder?.path());
        }
        folders.sort();
        folders.iter().map(|f| Scenario::read(f)).collect()
    }

    /// The scenario in a folder.
    pub fn read(dir: &Path) -> Result<Self> {
        let path = dir.join("scenario.toml");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let file: File = toml::from_str(&text).with_context(|| path.display().to_string())?;
        ensure!(dir.join("run").is_file(), "{} has no script `run`", dir.display());
        if let Some(other) = file.kernels_by_name.iter().find(|k| !file.kernels.contains_key(*k)) {
            bail!("{}: {other} of kernels_by_name is not in [kernels]", path.display());
        }
        ensure!((1..=MAX_TIMEOUT_S).contains(&file.timeout_s), "timeout_s is 1 to {MAX_TIMEOUT_S}");
        Ok(Scenario {
            name: dir.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            about: file.about,
            dir: dir.to_owned(),
            topology: Topology::named(&file.topology)?,
            timeout: Duration::from_secs(file.timeout_s),
            silence: SILENCE,
            kernel_args: file.kernel_args,
            kernels: file.kernels,
            score: file.score,
            systemd: file.systemd,
            by_name: file.by_name,
            kernels_by_name: file.kernels_by_name,
            oldest_too: file.oldest_too,
            not_in_test: file.not_in_test,
        })
    }

    /// The variables of its script on a kernel of this series, as shell assignments.
    pub fn variables(&self, series: &str) -> String {
        let exports = self.kernels.get(series).into_iter().flatten();
        let line = |(name, value): (&String, &String)| {
            format!("export {name}='{}'\n", value.replace('\'', "'\\''"))
        };
        let timeout = self.timeout.as_secs();
        format!("export SERIES={series}\nexport TIMEOUT={timeout}\n")
            + &exports.map(line).collect::<String>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Kernels;

    #[test]
    fn all_that_are_here_are_sound() {
        let kernels = Kernels::read(&room().join("kernels.toml")).unwrap();
        let series: Vec<&str> = kernels.series().collect();
        for scenario in Scenario::all().unwrap() {
            let known = |s: &String| assert!(series.contains(&s.as_str()), "{}", scenario.name);
            scenario.kernels.keys().for_each(known);
            scenario.score.iter().flat_map(|s| &s.kernels).for_each(known);
            assert!(!scenario.kernels.is_empty(), "{}", scenario.name);
        }
    }

    #[test]
    fn the_script_gets_what_is_expected() {
        let mut record = Scenario::all().unwrap().into_iter().find(|s| s.name == "record").unwrap();
        let exports = BTreeMap::from([("WAY".to_owned(), "it's".to_owned())]);
        record.kernels.insert("9.9".to_owned(), exports);
        let timeout = record.timeout.as_secs();
        assert_eq!(
            record.variables("9.9"),
            format!("export SERIES=9.9\nexport TIMEOUT={timeout}\nexport WAY='it'\\''s'\n")
        );
    }
}
