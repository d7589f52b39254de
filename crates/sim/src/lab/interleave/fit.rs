//! How well the models fit: shares of cells within bounds, and predictions of one half from the other.

use serde::Serialize;

use super::law::{as_shares, throughput};
use super::published::{StreamResult, StreamRun};
use super::stream::{LAW, NETWORK};
use super::table::PublishedTable;

/// The bounds of errors, in percent.
pub const ERROR_BOUNDS_PERCENT: [f64; 3] = [3.0, 5.0, 10.0];

/// How many cells of a table a model predicts within bounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fit {
    /// the benchmark
    pub table: &'static str,
    /// the cells; `all` for all that the model predicts
    pub layout: String,
    /// the model
    pub model: String,
    /// their number
    pub cells: usize,
    /// cells within 3, 5 and 10 %
    pub within: [usize; 3],
}

/// Errors of predictions of runs from which no parameter was taken, over all ways to divide the runs into halves.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeldOut {
    /// the cells
    pub layout: String,
    /// the model
    pub model: &'static str,
    /// ways to divide the runs
    pub splits: usize,
    /// predictions
    pub cells: usize,
    /// predictions within 3, 5 and 10 %
    pub within: [usize; 3],
    /// mean of the absolute errors, in percent
    pub mean_percent: f64,
    /// maximum of the absolute errors, in percent
    pub max_percent: f64,
}

fn within(errors: &[f64]) -> [usize; 3] {
    ERROR_BOUNDS_PERCENT.map(|bound| errors.iter().filter(|e| e.abs() <= bound).count())
}

/// The fit of each model of a table, over all of its cells and by layout.
pub(super) fn fits(table: &PublishedTable) -> Vec<Fit> {
    let mut layouts: Vec<Option<&str>> = vec![None];
    for cell in table.cells.iter().filter(|c| !c.predictions.is_empty()) {
        if !layouts.contains(&Some(&cell.layout)) {
            layouts.push(Some(&cell.layout));
        }
    }
    let models = table.models();
    let of = |(layout, model): (Option<&str>, &str)| {
        let cells = table.cells.iter().filter(|c| layout.is_none_or(|l| l == c.layout));
        let all = cells.flat_map(|c| &c.predictions).filter(|p| p.model == model);
        let errors: Vec<f64> = all.map(|p| p.error_percent).collect();
        (!errors.is_empty()).then(|| Fit {
            table: table.name,
            layout: layout.unwrap_or("all").to_owned(),
            model: model.to_owned(),
            cells: errors.len(),
            within: within(&errors),
        })
    };
    let pairs = layouts.into_iter().flat_map(|l| models.iter().map(move |m| (l, *m)));
    pairs.filter_map(of).collect()
}

impl StreamResult {
    /// The lines in flight are fitted to one half of the runs with interleaved arrays. Both models then predict the
    /// other half; the law has no parameter to fit.
    pub(super) fn held_out(&self) -> Vec<HeldOut> {
        let halves = halves(self.run.len());
        let weights = as_shares(&self.weights);
        let [_, targeted] = self.weighted_layouts();
        let even = [1.0, 1.0];
        let published: [fn(&StreamRun) -> f64; 2] = [|r| r.even, |r| r.targeted];
        let layouts = [("1:1", &even[..]), (&targeted, &weights)];
        let fitted: Vec<u32> =
            halves.iter().map(|half| self.lines_of(|i| half.contains(&i))).collect();
        let mut all = Vec::new();
        for ((layout, weights), published) in layouts.into_iter().zip(published) {
            let others = || {
                halves.iter().zip(&fitted).flat_map(|(half, lines)| {
                    let runs = self.run.iter().enumerate().filter(|(i, _)| !half.contains(i));
                    runs.map(|(_, run)| (run, *lines))
                })
            };
            let error = |run: &StreamRun, found: f64| (found / published(run) - 1.0) * 100.0;
            let law = others().map(|(r, _)| error(r, throughput(&[r.dram, r.cxl], weights)));
            let network = others()
                .map(|(r, lines)| error(r, self.network(r, weights, lines).pop().unwrap_or(0.0)));
            all.push(held_out(layout, LAW, halves.len(), &law.collect::<Vec<_>>()));
            all.push(held_out(layout, NETWORK, halves.len(), &network.collect::<Vec<_>>()));
        }
        all
    }
}

fn held_out(layout: &str, model: &'static str, splits: usize, errors: &[f64]) -> HeldOut {
    HeldOut {
        layout: layout.to_owned(),
        model,
        splits,
        cells: errors.len(),
        within: within(errors),
        mean_percent: errors.iter().map(|e| e.abs()).sum::<f64>() / errors.len().max(1) as f64,
        max_percent: errors.iter().map(|e| e.abs()).fold(0.0, f64::max),
    }
}

/// Maximum number of runs of which all halves are tried. Of more runs, halves of the first ones are.
const MAX_RUNS: usize = 10;

/// All sets of half of `count` things, by their indices.
fn halves(count: usize) -> Vec<Vec<usize>> {
    let count = count.min(MAX_RUNS);
    let members = |set: u32| (0..count).filter(move |i| set >> i & 1 == 1).collect::<Vec<_>>();
    let sets = (0..1_u32 << count).map(members);
    sets.filter(|half| half.len() == count / 2 && !half.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::interleave::{PUBLISHED_TOML, Published};

    #[test]
    fn halves_are_all_different() {
        assert_eq!(halves(4).len(), 6);
        assert_eq!(halves(2), [vec![0], vec![1]]);
        assert!(halves(3).iter().all(|half| half.len() == 1));
    }

    #[test]
    fn bounds_include_their_ends() {
        assert_eq!(within(&[-3.0, 4.9, 5.1, -11.0]), [1, 2, 3]);
    }

    #[test]
    fn one_half_follows_from_the_other() {
        let stream = Published::parse(PUBLISHED_TOML).unwrap().stream;
        for found in stream.held_out() {
            assert_eq!((found.splits, found.cells), (6, 12), "{found:?}");
            if found.model == NETWORK {
                assert!(found.within[0] >= 11 && found.max_percent < 3.5, "{found:?}");
            }
        }
    }
}
