//! The law of the slowest node: the speed of interleaved memory is limited by the node with the most accesses
//! relative to its bandwidth.

use isotherm_mm::mempolicy::weights_from_bandwidth;

/// Maximum number of pages in a round of weights.
const MAX_ROUND: u32 = 32;
/// Minimum improvement that justifies a longer round.
const MIN_IMPROVEMENT: f64 = 1.01;

/// The total bandwidth `B` that keeps each node within its own bandwidth, in the unit of `bandwidths`. With the
/// weights `w`, `f = w / sum w` and the bandwidths `M`: `B = min M / f`.
#[must_use]
pub fn throughput(bandwidths: &[f64], weights: &[f64]) -> f64 {
    let sum: f64 = weights.iter().sum();
    let used = bandwidths.iter().zip(weights).filter(|n| *n.1 > 0.0);
    let each = used.map(|(bandwidth, weight)| bandwidth * sum / weight);
    each.fold(f64::INFINITY, f64::min)
}

/// The throughput with the best weights: the sum of the bandwidths.
#[must_use]
pub fn perfect(bandwidths: &[f64]) -> f64 {
    bandwidths.iter().sum()
}

/// The best integer weights of a short round, each at least 1. For each length of a round, the weights nearest
/// to the shares of `bandwidths` are tried. A longer round is chosen only if it is better by the factor
/// `MIN_IMPROVEMENT`.
#[must_use]
pub fn best_weights(bandwidths: &[f64]) -> Vec<u8> {
    let nodes = u32::try_from(bandwidths.len()).unwrap_or(MAX_ROUND);
    let mut best = (0.0, Vec::new());
    for pages in nodes..=MAX_ROUND.max(nodes) {
        let weights = rounded(bandwidths, pages);
        let found = throughput(bandwidths, &as_shares(&weights));
        if found > best.0 * MIN_IMPROVEMENT {
            best = (found, weights);
        }
    }
    best.1
}

fn rounded(bandwidths: &[f64], pages: u32) -> Vec<u8> {
    let sum = perfect(bandwidths);
    let share = |b: &f64| (b / sum * f64::from(pages)).round().clamp(1.0, 255.0) as u8;
    bandwidths.iter().map(share).collect()
}

/// The weights that the kernel would compute from these bandwidths, in 10^9 bytes per second.
#[must_use]
pub fn automatic_weights(bandwidths: &[f64]) -> Vec<u8> {
    let mb_s: Vec<u32> = bandwidths.iter().map(|b| (b * 1e3).round() as u32).collect();
    weights_from_bandwidth(&mb_s)
}

/// Weights as floating-point numbers.
#[must_use]
pub fn as_shares(weights: &[u8]) -> Vec<f64> {
    weights.iter().map(|&w| w.into()).collect()
}

/// Weights in the usual notation: 9:1.
#[must_use]
pub fn ratio(weights: &[u8]) -> String {
    let each: Vec<String> = weights.iter().map(u8::to_string).collect();
    each.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COPY: [f64; 2] = [200.9232, 22.2097];

    #[test]
    fn of_two_nodes() {
        assert_eq!(throughput(&COPY, &[1.0, 1.0]), 2.0 * COPY[1]);
        assert_eq!(throughput(&COPY, &[1.0, 0.0]), COPY[0]);
        assert!((throughput(&COPY, &[9.0, 1.0]) - 222.097).abs() < 1e-9);
        assert!((throughput(&COPY, &COPY) - perfect(&COPY)).abs() < 1e-9);
        assert_eq!(best_weights(&COPY), [9, 1], "as the seed has it");
        assert_eq!(automatic_weights(&COPY), [28, 3]);
        assert_eq!(best_weights(&[3.05, 1.0]), [3, 1]);
        assert_eq!(best_weights(&[10.0]), [1]);
        assert!(best_weights(&[]).is_empty());
    }

    proptest! {
        /// No shares are better than the perfect ones, and short rounds are never worse than even ones.
        #[test]
        fn bounds(
            bandwidths in proptest::collection::vec(1.0_f64..30.0, 1..5),
            weights in proptest::collection::vec(0.1_f64..30.0, 5),
        ) {
            let most = perfect(&bandwidths);
            let n = bandwidths.len();
            prop_assert!(throughput(&bandwidths, &weights[..n]) <= most * (1.0 + 1e-9));
            let best = throughput(&bandwidths, &as_shares(&best_weights(&bandwidths)));
            prop_assert!(best <= most * (1.0 + 1e-9));
            prop_assert!(best >= throughput(&bandwidths, &vec![1.0; n]));
        }
    }
}
