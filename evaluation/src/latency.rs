//! Latencies as percentiles.

use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The longest latency that is recorded as such.
const MAX_LATENCY: Duration = Duration::from_secs(60);

/// Percentiles, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// maximum of the fastest 50 % of the requests
    pub p50: f64,
    /// maximum of the fastest 99 %
    pub p99: f64,
    /// maximum of the fastest 99.9 %
    pub p999: f64,
}

/// Latencies recorded so far.
#[derive(Debug)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// An empty histogram.
    pub fn new() -> Result<Self> {
        let most = u64::try_from(MAX_LATENCY.as_nanos())?;
        Ok(Latencies(Histogram::new_with_bounds(1000, most, 3)?))
    }

    /// Adds a latency.
    pub fn add(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The percentiles; `None` if there is no latency.
    pub fn percentiles(&self) -> Option<Latency> {
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1e3;
        (!self.0.is_empty()).then(|| Latency { p50: at(0.5), p99: at(0.99), p999: at(0.999) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let mut all = Latencies::new().unwrap();
        assert_eq!(all.percentiles(), None);
        (1..=1000).for_each(|ms| all.add(Duration::from_millis(ms)));
        all.add(Duration::from_secs(3600));
        let percentiles = all.percentiles().unwrap();
        for (is, ms) in
            [(percentiles.p50, 501.0), (percentiles.p99, 991.0), (percentiles.p999, 1000.0)]
        {
            assert!((is / 1e3 - ms).abs() < 0.002 * ms, "{is} us, not {ms} ms");
        }
    }
}
