//! What delivers snapshots: a way to watch that works here, and then that way at work. Who is watched,
//! and what is said meanwhile.

mod attributions;
mod ends;
mod follow;
mod gauge;
mod kdamond;
mod line;
mod looks;
mod members;
mod memory;
mod pace;
mod physical;
pub mod probes;
mod spared;
mod state;

use anyhow::{Result, anyhow, bail};
use isotherm_core::{Attrs, Source, TargetId};
use isotherm_linux::{Hold, Part, Stretch, Way, physical_memory};
use isotherm_record::TargetFact;

use crate::cli::{Look, Record, UsageError, Watching};
use crate::words::{chain, say};

pub use attributions::Attributions;
pub use ends::Ends;
pub use follow::Follower;
pub use line::Status;
pub use looks::{Acting, Looks};
pub use memory::Memory;
pub use state::{Record as RecordState, State};

/// A way to watch that works here; nothing is watched yet.
pub trait Ready {
    /// How it looks, for the record.
    fn describe(&self) -> String;

    /// The attributes asked for, with what this way takes for those that were not.
    fn attrs(&self, o: &Watching) -> Result<Attrs, UsageError>;

    /// Who is to be watched.
    fn hold(&mut self) -> &mut dyn Hold;

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
    fn set_targets(&mut self, targets: &[TargetId]) -> Result<()>;

    /// The attributes in force; none where the kernel's monitor has its own.
    fn attrs(&self) -> Option<Attrs> {
        None
    }

    /// Changes them; what is known is kept.
    fn set_attrs(&mut self, _: Attrs) -> Result<()> {
        bail!("the kernel's monitor keeps the attributes that it was started with: start it anew")
    }

    /// Goes on when all targets have ended, if it can: others may come.
    fn outlive_targets(&mut self) {}

    /// Ends watching.
    fn stop(&mut self) -> Result<()>;
}

/// Of the file system in which `/proc` is.
pub const ROOT: &str = "/";

/// The way that was asked for, or the best one.
pub fn ready(o: &Record) -> Result<Box<dyn Ready>> {
    if o.physical {
        return of_memory(o);
    }
    // The parser does not ask for --physical where it would conflict with --pid.
    if !o.node.is_empty() || o.addr_unit.is_some() {
        return Err(UsageError::new("--node and --addr-unit are of --physical memory").into());
    }
    match o.watching.look {
        Look::Damon => Ok(Box::new(kdamond::OfProcesses::open(o)?)),
        _ if !o.range.is_empty() => {
            Err(UsageError::new("--range takes --physical, or --look damon").into())
        }
        _ if o.intervals_goal.is_some() => {
            Err(UsageError::new("--intervals-goal takes --look damon: the kernel tunes its own")
                .into())
        }
        Look::By(way) => Ok(Box::new(Looks::open(Some(way))?)),
        Look::Auto => Ok(Box::new(Looks::open(None)?)),
    }
}

fn of_memory(o: &Record) -> Result<Box<dyn Ready>> {
    let part = Part { nodes: o.node.clone(), ranges: o.range.clone() };
    let by_damon = |memory: &[Stretch]| kdamond::OfMemory::open(o, memory);
    let memory = || -> Result<Vec<Stretch>> { Ok(part.of(&physical_memory(ROOT.as_ref())?)?) };
    match o.watching.look {
        Look::Damon => Ok(Box::new(by_damon(&memory()?)?)),
        Look::By(Way::PageIdle) => Ok(Box::new(physical::Idle::open(&memory()?)?)),
        Look::By(way) => Err(UsageError::new(format!(
            "physical memory is looked at by damon or page_idle: {} sees processes",
            way.name()
        ))
        .into()),
        Look::Auto => {
            let memory = memory()?;
            let why = match by_damon(&memory) {
                Ok(ready) => return Ok(Box::new(ready)),
                Err(e) => e,
            };
            // What only DAMON takes was meant for it; what it does not take, page_idle may.
            if o.intervals_goal.is_some() || o.addr_unit.is_some() {
                return Err(why);
            }
            let why = chain(&why);
            let idle = physical::Idle::open(&memory).map_err(|e| {
                anyhow!(
                    "physical memory cannot be looked at here.\n  damon: {why}\n  page_idle: {e}"
                )
            })?;
            say(format_args!("isotherm: looking by page_idle, since damon does not work: {why}"));
            Ok(Box::new(idle))
        }
    }
}
