//! The law of the slowest node: memory that is interleaved is as fast as the node is that has the
//! most to do for what it can.

use isotherm_mm::mempolicy::weights_from_bandwidth;

/// Rounds of weights that are tried have at most so many pages.
const LONGEST_ROUND: u32 = 32;
/// A longer round has to be better by this.
const WORTH: f64 = 1.01;

/// How fast all of memory is if accesses are shared out like this: the bandwidth `B` that keeps
/// each node within its own, in the unit of `bandwidths`. With `w` the weights, `f = w / sum w` and
/// `M` the bandwidths: `B = min M / f`.
#[must_use]
pub fn throughput(bandwidths: &[f64], weights: &[f64]) -> f64 {
    let sum: f64 = weights.iter().sum();
    let used = bandwidths.iter().zip(weights).filter(|n| *n.1 > 0.0);
    let each = used.map(|(bandwidth, weight)| bandwidth * sum / weight);
    each.fold(f64::INFINITY, f64::min)
}

/// With the best weights: all that nodes have together.
#[must_use]
pub fn perfect(bandwidths: &[f64]) -> f64 {
    bandwidths.iter().sum()
}

/// The best whole weights of a short round: by each length of a round, what is nearest to the shares
/// of `bandwidths`, each at least 1; of these the shortest that is next to none behind a longer one.
#[must_use]
pub fn best_weights(bandwidths: &[f64]) -> Vec<u8> {
    let nodes = u32::try_from(bandwidths.len()).unwrap_or(LONGEST_ROUND);
    let mut best = (0.0, Vec::new());
    for pages in nodes..=LONGEST_ROUND.max(nodes) {
        let weights = rounded(bandwidths, pages);
        let found = throughput(bandwidths, &as_shares(&weights));
        if found > best.0 * WORTH {
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

/// The weights that the kernel would compute by itself from these, in 10^9 bytes a second.
#[must_use]
pub fn automatic_weights(bandwidths: &[f64]) -> Vec<u8> {
    let mb_s: Vec<u32> = bandwidths.iter().map(|b| (b * 1e3).round() as u32).collect();
    weights_from_bandwidth(&mb_s)
}

/// Whole weights as numbers to reckon with.
#[must_use]
pub fn as_shares(weights: &[u8]) -> Vec<f64> {
    weights.iter().map(|&w| w.into()).collect()
}

/// As people write them: 9:1.
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
        /// Nothing is better than the perfect shares, and short rounds are never worse than even ones.
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
