//! Options of `fleet`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use isotherm::agent::LakePlace;
use isotherm::fleet_report::{FleetReport, LakeAge, SqlEngine};
use isotherm::{UsageError, units};

/// Options of `fleet`.
#[derive(Debug, Args)]
pub struct Fleet {
    /// what to do
    #[command(subcommand)]
    pub task: FleetTask,
}

/// The tasks of `fleet`.
#[derive(Debug, Subcommand)]
pub enum FleetTask {
    /// Answer questions about the memory of many hosts: how much is cold, how much page-out would save, which limits
    /// suffice, which hosts could be emptied, and what new images changed
    Report(ReportOfFleet),
    /// Copy the small files of a lake to a few large files for each day, which engines open faster
    Compact(CompactFleet),
}

/// Options of `fleet compact`.
#[derive(Debug, Args)]
pub struct CompactFleet {
    /// The lake that isotherm agent writes: a folder, or s3://BUCKET/PREFIX with credentials from the environment
    #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX", value_parser = LakePlace::parse)]
    pub lake: LakePlace,
    /// Folder of the copy
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// Copy this day (UTC), again if it is there [default: all days that ended an hour ago or earlier and have no complete copy]
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = isotherm_fleet::day)]
    pub date: Option<String>,
}

/// Options of `fleet report`.
#[derive(Debug, Args)]
pub struct ReportOfFleet {
    /// The lake, which isotherm agent and isotherm fleet compact write: a folder, or s3://BUCKET/PREFIX with
    /// credentials from the environment
    #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX", value_parser = LakePlace::parse)]
    pub lake: LakePlace,
    /// Folder for a copy of the days of a lake in object storage that ended an hour ago or earlier. The answers are
    /// about these days. A later report copies only the days that the folder lacks. Without it, each report copies all
    /// days, also the current one, to a temporary folder
    #[arg(long, value_name = "DIR")]
    pub copy: Option<PathBuf>,
    /// Minimum age of page-out: an age of the columns of the lake
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = units::duration)]
    pub age: Duration,
    /// Memory that may return per minute, in percent of the resident memory
    #[arg(long, value_name = "PERCENT", default_value = "0.2", value_parser = units::percent)]
    pub objective: f64,
    /// Part of each host that stays free when other hosts are emptied, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=99))]
    pub headroom: u32,
    /// Age from which memory counts as cold when images are compared
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = units::duration)]
    pub rollout_age: Duration,
    /// Engine that computes the answers
    #[arg(long, value_enum, default_value = "duckdb")]
    pub engine: EngineOption,
    /// Master of Spark, such as spark://HOST:7077
    #[arg(long, value_name = "URL", default_value = "local[*]")]
    pub master: String,
    /// Memory of DuckDB, or of the driver of Spark
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = units::size)]
    pub memory: u64,
    /// Threads of DuckDB [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Also write a page with charts to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The engines of `fleet report`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EngineOption {
    /// DuckDB, inside the Python process: python3 -m pip install duckdb
    #[value(name = "duckdb")]
    DuckDb,
    /// Spark, on the cluster of --master: python3 -m pip install pyspark
    Spark,
}

impl ReportOfFleet {
    /// The options as the library's type. The folder of a lake in object storage is that of the copy; none, if the
    /// copy is not kept.
    pub fn report(&self) -> Result<FleetReport, UsageError> {
        let (lake, folder) = match (&self.lake, &self.copy) {
            (LakePlace::Dir(dir), None) => (dir.display().to_string(), dir.clone()),
            (LakePlace::Dir(_), Some(_)) => {
                return Err(UsageError::new(
                    "--copy is for a lake in object storage: leave it out",
                ));
            }
            (LakePlace::Objects(url), copy) => (url.clone(), copy.clone().unwrap_or_default()),
        };
        let age = |option: &str, age: Duration| {
            let seconds = if age.subsec_nanos() == 0 { age.as_secs() } else { 0 };
            LakeAge::of(seconds).map_err(|e| UsageError::new(format!("{option}: {e}")))
        };
        if self.engine != EngineOption::Spark && self.master != "local[*]" {
            return Err(UsageError::new("--master is for --engine spark"));
        }
        if self.memory < FleetReport::MIN_MEMORY {
            return Err(UsageError::new("--memory: the engines require at least 256 MiB"));
        }
        Ok(FleetReport {
            lake,
            folder,
            age: age("--age", self.age)?,
            rollout_age: age("--rollout-age", self.rollout_age)?,
            objective_ppm: (self.objective * 1e4).round() as u32,
            headroom: self.headroom,
            engine: match self.engine {
                EngineOption::DuckDb => SqlEngine::DuckDb,
                EngineOption::Spark => SqlEngine::Spark,
            },
            master: self.master.clone(),
            memory_mib: self.memory >> 20,
            threads: self.threads,
            html: self.html.clone(),
            json: self.json,
        })
    }
}
