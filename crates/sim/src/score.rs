//! Accuracy of a snapshot.

use isotherm_core::{AddrRange, Heat, RegionView, Snapshot, TargetId, Thresholds};

use crate::ground_truth::GroundTruth;
use crate::kind::{PatternShare, pieces};

/// Rates below this are raised to it, in Hz. In an interval of 400 ms, the samples of a region represent one
/// touch in 6.4 s of its pages.
pub const MIN_SCORED_HZ: f64 = 0.1;

/// The highest rate that a look can distinguish from a higher one: with five touches per sampling interval,
/// 99.3 % of the pages are found accessed.
#[must_use]
pub fn highest_hz(sample: std::time::Duration) -> f64 {
    5.0 / sample.as_secs_f64()
}

/// Bytes of one kind that a snapshot reported, compared with the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Score {
    /// reported
    pub reported: u64,
    /// true
    pub real: u64,
    /// both
    pub both: u64,
    /// neither right nor wrong: too close to the threshold, or changing
    pub left_out: u64,
}

impl Score {
    /// Share of the reported bytes that are true; `None` if none were reported.
    #[must_use]
    pub fn precision(&self) -> Option<f64> {
        share(self.both, self.reported)
    }

    /// Share of the true bytes that were reported; `None` if there are none.
    #[must_use]
    pub fn recall(&self) -> Option<f64> {
        share(self.both, self.real)
    }

    /// The harmonic mean of both; `None` if no bytes are true or reported.
    #[must_use]
    pub fn f1(&self) -> Option<f64> {
        share(2 * self.both, self.reported + self.real)
    }
}

impl std::ops::AddAssign for Score {
    fn add_assign(&mut self, other: Score) {
        self.reported += other.reported;
        self.real += other.real;
        self.both += other.both;
        self.left_out += other.left_out;
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// The scores of a snapshot, in bytes of the memory that the truth describes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Scores {
    /// touched at 10 Hz or more
    pub hot: Score,
    /// neither hot nor cold
    pub warm: Score,
    /// untouched for 5 s or more at the end of the interval
    pub cold: Score,
    /// bytes reported as unknown; they are in none of the above
    pub unknown: u64,
    /// Root mean square of the binary logarithm of reported over true rate, over the bytes touched in the
    /// interval. The reported rate assumes that the pages reported as touched are among the touched ones. Both
    /// rates are limited to [`MIN_SCORED_HZ`] and [`highest_hz`]. `None` if nothing was touched.
    pub rate_error: Option<f64>,
}

impl Scores {
    /// The score of one kind.
    #[must_use]
    pub fn of(&self, heat: Heat) -> Score {
        match heat {
            Heat::Hot => self.hot,
            Heat::Warm => self.warm,
            Heat::Cold => self.cold,
        }
    }
}

/// The scores of `snapshot` for `target` and the memory of `truth`, by the default [`Thresholds`]; `None` if
/// the truth does not cover the time.
///
/// A page is left out of a score if its kind changed within the interval of the snapshot, or is undecided. It
/// is undecided if its rate is within a factor of 1.5 of the threshold. For cold and warm it is also undecided
/// if between 10 % and 90 % of its stretch are idle, because touches are so rare.
#[must_use]
pub fn score(truth: &GroundTruth, snapshot: &Snapshot, target: TargetId) -> Option<Scores> {
    let pieces = pieces(truth, snapshot.start, snapshot.end)?;
    let mut sums = Sums { top: highest_hz(snapshot.attrs.sample), ..Sums::default() };
    let mut covered = vec![0; truth.stretches.len()];
    for region in regions(snapshot, target) {
        for i in truth.stretches_in(region.range) {
            let overlap = truth.stretches[i].range().intersect(&region.range);
            let bytes = overlap.map_or(0, |r| r.len());
            covered[i] += bytes;
            sums.region(region, bytes, &pieces[i]);
        }
    }
    for (i, stretch) in truth.stretches.iter().enumerate() {
        sums.missed(stretch.range().len().saturating_sub(covered[i]), &pieces[i]);
    }
    Some(sums.scores())
}

pub(crate) fn regions(snapshot: &Snapshot, target: TargetId) -> impl Iterator<Item = &RegionView> {
    snapshot.targets.iter().filter(move |t| t.id == target).flat_map(|t| &t.regions)
}

/// Share of `range` that `snapshot` reports as `heat`, from 0 to 1.
pub(crate) fn called(snapshot: &Snapshot, target: TargetId, range: AddrRange, heat: Heat) -> f64 {
    let right = regions(snapshot, target).filter(|r| r.heat(&Thresholds::default()) == heat);
    let bytes: u64 = right.filter_map(|r| r.range.intersect(&range)).map(|r| r.len()).sum();
    bytes as f64 / range.len().max(1) as f64
}

const KINDS: [Heat; 3] = [Heat::Hot, Heat::Warm, Heat::Cold];

/// Sums of bytes, with fractions.
#[derive(Default)]
struct Sums {
    /// reported, real, both, left out, by kind
    bytes: [[f64; 4]; 3],
    unknown: f64,
    top: f64,
    squares: f64,
    touched: f64,
}

impl Sums {
    /// Adds `bytes` of a region that are in a stretch with these pieces.
    fn region(&mut self, region: &RegionView, bytes: u64, pieces: &[PatternShare]) {
        let called = region.bytes(&Thresholds::default());
        let len = region.range.len().max(1) as f64;
        let seen = bytes as f64 * (called.hot + called.warm + called.cold) as f64 / len;
        self.unknown += bytes as f64 * called.unknown as f64 / len;
        let all = (called.hot + called.warm + called.cold).max(1) as f64;
        let shares = [called.hot, called.warm, called.cold].map(|bytes| bytes as f64 / all);
        for ((sums, kind), share) in self.bytes.iter_mut().zip(KINDS).zip(shares) {
            add(sums, seen, share, kind, pieces);
        }
        let touched = f64::from(region.touched_bp) / 1e4;
        for piece in pieces.iter().filter(|p| p.hz > 0.0) {
            let bytes = seen * piece.share;
            let hz = f64::from(region.rate.hz) * (touched / piece.share).min(1.0);
            let log = |hz: f64| hz.clamp(MIN_SCORED_HZ, self.top).log2();
            self.squares += bytes * (log(hz) - log(piece.hz)).powi(2);
            self.touched += bytes;
        }
    }

    /// Adds `bytes` that no region covers.
    fn missed(&mut self, bytes: u64, pieces: &[PatternShare]) {
        for (sums, kind) in self.bytes.iter_mut().zip(KINDS) {
            add(sums, bytes as f64, 0.0, kind, pieces);
        }
    }

    fn scores(&self) -> Scores {
        let score = |[reported, real, both, left_out]: [f64; 4]| Score {
            reported: reported.round() as u64,
            real: real.round() as u64,
            both: both.round() as u64,
            left_out: left_out.round() as u64,
        };
        let [hot, warm, cold] = self.bytes.map(score);
        let rate_error = (self.touched > 0.0).then(|| (self.squares / self.touched).sqrt());
        Scores { hot, warm, cold, unknown: self.unknown.round() as u64, rate_error }
    }
}

/// Adds `bytes` of a stretch with these pieces, of which the share `called` is reported as `kind`. The report
/// does not say which pages these are; as many as possible count as right.
fn add(sums: &mut [f64; 4], bytes: f64, called: f64, kind: Heat, pieces: &[PatternShare]) {
    let share_of =
        |is: Option<bool>| pieces.iter().filter(|p| p.is(kind) == is).map(|p| p.share).sum::<f64>();
    let (real, open) = (share_of(Some(true)), share_of(None));
    let reported = called.min(1.0 - open);
    for (sum, share) in sums.iter_mut().zip([reported, real, reported.min(real), open]) {
        *sum += bytes * share;
    }
}
