//! A target that does nothing: it need not be read to know that nothing of its memory was touched.

use std::time::Duration;

use super::timing::Moment;
use super::view::Viewed;
use crate::ops::Activity;
use crate::snapshot::RegionView;
use crate::time::Nanos;

/// The memory of a target at rest is read once in so many rounds all the same, and in so much time at most:
/// others may reclaim it, or touch it without its clock.
const READ_ROUNDS: u32 = 16;
const READ_EVERY: Duration = Duration::from_secs(10);
/// Where a reading finds what its clock has not told of, it is read each time for so long.
const DISTRUST: Duration = Duration::from_secs(60);

/// What was known of a target when it was last read, and nothing has happened to it since.
struct Rest {
    activity: Activity,
    /// when it was read
    read: Moment,
    /// until when it is known to have rested
    until: Moment,
    /// It is to be read at the next round.
    over: bool,
    worth: Worth,
    views: Vec<RegionView>,
}

/// How much the regions of a target say, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Worth {
    /// resident pages
    pub resident: u64,
    pub visible: u64,
    pub covered: u64,
    /// of `touched`, the sum of the errors of its rates
    pub errors: f64,
    pub touched: f64,
}

impl Worth {
    pub fn count(&mut self, v: &Viewed) {
        self.visible += v.visible;
        self.covered += v.covered;
        if let Some(error) = v.view.rate.error_log2() {
            self.errors += f64::from(error) * v.visible as f64;
            self.touched += v.visible as f64;
        }
    }

    pub fn add(&mut self, other: Worth) {
        self.resident += other.resident;
        self.visible += other.visible;
        self.covered += other.covered;
        self.errors += other.errors;
        self.touched += other.touched;
    }

    /// The part of what can be seen that it tells of.
    pub fn coverage_bp(&self) -> u32 {
        u32::try_from(self.covered * 10_000 / self.visible.max(1)).unwrap_or(10_000)
    }

    /// The mean error of the rates.
    pub fn error_log2(&self) -> Option<f32> {
        (self.touched > 0.0).then_some((self.errors / self.touched) as f32)
    }
}

impl Rest {
    /// Whether it has rested since it was read.
    fn lasts(&self) -> bool {
        self.until.at > self.read.at
    }
}

/// A reading of all of a target, by which it may be known later that it rests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whole {
    pub activity: Activity,
    pub at: Moment,
}

/// Whether a target is at rest, as far as its clock says.
#[derive(Default)]
pub(super) struct Resting {
    /// the reading of all of it in this round, if nothing was cleared after it
    whole: Option<Whole>,
    /// Since it was read it has done nothing.
    rest: Option<Rest>,
    /// until when it is not known by its clock whether it does
    distrusted_until: Nanos,
}

impl Resting {
    /// Whether it has rested until now, so that there is no need to read it in a round of this length.
    pub fn goes_on(&mut self, activity: Option<Activity>, now: &Moment, round: Duration) -> bool {
        let Some(rest) = &mut self.rest else { return false };
        let same = activity == Some(rest.activity);
        if same {
            rest.until = *now;
        }
        same && !rest.over && now.at.since(rest.read.at) < READ_EVERY.min(round * READ_ROUNDS)
    }

    /// Whether its clock says that it has rested since it was read.
    pub fn is_unbroken(&self, activity: Option<Activity>) -> bool {
        self.rest.as_ref().is_some_and(|rest| activity == Some(rest.activity))
    }

    fn lasting(&self) -> Option<&Rest> {
        self.rest.as_ref().filter(|rest| rest.lasts())
    }

    /// Whether it rests: the regions published last hold for it but for their age.
    pub fn lasts(&self) -> bool {
        self.lasting().is_some()
    }

    /// How much those say.
    pub fn worth(&self) -> Option<Worth> {
        self.lasting().map(|rest| rest.worth)
    }

    /// How long it has run, and those regions as they are now.
    pub fn views(&self) -> Option<(Duration, Vec<RegionView>)> {
        let rest = self.lasting()?;
        let passed = rest.until.at.since(rest.read.at);
        let later = |v: &RegionView| RegionView {
            age: if v.age.is_zero() { v.age } else { v.age + passed },
            ..*v
        };
        Some((rest.activity.ran, rest.views.iter().map(later).collect()))
    }

    /// Ends it; says until when it lasted.
    pub fn end(&mut self) -> Option<Moment> {
        self.rest.take().filter(Rest::lasts).map(|rest| rest.until)
    }

    /// The reading by which it may rest, unless its clock is not trusted.
    pub fn take_whole(&mut self) -> Option<Whole> {
        self.whole.take().filter(|whole| whole.at.at >= self.distrusted_until)
    }

    /// It rests since that reading.
    pub fn begin(&mut self, whole: Whole, worth: Worth, views: Vec<RegionView>) {
        let Whole { activity, at } = whole;
        self.rest = Some(Rest { activity, read: at, until: at, over: false, worth, views });
    }

    /// All of it was read, or something of it was cleared after that.
    pub fn note_whole(&mut self, whole: Option<Whole>) {
        self.whole = whole;
    }

    /// Something was touched while its clock stood still: by another process in the same address space.
    pub fn distrust(&mut self, now: Nanos) {
        self.distrusted_until = now + DISTRUST;
    }

    /// Has it read at the next round, as it is no longer what it was.
    pub fn disturb(&mut self) {
        self.whole = None;
        if let Some(rest) = &mut self.rest {
            rest.over = true;
        }
    }

    /// Drops what was known when it was last read.
    pub fn forget(&mut self) {
        self.rest = None;
    }
}
