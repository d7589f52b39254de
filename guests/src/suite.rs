//! Scenarios on kernels: which, in which order, and what comes of each.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use tempfile::TempDir;

use crate::apt;
use crate::cache::{Cache, Kernel};
use crate::inside::Inside;
use crate::kernels::Kernels;
use crate::qemu::{self, Boot};
use crate::scenario::Scenario;
use crate::table::{Outcome, Verdict};
use crate::{program, room};

/// Lines of the console and of the script that are shown of a guest that failed.
const SHOWN: usize = 40;
/// A guest may say so much, in bytes.
const MAX_TEXT: usize = 1 << 20;

/// What was asked for by name; nothing: all.
#[derive(Debug, Default)]
pub struct Asked {
    /// series of kernels
    pub kernels: Vec<String>,
    /// names of scenarios
    pub scenarios: Vec<String>,
    /// where all that comes out of the guests is to stay
    pub keep: Option<PathBuf>,
}

impl Asked {
    /// # Errors
    /// If something of that name is not there.
    fn check(&self, kernels: &Kernels, scenarios: &[Scenario]) -> Result<()> {
        let series: Vec<&str> = kernels.series().collect();
        let names: Vec<&str> = scenarios.iter().map(|s| s.name.as_str()).collect();
        for (asked, known) in [(&self.kernels, series), (&self.scenarios, names)] {
            if let Some(no) = asked.iter().find(|a| !known.contains(&a.as_str())) {
                bail!("{no} is not there: take of {}", known.join(", "));
            }
        }
        Ok(())
    }

    fn has(&self, scenario: &str, series: &str) -> bool {
        let among = |names: &[String], name| names.is_empty() || names.iter().any(|n| n == name);
        among(&self.scenarios, scenario) && among(&self.kernels, series)
    }

    /// Where a guest is to put what comes out of it, and what removes it again.
    fn place(&self, scenario: &str, release: &str) -> Result<(PathBuf, Option<TempDir>)> {
        let Some(keep) = &self.keep else {
            let dir = tempfile::tempdir()?;
            return Ok((dir.path().to_owned(), Some(dir)));
        };
        let dir = keep.join(format!("{scenario}-{release}"));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).with_context(|| format!("cannot write {}", dir.display()))?;
        Ok((dir.canonicalize()?, None))
    }

    /// Whether all that was asked for must be tried.
    fn is_by_name(&self) -> bool {
        !self.scenarios.is_empty() || !self.kernels.is_empty()
    }
}

/// Runs what was asked for; `row` is told what comes of each, `say` what goes on.
///
/// # Errors
/// If something that all guests take is not there.
pub fn run(asked: &Asked, mut row: impl FnMut(&Outcome), say: impl Fn(&str)) -> Result<bool> {
    let kernels = Kernels::read(&room().join("kernels.toml"))?;
    let scenarios = Scenario::all()?;
    asked.check(&kernels, &scenarios)?;
    let program = program()?;
    let cache = Cache::open()?;
    let pairs: Vec<(&Scenario, &str)> = scenarios
        .iter()
        .flat_map(|s| s.kernels.keys().map(move |k| (s, k.as_str())))
        .filter(|(s, k)| asked.has(&s.name, k))
        .collect();
    let series: BTreeSet<&str> = pairs.iter().map(|(_, k)| *k).collect();
    cache.fetch(&kernels, &series.into_iter().collect::<Vec<_>>(), &say)?;
    let mut all_ok = true;
    for (scenario, series) in pairs {
        let outcome = match cache.find(&kernels, series) {
            Some(kernel) => {
                let (dir, _temporary) = asked.place(&scenario.name, &kernel.release)?;
                one(scenario, &kernel, &kernels, &program, &dir, &say)?
            }
            None => missing(scenario, series, &kernels, asked.is_by_name()),
        };
        all_ok &= !outcome.failed();
        row(&outcome);
    }
    Ok(all_ok)
}

/// Boots a kernel with a prompt inside.
///
/// # Errors
/// If the kernel is not to be had.
pub fn shell(series: &str, topology: &str, say: impl Fn(&str)) -> Result<()> {
    let kernels = Kernels::read(&room().join("kernels.toml"))?;
    let asked = Asked { kernels: vec![series.to_owned()], ..Asked::default() };
    asked.check(&kernels, &[])?;
    let cache = Cache::open()?;
    cache.fetch(&kernels, &[series], &say)?;
    let kernel = cache.find(&kernels, series).with_context(|| not_built(series, &kernels))?;
    let path = room().join("topologies").join(format!("{topology}.toml"));
    let topology = crate::topology::Topology::read(&path)?;
    let inside = Inside {
        kernel: &kernel,
        modules: &kernels.modules,
        program: &program()?,
        facts: topology.facts(),
        variables: format!("export SERIES={series}\n"),
        scenario: None,
    };
    let dir = tempfile::tempdir()?;
    let initramfs = dir.path().join("initramfs");
    fs::write(&initramfs, inside.archive()?)?;
    say("Ctrl-A X ends the guest, and so does `exit`");
    let initramfs = &initramfs;
    Boot { kernel: &kernel, initramfs, topology: &topology, kernel_args: &[] }.interact()
}

fn not_built(series: &str, kernels: &Kernels) -> String {
    let make = kernels.built.iter().find(|b| b.series == series).map_or("guests", |b| &b.make);
    format!("not built: make {make}")
}

/// What comes of a scenario whose kernel is not there.
fn missing(scenario: &Scenario, series: &str, kernels: &Kernels, by_name: bool) -> Outcome {
    let why = not_built(series, kernels);
    let verdict = if by_name { Verdict::Failed(vec![why]) } else { Verdict::NotTried(why) };
    Outcome {
        scenario: scenario.name.clone(),
        kernel: series.to_owned(),
        verdict,
        took: Duration::ZERO,
        seen: Vec::new(),
    }
}

/// Boots one guest, and judges what comes out of it.
fn one(
    scenario: &Scenario,
    kernel: &Kernel,
    kernels: &Kernels,
    program: &Path,
    dir: &Path,
    say: impl Fn(&str),
) -> Result<Outcome> {
    let inside = Inside {
        kernel,
        modules: &kernels.modules,
        program,
        facts: scenario.topology.facts(),
        variables: scenario.variables(&kernel.series),
        scenario: Some(&scenario.dir),
    };
    let initramfs = dir.join("initramfs");
    fs::write(&initramfs, inside.archive()?)?;
    let boot = Boot {
        kernel,
        initramfs: &initramfs,
        topology: &scenario.topology,
        kernel_args: &scenario.kernel_args,
    };
    let begin = Instant::now();
    let ended = boot.run(dir, scenario.limit);
    let took = begin.elapsed();
    let (seen, mut wrong) = judge(scenario, &kernel.series, dir);
    wrong.extend(ended.err().map(|e| e.to_string()));
    if !wrong.is_empty() {
        for name in [qemu::CONSOLE, qemu::ERRORS, qemu::TEXT] {
            say(&format!("{} on {}: {name}:\n{}", scenario.name, kernel.release, last(dir, name)));
        }
    }
    let verdict = if wrong.is_empty() { Verdict::Ok } else { Verdict::Failed(wrong) };
    let kernel = kernel.release.clone();
    Ok(Outcome { scenario: scenario.name.clone(), kernel, verdict, took, seen })
}

/// What the guest has seen, and what of it is not as expected.
fn judge(scenario: &Scenario, series: &str, dir: &Path) -> (Vec<String>, Vec<String>) {
    let (mut seen, mut wrong) = (Vec::new(), Vec::new());
    let out = dir.join("out");
    if let Err(e) = bring_out(dir, &out) {
        return (seen, vec![format!("the guest broke off, see its console: {e:#}")]);
    }
    let text = |name: &str| fs::read_to_string(out.join(name)).unwrap_or_default();
    let status = text("status");
    seen.extend(text("seen").lines().map(str::to_owned));
    wrong.extend(text("failed").lines().map(str::to_owned));
    if status.is_empty() {
        wrong.push("the guest broke off, see its console".to_owned());
        return (seen, wrong);
    }
    if status.trim() != "0" {
        wrong.extend(wrong.is_empty().then(|| format!("its script ended with {}", status.trim())));
        return (seen, wrong);
    }
    for score in scenario.score.iter().filter(|s| s.is_of(series)) {
        match score.judge(&out) {
            Ok((told, missed)) => {
                seen.push(told);
                wrong.extend(missed);
            }
            Err(e) => wrong.push(format!("{}: {e:#}", score.record)),
        }
    }
    (seen, wrong)
}

/// Unpacks the files that the guest has sent.
fn bring_out(dir: &Path, out: &Path) -> Result<()> {
    fs::create_dir(out)?;
    let tar = dir.join(qemu::FILES);
    apt::output(Command::new("tar").arg("-x").arg("-f").arg(tar).arg("-C").arg(out)).map(drop)
}

/// The last lines of a file.
fn last(dir: &Path, name: &str) -> String {
    let bytes = fs::read(dir.join(name)).unwrap_or_default();
    let tail = &bytes[bytes.len().saturating_sub(MAX_TEXT)..];
    let text = String::from_utf8_lossy(tail);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN)..].join("\n")
}
