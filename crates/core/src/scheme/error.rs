//! Errors in the definition of a scheme.

use std::time::Duration;

use crate::range::AddrRange;

/// The reason why a scheme is rejected.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemeError {
    /// an empty range
    #[error("the least {0} is above the most: swap them")]
    MinAboveMax(&'static str),
    /// an invalid rate
    #[error("a rate from {low} to {high} Hz: give two numbers from 0 on")]
    Rate {
        /// minimum in Hz
        low: f64,
        /// maximum in Hz
        high: f64,
    },
    /// a migration without a valid destination
    #[error(
        "{0} without a node, or with a weight of 0: name the nodes to migrate to, e.g. 1, or 0:2,1:1"
    )]
    Destinations(&'static str),
    /// an invalid length of the quota window
    #[error("a quota for each {0:?}: choose 10 ms to 24 hours")]
    Reset(Duration),
    /// a time quota longer than its window
    #[error("a quota of {time:?} in each {reset:?}: there is no more time than that")]
    TimeQuota {
        /// the requested time
        time: Duration,
        /// the length of the window
        reset: Duration,
    },
    /// a byte quota smaller than one unit of the action
    #[error(
        "a quota of {bytes} bytes, and the action takes {unit} at least: choose more, or 0, with which \
         the scheme never acts"
    )]
    SmallQuota {
        /// the requested bytes
        bytes: u64,
        /// the minimum in bytes
        unit: u64,
    },
    /// an invalid goal
    #[error("{0} is no goal: a target above zero, a time below a second, a share of at most all")]
    Goal(String),
    /// an objective without a share
    #[error("the objective \"{0}\" cannot be kept: give a share above 0 %, of at most 100 %")]
    Aim(String),
    /// watermarks in a wrong order
    #[error(
        "watermarks {high}, {mid}, {low} (high, mid, low, of 10000): give them in falling order, at \
         most 10000"
    )]
    Watermarks {
        /// the high mark, of 10,000
        high: u32,
        /// the middle mark, of 10,000
        mid: u32,
        /// the low mark, of 10,000
        low: u32,
    },
    /// watermarks with a check interval of zero
    #[error("watermarks that are looked at each 0 s: choose an interval, e.g. 5 s")]
    WatermarkInterval,
    /// an address filter that is empty or not page-aligned
    #[error(
        "a filter of addresses {0:?}: they must begin and end at multiples of 4096, and differ"
    )]
    Addresses(AddrRange),
    /// a folio filter with an empty range of sizes
    #[error("a filter of folios from {min} to {max} bytes: the least is above the most")]
    Folio {
        /// minimum in bytes
        min: u64,
        /// maximum in bytes
        max: u64,
    },
    /// a filter by touch time beyond the time for which touches are recorded
    #[error("a filter of what was touched within {0:?}: at most 8 hours")]
    Within(Duration),
    /// a second look that takes too long
    #[error("a second look after {0:?}: at most a second")]
    Recheck(Duration),
    /// too many elements: all input from outside has a limit
    #[error("too many {what}: {limit} at most")]
    TooMany {
        /// the kind of element
        what: &'static str,
        /// the maximum number
        limit: usize,
    },
    /// two schemes with the same name
    #[error("two schemes are called `{0}`: give each a name of its own")]
    SameName(String),
    /// an error in a named scheme
    #[error("scheme `{name}`: {why}")]
    Scheme {
        /// name of the scheme
        name: String,
        /// the error
        why: Box<SchemeError>,
    },
}

impl SchemeError {
    /// The key of the TOML form that contains the error, for example `quota.time`.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self {
            SchemeError::MinAboveMax(what) => what,
            SchemeError::Rate { .. } => "rate",
            SchemeError::Destinations(_) => "action",
            SchemeError::Reset(_) => "quota.reset",
            SchemeError::TimeQuota { .. } => "quota.time",
            SchemeError::SmallQuota { .. } => "quota.bytes",
            SchemeError::Aim(_) => "aim",
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
