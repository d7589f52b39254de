//! Counters that each CPU adds up by itself for a while: `__mod_zone_page_state` of mm/vmstat.c.
//!
//! Who reads one sees only what has been handed in, so it is off by up to the threshold on each CPU.

/// A counter of a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    handed_in: i64,
    own: Vec<i64>,
    threshold: i64,
}

impl Counter {
    /// One that stands at `value`, on so many CPUs.
    #[must_use]
    pub fn new(value: i64, cpus: u32) -> Self {
        Counter { handed_in: value, own: vec![0; cpus as usize], threshold: 0 }
    }

    /// What those who do not look closely see: without what CPUs have not handed in.
    #[must_use]
    pub fn read(&self) -> i64 {
        self.handed_in
    }

    /// What is so.
    #[must_use]
    pub fn exact(&self) -> i64 {
        self.handed_in + self.own.iter().sum::<i64>()
    }

    /// Adds on a CPU, which hands in all it has when that exceeds the threshold.
    #[inline]
    pub fn add(&mut self, cpu: u32, delta: i64) {
        let own = &mut self.own[cpu as usize];
        *own += delta;
        if own.abs() > self.threshold {
            self.handed_in += std::mem::take(own);
        }
    }

    /// From now on.
    pub fn set_threshold(&mut self, threshold: i64) {
        self.threshold = threshold;
    }

    /// Hands in what all CPUs have, as the kernel does each second.
    pub fn fold(&mut self) {
        self.handed_in = self.exact();
        self.own.fill(0);
    }
}

/// `calculate_normal_threshold`: for a zone of `managed` pages on so many CPUs.
#[must_use]
pub fn normal_threshold(cpus: u32, managed: i64) -> i64 {
    (2 * fls(cpus.into()) * (1 + fls(managed >> 15))).min(125)
}

/// `calculate_pressure_threshold`: while kswapd is awake, so that all CPUs together do not go from
/// the low watermark to the lowest unseen.
#[must_use]
pub fn pressure_threshold(cpus: u32, low: i64, min: i64) -> i64 {
    ((low - min) / i64::from(cpus.max(1))).clamp(1, 125)
}

/// The free pages from which on a reader must look closely; none if drift cannot matter.
#[must_use]
pub fn drift_mark(cpus: u32, threshold: i64, min: i64, low: i64, high: i64) -> Option<i64> {
    let drift = i64::from(cpus) * threshold;
    (drift > low - min).then_some(high + drift)
}

/// The number of the highest bit that is set, from 1 on.
fn fls(n: i64) -> i64 {
    i64::from(64 - n.leading_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a zone of 1 GiB on 2 CPUs, of 4.9 GiB on 8.
    #[test]
    fn thresholds() {
        assert_eq!(normal_threshold(2, 262_144), 2 * 2 * (1 + 4));
        assert_eq!(normal_threshold(8, 1_290_240), 56);
        assert_eq!(normal_threshold(1024, 1 << 26), 125);
        assert_eq!(pressure_threshold(8, 2250, 1800), 56);
        assert_eq!(pressure_threshold(1000, 2250, 1800), 1);
        assert_eq!(drift_mark(8, 56, 1800, 2250, 2700), None);
        assert_eq!(drift_mark(8, 57, 1800, 2250, 2700), Some(3156));
    }

    #[test]
    fn a_cpu_hands_in_above_the_threshold() {
        let mut c = Counter::new(100, 2);
        c.set_threshold(3);
        (0..3).for_each(|_| c.add(0, -1));
        assert_eq!((c.read(), c.exact()), (100, 97));
        c.add(0, -1);
        c.add(1, -1);
        assert_eq!((c.read(), c.exact()), (96, 95));
        c.fold();
        assert_eq!((c.read(), c.exact()), (95, 95));
    }
}
