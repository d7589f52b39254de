//! Constants that several monitors share, each with its unit and its reason.

use std::time::Duration;

/// A step that comes this late, and an aggregation interval at least, comes after a gap: we were
/// stopped. What was cleared before it is not read: one look that took seconds, among others that
/// took milliseconds, would make the mean rate of the interval too low.
pub(crate) const GAP: Duration = Duration::from_secs(1);
