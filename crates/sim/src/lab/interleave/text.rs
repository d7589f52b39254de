//! Tables for people.

use std::fmt::Write;

use super::law::ratio;
use super::loads::{LoadPoint, Loads};
use super::stream::{LAW, NETWORK};
use super::table::{Optimum, PublishedFigure, PublishedTable, Unit};
use super::{CheckedClaim, Forecast, Interleave};

/// Width of the first column, and of a column of numbers, in characters.
const NAME_WIDTH: usize = 40;
const NUMBER: usize = 11;
/// Maximum length of a line of text.
const WIDTH: usize = 110;

impl Interleave {
    /// All tables, then the figures that cannot be fitted, the optima, and the claims.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = format!("published: {}\n", self.published);
        for table in &self.tables {
            out += &table.text();
        }
        out += &self.fit();
        out += "\nClaims about these figures, and in which sense they follow\n";
        for claim in &self.claims {
            out += &reading(claim);
        }
        if let Some(latency) = &self.latency {
            out += &loads(latency);
        }
        out
    }
}

impl Interleave {
    fn fit(&self) -> String {
        let within = |cells: usize, n: [usize; 3]| {
            n.map(|n| format!("{:.0} %", 100.0 * n as f64 / cells.max(1) as f64)).into_iter()
        };
        let heads = || ["3 %", "5 %", "10 %"].map(str::to_owned).into_iter();
        let mut out = line("\nCells predicted within", NUMBER, "cells", &[8; 3], heads());
        for fit in &self.fits {
            let name = format!("{}: {}: {}", fit.table, fit.layout, fit.model);
            let cells = fit.cells.to_string();
            out += &line(&name, NUMBER, &cells, &[8; 3], within(fit.cells, fit.within));
        }
        let heads = heads().chain(["mean".to_owned(), "worst".to_owned()]);
        out += &line("\nSTREAM: half from the other half", NUMBER, "cells", &[8; 5], heads);
        for h in &self.held_out {
            let errors = [h.mean_percent, h.max_percent].map(|e| format!("{e:.1} %"));
            let figures = within(h.cells, h.within).chain(errors);
            let name = format!("{}: {}", h.layout, h.model);
            out += &line(&name, NUMBER, &h.cells.to_string(), &[8; 5], figures);
        }
        out
    }
}

impl Forecast {
    /// Nodes, the bandwidth of layouts, and latency over load.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = format!("machine: {}\n", self.machine);
        out += &line("node", NUMBER, "MB/s", &[NUMBER], ["idle, ns".to_owned()].into_iter());
        for n in &self.nodes {
            let idle = [ns(n.idle_ns)].into_iter();
            out += &line(&n.name, NUMBER, &format!("{:.1}", n.bandwidth_mb_s), &[NUMBER], idle);
        }
        out += &line("\nwhere memory lies", NUMBER, LAW, &[16], [NETWORK.to_owned()].into_iter());
        for o in &self.outlooks {
            let network = o.network_gb_s.map_or_else(|| "-".to_owned(), |b| format!("{b:.2}"));
            let law = format!("{:.2}", o.law_gb_s);
            out += &line(&o.layout, NUMBER, &law, &[16], [network].into_iter());
        }
        out += "10^9 bytes a second\n";
        if let Some(latency) = &self.latency {
            out += &loads(latency);
        }
        out
    }
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Bandwidth => "10^9 bytes a second",
            Unit::Time => "seconds",
        }
    }

    fn number(self, value: f64) -> String {
        match self {
            Unit::Bandwidth => format!("{value:.2}"),
            Unit::Time => format!("{value:.3}"),
        }
    }
}

impl PublishedTable {
    fn text(&self) -> String {
        let mut out = format!("\n{}, {}\n{}\n", self.name, self.unit.name(), self.about);
        let models = self.models();
        let heads = models.iter().flat_map(|m| [(*m).to_owned(), "error".to_owned()]);
        let widths: Vec<usize> =
            models.iter().flat_map(|m| [(m.len() + 2).max(NUMBER), 9]).collect();
        out += &line("", NUMBER, "published", &widths, heads);
        for cell in &self.cells {
            out += &line(
                &format!("{}: {}", cell.run, cell.layout),
                NUMBER,
                &self.unit.number(cell.published),
                &widths,
                self.figures(cell, &models),
            );
        }
        out += &self.sources();
        for misfit in &self.misfits {
            out += &wrapped(&format!("cannot be fitted: {}: {}", misfit.cells, misfit.why));
        }
        for optimum in &self.optima {
            out += &self.best(optimum);
        }
        out
    }

    fn figures(&self, cell: &PublishedFigure, models: &[&str]) -> impl Iterator<Item = String> {
        let of = |model: &&str| {
            let found = cell.predictions.iter().find(|p| p.model == *model);
            found.map_or(["-".to_owned(), String::new()], |p| {
                [self.unit.number(p.predicted), format!("{:+.1} %", p.error_percent)]
            })
        };
        models.iter().flat_map(of).collect::<Vec<_>>().into_iter()
    }

    /// For each set of cells, its use, and the parameter that was fitted to it.
    fn sources(&self) -> String {
        let all = || self.cells.iter().flat_map(|c| c.predictions.iter().map(move |p| (c, p)));
        let mut out = wrapped("-: taken as given");
        for from in distinct(all().map(|(_, p)| p.from.clone())) {
            let of = || all().filter(|(_, p)| p.from == from);
            let layouts = distinct(of().map(|(c, _)| format!("\"{}\"", c.layout)));
            let models = distinct(of().map(|(_, p)| p.model.clone()));
            let fitted =
                of().filter_map(|(c, p)| Some(format!("{} {}", c.run, p.fitted.as_ref()?)));
            let fitted = distinct(fitted).join(", ");
            let fitted = if fitted.is_empty() { fitted } else { format!(": {fitted}") };
            out += &wrapped(&format!(
                "{} by {}: from {from}{fitted}",
                layouts.join(", "),
                models.join(", ")
            ));
        }
        out
    }

    fn best(&self, o: &Optimum) -> String {
        let number = |value| self.unit.number(value);
        let queued = o.queued.map_or_else(String::new, |q| {
            format!("; with queues {:.1}:1 is best and gives {}", q.ratio, number(q.best))
        });
        let perfect: Vec<String> = o.ratio.iter().map(|r| short(*r)).collect();
        wrapped(&format!(
            "best, {}: {} gives {}, {} gives {}, the kernel's own {} give {}{queued}; published has {:.0} % of \
             what there was to gain over DRAM",
            o.run,
            perfect.join(":"),
            number(o.perfect),
            ratio(&o.weights),
            number(o.with_weights),
            ratio(&o.automatic),
            number(o.with_automatic),
            o.achieved_percent
        ))
    }
}

/// Distinct texts, in their order.
fn distinct(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for text in texts {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}

/// A number with two decimals, or with none.
fn short(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value}") } else { format!("{value:.2}") }
}

fn reading(r: &CheckedClaim) -> String {
    let [from, to] = r.ratio;
    let ratio = if from == to { format!("{from:.3}") } else { format!("{from:.3} to {to:.3}") };
    let sense = r.sense.map_or("in none", |s| s.name());
    wrapped(&format!("{}, {}: {sense}; it is {ratio} times as fast", r.table, r.text))
}

fn loads(all: &Loads) -> String {
    let mut out = format!("\nMean latency over load of {}, ns\n", all.of);
    out += &wrapped(&format!(
        "idle latencies of {} ns; the far node helps from {:.0} % of what the near one can on",
        all.idle_ns.map(short).join(" and "),
        all.threshold_percent
    ));
    let widths = [NUMBER; 4];
    let heads = ["1:1", "perfect", "best", "far %"].map(str::to_owned);
    out +=
        &line("load, % of what the near node can", NUMBER, "near only", &widths, heads.into_iter());
    for p in all.shown() {
        let LoadPoint { load_percent, near_ns, even_ns, perfect_ns, best_ns, best_far_percent } = p;
        let rest = [even_ns, perfect_ns, best_ns, best_far_percent].map(|v| ns(*v));
        out += &line(&load_percent.to_string(), NUMBER, &ns(*near_ns), &widths, rest.into_iter());
    }
    out
}

fn ns(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| format!("{v:.1}"))
}

fn line(
    name: &str,
    first_width: usize,
    first: &str,
    widths: &[usize],
    rest: impl Iterator<Item = String>,
) -> String {
    let name_width = NAME_WIDTH + name.len() - name.trim_start_matches('\n').len();
    let mut out = format!("{name:<name_width$}{first:>first_width$}");
    for (text, width) in rest.zip(widths) {
        let _ = write!(out, "{text:>width$}");
    }
    out.trim_end().to_owned() + "\n"
}

/// Wraps a text; further lines are indented.
fn wrapped(text: &str) -> String {
    let (mut out, mut column) = (String::from("  "), 2);
    for word in text.split(' ') {
        if column + word.len() > WIDTH {
            out += "\n     ";
            column = 5;
        }
        if column > 2 {
            out.push(' ');
        }
        out += word;
        column += word.len() + 1;
    }
    out + "\n"
}
