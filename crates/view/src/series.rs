//! Bytes by heat over time, in a bounded number of parts.

use std::time::Duration;

use isotherm_core::HeatBytes;
use serde::Serialize;

/// The first length of a part.
const FIRST_PART: Duration = Duration::from_millis(100);

/// Means over parts of the time. When there are too many parts, each two become one.
#[derive(Debug, Clone)]
pub struct Series {
    every: Duration,
    most: usize,
    parts: Vec<Part>,
}

/// Seconds with data, and bytes times these seconds.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    seconds: f64,
    sums: [f64; 5],
}

/// A series for the page.
#[derive(Debug, Serialize)]
pub struct SeriesFigures {
    /// length of a part
    pub every_ms: f64,
    /// mean hot, warm, cold, unknown and saved bytes of each part; null without data
    pub parts: Vec<Option<[u64; 5]>>,
}

impl Series {
    /// A series of at most `most` parts.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Series { every: FIRST_PART, most: most.max(2), parts: Vec::new() }
    }

    /// Adds the memory from `from` to `to`, since the start of the recording.
    pub fn add(&mut self, from: Duration, to: Duration, heat: &HeatBytes, saved: u64) {
        let part = |at: Duration, every: Duration| (at.as_nanos() / every.as_nanos()) as usize;
        while part(to, self.every) >= self.most {
            self.every *= 2;
            let joined =
                self.parts.chunks(2).map(|pair| pair.iter().fold(Part::default(), Part::plus));
            self.parts = joined.collect();
        }
        let (first, last) = (part(from, self.every), part(to, self.every));
        if self.parts.len() <= last {
            self.parts.resize(last + 1, Part::default());
        }
        let bytes = [heat.hot, heat.warm, heat.cold, heat.unknown, saved].map(|b| b as f64);
        for (i, sum) in self.parts.iter_mut().enumerate().take(last + 1).skip(first) {
            let start = self.every * u32::try_from(i).unwrap_or(u32::MAX);
            let seconds =
                (to.min(start + self.every)).saturating_sub(from.max(start)).as_secs_f64();
            *sum = sum.plus(&Part { seconds, sums: bytes.map(|b| b * seconds) });
        }
    }

    /// The memory that it occupies, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.parts.capacity() * size_of::<Part>()
    }

    /// The figures.
    #[must_use]
    pub fn figures(&self) -> SeriesFigures {
        let mean = |p: &Part| {
            (p.seconds > 0.0).then(|| p.sums.map(|sum| (sum / p.seconds).round() as u64))
        };
        SeriesFigures {
            every_ms: self.every.as_secs_f64() * 1e3,
            parts: self.parts.iter().map(mean).collect(),
        }
    }
}

impl Part {
    fn plus(self, o: &Part) -> Part {
        let sums = std::array::from_fn(|i| self.sums[i] + o.sums[i]);
        Part { seconds: self.seconds + o.seconds, sums }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_few_and_keep_their_means() {
        let mut series = Series::new(16);
        for i in 0..1000u64 {
            let heat = HeatBytes { hot: 100, cold: i, ..HeatBytes::default() };
            let at = Duration::from_millis(i * 250);
            series.add(at, at + Duration::from_millis(250), &heat, 7);
        }
        let figures = series.figures();
        assert!((8..=16).contains(&figures.parts.len()), "{}", figures.parts.len());
        let parts: Vec<[u64; 5]> = figures.parts.into_iter().flatten().collect();
        assert!(parts.iter().all(|p| p[0] == 100 && p[4] == 7), "{parts:?}");
        assert!(parts.windows(2).all(|w| w[0][2] < w[1][2]), "{parts:?}");
    }

    #[test]
    fn time_without_snapshots_has_no_figures() {
        let mut series = Series::new(16);
        let heat = HeatBytes { hot: 1, ..HeatBytes::default() };
        let s = Duration::from_secs;
        series.add(s(0), s(1), &heat, 0);
        series.add(s(10), s(11), &heat, 0);
        let parts = series.figures().parts;
        assert!(parts.iter().any(Option::is_none) && parts.iter().any(Option::is_some));
    }
}
