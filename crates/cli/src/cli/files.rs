//! Options of `files`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use isotherm::page_cache::{By, SortBy};
use isotherm::units;

use super::named;

/// Options of `files`.
#[derive(Debug, Args)]
pub struct Files {
    /// Show only these files, and the files in these folders and below them [default: all that are cached]
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Show only the file system that holds this path
    #[arg(long, value_name = "PATH", conflicts_with = "paths")]
    pub mount: Option<PathBuf>,
    /// Show only pages that are charged to this control group, or to a group below it
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,
    /// Kind of the rows: a file, a folder, a control group, a process or a file system
    #[arg(long, value_name = "WHAT", default_value = "file", value_parser = named(By::ALL))]
    pub by: By,
    /// With --by dir, show folders with this many names in their paths, each with all files below it
    /// [default: the folder of each file]
    #[arg(long, value_name = "N")]
    pub depth: Option<usize>,
    /// Sort by this figure: names in alphabetical order, all others in descending order
    #[arg(long, value_name = "WHAT", default_value = "resident", value_parser = named(SortBy::ALL))]
    pub sort: SortBy,
    /// Before each print, count for this long how often each file is read; requires Linux 6.12
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub reads: Option<Duration>,
    /// Before the first print, watch for this long how hot the files are: adds hot, warm, cold and unknown bytes. With
    /// --watch, they are watched all the time
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub heat: Option<Duration>,
    /// Show at most this many rows
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
    /// Print repeatedly, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// Time between two prints of --watch
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = units::duration)]
    pub interval: Duration,
    /// With --watch, use at most this share of one CPU: isotherm lists all files less often, and reads the first ones
    /// again in the time between
    #[arg(long, value_name = "SHARE", default_value = "0.5%", value_parser = units::budget, requires = "watch")]
    pub budget: u32,
    /// End --watch after this time
    #[arg(long, value_name = "TIME", value_parser = units::duration, requires = "watch")]
    pub duration: Option<Duration>,
    /// Print JSON: one object, or with --watch one per line
    #[arg(long)]
    pub json: bool,
}
