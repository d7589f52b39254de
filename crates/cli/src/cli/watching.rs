//! Options of all commands that watch: the targets, and how to watch them.

mod monitor;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use isotherm::follow::Selection;
use isotherm::units;
use isotherm::watch::{AttrsFor, LookBy, check_sample, of_kdamond};
use isotherm_core::{Attrs, MonitorKind};
use isotherm_linux::Way;
use isotherm_linux::damon::KdamondAttrs;

use self::monitor::{FullReadOptions, RegionOptions};
use super::UsageError;

/// The options of views that select a running service.
pub const SERVICE_OPTIONS: [&str; 2] = ["service", "control"];

/// The options of [`Targets`].
pub const TARGET_OPTIONS: [&str; 9] = [
    "pid",
    "cgroup",
    "comm",
    "all",
    "children",
    "except_comm",
    "except_cgroup",
    "except_pid",
    "command",
];

/// The processes to watch.
#[derive(Debug, Args)]
pub struct Targets {
    /// Process to watch; repeatable
    #[arg(short, long, value_name = "PID", value_parser = units::pid)]
    pub pid: Vec<i32>,
    /// Watch the processes of this control group and its descendants until it is removed; a path
    /// below the cgroup mount (system.slice/ssh.service), or a directory; repeatable
    #[arg(long, value_name = "PATH")]
    pub cgroup: Vec<PathBuf>,
    /// Watch processes of this name, as in /proc/PID/comm, as they come and go; repeatable
    #[arg(long, value_name = "NAME")]
    pub comm: Vec<String>,
    /// Watch all processes, as they come and go
    #[arg(long, conflicts_with_all = ["pid", "cgroup", "comm"])]
    pub all: bool,
    /// Also watch the children of the processes; isotherm always watches the children of a command
    /// that it started
    #[arg(long)]
    pub children: bool,
    /// Never watch processes with this name, even if another option selects them; isotherm checks
    /// each new process, and all at least every 5 s; repeatable
    #[arg(long, value_name = "NAME")]
    pub except_comm: Vec<String>,
    /// Never watch the processes of this control group and of the groups below it; repeatable
    #[arg(long, value_name = "PATH")]
    pub except_cgroup: Vec<PathBuf>,
    /// Never watch this process; this does not exclude its children. Repeatable
    #[arg(long, value_name = "PID")]
    pub except_pid: Vec<i32>,
    /// Command to start and watch
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl Targets {
    /// The targets as the library's type. With `awaited`, names and control groups need not exist
    /// yet.
    pub fn selection(&self, awaited: bool) -> Selection {
        let mut s = Selection::default();
        s.pids.clone_from(&self.pid);
        s.cgroups.clone_from(&self.cgroup);
        s.comms.clone_from(&self.comm);
        (s.all, s.children, s.awaited) = (self.all, self.children, awaited);
        s.except_comms.clone_from(&self.except_comm);
        s.except_cgroups.clone_from(&self.except_cgroup);
        s.except_pids.clone_from(&self.except_pid);
        s.command.clone_from(&self.command);
        s
    }
}

/// How to watch the targets.
#[derive(Debug, Args)]
pub struct Watching {
    /// Way to look at accesses: auto, bpf, bpf-probe, bpf-iter, clear_refs, page_idle, smaps or
    /// damon. auto is the first of these that works on this machine (isotherm system doctor), but
    /// damon only with record --physical
    #[arg(long, value_name = "WAY", default_value = "auto", value_parser = units::way)]
    pub look: LookBy,
    /// Monitor: exposure clears once and reads many times, within a budget. regions samples random
    /// windows as kernel DAMON does. pages clears and reads all pages [default: exposure if --look
    /// can read all pages at once and no option of regions is given; else regions]
    #[arg(long, value_name = "KIND", value_parser = units::monitor)]
    pub monitor: Option<MonitorKind>,
    /// Time between two readings of the mappings
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    pub update: Duration,
    /// Minimum and maximum number of regions
    #[arg(long, value_name = "MIN..MAX", default_value = "100..1000", value_parser = units::regions)]
    pub regions: (u32, u32),
    /// Size of a window, memory that isotherm looks at together; the exposure monitor cuts regions
    /// at multiples of it
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = units::size)]
    pub window: u64,
    /// Seed of the random numbers [default: different each time]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    #[command(flatten, next_help_heading = "Options of --monitor exposure (pages: --windows)")]
    of_all: FullReadOptions,
    #[command(
        flatten,
        next_help_heading = "Options of --monitor regions (pages: --sample, --aggr)"
    )]
    of_regions: RegionOptions,
}

impl Watching {
    /// Checks the options. With `auto`, the attributes are for the best way to look.
    pub fn check(&self) -> Result<Attrs, UsageError> {
        match self.look {
            LookBy::Auto => self.attrs_for(Way::Bpf, true),
            LookBy::Way(way) => self.attrs_for(way, true),
            LookBy::Damon => self.damon_attrs(),
        }
    }

    /// The attributes of the kernel's monitor, with its own defaults. It has only some of
    /// isotherm's options; others are an error.
    fn damon_attrs(&self) -> Result<Attrs, UsageError> {
        let window = (self.window != Attrs::default().window).then_some("--window");
        let monitor = self.monitor.map(|_| "--monitor");
        let ours = [monitor, window, self.of_all.given(), self.of_regions.given_beside_intervals()];
        if let Some(name) = ours.into_iter().flatten().next() {
            let text = format!("kernel DAMON has its own rules for {name}: leave it out");
            return Err(UsageError::new(text));
        }
        let common = Attrs {
            update: self.update,
            min_regions: self.regions.0,
            max_regions: self.regions.1,
            ..of_kdamond()
        };
        Ok(self.of_regions.over(common).checked()?)
    }
}

impl AttrsFor for Watching {
    fn attrs_for(&self, way: Way, reads_all: bool) -> Result<Attrs, UsageError> {
        let monitor = monitor::kind(self.monitor, &self.of_all, &self.of_regions, reads_all)?;
        let (sample, aggr) = way.intervals();
        let common = Attrs {
            sample,
            aggr,
            update: self.update,
            min_regions: self.regions.0,
            max_regions: self.regions.1,
            window: self.window,
            monitor,
            ..Attrs::default()
        };
        let attrs = self.of_regions.over(self.of_all.over(common));
        check_sample(way, &attrs)?;
        Ok(attrs.checked()?)
    }

    fn kdamond(&self) -> Result<KdamondAttrs, UsageError> {
        Ok(KdamondAttrs::from(self.damon_attrs()?))
    }
}
