//! Choices of a scheme with an objective, as logs and tables show them.

use std::sync::Arc;
use std::time::Duration;

use crate::time::Nanos;

/// Time between two choices.
pub(super) const CHOICE_INTERVAL: Duration = Duration::from_secs(60);

/// By the curve, returns must be at most this part of the objective, because pages return in bursts.
pub(super) const TARGET_SHARE: f64 = 0.8;

/// A choice of a scheme with an [`Aim`](super::Aim) for one control group, with its reasons.
#[derive(Debug, Clone, PartialEq)]
pub struct AimStep {
    /// time of the choice
    pub at: Nanos,
    /// name of the scheme
    pub scheme: Arc<str>,
    /// path of the control group; `None` for processes outside of any
    pub group: Option<Arc<str>>,
    /// The minimum age of page-out; `None` if no age meets the objective, so that no page is paged out.
    pub age: Option<Duration>,
    /// why
    pub why: AimReason,
    /// memory that is idle for this age or longer, in bytes; at most what the objective permits to save
    pub idle: u64,
    /// the rest of the memory whose ages are known, in bytes
    pub kept: u64,
    /// bytes that are expected to return per minute
    pub expected: u64,
    /// bytes that returned per minute since the last choice
    pub returned: u64,
}

/// The reason for a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AimReason {
    /// the curve of idle memory
    Curve,
    /// too much memory returned since the last choice
    TooMuch,
    /// Far too much memory returned: no page is paged out until the next choice.
    FarTooMuch,
    /// At no age that is known yet the objective is met.
    NoAge,
    /// The objective is met at no age up to half an hour, and no age above that is chosen.
    NoAgeInRange,
    /// At no known age is the objective met for certain: so few pages are counted that more might return.
    FewCounted,
    /// Idle ages or major faults are not known any more.
    Lost,
    /// Of page cache that no process maps: the kernel is asked to reclaim `idle` bytes within a minute, and `expected`
    /// bytes may be read again.
    Cache,
    /// likewise: too much was read again, so that none is reclaimed until the next choice
    TooMuchCache,
}

impl AimReason {
    /// The name in outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AimReason::Curve => "curve",
            AimReason::TooMuch => "too_much",
            AimReason::FarTooMuch => "far_too_much",
            AimReason::NoAge => "no_age",
            AimReason::NoAgeInRange => "no_age_in_range",
            AimReason::FewCounted => "few_counted",
            AimReason::Lost => "lost",
            AimReason::Cache => "page_cache",
            AimReason::TooMuchCache => "too_much_page_cache",
        }
    }
}
