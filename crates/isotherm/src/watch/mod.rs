//! Sources of snapshots: a way to watch that works here, and then that way while it runs.

mod error;
mod files;
mod kdamond;
mod looks;
mod physical;
mod together;

use std::fs::File;
use std::time::Duration;

use isotherm_core::{
    Act, AddrRange, Attrs, CacheTrace, IntervalsGoal, KeptAges, MonitorKind, Source, TargetId,
};
use isotherm_linux::damon::KdamondAttrs;
use isotherm_linux::{Hold, PhysicalSelection, RamRange, Way, physical_memory};
use isotherm_record::TargetInfo;
use tracing::info;

use crate::ROOT;
use crate::usage::UsageError;
use crate::words::chain;

pub use error::WatchError;
pub use files::{FileHeatWatch, FilesToWatch};
pub use looks::Looks;

/// How to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookBy {
    /// the best way that works
    Auto,
    /// our own monitor, with this way to look
    Way(Way),
    /// the kernel's monitor, DAMON
    Damon,
}

/// The attributes of a monitor, which depend on the way to look.
pub trait AttrsFor {
    /// The attributes for our own monitor with this way to look; `reads_all`: it can read all memory at once.
    ///
    /// # Errors
    /// If an option is incompatible with this way.
    fn attrs_for(&self, way: Way, reads_all: bool) -> Result<Attrs, UsageError>;

    /// The attributes for the kernel's own monitor.
    ///
    /// # Errors
    /// If an option is incompatible with that monitor.
    fn kdamond(&self) -> Result<KdamondAttrs, UsageError>;

    /// The share of accesses to observe, by which a monitor with regions tunes its intervals.
    fn intervals_goal(&self) -> Option<IntervalsGoal> {
        None
    }

    /// Whether an option was given that, for physical memory, only the kernel's own monitor has.
    fn is_for_kdamond(&self) -> bool {
        false
    }
}

/// The default attributes: the exposure monitor where all memory can be read at once, else the regions monitor.
#[derive(Debug, Clone, Copy)]
pub struct DefaultAttrs;

impl AttrsFor for DefaultAttrs {
    fn attrs_for(&self, way: Way, reads_all: bool) -> Result<Attrs, UsageError> {
        let (sample, aggr) = way.intervals();
        let monitor = if reads_all { MonitorKind::Exposure } else { MonitorKind::Regions };
        Ok(Attrs { sample, aggr, monitor, ..Attrs::default() })
    }

    fn kdamond(&self) -> Result<KdamondAttrs, UsageError> {
        Ok(KdamondAttrs::from(of_kdamond()))
    }
}

/// The default attributes of the kernel's own monitor.
#[must_use]
pub fn of_kdamond() -> Attrs {
    let [sample, aggr] = [5, 100].map(Duration::from_millis);
    Attrs { sample, aggr, monitor: MonitorKind::Regions, ..Attrs::default() }
}

/// Checks that this way to look can report accesses within one sampling interval.
///
/// # Errors
/// If it cannot.
pub fn check_sample(way: Way, attrs: &Attrs) -> Result<(), UsageError> {
    if attrs.sample < way.shortest_sample() {
        return Err(UsageError::new(format!(
            "--look {} reports nothing within {:?}: make --sample {:?} or longer",
            way.name(),
            attrs.sample,
            way.shortest_sample(),
        )));
    }
    Ok(())
}

/// Targets that are not processes.
#[derive(Debug, Clone)]
pub struct StaticTargets {
    /// what they are
    pub kind: &'static str,
    /// those that are known at the beginning
    pub facts: Vec<TargetInfo>,
}

/// A way to watch that works here and is not running yet.
pub trait Ready {
    /// Describes the way to look, for the record.
    fn describe(&self) -> String;

    /// The attributes that options set, completed by the defaults of this way.
    ///
    /// # Errors
    /// If they are invalid here.
    fn attrs(&self, asked: &dyn AttrsFor) -> Result<Attrs, UsageError>;

    /// Holds the processes to watch.
    fn hold(&mut self) -> &mut dyn Hold;

    /// Acts on the targets; `None` if this way cannot act.
    fn act(&self) -> Option<&dyn Act> {
        None
    }

    /// Targets that are watched in addition to the held processes.
    fn watched(&self) -> Option<StaticTargets> {
        None
    }

    /// Whether it looks up pages by their frames while it runs.
    fn requires_frames(&self) -> bool {
        false
    }

    /// Whether it reads files of `/proc` that only their owner may read while it runs.
    fn requires_files(&self) -> bool {
        true
    }

    /// Starts to watch the held processes.
    ///
    /// # Errors
    /// If the monitor cannot start.
    fn begin(
        self: Box<Self>,
        attrs: Attrs,
        targets: &[TargetId],
        seed: u64,
    ) -> Result<Box<dyn Watch>, WatchError>;
}

/// A running way to watch.
pub trait Watch: Source {
    /// Holds the watched processes.
    fn hold(&mut self) -> &mut dyn Hold;

    /// Watches these targets from now on.
    ///
    /// # Errors
    /// If one of them cannot be watched.
    fn set_targets(&mut self, targets: &[TargetId]) -> Result<(), WatchError>;

    /// Lasting targets that have appeared or changed their names since the last call.
    fn news(&mut self) -> Vec<TargetInfo> {
        Vec::new()
    }

    /// Lasting targets that were forgotten since the last call, because they have not been seen for long.
    fn gone(&mut self) -> Vec<TargetId> {
        Vec::new()
    }

    /// Does not watch this file, because isotherm writes it.
    ///
    /// # Errors
    /// If it cannot be identified.
    fn leave_out(&mut self, _file: &File) -> Result<(), WatchError> {
        Ok(())
    }

    /// Accesses to a sample of the pages of files, in the interval of the last snapshot, or after it until the end.
    fn trace(&mut self) -> Option<CacheTrace> {
        None
    }

    /// The present attributes; `None` for the kernel's monitor, which has its own.
    fn attrs(&self) -> Option<Attrs> {
        None
    }

    /// The attributes that options set, for the way to look that is in use.
    ///
    /// # Errors
    /// If they are invalid here.
    fn attrs_of(&self, _asked: &dyn AttrsFor) -> Result<Attrs, UsageError> {
        Err(UsageError::new(KEEPS))
    }

    /// Changes the attributes; the monitor keeps its data.
    ///
    /// # Errors
    /// If they are invalid here.
    fn set_attrs(&mut self, _: Attrs) -> Result<(), WatchError> {
        Err(WatchError::Keeps)
    }

    /// The known ages of the targets' pages, for the monitor that follows this one.
    fn kept_ages(&self) -> Vec<(TargetId, KeptAges)> {
        Vec::new()
    }

    /// Continues from the ages of an earlier monitor; to be called before the first step.
    fn resume_ages(&mut self, _kept: Vec<(TargetId, KeptAges)>) {}

    /// Acts on the targets; `None` if this way cannot act.
    fn act(&mut self) -> Option<&mut dyn Act> {
        None
    }

    /// Continues after all targets have ended, if it can, because new ones may join.
    fn outlive_targets(&mut self) {}

    /// Stops watching.
    ///
    /// # Errors
    /// If a change to the machine cannot be undone.
    fn stop(&mut self) -> Result<(), WatchError>;
}

const KEEPS: &str = "the attributes of the kernel's monitor cannot change while it runs: restart isotherm with others";

const NO_FILES_BY_DAMON: &str = "--look damon does not observe files: leave it out, or leave out --file, --dir, --mount and --cached";

/// The kind of memory to watch.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum WatchedMemory {
    /// processes; kernel DAMON watches only these ranges of one process, if the list is not empty
    Processes(Vec<AddrRange>),
    /// physical memory, or part of it
    Memory(PhysicalSelection),
    /// the page cache of files
    Files(FilesToWatch),
    /// processes and the page cache of files
    Together(FilesToWatch),
}

impl WatchedMemory {
    /// Processes, with all of their memory.
    #[must_use]
    pub fn processes() -> Self {
        WatchedMemory::Processes(Vec::new())
    }

    /// These files, and with `processes` processes too.
    #[must_use]
    pub fn files(files: FilesToWatch, processes: bool) -> Self {
        if processes { WatchedMemory::Together(files) } else { WatchedMemory::Files(files) }
    }
}

/// Opens the way that was asked for, or the best one.
///
/// # Errors
/// If it does not work here: the reason.
pub fn open(
    what: &WatchedMemory,
    look: LookBy,
    asked: &dyn AttrsFor,
) -> Result<Box<dyn Ready>, WatchError> {
    match (what, look) {
        (WatchedMemory::Processes(ranges), LookBy::Damon) => {
            Ok(Box::new(kdamond::ProcessKdamond::open(ranges.clone(), asked.kdamond()?)?))
        }
        (WatchedMemory::Processes(_), LookBy::Way(way)) => {
            Ok(Box::new(Looks::open(Some(way))?.tuned_to(asked.intervals_goal())))
        }
        (WatchedMemory::Processes(_), LookBy::Auto) => {
            Ok(Box::new(Looks::open(None)?.tuned_to(asked.intervals_goal())))
        }
        (WatchedMemory::Memory(part), look) => of_memory(part, look, asked),
        (WatchedMemory::Files(what), LookBy::Auto) => {
            Ok(Box::new(files::WatchedFiles::open(what, TargetId(0))?))
        }
        (WatchedMemory::Together(files), look) => {
            let way = match look {
                LookBy::Auto => None,
                LookBy::Way(way) => Some(way),
                LookBy::Damon => return Err(UsageError::new(NO_FILES_BY_DAMON).into()),
            };
            let processes = Looks::open(way)?.tuned_to(asked.intervals_goal());
            Ok(Box::new(together::Together::open(processes, files)?))
        }
        (WatchedMemory::Files(_), _) => {
            Err(UsageError::new("files are watched in one way only: leave out --look").into())
        }
    }
}

fn of_memory(
    part: &PhysicalSelection,
    look: LookBy,
    asked: &dyn AttrsFor,
) -> Result<Box<dyn Ready>, WatchError> {
    let by_damon = |memory: &[RamRange]| kdamond::PhysicalKdamond::open(asked.kdamond()?, memory);
    let memory =
        || -> Result<Vec<RamRange>, WatchError> { Ok(part.of(&physical_memory(ROOT.as_ref())?)?) };
    match look {
        LookBy::Damon => Ok(Box::new(by_damon(&memory()?)?)),
        LookBy::Way(Way::PageIdle) if asked.is_for_kdamond() => Err(UsageError::new(
            "--intervals-goal and --addr-unit require --look damon for physical memory",
        )
        .into()),
        LookBy::Way(Way::PageIdle) => Ok(Box::new(physical::PhysicalIdle::open(&memory()?)?)),
        LookBy::Way(way) => Err(UsageError::new(format!(
            "physical memory requires --look damon or page_idle: {} observes processes",
            way.name()
        ))
        .into()),
        LookBy::Auto => {
            let memory = memory()?;
            let why = match by_damon(&memory) {
                Ok(ready) => return Ok(Box::new(ready)),
                Err(e) => e,
            };
            // Options that only DAMON has were meant for DAMON. Without such an option, page_idle is a
            // candidate.
            if asked.is_for_kdamond() {
                return Err(why);
            }
            let why = chain(&why);
            let idle = physical::PhysicalIdle::open(&memory).map_err(|e| {
                WatchError::NoPhysical { damon: why.clone(), page_idle: e.to_string() }
            })?;
            info!("looking by page_idle, since damon does not work: {why}");
            Ok(Box::new(idle))
        }
    }
}
