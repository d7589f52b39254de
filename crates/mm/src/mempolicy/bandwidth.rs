//! Weights from bandwidth: `reduce_interleave_weights` and `mempolicy_set_node_perf` of
//! mm/mempolicy.c, since Linux 6.16.

/// The weights of all nodes are shares of this number before their reduction; the kernel's `weightiness`. Shares
/// that are raised to 1 may make the sum larger.
pub const WEIGHTINESS: u32 = 32;

/// The bandwidth that the kernel uses for a node: the lower one of read and write bandwidth, in MB/s as
/// reported by firmware; 0 is unknown.
#[must_use]
pub fn bandwidth_of(read_mb_s: u32, write_mb_s: u32) -> u32 {
    read_mb_s.min(write_mb_s)
}

/// Computes weights from the bandwidth of each node in MB/s (0: unknown), in the same order. Each is a share of
/// [`WEIGHTINESS`], rounded down and at least 1. Then all are divided by their common divisor.
///
/// Only nodes with memory may be passed: the kernel's weight of other nodes is 1.
#[must_use]
pub fn weights_from_bandwidth(mb_s: &[u32]) -> Vec<u8> {
    let sum: u64 = mb_s.iter().map(|&b| u64::from(b)).sum();
    let shares: Vec<u64> = mb_s.iter().map(|&b| share(b, sum)).collect();
    let common = shares.iter().copied().fold(0, gcd).max(1);
    shares.iter().map(|s| u8::try_from(s / common).unwrap_or(u8::MAX)).collect()
}

fn share(mb_s: u32, sum: u64) -> u64 {
    // In 32 bits, as in the kernel: it wraps beyond 134 TB/s.
    let scaled = u64::from(WEIGHTINESS.wrapping_mul(mb_s));
    if mb_s > 0 && sum < scaled { scaled / sum } else { 1 }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn vectors() {
        let cases: [(&[u32], &[u8]); 12] = [
            (&[208_000, 24_000], &[28, 3]),
            (&[200_923, 22_209], &[28, 3]),
            (&[72_000, 26_000], &[23, 8]),
            (&[3_050, 1_000], &[24, 7]),
            (&[2_000, 1_000], &[21, 10]),
            (&[1_000, 1_000], &[1, 1]),
            (&[9_000, 1_000], &[28, 3]),
            (&[1_000, 0], &[32, 1]),
            (&[0, 0], &[1, 1]),
            (&[1_000], &[1]),
            (&[], &[]),
            // 32 times the smaller one is just the sum: not above it, so 1
            (&[31, 1], &[31, 1]),
        ];
        for (mb_s, weights) in cases {
            assert_eq!(weights_from_bandwidth(mb_s), weights, "{mb_s:?}");
        }
    }

    #[test]
    fn the_slower_direction_counts() {
        assert_eq!(bandwidth_of(200, 100), 100);
        assert_eq!(bandwidth_of(0, 100), 0);
    }

    proptest! {
        #[test]
        fn weights_are_plausible(mb_s in proptest::collection::vec(any::<u32>(), 1..64)) {
            let weights = weights_from_bandwidth(&mb_s);
            prop_assert_eq!(weights.len(), mb_s.len());
            prop_assert!(weights.iter().all(|&w| (1..=32).contains(&w)));
            let common = weights.iter().fold(0, |a, &w| gcd(a, w.into()));
            prop_assert_eq!(common, 1);
        }

        /// Faster nodes get at least as much.
        #[test]
        fn order_is_kept(mb_s in proptest::collection::vec(0_u32..10_000_000, 1..64)) {
            let weights = weights_from_bandwidth(&mb_s);
            for (a, wa) in mb_s.iter().zip(&weights) {
                for (b, wb) in mb_s.iter().zip(&weights) {
                    prop_assert!(a < b || wa >= wb);
                }
            }
        }
    }
}
