//! What makes no sense in a scheme.

use std::time::Duration;

use super::goal::Goal;
use crate::range::AddrRange;

/// Why a scheme is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemeError {
    /// a range that holds nothing
    #[error("the least {0} is above the most: swap them")]
    MinAboveMax(&'static str),
    /// no rate
    #[error("a rate from {low} to {high} Hz: give two numbers from 0 on")]
    Rate {
        /// least
        low: f64,
        /// most
        high: f64,
    },
    /// nowhere to go
    #[error(
        "{0} without a node, or with a weight of 0: name the nodes to migrate to, e.g. 1, or 0:2,1:1"
    )]
    Destinations(&'static str),
    /// windows
    #[error("a quota for each {0:?}: choose 10 ms to 24 hours")]
    Reset(Duration),
    /// longer than its window
    #[error("a quota of {time:?} in each {reset:?}: there is no more time than that")]
    TimeQuota {
        /// asked
        time: Duration,
        /// window
        reset: Duration,
    },
    /// never enough for one
    #[error(
        "a quota of {bytes} bytes, and the action takes {unit} at least: choose more, or 0, with which \
         the scheme never acts"
    )]
    SmallQuota {
        /// asked
        bytes: u64,
        /// least
        unit: u64,
    },
    /// a goal without a sense
    #[error("{0:?} is no goal: a target above zero, a time below a second, a share of at most all")]
    Goal(Goal),
    /// marks in no order
    #[error(
        "watermarks {high}, {mid}, {low} (high, mid, low, of 10000): give them in falling order, at \
         most 10000"
    )]
    Watermarks {
        /// off above
        high: u32,
        /// on below
        mid: u32,
        /// off below
        low: u32,
    },
    /// never looked at
    #[error("watermarks that are looked at each 0 s: choose an interval, e.g. 5 s")]
    WatermarkInterval,
    /// no pages
    #[error(
        "a filter of addresses {0:?}: they must begin and end at multiples of 4096, and differ"
    )]
    Addresses(AddrRange),
    /// pages of no size
    #[error("a filter of folios from {min} to {max} bytes: the least is above the most")]
    Folio {
        /// least
        min: u64,
        /// most
        max: u64,
    },
    /// longer than it is remembered
    #[error("a filter of what was touched within {0:?}: at most 8 hours")]
    Within(Duration),
    /// longer than anybody waits
    #[error("a second look after {0:?}: at most a second")]
    Recheck(Duration),
    /// a limit on what comes from outside
    #[error("too many {what}: {limit} at most")]
    TooMany {
        /// of what
        what: &'static str,
        /// most
        limit: usize,
    },
    /// names tell schemes apart
    #[error("two schemes are called `{0}`: give each a name of its own")]
    SameName(String),
    /// which
    #[error("scheme `{name}`: {why}")]
    Scheme {
        /// its name
        name: String,
        /// why
        why: Box<SchemeError>,
    },
}

impl SchemeError {
    /// The key of the TOML form that is at fault, as `quota.time`.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self {
            SchemeError::MinAboveMax(what) => what,
            SchemeError::Rate { .. } => "rate",
            SchemeError::Destinations(_) => "action",
            SchemeError::Reset(_) => "quota.reset",
            SchemeError::TimeQuota { .. } => "quota.time",
            SchemeError::SmallQuota { .. } => "quota.bytes",
            SchemeError::Goal(_) | SchemeError::TooMany { what: "goals", .. } => "quota.goals",
            SchemeError::Watermarks { high, mid, .. } if *high > 10_000 || mid > high => {
                "watermarks.high"
            }
            SchemeError::Watermarks { .. } => "watermarks.mid",
            SchemeError::WatermarkInterval => "watermarks.interval",
            SchemeError::Addresses(_) | SchemeError::Folio { .. } | SchemeError::Within(_) => {
                "filters"
            }
            SchemeError::Recheck(_) => "recheck",
            SchemeError::TooMany { what, .. } => what,
            SchemeError::SameName(_) => "name",
            SchemeError::Scheme { why, .. } => why.key(),
        }
    }
}
