//! Random numbers by counting: a pure function of a key, so that callers can draw them in any order.

/// Mixes `b` into `a`: the finalizer of `SplitMix64`, once for each.
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    finish(a ^ finish(b.wrapping_add(0x9e37_79b9_7f4a_7c15)))
}

fn finish(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// `hash` as a number below `n`.
pub(crate) fn below(hash: u64, n: u64) -> u64 {
    u64::try_from((u128::from(hash) * u128::from(n)) >> 64).unwrap_or(0)
}

/// `hash` as a number in [0, 1).
pub(crate) fn unit(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1u64 << 53) as f64
}

/// `hash` as a number of events where one is expected (Poisson), by inversion.
pub(crate) fn poisson_of_one(hash: u64) -> u64 {
    const ONE_IN_E: f64 = 0.367_879_441_171_442_33;
    let u = unit(hash);
    let (mut n, mut p) = (0, ONE_IN_E);
    let mut sum = p;
    // Above 20 the probability is below 2^-53, the step of `u`.
    while u >= sum && n < 20 {
        n += 1;
        p /= n as f64;
        sum += p;
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_event_is_expected() {
        let draws: Vec<u64> = (0..100_000).map(|i| poisson_of_one(mix(7, i))).collect();
        let mean = draws.iter().sum::<u64>() as f64 / 1e5;
        let none = draws.iter().filter(|&&n| n == 0).count() as f64 / 1e5;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        assert!((none - 0.368).abs() < 0.005, "{none}");
    }
}
