//! A published table beside what is predicted of it.

use serde::Serialize;

/// What was measured, and whether more or less of it is better.
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
pub struct Table {
    /// of which benchmark
    pub name: &'static str,
    /// on what
    pub about: String,
    /// of all its cells
    pub unit: Unit,
    /// as they were published
    pub cells: Vec<Cell>,
    /// what the best weights would have given
    pub optima: Vec<Optimum>,
    /// what no prediction can be of, and why
    pub misfits: Vec<Misfit>,
}

/// A published figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// what ran
    pub run: String,
    /// where its memory lay
    pub layout: String,
    /// what was measured
    pub published: f64,
    /// none if it is only taken as given
    pub predictions: Vec<Prediction>,
}

/// What a model says of a cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// which model
    pub model: String,
    /// in the unit of the table
    pub predicted: f64,
    /// against what was published, in percent
    pub error_percent: f64,
    /// the cells that its parameters are from; never this one
    pub from: String,
    /// a parameter that was fitted to them
    pub fitted: Option<String>,
}

/// What could have been.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Optimum {
    /// of which run
    pub run: String,
    /// what would be perfect, the far nodes as 1
    pub ratio: Vec<f64>,
    /// with that, in the unit of the table
    pub perfect: f64,
    /// good whole weights
    pub weights: Vec<u8>,
    /// what they give
    pub with_weights: f64,
    /// the kernel's own, from the same bandwidths
    pub automatic: Vec<u8>,
    /// what they give
    pub with_automatic: f64,
    /// the best by the closed network, where its parameters are known
    pub queued: Option<Queued>,
    /// which part of what there was to gain over DRAM the best published layout has, in percent
    pub achieved_percent: f64,
}

/// What is best if queues are reckoned with.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Queued {
    /// near to far
    pub ratio: f64,
    /// what it gives, in the unit of the table
    pub best: f64,
}

/// What cannot be fitted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Misfit {
    /// which cells
    pub cells: String,
    /// why
    pub why: String,
}

impl Cell {
    /// One that is taken as given.
    pub(super) fn given(run: &str, layout: &str, published: f64) -> Self {
        Cell { run: run.to_owned(), layout: layout.to_owned(), published, predictions: Vec::new() }
    }

    /// The same with what a model says.
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

    /// Says what was fitted for the model that was named last.
    pub(super) fn fitted(mut self, what: String) -> Self {
        if let Some(last) = self.predictions.last_mut() {
            last.fitted = Some(what);
        }
        self
    }
}

impl Table {
    /// The figure of a layout, run by run.
    pub fn published<'a>(
        &'a self,
        run: Option<&'a str>,
        layout: &'a str,
    ) -> impl Iterator<Item = f64> + 'a {
        let cells = self.cells.iter().filter(move |c| c.layout == layout);
        cells.filter(move |c| run.is_none_or(|r| r == c.run)).map(|c| c.published)
    }

    /// How many times as fast `new` is as `old`.
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
