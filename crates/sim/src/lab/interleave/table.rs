//! A published table, with its predictions.

use serde::Serialize;

/// The measured quantity, and whether a larger value is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// 10^9 bytes a second
    #[serde(rename = "GB/s")]
    Bandwidth,
    /// seconds
    #[serde(rename = "s")]
    Time,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PublishedTable {
    /// of which benchmark
    pub name: &'static str,
    /// on what
    pub about: String,
    /// of all its cells
    pub unit: Unit,
    /// published figures
    pub cells: Vec<PublishedFigure>,
    /// results of the best weights
    pub optima: Vec<Optimum>,
    /// cells that no prediction can explain, and why
    pub misfits: Vec<Misfit>,
}

/// A published figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PublishedFigure {
    /// what was run
    pub run: String,
    /// placement of its memory
    pub layout: String,
    /// the measured value
    pub published: f64,
    /// empty if the cell is only an input
    pub predictions: Vec<Prediction>,
}

/// The prediction of a model for a cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// name of the model
    pub model: String,
    /// in the unit of the table
    pub predicted: f64,
    /// deviation from the published value, in percent
    pub error_percent: f64,
    /// the cells from which its parameters are taken; never this one
    pub from: String,
    /// a parameter that was fitted to them
    pub fitted: Option<String>,
}

/// The best possible result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Optimum {
    /// of which run
    pub run: String,
    /// ideal ratio of the weights, with the far nodes as 1
    pub ratio: Vec<f64>,
    /// result with it, in the unit of the table
    pub perfect: f64,
    /// good integer weights
    pub weights: Vec<u8>,
    /// result with them
    pub with_weights: f64,
    /// the weights that the kernel computes from the same bandwidths
    pub automatic: Vec<u8>,
    /// result with them
    pub with_automatic: f64,
    /// the best by the closed network, where its parameters are known
    pub queued: Option<Queued>,
    /// share of the possible gain over DRAM that the best published layout achieves, in percent
    pub achieved_percent: f64,
}

/// The best ratio if queues are modelled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Queued {
    /// near to far
    pub ratio: f64,
    /// what it gives, in the unit of the table
    pub best: f64,
}

/// Cells that no prediction can explain.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Misfit {
    /// which cells
    pub cells: String,
    /// why
    pub why: String,
}

impl PublishedFigure {
    /// A cell that is only an input.
    pub(super) fn given(run: &str, layout: &str, published: f64) -> Self {
        PublishedFigure {
            run: run.to_owned(),
            layout: layout.to_owned(),
            published,
            predictions: Vec::new(),
        }
    }

    /// Adds the prediction of a model.
    pub(super) fn with(mut self, model: &str, predicted: f64, from: &str) -> Self {
        self.predictions.push(Prediction {
            model: model.to_owned(),
            predicted,
            error_percent: (predicted / self.published - 1.0) * 100.0,
            from: from.to_owned(),
            fitted: None,
        });
        self
    }

    /// Adds the fitted parameter to the last prediction.
    pub(super) fn fitted(mut self, what: String) -> Self {
        if let Some(last) = self.predictions.last_mut() {
            last.fitted = Some(what);
        }
        self
    }
}

impl PublishedTable {
    /// The figure of a layout, run by run.
    pub fn published<'a>(
        &'a self,
        run: Option<&'a str>,
        layout: &'a str,
    ) -> impl Iterator<Item = f64> + 'a {
        let cells = self.cells.iter().filter(move |c| c.layout == layout);
        cells.filter(move |c| run.is_none_or(|r| r == c.run)).map(|c| c.published)
    }

    /// The speedup of `new` over `old`.
    #[must_use]
    pub fn speedup(&self, new: f64, old: f64) -> f64 {
        match self.unit {
            Unit::Bandwidth => new / old,
            Unit::Time => old / new,
        }
    }

    /// Names of the models, in their order.
    #[must_use]
    pub fn models(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for p in self.cells.iter().flat_map(|c| &c.predictions) {
            if !names.contains(&p.model.as_str()) {
                names.push(&p.model);
            }
        }
        names
    }
}
