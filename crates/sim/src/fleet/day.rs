//! The expected values of a day: shares of memory by idle age, exactly, and as a histogram of ages shows them.

use isotherm_core::AgeHistogram;

use super::service::{Generation, Service};
use super::{DAY, DAY_MINUTES, MINUTE, NR_AGES};

/// Hot memory has at least this rate, as everywhere in isotherm.
const HOT_HZ: f64 = 10.0;
/// `exp` of less is nothing.
const NEGLIGIBLE: f64 = 40.0;

/// One minute of a generation; all shares are of the size of the service.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Expected {
    /// resident memory
    pub resident: f32,
    /// memory at 10 Hz or more
    pub hot: f32,
    /// memory that has been idle for at least each age
    pub idle: [f32; NR_AGES],
    /// memory that is touched in this minute after at least each age
    pub returned: [f32; NR_AGES],
}

/// The expected values of every minute of a day, for all services.
#[derive(Debug)]
pub struct Day {
    number: u32,
    ages: [u64; NR_AGES],
    /// by service, generation and minute of the day
    minutes: Vec<Vec<Vec<Expected>>>,
}

impl Day {
    pub(super) fn new(services: &[Service], ages: &[u64; NR_AGES], number: u32) -> Self {
        let between = ages.map(Between::bin_of);
        let of_service = |service: &Service| {
            let of_generation = |generation: &Generation| {
                let at = |minute: u32| f64::from(number * DAY_MINUTES + minute) * MINUTE;
                (0..DAY_MINUTES).map(|m| expected(service, generation, &between, at(m))).collect()
            };
            service.generations.iter().map(of_generation).collect()
        };
        Day { number, ages: *ages, minutes: services.iter().map(of_service).collect() }
    }

    /// The number of the day.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Number of the ages that are at most `seconds`.
    pub(super) fn ages_up_to(&self, seconds: f64) -> usize {
        self.ages.iter().filter(|age| **age as f64 <= seconds).count()
    }

    pub(super) fn age_index(&self, seconds: u64) -> usize {
        self.ages.iter().position(|age| *age >= seconds).unwrap_or(NR_AGES - 1)
    }

    pub(super) fn minute(&self, service: usize, generation: usize, minute: u32) -> &Expected {
        &self.minutes[service][generation][minute as usize]
    }
}

/// An age between the ends of the bin of [`AgeHistogram`] in which it lies.
#[derive(Debug, Clone, Copy)]
struct Between {
    lower: f64,
    upper: f64,
    /// share of the bin that is at least as old, as [`AgeHistogram::at_least`] spreads it
    part: f64,
}

impl Between {
    fn bin_of(age: u64) -> Self {
        let age_ms = age * 1000;
        let bin = AgeHistogram::bin(age_ms);
        let end = |i| AgeHistogram::lowest_ms(i).map(|ms| ms as f64 / 1e3);
        let lower = end(bin).unwrap_or(0.0);
        let Some(upper) = end(bin + 1) else {
            return Between { lower, upper: f64::INFINITY, part: 1.0 };
        };
        let age = age as f64;
        Between { lower, upper, part: (upper / age).ln() / (upper / lower).ln() }
    }
}

/// The minute that starts at `start`.
fn expected(
    service: &Service,
    generation: &Generation,
    ages: &[Between; NR_AGES],
    start: f64,
) -> Expected {
    let mut found = Expected::default();
    if start < generation.born {
        return found;
    }
    let minute = Span { start, end: start + MINUTE };
    let middle = start + MINUTE / 2.0;
    let load = service.load.at(middle);
    let leaked = generation.leak * (middle - generation.born) / DAY;
    let shares = generation.classes.iter().map(|class| class.share);
    found.resident = (shares.sum::<f64>() + leaked) as f32;
    let is_hot = |hz: f64| hz * load >= HOT_HZ;
    let hot = generation.classes.iter().filter(|class| is_hot(class.hz)).map(|class| class.share);
    found.hot = hot.sum::<f64>() as f32;
    for (i, age) in ages.iter().enumerate() {
        let lower = minute.at_least(service, generation, age.lower);
        let upper = minute.at_least(service, generation, age.upper);
        let blend = |l: f64, u: f64| (u + (l - u) * age.part) as f32;
        found.idle[i] = blend(lower.0, upper.0);
        found.returned[i] = blend(lower.1, upper.1);
    }
    found
}

/// A minute: the load is constant in it.
struct Span {
    start: f64,
    end: f64,
}

impl Span {
    /// The mean share that has been idle for at least `age`, and the share that is touched after such a time.
    fn at_least(&self, service: &Service, generation: &Generation, age: f64) -> (f64, f64) {
        let since = self.start - age;
        if since < generation.born {
            return (0.0, 0.0);
        }
        let load = &service.load;
        let touched = load.until(self.start) - load.until(since);
        let middle = (self.start + self.end) / 2.0;
        let now = load.at(middle);
        // The growth of the exponents in the minute. The load one age ago is nearly constant.
        let rise = load.until(self.end) - load.until(self.end - age) - touched;
        let leaked = generation.leak * (middle - age - generation.born) / DAY;
        generation.classes.iter().fold((leaked, 0.0), |(idle, returned), class| {
            let (exponent, rise) = (class.hz * touched, class.hz * rise);
            let least = exponent + rise.min(0.0);
            if least > NEGLIGIBLE {
                return (idle, returned);
            }
            // The mean of `exp` between both ends of the minute.
            let part =
                if rise.abs() > 1e-6 { (1.0 - (-rise.abs()).exp()) / rise.abs() } else { 1.0 };
            let left = class.share * (-least).exp() * part;
            (idle + left, returned + left * class.hz * now * MINUTE)
        })
    }
}
