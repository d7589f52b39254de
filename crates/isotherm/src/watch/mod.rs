//! What delivers snapshots: a way to watch that works here, and then that way at work.

mod kdamond;
mod looks;
mod physical;

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use isotherm_core::{Act, AddrRange, Attrs, MonitorKind, Source, TargetId};
use isotherm_linux::damon::KdamondAttrs;
use isotherm_linux::{Hold, Part, Stretch, Way, physical_memory};
use isotherm_record::TargetFact;
use tracing::info;

use crate::ROOT;
use crate::usage::UsageError;
use crate::words::chain;

pub use looks::Looks;

/// How to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookBy {
    /// in the best way that works
    Auto,
    /// by our own monitor, in this way
    Way(Way),
    /// by the kernel's monitor
    Damon,
}

/// The attributes of a monitor, which depend on the way to look.
pub trait AttrsFor {
    /// Those for our own monitor that looks in this way, which can read all memory at once or not.
    ///
    /// # Errors
    /// If what was asked for does not go together with this way.
    fn attrs_for(&self, way: Way, reads_all: bool) -> Result<Attrs, UsageError>;

    /// Those for the kernel's own monitor.
    ///
    /// # Errors
    /// If what was asked for does not go together with that.
    fn kdamond(&self) -> Result<KdamondAttrs, UsageError>;

    /// Whether something was asked for that the kernel's own monitor alone has.
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

/// What the kernel's own monitor has by default.
#[must_use]
pub fn of_kdamond() -> Attrs {
    let [sample, aggr] = [5, 100].map(Duration::from_millis);
    Attrs { sample, aggr, monitor: MonitorKind::Regions, ..Attrs::default() }
}

/// Whether a way to look reports anything within a sampling interval.
///
/// # Errors
/// If it does not.
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

/// A way to watch that works here; nothing is watched yet.
pub trait Ready {
    /// How it looks, for the record.
    fn describe(&self) -> String;

    /// The attributes asked for, with what this way takes for those that were not.
    ///
    /// # Errors
    /// If they make no sense here.
    fn attrs(&self, asked: &dyn AttrsFor) -> Result<Attrs, UsageError>;

    /// Who is to be watched.
    fn hold(&mut self) -> &mut dyn Hold;

    /// Who can act on what is watched, if anybody can.
    fn act(&self) -> Option<&dyn Act> {
        None
    }

    /// What is watched besides what is held.
    fn watched(&self) -> Option<TargetFact> {
        None
    }

    /// Whether pages are found by their frames while it goes on.
    fn takes_frames(&self) -> bool {
        false
    }

    /// Whether files of `/proc` are read while it goes on that are their owner's alone.
    fn takes_files(&self) -> bool {
        true
    }

    /// Begins to watch what is held.
    ///
    /// # Errors
    /// If the monitor cannot begin.
    fn begin(
        self: Box<Self>,
        attrs: Attrs,
        targets: &[TargetId],
        seed: u64,
    ) -> Result<Box<dyn Watch>>;
}

/// A way to watch, at work.
pub trait Watch: Source {
    /// Who is watched.
    fn hold(&mut self) -> &mut dyn Hold;

    /// Watches these from now on.
    ///
    /// # Errors
    /// If one cannot be.
    fn set_targets(&mut self, targets: &[TargetId]) -> Result<()>;

    /// The attributes in force; none where the kernel's monitor has its own.
    fn attrs(&self) -> Option<Attrs> {
        None
    }

    /// Those that are asked for, in the way that is taken.
    ///
    /// # Errors
    /// If they make no sense here.
    fn attrs_of(&self, _asked: &dyn AttrsFor) -> Result<Attrs, UsageError> {
        Err(UsageError::new(KEEPS))
    }

    /// Changes them; what is known is kept.
    ///
    /// # Errors
    /// If they make no sense here.
    fn set_attrs(&mut self, _: Attrs) -> Result<()> {
        bail!(KEEPS)
    }

    /// Who can act on what is watched, if anybody can.
    fn act(&mut self) -> Option<&mut dyn Act> {
        None
    }

    /// Goes on when all targets have ended, if it can: others may come.
    fn outlive_targets(&mut self) {}

    /// Ends watching.
    ///
    /// # Errors
    /// If what was changed cannot be put back.
    fn stop(&mut self) -> Result<()>;
}

const KEEPS: &str =
    "the kernel's monitor keeps the attributes that it was started with: start it anew";

/// What is watched.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum What {
    /// processes; by kernel DAMON these ranges of one, if there are any
    Processes(Vec<AddrRange>),
    /// physical memory, or a part of it
    Memory(Part),
}

/// Opens the way that is asked for, or the best one.
///
/// # Errors
/// If it does not work here: why.
pub fn open(what: &What, look: LookBy, asked: &dyn AttrsFor) -> Result<Box<dyn Ready>> {
    match (what, look) {
        (What::Processes(ranges), LookBy::Damon) => {
            Ok(Box::new(kdamond::OfProcesses::open(ranges.clone(), asked.kdamond()?)?))
        }
        (What::Processes(_), LookBy::Way(way)) => Ok(Box::new(Looks::open(Some(way))?)),
        (What::Processes(_), LookBy::Auto) => Ok(Box::new(Looks::open(None)?)),
        (What::Memory(part), look) => of_memory(part, look, asked),
    }
}

fn of_memory(part: &Part, look: LookBy, asked: &dyn AttrsFor) -> Result<Box<dyn Ready>> {
    let by_damon = |memory: &[Stretch]| kdamond::OfMemory::open(asked.kdamond()?, memory);
    let memory = || -> Result<Vec<Stretch>> { Ok(part.of(&physical_memory(ROOT.as_ref())?)?) };
    match look {
        LookBy::Damon => Ok(Box::new(by_damon(&memory()?)?)),
        LookBy::Way(Way::PageIdle) => Ok(Box::new(physical::Idle::open(&memory()?)?)),
        LookBy::Way(way) => Err(UsageError::new(format!(
            "physical memory is looked at by damon or page_idle: {} sees processes",
            way.name()
        ))
        .into()),
        LookBy::Auto => {
            let memory = memory()?;
            let why = match by_damon(&memory) {
                Ok(ready) => return Ok(Box::new(ready)),
                Err(e) => e,
            };
            // What only DAMON takes was meant for it; what it does not take, page_idle may.
            if asked.is_for_kdamond() {
                return Err(why);
            }
            let why = chain(&why);
            let idle = physical::Idle::open(&memory).map_err(|e| {
                anyhow!(
                    "physical memory cannot be observed here.\n  damon: {why}\n  page_idle: {e}"
                )
            })?;
            info!("looking by page_idle, since damon does not work: {why}");
            Ok(Box::new(idle))
        }
    }
}
