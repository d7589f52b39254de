//! Hot, warm, cold: definitions, and counts of bytes.

use std::iter::Sum;
use std::ops::AddAssign;
use std::time::Duration;

/// The heat of visible memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Heat {
    /// untouched for at least [`Thresholds::cold_age`]
    Cold,
    /// neither hot nor cold
    Warm,
    /// touched at [`Thresholds::hot_hz`] or more
    Hot,
}

/// The limits of hot and cold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// minimum first-touch rate of hot memory, in Hz
    pub hot_hz: f64,
    /// minimum time for which cold memory is untouched
    pub cold_age: Duration,
}

impl Default for Thresholds {
    /// 10 Hz (5 % at 5 ms) and 5 s.
    fn default() -> Self {
        Thresholds { hot_hz: 10.0, cold_age: Duration::from_secs(5) }
    }
}

/// Bytes by heat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeatBytes {
    /// hot bytes
    pub hot: u64,
    /// warm bytes
    pub warm: u64,
    /// cold bytes
    pub cold: u64,
    /// resident bytes whose accesses cannot be observed
    pub unknown: u64,
    /// mapped bytes that are not resident
    pub absent: u64,
}

impl HeatBytes {
    /// Hot plus warm bytes: the recently touched memory.
    #[must_use]
    pub fn working_set(&self) -> u64 {
        self.hot + self.warm
    }

    /// All bytes except absent ones.
    #[must_use]
    pub fn resident(&self) -> u64 {
        self.hot + self.warm + self.cold + self.unknown
    }
}

impl AddAssign for HeatBytes {
    fn add_assign(&mut self, o: Self) {
        self.hot += o.hot;
        self.warm += o.warm;
        self.cold += o.cold;
        self.unknown += o.unknown;
        self.absent += o.absent;
    }
}

impl Sum for HeatBytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        let mut all = HeatBytes::default();
        iter.for_each(|b| all += b);
        all
    }
}
