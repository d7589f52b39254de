//! Answers questions about a lake: SQL for DuckDB or Spark, which a Python program runs.

use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use isotherm_fleet::COLUMN_AGES;
use serde::Serialize;

use crate::usage::UsageError;

const PROGRAM: &str = include_str!("../fleet/report.py");
const PYTHON: &str = "python3";
/// Days of each control group that do not count for its limit: after a restart all memory was just touched.
const SKIPPED_DAYS: u32 = 2;
const MIB: u64 = 1 << 20;

/// Failures of a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetReportError {
    /// Python does not start
    #[error("cannot run {PYTHON}, which answers the questions: install Python 3.9 or later")]
    Python(#[source] io::Error),
    /// the options cannot be written as JSON
    #[error("cannot write the options")]
    Options(#[from] serde_json::Error),
}

/// The engine that computes the answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SqlEngine {
    /// in a process of this machine
    DuckDb,
    /// on a cluster
    Spark,
}

/// An age of the columns of the lake, by the name that is part of theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct LakeAge(&'static str);

impl LakeAge {
    /// Finds the age of a number of seconds.
    ///
    /// # Errors
    /// If the lake has no columns for it.
    pub fn of(seconds: u64) -> Result<Self, UsageError> {
        let found = COLUMN_AGES.into_iter().find(|age| age.1 == seconds);
        found.map(|age| LakeAge(age.0)).ok_or_else(|| {
            let names = COLUMN_AGES.map(|age| age.0).join(", ");
            UsageError::new(format!("the lake has no columns for this age: use one of {names}"))
        })
    }
}

/// The options of a report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FleetReport {
    /// the lake, as messages name it
    pub lake: String,
    /// folder that the engine reads: the lake itself, or a copy
    pub folder: PathBuf,
    /// minimum age of page-out
    pub age: LakeAge,
    /// age from which memory is cold in a comparison of images
    pub rollout_age: LakeAge,
    /// memory that may return in a minute, in millionths of the resident memory
    pub objective_ppm: u32,
    /// part of each host that stays free, in percent
    pub headroom: u32,
    /// engine that computes the answers
    pub engine: SqlEngine,
    /// URL of the cluster of Spark
    pub master: String,
    /// memory of DuckDB or of the driver of Spark
    pub memory_mib: u64,
    /// threads of DuckDB; `None`: one for each CPU
    pub threads: Option<u32>,
    /// page to write
    pub html: Option<PathBuf>,
    /// print JSON
    pub json: bool,
}

/// A question, as the program expects it.
#[derive(Debug, Serialize)]
struct Question {
    name: &'static str,
    sql: String,
    /// the age whose columns it reads
    age: Option<LakeAge>,
}

#[derive(Serialize)]
struct Options<'a> {
    #[serde(flatten)]
    report: &'a FleetReport,
    /// names and statements of the views that the questions read
    views: [(&'static str, &'static str); 1],
    questions: Vec<Question>,
}

const VIEWS: [(&str, &str); 1] = [("observed", include_str!("../fleet/sql/observed.sql"))];

impl FleetReport {
    /// The smallest amount of memory for an engine.
    pub const MIN_MEMORY: u64 = 256 * MIB;

    /// Answers all questions on standard output. The status is that of the program, which has printed its errors.
    ///
    /// # Errors
    /// If there is no Python.
    pub fn run(&self) -> Result<ExitStatus, FleetReportError> {
        let options = Options { report: self, views: VIEWS, questions: self.questions() };
        let options = serde_json::to_string(&options)?;
        let mut command = Command::new(PYTHON);
        command.args(["-c", PROGRAM, &options]).status().map_err(FleetReportError::Python)
    }

    fn questions(&self) -> Vec<Question> {
        let (age, rollout_age) = (Some(self.age), Some(self.rollout_age));
        [
            ("cold", include_str!("../fleet/sql/cold.sql"), None),
            ("savings", include_str!("../fleet/sql/savings.sql"), age),
            ("limits", include_str!("../fleet/sql/limits.sql"), None),
            ("hosts", include_str!("../fleet/sql/hosts.sql"), age),
            ("rollout", include_str!("../fleet/sql/rollout.sql"), rollout_age),
            ("images", include_str!("../fleet/sql/images.sql"), None),
        ]
        .map(|(name, sql, age)| Question { name, sql: self.filled(sql, age), age })
        .into()
    }

    /// A statement with its parameters in place.
    fn filled(&self, sql: &str, age: Option<LakeAge>) -> String {
        let seconds = COLUMN_AGES
            .into_iter()
            .find(|a| age.is_some_and(|age| age.0 == a.0))
            .map_or(0, |a| a.1);
        sql.replace("{age}", age.map_or("", |age| age.0))
            .replace("{age_s}", &seconds.to_string())
            .replace("{objective_ppm}", &self.objective_ppm.to_string())
            .replace("{skipped_days}", &SKIPPED_DAYS.to_string())
            .replace("{headroom}", &self.headroom.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_filled_in() {
        let report = FleetReport {
            lake: "lake".into(),
            folder: "lake".into(),
            age: LakeAge::of(120).unwrap(),
            rollout_age: LakeAge::of(1800).unwrap(),
            objective_ppm: 2000,
            headroom: 10,
            engine: SqlEngine::DuckDb,
            master: String::new(),
            memory_mib: 4096,
            threads: None,
            html: None,
            json: false,
        };
        let questions = report.questions();
        for question in &questions {
            assert!(!question.sql.contains(['{', '}']), "{}", question.name);
            // One statement each.
            let code = question.sql.lines().filter(|line| !line.trim_start().starts_with("--"));
            assert!(code.into_iter().all(|line| !line.contains(';')), "{}", question.name);
        }
        assert!(questions[1].sql.contains("idle_2m") && questions[4].sql.contains("idle_30m"));
        assert!(LakeAge::of(121).unwrap_err().to_string().contains("2m, 5m"));
    }

    /// A question about limits reads the columns of every age from 10 s on.
    #[test]
    fn the_question_about_limits_knows_the_ages_of_the_lake() {
        let sql = include_str!("../fleet/sql/limits.sql");
        for (name, seconds) in COLUMN_AGES {
            let listed = sql.contains(&format!("({seconds}, '{name}')"));
            assert_eq!(listed, seconds >= 10, "{name}");
        }
    }
}
