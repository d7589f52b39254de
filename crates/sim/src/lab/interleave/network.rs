//! A closed network of queues: a fixed number of lines is in flight, each in a node's queue or on its way.
//!
//! The law of the slowest node assumes that nodes never wait for work. Here, a thread that waits for memory of
//! a slow node requests none from a fast node meanwhile. Method: mean value analysis (M. Reiser and S.
//! Lavenberg, Mean-Value Analysis of Closed Multichain Queuing Networks, 1980).

/// Maximum number of lines in flight.
pub const MAX_LINES_IN_FLIGHT: u32 = 1 << 16;

/// A node as a queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Station {
    /// maximum bandwidth, in 10^9 bytes per second
    pub bandwidth: f64,
    /// round trip of a line to it without other load, in ns
    pub idle_ns: f64,
    /// share of all accesses
    pub share: f64,
}

impl Station {
    /// One station per node, with shares in proportion to these weights.
    #[must_use]
    pub fn all(bandwidths: &[f64], idle_ns: &[f64], weights: &[f64]) -> Vec<Station> {
        let sum: f64 = weights.iter().sum();
        let nodes = bandwidths.iter().zip(idle_ns).zip(weights);
        let station = |((&bandwidth, &idle_ns), w)| Station { bandwidth, idle_ns, share: w / sum };
        nodes.map(station).collect()
    }
}

/// Bandwidth in 10^9 bytes per second with 1, 2, ... `lines` lines of `line_bytes` bytes in flight. Service
/// times are exponential, and queues are served in order of arrival.
#[must_use]
pub fn bandwidths(stations: &[Station], line_bytes: u32, lines: u32) -> Vec<f64> {
    let bytes = f64::from(line_bytes);
    let way: f64 = stations.iter().map(|s| s.share * s.idle_ns).sum();
    let demands: Vec<f64> = stations.iter().map(|s| s.share * bytes / s.bandwidth).collect();
    let mut queues = vec![0.0; stations.len()];
    let with = |n: u32| {
        let times: Vec<f64> = demands.iter().zip(&queues).map(|(d, q)| d * (1.0 + q)).collect();
        let rate = f64::from(n) / (way + times.iter().sum::<f64>());
        queues = times.iter().map(|t| rate * t).collect();
        rate * bytes
    };
    (1..=lines.min(MAX_LINES_IN_FLIGHT)).map(with).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::interleave::law::throughput;
    use proptest::prelude::*;

    fn station(bandwidth: f64, idle_ns: f64, share: f64) -> Station {
        Station { bandwidth, idle_ns, share }
    }

    #[test]
    fn a_single_line_has_no_queue() {
        let found = bandwidths(&[station(64.0, 99.0, 1.0)], 64, 1);
        // 99 ns of way and 1 ns of service for 64 bytes.
        assert!((found[0] - 0.64).abs() < 1e-12);
        assert!(bandwidths(&[station(64.0, 99.0, 1.0)], 64, 0).is_empty());
    }

    /// Two lines at one queue without a way: it is never idle.
    #[test]
    fn a_queue_that_always_has_work_gives_all() {
        let found = bandwidths(&[station(64.0, 0.0, 1.0)], 64, 3);
        assert!(found.iter().all(|b| (b - 64.0).abs() < 1e-9));
    }

    /// Balanced queues: n of the n + k - 1 that k queues take.
    #[test]
    fn balanced_queues() {
        let found = bandwidths(&[station(10.0, 0.0, 0.5), station(10.0, 0.0, 0.5)], 64, 7);
        for (n, b) in (1_u32..).zip(found) {
            assert!((b - 20.0 * f64::from(n) / f64::from(n + 1)).abs() < 1e-9, "{n}: {b}");
        }
    }

    proptest! {
        /// More lines are never slower, and never faster than the slowest node lets them.
        #[test]
        fn up_to_the_slowest_node(
            a in 1.0_f64..300.0, b in 1.0_f64..300.0, share in 0.01_f64..0.99,
            near in 0.0_f64..300.0, far in 0.0_f64..300.0,
        ) {
            let stations = [station(a, near, share), station(b, far, 1.0 - share)];
            let found = bandwidths(&stations, 64, 4000);
            let most = throughput(&[a, b], &[share, 1.0 - share]);
            prop_assert!(found.windows(2).all(|w| w[0] <= w[1] * (1.0 + 1e-12)));
            prop_assert!(found[3999] <= most * (1.0 + 1e-9));
        }
    }
}
