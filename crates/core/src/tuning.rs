//! Constants that several files share, each with its unit and its reason.

use std::time::Duration;

/// A step that comes this late, and an aggregation interval at least, comes after a gap: we were
/// stopped. What was cleared before it is not read: one look that took seconds, among others that
/// took milliseconds, would make the mean rate of the interval too low.
pub(crate) const GAP: Duration = Duration::from_secs(1);

/// Rates below are no heat, in Hz: nine of ten pages are untouched for 5 s.
pub(crate) const NO_HEAT_HZ: f64 = 0.02;

/// Slower memory is not sampled: its windows are cleared in turn.
pub(crate) const SAMPLED_HZ: f64 = 2.0;

/// Fewer pages do not tell whether a piece wakes.
pub(crate) const LEAST_SAMPLE_PAGES: u32 = 8;

/// From one turn of a region whose heat has been the same for long to the next, at most.
pub(crate) const LONG_REGION_TURN: Duration = Duration::from_millis(2_750);

/// The same of a little region. What is touched is cleared again within that, a part of each region.
pub(crate) const LONGEST_REGION_TURN: Duration = Duration::from_millis(5_200);

/// For so long after something turned all that is hot is sampled.
pub(crate) const TURNING: Duration = Duration::from_millis(600);

/// The level (binary logarithm of a rate in Hz) of what was never touched.
pub(crate) const UNTOUCHED_LEVEL: i8 = i8::MIN;

/// By so much likelier, in natural logarithms, a part of the pages must be touched than all of them.
pub(crate) const PARTLY_TOUCHED_LLR: f64 = 24.0;
