//! Workloads: memory that is touched in a known way, on the real machine or the simulated one.
//!
//! A [`Workload`] is read from TOML (`docs/abi/testing/workload.md` describes it), or is one of
//! [`NAMED`]. With a seed it has a [`Layout`]; a [`Schedule`] says which phase is when. The program
//! runs it on real memory by [`Walk`]s, [`play`] on a simulated machine; both end in a
//! [`crate::GroundTruth`].

mod check;
mod error;
mod layout;
mod named;
mod picture;
mod play;
mod schedule;
pub mod units;
mod walk;
mod words;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use error::WorkloadError;
pub use layout::{Field, Layout, Memory, Owner, Part};
pub use named::{NAMED, Named};
pub use play::{PlayError, Played, play};
pub use schedule::{Schedule, Slot};
pub use walk::Walk;

/// Bytes of an island: hot memory among cold.
pub const ISLAND_SIZE: u64 = 64 << 10;
/// Touches a second of each page of an island, in random order.
pub const ISLAND_HZ: f64 = 100.0;
/// What stands for [`Rate::Max`] where nothing takes time, in Hz: more than any look can tell.
pub const MAX_HZ: f64 = 1000.0;

/// Memory, and how it is touched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// what it is, in a line
    pub about: String,
    /// how often the phases are gone through
    #[serde(default = "once")]
    pub repeat: u32,
    /// hot islands among the cold memory, each of [`ISLAND_SIZE`]
    #[serde(default = "sixteen")]
    pub islands: u32,
    /// in ascending order of their addresses
    #[serde(rename = "region")]
    pub regions: Vec<Region>,
    /// one after the other
    #[serde(rename = "phase")]
    pub phases: Vec<Phase>,
}

/// A stretch of memory that is accessed in one way at a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Region {
    /// unique
    pub name: String,
    /// bytes
    #[serde(with = "words::size")]
    pub size: u64,
    /// bytes of cold memory before it, at least; up to 2 MiB more are drawn
    #[serde(default = "four_mib", with = "words::size")]
    pub gap: u64,
    /// in huge pages as far as they fit
    #[serde(default)]
    pub huge: bool,
    /// mapped twice: a forked child keeps it too
    #[serde(default)]
    pub shared: bool,
}

/// A time in which the same accesses go on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// for people
    pub name: String,
    /// how long
    #[serde(with = "words::duration")]
    pub duration: Duration,
    /// at most one to a region; regions without one rest
    #[serde(rename = "access", default)]
    pub accesses: Vec<Access>,
}

/// How a region is touched in a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// which one, by name
    pub region: String,
    /// how often each page, in the mean over those that are touched
    pub rate: Rate,
    /// in which order
    #[serde(default)]
    pub order: Order,
    /// read or write
    #[serde(default)]
    pub op: Op,
    /// by how many threads, which share the rate
    #[serde(default = "once")]
    pub threads: u32,
}

/// Touches of a page a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// this many
    Hz(f64),
    /// without pause
    Max,
}

/// Which page comes next.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Order {
    /// any, each as likely as the others
    #[default]
    Random,
    /// from the first to the last, over and over
    Sequential,
    /// each `stride`-th from the first to the last; those between are not touched
    Strided {
        /// in pages
        stride: u64,
    },
    /// any page of a block; the k-th likely block as likely as 1 / k^`exponent`, which is which
    /// is drawn
    Zipf {
        /// 0 makes all alike
        exponent: f64,
        /// bytes of a block
        #[serde(with = "words::size")]
        block: u64,
    },
    /// any page of a window, which moves on by its size and begins anew behind the end
    Moving {
        /// bytes of the window
        #[serde(with = "words::size")]
        window: u64,
        /// time between two moves
        #[serde(with = "words::duration")]
        every: Duration,
    },
}

/// How a page is touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// a byte is read
    #[default]
    Read,
    /// a byte is written
    Write,
}

/// Which of its two forms a file has.
#[derive(Deserialize)]
struct Form {
    picture: Option<serde::de::IgnoredAny>,
}

impl Workload {
    /// Reads a workload file, of regions and phases or of a picture.
    ///
    /// # Errors
    /// If it is no such thing or makes no sense: where, and what to do.
    pub fn parse(text: &str) -> Result<Self, WorkloadError> {
        let Form { picture } = toml::from_str(text)?;
        let workload: Workload = match picture {
            Some(_) => toml::from_str::<picture::Pictured>(text)?.try_into()?,
            None => toml::from_str(text)?,
        };
        workload.checked()
    }

    /// How long it takes by itself.
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

impl Rate {
    /// In Hz, with [`MAX_HZ`] for [`Rate::Max`].
    #[must_use]
    pub fn hz(self) -> f64 {
        match self {
            Rate::Hz(hz) => hz,
            Rate::Max => MAX_HZ,
        }
    }
}

impl Order {
    /// In pages, from one touched page to the next.
    pub(crate) fn stride(self) -> u64 {
        if let Order::Strided { stride } = self { stride } else { 1 }
    }

    /// Bytes of the pieces that are touched alike; none if that is all of a region.
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
