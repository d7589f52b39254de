//! Hot, warm, cold: the words, their definitions, and bytes counted by them.

use std::iter::Sum;
use std::ops::AddAssign;
use std::time::Duration;

/// How hot memory is that can be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Heat {
    /// untouched for at least [`Thresholds::cold_age`]
    Cold,
    /// neither
    Warm,
    /// touched at [`Thresholds::hot_hz`] or more
    Hot,
}

/// Where hot ends and cold begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// hot from this first-touch rate on, in Hz
    pub hot_hz: f64,
    /// cold from this long untouched on
    pub cold_age: Duration,
}

impl Default for Thresholds {
    /// 10 Hz (5 % at 5 ms) and 5 s.
    fn default() -> Self {
        Thresholds { hot_hz: 10.0, cold_age: Duration::from_secs(5) }
    }
}

/// Bytes by what is known of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeatBytes {
    /// hot
    pub hot: u64,
    /// warm
    pub warm: u64,
    /// cold
    pub cold: u64,
    /// resident, but its accesses cannot be seen
    pub unknown: u64,
    /// mapped, not resident
    pub absent: u64,
}

impl HeatBytes {
    /// Hot and warm: what was touched lately.
    #[must_use]
    pub fn working_set(&self) -> u64 {
        self.hot + self.warm
    }

    /// All but absent.
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
