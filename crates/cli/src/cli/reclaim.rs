//! Options of `reclaim`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use isotherm::control::default_path;
use isotherm::reclaim::{
    GoalOption, NONE, ReclaimScheme, SizeQuota, TimeQuota, WatermarkOption, aim, goal, pages,
    quota_size, time_quota, watermarks,
};
use isotherm::units;
use isotherm_core::AddrRange;
use isotherm_core::scheme::Aim;

use super::run::Acting;

/// Options of `reclaim`.
#[derive(Debug, Args)]
pub struct Reclaim {
    /// Page out memory that no process has touched for this long
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = units::duration)]
    pub min_age: Duration,
    /// Decide page by page: page out each page that no process has touched for --min-age even if
    /// its neighbours are in use, as in a hash table
    #[arg(long)]
    pub pages: bool,
    /// Choose the age for each control group by an objective, and correct it by the memory that comes back. "refault
    /// 0.2%": at most this share of the working set is read back within a minute. "save 30%": this share of the memory
    /// is paged out. Implies --pages
    #[arg(long, value_name = "OBJECTIVE", value_parser = aim, conflicts_with = "min_age")]
    pub aim: Option<Aim>,
    /// Time for paging out in each window of time; none: no limit
    #[arg(long, value_name = "TIME/WINDOW", default_value = "10ms/1s", value_parser = time_quota)]
    pub quota: TimeQuota,
    /// Maximum number of bytes to page out in each window of --quota; none: no limit
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = quota_size)]
    pub quota_size: SizeQuota,
    /// Act only while the free memory of the machine is between LOW and HIGH. isotherm starts to act below MID and
    /// stops above HIGH; below LOW it leaves reclaim to the kernel. none: always act
    #[arg(long, value_name = "HIGH,MID,LOW", default_value = "50%,40%,20%", value_parser = watermarks)]
    pub watermarks: WatermarkOption,
    /// Time between two checks of the watermarks [default: 5s; 500ms with --look damon]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub watermarks_interval: Option<Duration>,
    /// Page out only memory at these addresses: virtual addresses in each process, or physical ones with --look
    /// damon; repeatable
    #[arg(long, value_name = "FROM..TO", value_parser = pages)]
    pub range: Vec<AddrRange>,
    /// Page out no anonymous memory: no heap, no stack, no mapping without a file. A private copy
    /// of a file's page counts as part of the file, but with --look damon as anonymous
    #[arg(long)]
    pub skip_anon: bool,
    /// Adjust the quota until this goal is met: refault=SHARE of the working set is read back within a minute, or
    /// some tasks wait for memory for psi=SHARE of the time. The figure is that of the machine with --all, else of
    /// the control group of the targets; repeatable
    #[arg(long, value_name = "GOAL", value_parser = goal)]
    pub goal: Vec<GoalOption>,
    /// Listen on this socket for the commands of isotherm service; none: no socket [default:
    /// /run/isotherm/control.sock; for users other than root
    /// $XDG_RUNTIME_DIR/isotherm/control.sock]
    #[arg(long, value_name = "PATH|none")]
    pub control: Option<PathBuf>,
    /// Also read options from this TOML file, by their names here; options on the command line override it. SIGHUP
    /// re-reads the file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub acting: Acting,
}

impl Reclaim {
    /// The path of the control socket; `None` with `--control none`.
    pub fn socket(&self) -> Option<PathBuf> {
        let path = self.control.clone().unwrap_or_else(default_path);
        Some(path).filter(|path| path != Path::new(NONE))
    }

    /// The scheme that these options describe.
    pub fn scheme(&self) -> ReclaimScheme {
        ReclaimScheme {
            min_age: self.min_age,
            pages: self.pages,
            aim: self.aim,
            quota: self.quota,
            quota_size: self.quota_size.0,
            watermarks: self.watermarks.0,
            watermarks_interval: self.watermarks_interval,
            ranges: self.range.clone(),
            files_too: !self.acting.files.is_empty(),
            skip_anon: self.skip_anon,
            goals: self.goal.iter().map(|goal| goal.of(self.acting.targets.all)).collect(),
        }
    }
}
