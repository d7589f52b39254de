//! Constants that several files share, each with its unit and its reason.

use std::time::Duration;

/// A step that is late by this time and by at least an aggregation interval follows a gap: the monitor was
/// stopped. Windows cleared before the gap are not read: a single look over seconds, among looks over
/// milliseconds, would make the mean rate of the interval too low.
pub(crate) const MIN_GAP: Duration = Duration::from_secs(1);

/// Rates below this, in Hz, count as no heat: nine of ten pages are untouched for 5 s.
pub const NO_HEAT_HZ: f64 = 0.02;

/// Memory with a lower rate, in Hz, is not sampled: its windows are cleared in turn.
pub(crate) const SAMPLED_HZ: f64 = 2.0;

/// A sample with fewer pages does not show reliably whether its piece is reactivated.
pub(crate) const MIN_SAMPLE_PAGES: u32 = 8;

/// Maximum time between two turns of a region with constant heat.
pub(crate) const LONG_REGION_TURN: Duration = Duration::from_millis(2_750);

/// The same maximum for a small region. A touched part of each region is cleared again within this time.
pub const MAX_REGION_TURN: Duration = Duration::from_millis(5_200);

/// A page counts as idle for a time at most this part of the time too early: its last touch is known only to lie
/// between the read that found it and the next clear.
pub const EARLY_DIVISOR: u32 = 4;

/// All hot memory is sampled for this time after a change.
pub(crate) const CHANGE_SAMPLING_TIME: Duration = Duration::from_millis(600);

/// Untouched samples cleared at most this long ago count: if a process runs little, some rounds pass before a
/// sample proves idle.
pub(crate) const CHECKED_IDLE: Duration = Duration::from_millis(2_500);

/// The level (binary logarithm of a rate in Hz) of untouched memory.
pub(crate) const UNTOUCHED_LEVEL: i8 = i8::MIN;

/// A region counts as partly touched only if that is likelier than a uniform rate by this log-likelihood
/// ratio (natural logarithm).
pub(crate) const PARTLY_TOUCHED_LLR: f64 = 24.0;

/// The longest time within which a page filter can ask for a touch: the two bytes of each page record no more, with
/// any origin.
pub(crate) const MAX_WITHIN: Duration = Duration::from_secs(8 * 3600);
