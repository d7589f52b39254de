//! Options of `record`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use isotherm::units;
use isotherm::watch::{AttrsFor, FilesToWatch, LookBy, WatchedMemory};
use isotherm_core::{AddrRange, Attrs, IntervalsGoal};
use isotherm_linux::damon::KdamondAttrs;
use isotherm_linux::{PhysicalSelection, Way};
use isotherm_record::Limits;

use super::file_targets::{FileTargets, OF_PROCESSES};
use super::{DEFAULT_RECORD, Lake, Metrics, Targets, UsageError, Watching};

/// Options of `record`.
#[derive(Debug, Args)]
pub struct Record {
    #[command(flatten)]
    pub targets: Targets,
    /// Watch the physical memory of the machine, of all processes: with kernel DAMON if no other program uses it,
    /// else with page_idle
    #[arg(long, conflicts_with_all = OF_PROCESSES)]
    pub physical: bool,
    #[command(flatten)]
    pub files: FileTargets,
    /// Record reads, writes and accesses through mappings of a file as targets of their own
    #[arg(long)]
    pub by_access: bool,
    /// List each access to a sample of the pages of files, so that isotherm report need shows the hit
    /// ratio of page caches of other sizes. Each read() then takes 0.1 to 0.2 us longer
    #[arg(long, conflicts_with = "by_access")]
    pub reuse: bool,
    /// Watch only memory of this node, with --physical; repeatable
    #[arg(long, value_name = "N", requires = "physical")]
    pub node: Vec<u32>,
    /// Watch only these addresses: physical ones with --physical, else virtual ones of the single process that
    /// --look damon watches; repeatable
    #[arg(long, value_name = "FROM..TO", value_parser = units::addresses)]
    pub range: Vec<AddrRange>,
    /// Record nothing; check whether this record is sound: its checksums, bounds, order, and that
    /// regions cover all mapped memory. Exit status 1 if it is not
    #[arg(long, value_name = "FILE", exclusive = true)]
    pub check: Option<PathBuf>,
    /// Record to write; isotherm keeps an earlier record of that name as FILE.old. - is standard
    /// output
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_RECORD)]
    pub output: PathBuf,
    /// Tune the intervals until isotherm observes this share of all observable accesses, with a step after every N
    /// aggregation intervals: 4%,3,5ms..10s. MIN..MAX bounds the sampling interval (--monitor regions, or --look
    /// damon since Linux 6.15)
    #[arg(long, value_name = "SHARE,N,MIN..MAX", value_parser = units::intervals_goal)]
    pub intervals_goal: Option<IntervalsGoal>,
    /// Number of bytes in one unit of a physical address (--look damon, Linux 6.18)
    #[arg(long, value_name = "SIZE", value_parser = units::size, requires = "physical")]
    #[arg(help_heading = "Options of --look damon")]
    pub addr_unit: Option<u64>,
    /// Sample page faults with their call stacks, so that isotherm report code can show which code
    /// uses which memory
    #[arg(long, conflicts_with_all = ["physical", "file", "dir", "mount", "cached"])]
    pub stacks: bool,
    /// Sample allocations too, one about every BYTES bytes, so that isotherm report code shows which code
    /// allocated the memory, instead of which code touched it first. The command loads a library for that;
    /// running processes must have loaded it (isotherm system alloc-library)
    #[arg(long, value_name = "BYTES", value_parser = units::size, require_equals = true)]
    #[arg(num_args = 0..=1, default_missing_value = "512K")]
    #[arg(conflicts_with_all = ["physical", "file", "dir", "mount", "cached"])]
    pub alloc: Option<u64>,
    /// End after this time, and end the started command (SIGTERM, after 5 s SIGKILL) [default:
    /// at Ctrl-C; without --comm and --all also when all targets and each --cgroup are gone]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub duration: Option<Duration>,
    /// Maximum size of the record, over all its files
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub max_size: Option<u64>,
    /// Keep the newest part of the record in N files, instead of ending at --max-size
    #[arg(long, value_name = "N")]
    pub rotate: Option<u32>,
    /// Listen on this socket for the commands isotherm service status, pause, resume, stop,
    /// attributes and targets
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    #[command(flatten)]
    pub metrics: Metrics,
    #[command(flatten)]
    pub watching: Watching,
    // The heading would apply to all options that follow.
    #[command(flatten, next_help_heading = "Rows for a lake")]
    pub lake: Lake,
}

impl Record {
    /// The limits of the record.
    pub fn limits(&self) -> Result<Limits, UsageError> {
        let limits = Limits { max_size: self.max_size, rotate: self.rotate };
        limits.file_size()?;
        Ok(limits)
    }

    /// Whether to watch files.
    pub fn of_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// The files to watch.
    fn files(&self) -> Result<FilesToWatch, UsageError> {
        let scope = self.files.scope(&self.targets)?;
        let has_options = self.watching.monitor.is_some() || self.intervals_goal.is_some();
        if self.physical || has_options && self.targets.selection(false).is_empty() {
            let text = "files are counted by a monitor of their own: leave out --physical, --monitor and \
                        --intervals-goal";
            return Err(UsageError::new(text));
        }
        if !self.range.is_empty() {
            let text = "--range is about memory: leave it out, or leave out --file, --dir, --mount and --cached";
            return Err(UsageError::new(text));
        }
        let (by_access, traces) = (self.by_access, self.reuse);
        Ok(FilesToWatch { scope, by_access, remembers: false, traces })
    }

    /// The memory to watch: of processes, of files, of both, or physical.
    pub fn what(&self) -> Result<WatchedMemory, UsageError> {
        if self.of_files() {
            let processes = !self.targets.selection(false).is_empty();
            return Ok(WatchedMemory::files(self.files()?, processes));
        }
        if self.physical {
            return Ok(WatchedMemory::Memory(PhysicalSelection {
                nodes: self.node.clone(),
                ranges: self.range.clone(),
            }));
        }
        let by_damon = self.watching.look == LookBy::Damon;
        let of_one = self.targets.pid.len() == 1 && !self.targets.selection(false).has_more();
        let wrong = if self.by_access {
            "--by-access is about files: give --file, --dir, --mount or --cached with it"
        } else if self.reuse {
            "--reuse is about files: give --file, --dir, --mount or --cached with it"
        } else if !self.node.is_empty() || self.addr_unit.is_some() {
            // The parser does not require --physical where it would conflict with --pid.
            "--node and --addr-unit require --physical"
        } else if !self.range.is_empty() && !by_damon {
            "--range requires --physical or --look damon"
        } else if !self.range.is_empty() && !of_one {
            "--range is for one process: give one --pid, and no command, --cgroup, --comm, --all or --children"
        } else {
            return Ok(WatchedMemory::Processes(self.range.clone()));
        };
        Err(UsageError::new(wrong))
    }
}

impl AttrsFor for Record {
    fn attrs_for(&self, way: Way, reads_all: bool) -> Result<Attrs, UsageError> {
        self.watching.attrs_for(way, reads_all)
    }

    fn kdamond(&self) -> Result<KdamondAttrs, UsageError> {
        let mut asked = self.watching.kdamond()?;
        asked.intervals_goal = self.intervals_goal;
        asked.addr_unit = self.addr_unit;
        asked.checked().map_err(|e| UsageError::new(e.to_string()))
    }

    fn intervals_goal(&self) -> Option<IntervalsGoal> {
        self.intervals_goal
    }

    fn is_for_kdamond(&self) -> bool {
        self.intervals_goal.is_some() || self.addr_unit.is_some()
    }
}
