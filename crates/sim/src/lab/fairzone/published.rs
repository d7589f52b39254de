//! Published results of tiobench, in MB/s, by number of threads (1, 2, 4, 8, 16).

use serde::Serialize;

const THREADS: [u32; 5] = [1, 2, 4, 8, 16];

/// Source of the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum FigureSource {
    /// the mail of 2014-05-29 with the patch: a small machine of one node, ext3
    Seed,
    /// the mail of 2014-07-01 on version v4r8 of the series: ext4, a disk of 132 MB/s
    Review,
}

struct Row {
    policy: &'static str,
    phase: &'static str,
    source: FigureSource,
    mb_s: [f64; 5],
}

const fn row(
    policy: &'static str,
    phase: &'static str,
    source: FigureSource,
    mb_s: [f64; 5],
) -> Row {
    Row { policy, phase, source, mb_s }
}

const PUBLISHED: [Row; 9] = [
    row("baseline", "SeqRead", FigureSource::Seed, [120.95, 100.81, 93.75, 85.35, 68.91]),
    row("v1", "SeqRead", FigureSource::Seed, [133.59, 113.61, 104.75, 91.21, 74.77]),
    row("baseline", "RandRead", FigureSource::Seed, [1.08, 1.28, 1.54, 1.67, 1.74]),
    row("v1", "RandRead", FigureSource::Seed, [1.07, 1.25, 1.51, 1.70, 1.73]),
    row("baseline", "SeqWrite", FigureSource::Seed, [113.73, 103.76, 98.45, 93.11, 87.64]),
    row("v1", "SeqWrite", FigureSource::Seed, [113.88, 104.13, 98.44, 92.79, 87.85]),
    row("baseline", "RandWrite", FigureSource::Seed, [1.38, 1.35, 1.33, 1.31, 1.27]),
    row("v1", "RandWrite", FigureSource::Seed, [1.36, 1.35, 1.35, 1.29, 1.28]),
    row("high-only", "SeqRead", FigureSource::Review, [156.16, 138.50, 127.08, 108.47, 91.57]),
];

/// The published mean rate and its source.
#[must_use]
pub fn published(policy: &str, phase: &str, threads: u32) -> Option<(f64, FigureSource)> {
    let at = THREADS.iter().position(|&t| t == threads)?;
    let row = PUBLISHED.iter().find(|r| r.policy == policy && r.phase == phase)?;
    Some((row.mb_s[at], row.source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gain_of_the_seed() {
        let one = |policy| published(policy, "SeqRead", 1).map_or(0.0, |p| p.0);
        assert!((one("v1") / one("baseline") - 1.1045).abs() < 1e-4);
        assert_eq!(published("landed", "SeqRead", 1), None);
        assert_eq!(published("v1", "SeqRead", 3), None);
    }
}
