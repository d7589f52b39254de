//! Targets at rest: if a target did not run, none of its memory was touched, and the monitor need not read
//! it.

use std::time::Duration;

use super::timing::Moment;
use super::view::Viewed;
use crate::ops::Activity;
use crate::snapshot::RegionView;
use crate::time::Nanos;

/// The memory of a target at rest is still read after this many rounds, or after `READ_EVERY` if that is earlier.
/// Reclaim may change it, or other processes may touch it without a change of the target's clock.
const READ_ROUNDS: u32 = 16;
const READ_EVERY: Duration = Duration::from_secs(10);
/// While all targets rest and nothing changes, a round is as long as this many others: it only reads their clocks.
pub(super) const ROUNDS_AT_REST: u32 = 2;
/// The memory of a target at rest is cleared again at most once in this time. All that a clear can show is that memory
/// is no longer hidden.
const CLEAR_EVERY: Duration = Duration::from_secs(30);
/// If a read finds a touch that the target's clock does not explain, the target is read in each round for
/// this time.
const DISTRUST_TIME: Duration = Duration::from_secs(60);

/// The state of a target at its last read. Nothing has happened to the target since then.
struct Rest {
    activity: Activity,
    /// time of the last read
    read: Moment,
    /// time until which the target is known to have rested
    until: Moment,
    /// The next round must read the target.
    over: bool,
    worth: SnapshotQualitySums,
    views: Vec<RegionView>,
}

/// How much memory the regions of a target describe, in bytes unless stated otherwise, and with which error.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SnapshotQualitySums {
    /// resident pages
    pub resident: u64,
    pub visible: u64,
    pub covered: u64,
    /// sum of the errors of the rates, weighted by the bytes of `touched`
    pub errors: f64,
    pub touched: f64,
}

impl SnapshotQualitySums {
    pub fn count(&mut self, v: &Viewed) {
        self.visible += v.visible;
        self.covered += v.covered;
        if let Some(error) = v.view.rate.error_log2() {
            self.errors += f64::from(error) * v.visible as f64;
            self.touched += v.visible as f64;
        }
    }

    pub fn add(&mut self, other: SnapshotQualitySums) {
        self.resident += other.resident;
        self.visible += other.visible;
        self.covered += other.covered;
        self.errors += other.errors;
        self.touched += other.touched;
    }

    /// Fraction of the visible memory that the regions describe, in basis points.
    pub fn coverage_bp(&self) -> u32 {
        u32::try_from(self.covered * 10_000 / self.visible.max(1)).unwrap_or(10_000)
    }

    /// Mean error of the rates over the touched bytes, as a binary logarithm; `None` if nothing was touched.
    pub fn error_log2(&self) -> Option<f32> {
        (self.touched > 0.0).then_some((self.errors / self.touched) as f32)
    }
}

impl Rest {
    /// Whether the target has rested since the read.
    fn lasts(&self) -> bool {
        self.until.at > self.read.at
    }
}

/// A read of a whole target, with the activity at that time: if the activity stays equal, the target rests.
#[derive(Debug, Clone, Copy)]
pub(super) struct FullRead {
    pub activity: Activity,
    pub at: Moment,
}

/// Whether a target is at rest, according to its clock.
#[derive(Default)]
pub(super) struct Resting {
    /// the read of the whole target in this round, if nothing was cleared after it
    whole: Option<FullRead>,
    /// The target has done nothing since this read.
    rest: Option<Rest>,
    /// the activity at the previous read
    previous: Option<Activity>,
    /// The target rested until the previous read, and the read found no touch.
    rested: bool,
    /// time of the last clear
    cleared_at: Nanos,
    /// until this time, the target's clock does not prove rest
    distrusted_until: Nanos,
}

impl Resting {
    /// Whether the target has rested until now and need not be read in this round. `round` is the length of a
    /// round.
    pub fn goes_on(&mut self, activity: Option<Activity>, now: &Moment, round: Duration) -> bool {
        let Some(rest) = &mut self.rest else { return false };
        let same = activity == Some(rest.activity);
        if same {
            rest.until = *now;
        }
        same && !rest.over && now.at.since(rest.read.at) < READ_EVERY.min(round * READ_ROUNDS)
    }

    /// Whether the target's clock shows rest since its last read.
    pub fn is_unbroken(&self, activity: Option<Activity>) -> bool {
        self.rest.as_ref().is_some_and(|rest| activity == Some(rest.activity))
    }

    /// Notes the activity at a read. Returns whether the target's clock proves that the target has done nothing since
    /// the previous read. Unlike a rest, this includes reads after a clear.
    pub fn has_rested(&mut self, activity: Option<Activity>, now: Nanos) -> bool {
        let before = std::mem::replace(&mut self.previous, activity);
        activity.is_some() && activity == before && now >= self.distrusted_until
    }

    /// Notes whether the target rested until this read, and the read found no touch.
    pub fn note_rested(&mut self, rested: bool) {
        self.rested = rested;
    }

    /// Whether the target rested until its last read.
    pub fn rested(&self) -> bool {
        self.rested
    }

    /// Whether its memory need not be cleared in this round.
    pub fn may_skip_clear(&self, now: Nanos) -> bool {
        self.lasts() || self.rested && now.since(self.cleared_at) < CLEAR_EVERY
    }

    /// Notes a clear: the target cannot rest before the next read.
    pub fn note_clear(&mut self, now: Nanos) {
        (self.whole, self.cleared_at) = (None, now);
    }

    /// Whether the target rested until its last read and has done nothing since.
    pub fn still_lasts(&self, activity: Option<Activity>) -> bool {
        self.rested && activity.is_some() && activity == self.previous
    }

    fn lasting(&self) -> Option<&Rest> {
        self.rest.as_ref().filter(|rest| rest.lasts())
    }

    /// Whether the target rests: its last published regions are still valid, except for their ages.
    pub fn lasts(&self) -> bool {
        self.lasting().is_some()
    }

    /// The worth of these regions, if the target rests.
    pub fn worth(&self) -> Option<SnapshotQualitySums> {
        self.lasting().map(|rest| rest.worth)
    }

    /// The run time of the target, and its regions with their present ages.
    pub fn views(&self) -> Option<(Duration, Vec<RegionView>)> {
        let rest = self.lasting()?;
        let passed = rest.until.at.since(rest.read.at);
        let later = |v: &RegionView| RegionView {
            age: if v.age.is_zero() { v.age } else { v.age + passed },
            ..*v
        };
        Some((rest.activity.ran, rest.views.iter().map(later).collect()))
    }

    /// Ends the rest; returns the time until which it lasted.
    pub fn end(&mut self) -> Option<Moment> {
        self.rest.take().filter(Rest::lasts).map(|rest| rest.until)
    }

    /// The read from which the target may rest; `None` while its clock is distrusted.
    pub fn take_whole(&mut self) -> Option<FullRead> {
        self.whole.take().filter(|whole| whole.at.at >= self.distrusted_until)
    }

    /// Begins a rest at the time of this read.
    pub fn begin(&mut self, whole: FullRead, worth: SnapshotQualitySums, views: Vec<RegionView>) {
        let FullRead { activity, at } = whole;
        self.rest = Some(Rest { activity, read: at, until: at, over: false, worth, views });
    }

    /// Notes a read of the whole target; `None` if the read was partial, or memory was cleared after it.
    pub fn note_whole(&mut self, whole: Option<FullRead>) {
        self.whole = whole;
    }

    /// Notes a touch while the target's clock did not advance: another process shares the address space.
    pub fn distrust(&mut self, now: Nanos) {
        self.distrusted_until = now + DISTRUST_TIME;
    }

    /// Requires a read in the next round, because the target has changed.
    pub fn disturb(&mut self) {
        self.whole = None;
        self.rested = false;
        if let Some(rest) = &mut self.rest {
            rest.over = true;
        }
    }

    /// Drops the state of the last read.
    pub fn forget(&mut self) {
        self.rest = None;
        self.rested = false;
    }
}
