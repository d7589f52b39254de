//! Statistics of first touches: from the times at which pages became young to a rate.
//!
//! Pages are cleared once and read at growing delays. A page that became young between two reads was first
//! touched between them: this is an interval-censored time to first touch. All functions below follow from
//! the likelihood of such times, if a page is touched at a constant rate as a Poisson process.

use crate::estimator::Rate;

/// The result of one read for the pages that were untouched until the previous read.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Bin {
    /// pages that became young
    pub touched: f64,
    /// pages that stayed untouched
    pub survived: f64,
    /// time between the two reads, in s
    pub seconds: f64,
    /// time from the clear to the earlier read, in s
    pub since: f64,
}

/// Maximum rate in Hz: the first read comes 1 ms after the clear, so higher rates cannot be distinguished.
const HIGHEST_HZ: f64 = 5_000.0;

/// Touched pages, and the time for which pages were observed untouched, in page-seconds. Their ratio
/// approximates the rate. A page touched within a bin counts half of the bin.
#[must_use]
pub fn score(bins: &[Bin]) -> (f64, f64) {
    bins.iter().fold((0.0, 0.0), |(d, e), b| {
        (d + b.touched, e + b.seconds * (b.survived + b.touched / 2.0))
    })
}

/// The maximum-likelihood rate of first touches, in Hz.
///
/// It solves `sum d D / (exp(l D) - 1) = sum s D` for l (d touched, s survived, D length of a bin in s) by
/// Newton's method in ln l, starting from the ratio of [`score`]. Example: 632 of 1000 pages in 1 ms give
/// 1000 Hz. If all pages were touched in the first bin, half a page is presumed missed.
#[must_use]
pub fn first_touch_rate(bins: &[Bin]) -> f64 {
    let (d, e) = score(bins);
    if d <= 0.0 || e <= 0.0 {
        return 0.0;
    }
    let idle: f64 = bins.iter().map(|b| b.survived * b.seconds).sum();
    if idle <= 0.0 {
        let first = bins.iter().find(|b| b.touched > 0.0).map_or(1.0, |b| b.seconds);
        return all_at_once(d, first);
    }
    let mut l = d / e;
    for _ in 0..40 {
        let (mut f, mut slope) = (-idle, 0.0);
        for b in bins.iter().filter(|b| b.touched > 0.0 && b.seconds > 0.0) {
            let x = l * b.seconds;
            if x < 500.0 {
                let em = x.exp_m1();
                f += b.touched * b.seconds / em;
                slope -= b.touched * b.seconds * b.seconds * (em + 1.0) / (em * em);
            }
        }
        let step = (-f / (slope * l)).clamp(-1.0, 1.0);
        if !step.is_finite() {
            break;
        }
        l *= step.exp();
        if step.abs() < 1e-4 || l > HIGHEST_HZ {
            break;
        }
    }
    l.min(HIGHEST_HZ)
}

/// The approximate rate in Hz at which all of `touched` pages are touched within `seconds` in one of two
/// cases: half a page is presumed missed. The likelihood has no maximum; it grows with the rate. A part of a
/// huge page counts as at least one touch.
fn all_at_once(touched: f64, seconds: f64) -> f64 {
    ((2.0 * touched.max(1.0)).ln() / seconds.max(1e-6)).min(HIGHEST_HZ)
}

/// Log-likelihood ratio (natural logarithm) of two rates against one common rate, from the touched pages and
/// page-seconds of each.
#[must_use]
pub fn llr(d1: f64, e1: f64, d2: f64, e2: f64) -> f64 {
    if e1 <= 0.0 || e2 <= 0.0 || d1 + d2 <= 0.0 {
        return 0.0;
    }
    let term = |d: f64, e: f64| if d > 0.0 { d * (d / e).ln() } else { 0.0 };
    term(d1, e1) + term(d2, e2) - term(d1 + d2, e1 + e2)
}

/// Whether [`llr`] is below `limit`, from the touched pages and page-seconds of both.
///
/// The ratio is the sum of `d ln x`, where x is each rate divided by the common rate. Bounds usually decide
/// without a logarithm: `ln x <= x - 1`, and `ln x >= 2 (x - 1) / (x + 1)` for the faster one, `ln x >= (x -
/// 1 / x) / 2` for the slower one.
#[must_use]
pub fn llr_is_below(limit: f64, (d1, e1): (f64, f64), (d2, e2): (f64, f64)) -> bool {
    let seconds = (e1 + e2) / (d1 + d2);
    let (x1, x2) = (d1 / e1 * seconds, d2 / e2 * seconds);
    if limit > 0.0 && d1 * (x1 - 1.0) + d2 * (x2 - 1.0) < limit {
        return true;
    }
    let least = |d: f64, x: f64| match () {
        _ if d == 0.0 => 0.0,
        _ if x > 1.0 => d * 2.0 * (x - 1.0) / (x + 1.0),
        _ => d * (x - 1.0 / x) / 2.0,
    };
    let surely_not = e1 > 0.0 && e2 > 0.0 && least(d1, x1) + least(d2, x2) > limit + 1e-6;
    !surely_not && llr(d1, e1, d2, e2) < limit
}

/// Log-likelihood (natural logarithm) that `bins` gain if each bin has a rate of its own instead of the
/// common rate `hz`. No other model gains more.
#[must_use]
pub fn misfit(bins: &[Bin], hz: f64) -> f64 {
    let term =
        |n: f64, expected: f64| if n > 0.0 { n * (n / expected.max(1e-300)).ln() } else { 0.0 };
    let one = |b: &Bin| {
        let pages = b.touched + b.survived;
        let survive = (-hz * b.seconds).exp();
        term(b.touched, pages * -(-hz * b.seconds).exp_m1()) + term(b.survived, pages * survive)
    };
    bins.iter().map(one).sum()
}

/// A mixture: a fraction of the pages is touched at one rate, and the others are never touched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mixture {
    /// touched fraction of all pages, 0 to 1
    pub share: f64,
    /// rate of the touched pages, in Hz
    pub hz: f64,
    /// log-likelihood (natural logarithm) gained over a common rate of all pages
    pub gain: f64,
}

/// The maximum-likelihood mixture for `bins`; `None` if nothing was touched.
///
/// This is a mixture (cure) model: S(t) = 1 - p + p exp(-l t) is the fraction of pages untouched at time t
/// after the clear. Bins may contain pages that were watched for different times: each bin counts by its
/// chance S(to) / S(from) to survive it. For each l of a grid, p is the value that explains the observed
/// touches, and the likelihood decides. Example: if every sixteenth page is touched at 500 Hz, the result is
/// p = 1/16 and l = 500, not 30 Hz. If the first read found all touches, as is usual for a single page, the
/// likelihood has no upper bound, and half a page is presumed missed.
#[must_use]
pub fn touched_share(bins: &[Bin]) -> Option<Mixture> {
    let used = || bins.iter().filter(|b| b.touched + b.survived > 0.0);
    let seen = FirstTouches::of(used());
    if seen.touched <= 0.0 {
        return None;
    }
    let last = used().map(|b| b.since + b.seconds).fold(0.0, f64::max);
    // First a coarse grid, then ever finer grids around the best rate.
    let mut chances = Chances::of(&seen, 0.1 / last.max(1e-3));
    let mut best = chances.best(6);
    while chances.hz * 2.0 < HIGHEST_HZ {
        chances.double();
        best = std::cmp::max_by(best, chances.best(6), |a, b| a.0.total_cmp(&b.0));
    }
    let (low, high) = (best.1 / 2.0, (best.1 * 2.0).min(HIGHEST_HZ));
    let (value, hz, share) = top(low, high, |hz| Chances::of(&seen, hz).best(11));
    let alone = Chances::of(&seen, first_touch_rate(bins)).likelihood(1.0);
    let last = bins.iter().rfind(|b| b.touched > 0.0).filter(|_| hz > 0.99 * HIGHEST_HZ);
    let hz = last.map_or(hz, |b| all_at_once(seen.touched, b.since + b.seconds));
    Some(Mixture { share, hz, gain: value - alone })
}

/// The best value of `at`, by its first component, between two rates: a golden-section search in the
/// logarithm, to 1 % of a range of a factor of four. `at` has one maximum there.
fn top(low: f64, high: f64, at: impl Fn(f64) -> (f64, f64, f64)) -> (f64, f64, f64) {
    const GOLDEN: f64 = 0.618_034;
    const STEPS: u32 = 10;
    let (mut low, mut high) = (low.ln(), high.ln());
    let between = |low: f64, high: f64, part: f64| at((low + part * (high - low)).exp());
    let mut left = between(low, high, 1.0 - GOLDEN);
    let mut right = between(low, high, GOLDEN);
    for _ in 0..STEPS {
        if left.0 > right.0 {
            (high, right) = (right.1.ln(), left);
            left = between(low, high, 1.0 - GOLDEN);
        } else {
            (low, left) = (left.1.ln(), right);
            right = between(low, high, GOLDEN);
        }
    }
    if left.0 > right.0 { left } else { right }
}

/// What the likelihood of a mixture depends on.
///
/// A page in a bin has survived until its begin. If S(t) is the fraction untouched at time t, a touched page
/// contributes ln(S(from) - S(to)) - ln S(from), and another one ln S(to) - ln S(from). The end of one bin is usually
/// the begin of the next, and most of these terms cancel: what remains is one for each time at which the number of
/// watched pages changes.
struct FirstTouches {
    /// all touched pages
    touched: f64,
    /// the bins with touches
    bins: Vec<Bin>,
    /// times since the clear, each with the pages watched until then less the pages watched from then on
    left: Vec<(f64, f64)>,
}

impl FirstTouches {
    fn of<'a>(bins: impl Iterator<Item = &'a Bin>) -> Self {
        let mut seen = FirstTouches { touched: 0.0, bins: Vec::new(), left: Vec::new() };
        for b in bins {
            if b.touched > 0.0 {
                seen.touched += b.touched;
                seen.bins.push(*b);
            }
            match seen.left.last_mut() {
                Some((pages, at)) if (*at - b.since).abs() < 1e-9 => {
                    *pages -= b.touched + b.survived
                }
                _ => seen.left.push((-b.touched - b.survived, b.since)),
            }
            seen.left.push((b.survived, b.since + b.seconds));
        }
        // All pages are untouched at the clear.
        seen.left.retain(|(pages, at)| *pages != 0.0 && *at > 0.0);
        seen
    }
}

/// The chances of pages that are touched at a given rate.
struct Chances<'a> {
    seen: &'a FirstTouches,
    /// the rate
    hz: f64,
    /// for each of `seen.bins`, the chance to remain untouched for its length
    bins: Vec<f64>,
    /// for each of `seen.left`, the chance to be untouched at its time
    left: Vec<f64>,
}

impl<'a> Chances<'a> {
    fn of(seen: &'a FirstTouches, hz: f64) -> Self {
        let bins = seen.bins.iter().map(|b| (-hz * b.seconds).exp()).collect();
        let left = seen.left.iter().map(|(_, at)| (-hz * at).exp()).collect();
        Chances { seen, hz, bins, left }
    }

    /// Doubles the rate.
    fn double(&mut self) {
        self.hz *= 2.0;
        self.bins.iter_mut().chain(&mut self.left).for_each(|x| *x *= *x);
    }

    /// The log-likelihood of the likeliest fraction at this rate, the rate, and this fraction.
    fn best(&self, steps: u32) -> (f64, f64, f64) {
        let p = self.likeliest_share(steps);
        (self.likelihood(p), self.hz, p)
    }

    /// Log-likelihood if a fraction `p` of the pages is touched.
    fn likelihood(&self, p: f64) -> f64 {
        let touched = self.seen.bins.iter().zip(&self.bins).map(|(b, stays)| {
            b.touched * ((p * (1.0 - stays)).max(1e-300).ln() - self.hz * b.since)
        });
        let left = self.seen.left.iter().zip(&self.left).map(|((pages, at), untouched)| {
            // If all pages are touched, exp(-l t) may be too small for a number, unlike its logarithm.
            let ln = if p < 1.0 { (1.0 - p + p * untouched).ln() } else { -self.hz * at };
            pages * ln
        });
        touched.sum::<f64>() + left.sum::<f64>()
    }

    /// Derivative of the log-likelihood with respect to `p`, computed without a logarithm.
    fn slope(&self, p: f64) -> f64 {
        let one = |((pages, _), untouched): (&(f64, f64), &f64)| {
            let gone = 1.0 - untouched;
            pages * gone / (1.0 - p * gone).max(1e-12)
        };
        self.seen.touched / p - self.seen.left.iter().zip(&self.left).map(one).sum::<f64>()
    }

    /// The likeliest fraction from 0.0005 to 1, if there is one maximum: each step halves the range of its
    /// logarithm.
    fn likeliest_share(&self, steps: u32) -> f64 {
        if self.slope(1.0) >= 0.0 {
            return 1.0;
        }
        let (mut low, mut high) = (0.0005f64, 1.0f64);
        for _ in 0..steps {
            let middle = (low * high).sqrt();
            if self.slope(middle) > 0.0 { low = middle } else { high = middle }
        }
        (low * high).sqrt()
    }
}

/// Sums over windows that were measured individually, for the common rate of all of them.
///
/// Pages of a window are not independent, and windows of a region differ. Therefore the error is that of a
/// ratio of sums over windows (cluster-robust), and at least that of counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spread {
    windows: f64,
    d: f64,
    e: f64,
    dd: f64,
    de: f64,
    ee: f64,
}

impl Spread {
    /// Adds a window: touched pages, and page-seconds before the touch.
    pub fn add(&mut self, d: f64, e: f64) {
        self.add_run(1, d, e);
    }

    /// Adds `windows` windows with these figures each.
    pub fn add_run(&mut self, windows: usize, d: f64, e: f64) {
        let n = windows as f64;
        self.windows += n;
        self.d += n * d;
        self.e += n * e;
        self.dd += n * d * d;
        self.de += n * d * e;
        self.ee += n * e * e;
    }

    /// Adds the sums of another spread.
    pub fn join(&mut self, o: &Spread) {
        self.windows += o.windows;
        self.d += o.d;
        self.e += o.e;
        self.dd += o.dd;
        self.de += o.de;
        self.ee += o.ee;
    }

    /// Touched pages.
    #[must_use]
    pub fn touched(&self) -> f64 {
        self.d
    }

    /// Page-seconds.
    #[must_use]
    pub fn exposure(&self) -> f64 {
        self.e
    }

    /// The 95 % confidence interval of a rate of `hz`.
    ///
    /// The variance of the logarithm of the rate is `sum (d - r e)^2 / d^2`, where r is the ratio of the
    /// sums, plus the variance of the model. Without a touch, the upper bound is the rate at which no touch
    /// occurs in 1 of 40 cases, if windows are touched as a whole.
    #[must_use]
    pub fn interval(&self, hz: f64) -> Rate {
        if self.d <= 0.0 {
            let pages = (self.e / self.windows.max(1.0)).max(1e-9);
            let high = 3.69 / (self.windows * pages / PAGES_PER_INDEPENDENT_OBSERVATION).max(1e-9);
            return Rate { hz: 0.0, low: 0.0, high: high as f32 };
        }
        self.within(hz, self.error())
    }

    /// The interval of the rate of a fraction of the pages. `runs` holds touched pages and times of first
    /// touch, by memory that was cleared together.
    ///
    /// Accesses in address order reach all of a run at once: then the runs are independent, however many
    /// windows they have. Example: of nine runs of a field that is traversed every 3.3 ms, three are touched
    /// within 1 ms and six within 3 ms, or five and four.
    #[must_use]
    pub fn interval_of_part(&self, hz: f64, runs: &Spread) -> Rate {
        let times = runs.times();
        let over_runs = (times * times * runs.variance() + (1.96 * MODEL_LOG_SD).powi(2)).sqrt();
        self.within(hz, self.error().max(over_runs))
    }

    /// The interval if pages that were cleared together were touched together, in one pass: then each run is
    /// a single observation of a time, however many pages it has.
    ///
    /// Example: a field is traversed in order every 10 ms. If the next pass reaches a run 2 ms after its
    /// clear, the whole run looks like 350 Hz, and all of its pages agree.
    #[must_use]
    pub fn interval_of_runs(&self, hz: f64, runs: &Spread) -> Rate {
        let error = 1.96
            * (LOG_EXPONENTIAL_VARIANCE / runs.windows.max(1.0) + MODEL_LOG_SD * MODEL_LOG_SD)
                .sqrt();
        self.within(hz, self.error().max(error))
    }

    /// The interval given half of its width as a natural logarithm.
    fn within(&self, hz: f64, error: f64) -> Rate {
        let factor = error.min(20.0).exp();
        Rate {
            hz: hz as f32,
            low: (hz / factor / PERIODIC_ACCESS_FACTOR) as f32,
            high: (hz * factor) as f32,
        }
    }

    fn error(&self) -> f64 {
        let few = if self.windows < 6.0 { PAGES_PER_INDEPENDENT_OBSERVATION } else { 1.0 };
        self.times() * (self.variance().max(few / self.d) + MODEL_LOG_SD * MODEL_LOG_SD).sqrt()
    }

    /// Variance of the logarithm of the rate; 0 if there is nothing to compare.
    fn variance(&self) -> f64 {
        let m = self.windows;
        if m < 2.0 || self.d <= 0.0 {
            return 0.0;
        }
        let r = self.d / self.e.max(1e-9);
        let residuals = self.dd - 2.0 * r * self.de + r * r * self.ee;
        residuals.max(0.0) / (self.d * self.d) * m / (m - 1.0)
    }

    /// Approximation of Student's factor for few windows.
    fn times(&self) -> f64 {
        1.96 + 4.0 / self.windows.max(1.0)
    }
}

/// Error of the model, as a standard deviation of the logarithm. Neighbours are joined if their rates are within a
/// factor of 1.5, and accesses may be periodic or come in bursts. 1.96 standard deviations are that factor.
const MODEL_LOG_SD: f64 = 0.207;

/// Variance of the logarithm of a single exponential waiting time: pi^2 / 6.
const LOG_EXPONENTIAL_VARIANCE: f64 = 1.645;

/// Accesses at fixed intervals may appear up to 2.3 times as frequent as they are, if they fall between two
/// reads. Together with the model's factor of 1.5, this factor covers that.
const PERIODIC_ACCESS_FACTOR: f64 = 1.6;

/// Number of pages of a window that count as one independent observation.
pub const PAGES_PER_INDEPENDENT_OBSERVATION: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::*;

    const DELAYS: [f64; 7] = [0.001, 0.002, 0.007, 0.02, 0.07, 0.15, 0.25];

    /// Expected counts of `n` pages of which a fraction `p` is touched at `hz`.
    fn expected(n: f64, p: f64, hz: f64) -> Vec<Bin> {
        let (mut t, mut left) = (0.0, n);
        let bin = |seconds: &f64| {
            let before = p * (-hz * t).exp();
            t += seconds;
            let touched = n * (before - p * (-hz * t).exp());
            left -= touched;
            Bin { touched, survived: left, seconds: *seconds, since: t - seconds }
        };
        DELAYS.iter().map(bin).collect()
    }

    #[test]
    fn rates_over_four_decades_come_back() {
        for hz in [0.1, 1.0, 10.0, 100.0, 1000.0] {
            let found = first_touch_rate(&expected(10_000.0, 1.0, hz));
            assert!((found / hz - 1.0).abs() < 0.01, "{found} for {hz}");
        }
    }

    #[test]
    fn one_bin_is_its_closed_form() {
        let bin = Bin { touched: 632.120_558, survived: 367.879_442, seconds: 0.001, since: 0.0 };
        assert!((first_touch_rate(&[bin]) - 1000.0).abs() < 0.1);
    }

    #[test]
    fn limits_agree_with_and_without_the_logarithm() {
        let numbers = [0.0, 0.5, 1.0, 3.0, 40.0, 700.0];
        for (d1, d2) in numbers.iter().flat_map(|a| numbers.map(|b| (*a, b))) {
            for (e1, e2) in numbers.iter().flat_map(|a| numbers.map(|b| (*a, b))) {
                for limit in [0.0, 0.5, 6.0, 100.0] {
                    let below = llr(d1, e1, d2, e2) < limit;
                    assert_eq!(
                        llr_is_below(limit, (d1, e1), (d2, e2)),
                        below,
                        "{d1} {e1} {d2} {e2}"
                    );
                }
            }
        }
    }

    #[test]
    fn nothing_touched_has_no_rate_and_all_touched_has_a_bound() {
        let none = [Bin { touched: 0.0, survived: 100.0, seconds: 1.0, since: 0.0 }];
        assert_eq!(first_touch_rate(&none), 0.0);
        assert_eq!(touched_share(&none), None);
        let all = [Bin { touched: 16.0, survived: 0.0, seconds: 0.25, since: 0.0 }];
        assert!((first_touch_rate(&all) - 32f64.ln() / 0.25).abs() < 1e-9);
        assert_eq!(first_touch_rate(&[]), 0.0);
    }

    #[test]
    fn a_sixteenth_at_500_hz_is_distinguished_from_all_at_30() {
        let mixture = touched_share(&expected(8192.0, 1.0 / 16.0, 500.0)).unwrap();
        assert!((mixture.share * 16.0 - 1.0).abs() < 0.02, "{mixture:?}");
        assert!((mixture.hz / 500.0 - 1.0).abs() < 0.02, "{mixture:?}");
        assert!(mixture.gain > 100.0, "{mixture:?}");
        let all = touched_share(&expected(8192.0, 1.0, 30.0)).unwrap();
        assert!(all.gain < 1.0, "{all:?}");
    }

    #[test]
    fn a_page_that_was_touched_at_once_may_be_no_hotter_than_that() {
        let bin = |touched, seconds, since| Bin { touched, survived: 175.0, seconds, since };
        let bins = [bin(1.0, 0.005, 0.0), bin(0.0, 0.022, 0.005), bin(0.0, 1.5, 0.027)];
        let one = touched_share(&bins).unwrap();
        assert!((one.share * 176.0 - 1.0).abs() < 0.02, "{one:?}");
        assert!((one.hz - 2f64.ln() / 0.005).abs() < 1e-9, "{one:?}");
        let later = [bin(0.0, 0.005, 0.0), bin(1.0, 0.022, 0.005), bin(0.0, 1.5, 0.027)];
        assert!(touched_share(&later).unwrap().hz < 2f64.ln() / 0.005);
    }

    #[test]
    fn an_interval_narrows_with_windows_and_widens_with_their_differences() {
        let of = |windows: &[(f64, f64)]| {
            let mut spread = Spread::default();
            windows.iter().for_each(|&(d, e)| spread.add(d, e));
            let rate = spread.interval(10.0);
            f64::from(rate.high / rate.low)
        };
        let alike = of(&[(10.0, 1.0); 20]);
        assert!(alike < of(&[(10.0, 1.0); 4]));
        assert!(alike < of(&[(5.0, 1.0), (15.0, 1.0)].repeat(10)));
        let mut idle = Spread::default();
        (0..10).for_each(|_| idle.add(0.0, 16.0));
        let rate = idle.interval(0.0);
        assert!(rate.low == 0.0 && rate.high > 0.0 && rate.high < 1.0, "{rate:?}");
    }

    /// All windows of a run are touched at once; different runs are touched at independent times.
    #[test]
    fn an_interval_of_a_part_is_as_wide_as_runs_differ() {
        let mut windows = Spread::default();
        (0..900).for_each(|_| windows.add(1.0, 4.0));
        let of = |seconds: &[f64]| {
            let mut runs = Spread::default();
            seconds.iter().for_each(|s| runs.add(100.0, 100.0 * s));
            let rate = windows.interval_of_part(300.0, &runs);
            rate.high / rate.low
        };
        let alike = of(&[0.002; 9]);
        assert!((alike - of(&[0.002])).abs() < 1e-3, "one run tells nothing of others");
        assert!(of(&[0.0005, 0.002, 0.006].repeat(3)) > 1.5 * alike);
        assert!(of(&[0.0005, 0.002, 0.006].repeat(30)) < 1.2 * alike, "many runs tell much");
    }

    /// The log-likelihood of a mixture by its definition: each bin counts by its chance to survive it.
    fn likelihood_of(bins: &[Bin], share: f64, hz: f64) -> f64 {
        let left = |at: f64| 1.0 - share + share * (-hz * at).exp();
        let term = |n: f64, p: f64| if n > 0.0 { n * p.max(1e-300).ln() } else { 0.0 };
        let one = |b: &Bin| {
            let survives = left(b.since + b.seconds) / left(b.since);
            term(b.touched, 1.0 - survives) + term(b.survived, survives)
        };
        bins.iter().map(one).sum()
    }

    proptest::proptest! {
        /// Of some pages, the later reads are missing.
        #[test]
        fn the_mixture_lies_where_the_likelihood_is_highest(
            hz in 1.0f64..300.0, share in 0.01f64..0.9, n in 200.0f64..5000.0, reads in 2usize..7,
        ) {
            let mut bins = expected(n, share, hz);
            for (bin, more) in bins.iter_mut().zip(expected(n, share, hz).iter().take(reads)) {
                bin.touched += more.touched;
                bin.survived += more.survived;
            }
            bins.iter_mut().for_each(|b| b.touched = b.touched.round());
            if let Some(found) = touched_share(&bins).filter(|m| m.hz < 4_000.0) {
                let most = likelihood_of(&bins, found.share, found.hz);
                let alone = likelihood_of(&bins, 1.0, first_touch_rate(&bins));
                proptest::prop_assert!((most - alone - found.gain).abs() < 1e-6 * most.abs());
                // The search ends within half a percent.
                for (a, b) in [(0.97, 1.0), (1.03, 1.0), (1.0, 0.95), (1.0, 1.05), (0.98, 1.02)] {
                    let other = likelihood_of(&bins, (found.share * a).min(1.0), found.hz * b);
                    proptest::prop_assert!(most >= other - 0.5, "{most} and {other}: {found:?}");
                }
            }
        }

        #[test]
        fn the_estimate_lies_where_the_likelihood_is_highest(
            hz in 0.05f64..900.0, n in 50.0f64..5000.0,
        ) {
            let bins: Vec<Bin> = expected(n, 1.0, hz)
                .into_iter()
                .map(|b| Bin { touched: b.touched.round(), ..b })
                .collect();
            let likelihood = |l: f64| -> f64 {
                bins.iter()
                    .map(|b| b.touched * (-(-l * b.seconds).exp_m1()).ln() - b.survived * l * b.seconds)
                    .sum()
            };
            let found = first_touch_rate(&bins);
            if found > 0.0 && bins.iter().any(|b| b.survived >= 1.0) {
                for other in [found * 0.98, found * 1.02] {
                    proptest::prop_assert!(likelihood(found) >= likelihood(other) - 1e-6);
                }
            }
        }
    }
}
