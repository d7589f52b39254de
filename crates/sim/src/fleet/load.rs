//! How busy a service is over time.

use std::f64::consts::TAU;

use super::{DAY, MINUTE};
use crate::random::{mix, unit};

/// Days before the first one, for ages that reach back.
pub const HISTORY_DAYS: u32 = 30;

/// When a service is busy.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Rhythm {
    /// always equally
    Even,
    /// like its users: by `swing` more or less than the mean, most at hour `peak`, less on two of seven days
    Users { swing: f64, peak: f64 },
    /// from hour `start` of each day for `hours`, else not at all
    Phases { start: f64, hours: f64 },
}

impl Rhythm {
    /// The load at `t` s; its mean is about 1.
    fn at(self, t: f64) -> f64 {
        let hour = t.rem_euclid(DAY) / 3600.0;
        match self {
            Rhythm::Even => 1.0,
            Rhythm::Users { swing, peak } => {
                let weekend = (t / DAY).floor().rem_euclid(7.0) >= 5.0;
                let day = 1.0 + swing * ((hour - peak) / 24.0 * TAU).cos();
                if weekend { 0.7 * day } else { day }
            }
            Rhythm::Phases { start, hours } => {
                f64::from(u8::from((hour - start).rem_euclid(24.0) < hours))
            }
        }
    }
}

/// The load of a service, constant in each minute.
#[derive(Debug, Clone)]
pub struct Load {
    /// in each minute, from `HISTORY_DAYS` before the first day on
    load: Vec<f64>,
    /// the integral in s up to the start of each minute, and up to the end
    sum: Vec<f64>,
}

impl Load {
    /// The load by a rhythm up to the end of day `days`, with a little unrest from `key`.
    pub fn new(rhythm: Rhythm, days: u32, key: u64) -> Self {
        let minutes = (HISTORY_DAYS + days) * 1440;
        let begin = -f64::from(HISTORY_DAYS) * DAY;
        let at = |i: u32| {
            let unrest = 0.9 + 0.2 * unit(mix(key, u64::from(i / 10)));
            unrest * rhythm.at(begin + (f64::from(i) + 0.5) * MINUTE)
        };
        let load: Vec<f64> = (0..minutes).map(at).collect();
        let mut sum = vec![0.0];
        let mut total = 0.0;
        for load in &load {
            total += load * MINUTE;
            sum.push(total);
        }
        Load { load, sum }
    }

    /// The minute of a time, as an index, and the part of the minute that has passed.
    fn index(&self, t: f64) -> (usize, f64) {
        let minutes =
            (t / MINUTE + f64::from(HISTORY_DAYS * 1440)).clamp(0.0, self.load.len() as f64 - 1e-9);
        (minutes as usize, minutes.fract())
    }

    /// The load at `t`.
    pub fn at(&self, t: f64) -> f64 {
        self.load[self.index(t).0]
    }

    /// The integral of the load up to `t`.
    pub fn until(&self, t: f64) -> f64 {
        let (i, part) = self.index(t);
        self.sum[i] + part * self.load[i] * MINUTE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_integral_is_that_of_the_load() {
        let load = Load::new(Rhythm::Users { swing: 0.5, peak: 14.0 }, 2, 7);
        for t in [-1e6, 0.0, 90.0, 100_000.0] {
            let rise = load.until(t + 0.5) - load.until(t);
            assert!((rise - 0.5 * load.at(t)).abs() < 1e-6, "{t}");
        }
        assert!(load.at(14.0 * 3600.0) > 2.0 * load.at(2.0 * 3600.0));
    }

    #[test]
    fn a_job_rests_between_its_phases() {
        let load = Load::new(Rhythm::Phases { start: 22.0, hours: 4.0 }, 2, 7);
        let busy: Vec<bool> =
            (0..24).map(|h| load.at(f64::from(h) * 3600.0 + 60.0) > 0.0).collect();
        let hours: Vec<usize> = (0..24).filter(|h| busy[*h]).collect();
        assert_eq!(hours, [0, 1, 22, 23]);
    }
}
