//! The results of the best weights.

use super::law::{as_shares, automatic_weights, best_weights, perfect, throughput};
use super::table::{Optimum, Unit};

/// The optimum of nodes with these bandwidths, the near one first, in 10^9 bytes per second or in runs per
/// second. `dram` and `best` are the published results of DRAM alone and of the best layout, in the unit of
/// the table.
pub(super) fn optimum(run: &str, unit: Unit, bandwidths: &[f64], dram: f64, best: f64) -> Optimum {
    let figure = |throughput: f64| match unit {
        Unit::Bandwidth => throughput,
        Unit::Time => 1.0 / throughput,
    };
    let gain = |value: f64| match unit {
        Unit::Bandwidth => value / dram - 1.0,
        Unit::Time => dram / value - 1.0,
    };
    // The kernel uses only the ratio, so this scales it to the size of bandwidths.
    let scale = 100.0 / bandwidths.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let automatic = automatic_weights(&bandwidths.iter().map(|b| b * scale).collect::<Vec<_>>());
    let weights = best_weights(bandwidths);
    let with = |weights: &[u8]| figure(throughput(bandwidths, &as_shares(weights)));
    let perfect = figure(perfect(bandwidths));
    Optimum {
        run: run.to_owned(),
        ratio: bandwidths.iter().map(|b| b / bandwidths[bandwidths.len() - 1]).collect(),
        perfect,
        with_weights: with(&weights),
        weights,
        with_automatic: with(&automatic),
        automatic,
        queued: None,
        achieved_percent: 100.0 * gain(best) / gain(perfect),
    }
}
