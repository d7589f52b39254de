//! Workloads: memory that is touched in a known way, on the real machine or the simulated one.
//!
//! A [`Workload`] is read from TOML (`docs/abi/testing/workload.md` describes it), or is one of [`NAMED`].
//! With a seed it has a [`WorkloadLayout`]. A [`Schedule`] has the times of its phases. The program runs it on real
//! memory with [`Walk`]s, and [`play`] runs it on a simulated machine. The result of both is a
//! [`crate::GroundTruth`].

mod check;
mod error;
mod layout;
mod named;
mod picture;
mod play;
mod schedule;
mod walk;
mod words;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use error::WorkloadError;
pub use layout::{Field, MemoryKind, Owner, Part, WorkloadLayout};
pub use named::{NAMED, Named};
pub use play::{MonitorRun, PlayError, play};
pub use schedule::{Schedule, Slot};
pub use walk::Walk;

/// Size in bytes of an island: hot memory within cold memory.
pub const ISLAND_SIZE: u64 = 64 << 10;
/// Touches per second of each page of an island, in random order.
pub const ISLAND_HZ: f64 = 100.0;
/// The rate that replaces [`TouchRate::Max`] where accesses take no time, in Hz: more than any look can
/// distinguish.
pub const MAX_TOUCH_HZ: f64 = 1000.0;

/// Memory, and its accesses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// a description, in one line
    pub about: String,
    /// number of repetitions of the phases
    #[serde(default = "once")]
    pub repeat: u32,
    /// number of hot islands in the cold memory, each of [`ISLAND_SIZE`]
    #[serde(default = "sixteen")]
    pub islands: u32,
    /// in ascending order of their addresses
    #[serde(rename = "region")]
    pub regions: Vec<WorkloadRegion>,
    /// in order of time
    #[serde(rename = "phase")]
    pub phases: Vec<Phase>,
}

/// A stretch of memory with one kind of access at a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadRegion {
    /// unique name
    pub name: String,
    /// size in bytes
    #[serde(with = "words::size")]
    pub size: u64,
    /// least number of bytes of cold memory before it; up to 2 MiB more are random
    #[serde(default = "four_mib", with = "words::size")]
    pub gap: u64,
    /// in huge pages as far as they fit
    #[serde(default)]
    pub huge: bool,
    /// mapped twice: a forked child keeps it too. It may only be read
    #[serde(default)]
    pub shared: bool,
}

/// A time with the same accesses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// name, for people
    pub name: String,
    /// duration
    #[serde(with = "words::duration")]
    pub duration: Duration,
    /// at most one access to a region; a region without one is not touched
    #[serde(rename = "access", default)]
    pub accesses: Vec<Access>,
}

/// The accesses to a region in a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// name of the region
    pub region: String,
    /// mean touches per second of the pages that are touched
    pub rate: TouchRate,
    /// order of the pages
    #[serde(default)]
    pub order: Order,
    /// reads or writes
    #[serde(default)]
    pub op: Op,
    /// number of threads, which share the rate
    #[serde(default = "once")]
    pub threads: u32,
}

/// Touches of a page per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TouchRate {
    /// this number
    Hz(f64),
    /// without pause
    Max,
}

/// The order in which pages are touched.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Order {
    /// any page, all equally likely
    #[default]
    Random,
    /// from the first to the last, over and over
    Sequential,
    /// every `stride`-th page, from the first to the last; the pages between are not touched
    Strided {
        /// in pages
        stride: u64,
    },
    /// any page of a block. The k-th likely block has a probability proportional to 1 / k^`exponent`; which
    /// block that is, is random
    Zipf {
        /// 0: all blocks are equally likely
        exponent: f64,
        /// bytes of a block
        #[serde(with = "words::size")]
        block: u64,
    },
    /// any page of a window, which moves by its size, and restarts at the beginning after the end
    Moving {
        /// bytes of the window
        #[serde(with = "words::size")]
        window: u64,
        /// time between two moves
        #[serde(with = "words::duration")]
        every: Duration,
    },
}

/// The kind of a touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// a byte is read
    #[default]
    Read,
    /// a byte is written
    Write,
}

/// The two forms of a file.
#[derive(Deserialize)]
struct Form {
    picture: Option<serde::de::IgnoredAny>,
}

impl Workload {
    /// Parses a workload file, with regions and phases or with a picture.
    ///
    /// # Errors
    /// If it is invalid: the place, and a remedy.
    pub fn parse(text: &str) -> Result<Self, WorkloadError> {
        let Form { picture } = toml::from_str(text)?;
        let workload: Workload = match picture {
            Some(_) => toml::from_str::<picture::PictureFile>(text)?.try_into()?,
            None => toml::from_str(text)?,
        };
        workload.checked()
    }

    /// Its duration without `--duration`.
    #[must_use]
    pub fn length(&self) -> Duration {
        self.phases.iter().map(|p| p.duration).sum::<Duration>() * self.repeat
    }

    /// The index of a region.
    pub(crate) fn region_index(&self, name: &str) -> Option<usize> {
        self.regions.iter().position(|r| r.name == name)
    }

    /// All accesses of the `i`-th region.
    fn accesses_of(&self, i: usize) -> impl Iterator<Item = &Access> {
        let name = &self.regions[i].name;
        let all = self.phases.iter().flat_map(|p| &p.accesses);
        all.filter(move |a| a.region == *name)
    }
}

impl TouchRate {
    /// The rate in Hz, with [`MAX_TOUCH_HZ`] for [`TouchRate::Max`].
    #[must_use]
    pub fn hz(self) -> f64 {
        match self {
            TouchRate::Hz(hz) => hz,
            TouchRate::Max => MAX_TOUCH_HZ,
        }
    }
}

impl Order {
    /// Pages from one touched page to the next.
    pub(crate) fn stride(self) -> u64 {
        if let Order::Strided { stride } = self { stride } else { 1 }
    }

    /// Bytes of a part with the same accesses. `None` if that is the whole region.
    pub(crate) fn block(self) -> Option<u64> {
        match self {
            Order::Zipf { block, .. } => Some(block),
            Order::Moving { window, .. } => Some(window),
            _ => None,
        }
    }
}

fn once() -> u32 {
    1
}

fn sixteen() -> u32 {
    16
}

fn four_mib() -> u64 {
    4 << 20
}

#[cfg(test)]
mod tests;
