//! Invalid options.

use std::fmt::{self, Display};

use isotherm_core::AttrsError;
use isotherm_record::LimitsError;

/// An error in the options. The text states the error and a valid value. The program exits with status 2.
#[derive(Debug)]
pub struct UsageError(String);

impl Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

impl UsageError {
    /// The text states the error and a valid value.
    pub fn new(text: impl Into<String>) -> Self {
        UsageError(text.into())
    }
}

impl From<AttrsError> for UsageError {
    fn from(e: AttrsError) -> Self {
        let options = match &e {
            AttrsError::Regions { .. } | AttrsError::TooManyRegions { .. } => "--regions",
            AttrsError::SampleAboveAggr { .. } => "--sample, --aggr",
            AttrsError::Interval { name: "sampling", .. } => "--sample",
            AttrsError::Interval { name: "aggregation", .. } => "--aggr",
            AttrsError::Interval { name: "update", .. } => "--update",
            AttrsError::Interval { .. } => "--interval",
            AttrsError::Size { name: "a window", .. } => "--window",
            AttrsError::Size { .. } => "--min-region",
            AttrsError::Parts(_) => "--split",
            AttrsError::Budget(_) => "--budget",
            AttrsError::NoSurvey(_) => "--monitor",
            AttrsError::ClearEvery => "--clear-every",
            AttrsError::OutOfGoal { .. } => "--sample, --intervals-goal",
            _ => return UsageError(e.to_string()),
        };
        UsageError(format!("{options}: {e}"))
    }
}

impl From<LimitsError> for UsageError {
    fn from(e: LimitsError) -> Self {
        UsageError(e.to_string())
    }
}
