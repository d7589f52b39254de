//! Per-CPU counters: `__mod_zone_page_state` of mm/vmstat.c.
//!
//! A reader sees only the changes that CPUs have reported, so a value may be wrong by up to the threshold per
//! CPU.

/// A counter of a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    handed_in: i64,
    own: Vec<i64>,
    threshold: i64,
}

impl Counter {
    /// A counter with the initial value `value`, on `cpus` CPUs.
    #[must_use]
    pub fn new(value: i64, cpus: u32) -> Self {
        Counter { handed_in: value, own: vec![0; cpus as usize], threshold: 0 }
    }

    /// The approximate value, without unreported changes.
    #[must_use]
    pub fn read(&self) -> i64 {
        self.handed_in
    }

    /// The exact value.
    #[must_use]
    pub fn exact(&self) -> i64 {
        self.handed_in + self.own.iter().sum::<i64>()
    }

    /// Adds `delta` on a CPU. The CPU reports its changes when they exceed the threshold.
    #[inline]
    pub fn add(&mut self, cpu: u32, delta: i64) {
        let own = &mut self.own[cpu as usize];
        *own += delta;
        if own.abs() > self.threshold {
            self.handed_in += std::mem::take(own);
        }
    }

    /// Sets the threshold for later changes.
    pub fn set_threshold(&mut self, threshold: i64) {
        self.threshold = threshold;
    }

    /// Reports the changes of all CPUs, as the kernel does every second.
    pub fn fold(&mut self) {
        self.handed_in = self.exact();
        self.own.fill(0);
    }
}

/// `calculate_normal_threshold`: the threshold for a zone of `managed` pages on `cpus` CPUs.
#[must_use]
pub fn normal_threshold(cpus: u32, managed: i64) -> i64 {
    (2 * fls(cpus.into()) * (1 + fls(managed >> 15))).min(125)
}

/// `calculate_pressure_threshold`: the threshold while kswapd is awake, so that the unreported changes of all
/// CPUs cannot hide a fall from the low to the min watermark.
#[must_use]
pub fn pressure_threshold(cpus: u32, low: i64, min: i64) -> i64 {
    ((low - min) / i64::from(cpus.max(1))).clamp(1, 125)
}

/// The number of free pages below which a reader needs the exact value; `None` if drift cannot matter.
#[must_use]
pub(crate) fn drift_mark(cpus: u32, threshold: i64, min: i64, low: i64, high: i64) -> Option<i64> {
    let drift = i64::from(cpus) * threshold;
    (drift > low - min).then_some(high + drift)
}

/// The number of the highest bit set, from 1; like the kernel's `fls`.
fn fls(n: i64) -> i64 {
    i64::from(64 - n.leading_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A zone of 1 GiB on 2 CPUs, and a zone of 4.9 GiB on 8 CPUs.
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
