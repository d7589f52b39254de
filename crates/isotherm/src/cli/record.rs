//! Options of `record`.

mod monitor;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use isotherm_core::{AddrRange, Attrs, MonitorKind};
use isotherm_linux::Way;
use isotherm_linux::damon::sysfs::IntervalsGoal;
use isotherm_record::Limits;

use self::monitor::{OfAll, OfRegions};
use super::{DEFAULT_RECORD, UsageError};
use crate::units;

/// How to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// in the best way that works
    Auto,
    /// by our own monitor, in this way
    By(Way),
    /// by the kernel's
    Damon,
}

/// Options of `record`.
#[derive(Debug, Args)]
pub struct Record {
    /// Process to watch; may be given several times
    #[arg(short, long, value_name = "PID")]
    pub pid: Vec<i32>,
    /// Watch the processes of this control group and of those below it, as they come and go, until it
    /// is removed: a path below the mount of cgroups (system.slice/ssh.service), or a directory; may be
    /// given several times
    #[arg(long, value_name = "PATH")]
    pub cgroup: Vec<PathBuf>,
    /// Watch the physical memory of the machine, whoever uses it: by kernel DAMON where that is free,
    /// else by page_idle
    #[arg(long, conflicts_with_all = ["pid", "cgroup", "command", "children"])]
    pub physical: bool,
    /// Only memory of this node, with --physical; may be given several times
    #[arg(long, value_name = "N", requires = "physical")]
    pub node: Vec<u32>,
    /// Only these addresses: physical ones with --physical, else those of the one process that is
    /// watched with --look damon; may be given several times
    #[arg(long, value_name = "FROM..TO", value_parser = units::addresses)]
    pub range: Vec<AddrRange>,
    /// Record nothing; tell whether this record is sound: its checksums, bounds, order, and that
    /// regions cover what is mapped. Exit status 1 if it is not
    #[arg(long, value_name = "FILE", exclusive = true)]
    pub check: Option<PathBuf>,
    /// Record to write; an earlier record of that name is kept as FILE.old
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_RECORD)]
    pub output: PathBuf,
    /// How to look: auto, bpf, bpf-probe, bpf-iter, clear_refs, page_idle, smaps or damon; auto is the
    /// first of these that works here (isotherm doctor), but damon only with --physical
    #[arg(long, value_name = "WAY", default_value = "auto", value_parser = units::way)]
    pub look: Look,
    /// How to find out what is hot: exposure (clear once, read many times, within a budget), regions
    /// (random windows of adaptive regions, by the kernel's rules) or pages (clear and read all pages)
    /// [default: exposure where --look can read all at once, as bpf and bpf-iter can, unless an option
    /// of regions is given; else regions]
    #[arg(long, value_name = "KIND", value_parser = units::monitor)]
    pub monitor: Option<MonitorKind>,
    /// Time between two readings of the mappings
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    pub update: Duration,
    /// Least and greatest number of regions
    #[arg(long, value_name = "MIN..MAX", default_value = "100..1000", value_parser = units::regions)]
    pub regions: (u32, u32),
    /// Memory looked at together; regions of the exposure monitor are cut at multiples of it
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = units::size)]
    pub window: u64,
    /// Have the kernel tune the intervals until this share of all accesses that it could see is seen
    /// within so many aggregation intervals, as 4%,3,5ms..10s; the last are bounds of the sampling
    /// interval (--look damon, Linux 6.15)
    #[arg(long, value_name = "SHARE,N,MIN..MAX", value_parser = units::intervals_goal)]
    #[arg(help_heading = "Options of --look damon")]
    pub intervals_goal: Option<IntervalsGoal>,
    /// Bytes that a step of a physical address stands for (--look damon, Linux 6.18)
    #[arg(long, value_name = "SIZE", value_parser = units::size, requires = "physical")]
    #[arg(help_heading = "Options of --look damon")]
    pub addr_unit: Option<u64>,
    /// End after this time [default: when all targets have ended and no --cgroup is left, or at
    /// Ctrl-C]. A started command that still runs is then ended too (SIGTERM, after 5 s SIGKILL)
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub duration: Option<Duration>,
    /// Watch the children of the processes as well; those of a started command always are
    #[arg(long)]
    pub children: bool,
    /// Where the random numbers begin [default: different each time, and in the record]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// The record has at most this size, over all its files
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub max_size: Option<u64>,
    /// Keep the newest part of --max-size in N files instead of ending when it is reached
    #[arg(long, value_name = "N")]
    pub rotate: Option<u32>,
    /// Command to start and watch
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    #[command(flatten, next_help_heading = "Options of --monitor exposure (pages: --windows)")]
    of_all: OfAll,
    #[command(
        flatten,
        next_help_heading = "Options of --monitor regions (pages: --sample, --aggr)"
    )]
    of_regions: OfRegions,
}

impl Record {
    /// The attributes of the monitor, if it looks in this way, which can read all at once or not.
    pub fn attrs(&self, way: Way, reads_all: bool) -> Result<Attrs, UsageError> {
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
        if attrs.sample < way.shortest_sample() {
            return Err(UsageError(format!(
                "--look {} tells nothing within {:?}: make --sample {:?} or longer",
                way.name(),
                attrs.sample,
                way.shortest_sample(),
            )));
        }
        Ok(attrs.checked()?)
    }

    /// The attributes of the kernel's monitor, with its own defaults. It takes part of ours.
    pub fn damon_attrs(&self) -> Result<Attrs, UsageError> {
        let window = (self.window != Attrs::default().window).then_some("--window");
        let monitor = self.monitor.map(|_| "--monitor");
        let ours = [monitor, window, self.of_all.given(), self.of_regions.given_beside_intervals()];
        if let Some(name) = ours.into_iter().flatten().next() {
            let text = format!("kernel DAMON has its own rules for {name}: leave it out");
            return Err(UsageError(text));
        }
        let common = Attrs {
            sample: Duration::from_millis(5),
            aggr: Duration::from_millis(100),
            update: self.update,
            min_regions: self.regions.0,
            max_regions: self.regions.1,
            monitor: MonitorKind::Regions,
            ..Attrs::default()
        };
        Ok(self.of_regions.over(common).checked()?)
    }

    /// The limits of the record.
    pub fn limits(&self) -> Result<Limits, UsageError> {
        let limits = Limits { max_size: self.max_size, rotate: self.rotate };
        limits.file_size()?;
        Ok(limits)
    }
}
