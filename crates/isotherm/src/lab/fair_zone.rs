//! Pictures of the experiments: their figures as plain lines.

use isotherm_report::{ChartLine, Lines, Plot};
use isotherm_sim::lab::fairzone::{Fairzone, Run, ZoneFigures, published};

/// The phase whose rates are drawn.
const DRAWN_PHASE: &str = "SeqRead";

/// Ages of pages when they leave a zone: a plot for each policy, a line for each zone.
#[must_use]
pub fn ages(found: &Fairzone) -> Lines {
    let threads = found.runs.first().map_or(1, |r| r.threads);
    let runs = found.runs.iter().filter(|r| r.threads == threads);
    Lines {
        title: "How long pages stay in each zone".into(),
        note: "Where lines lie apart, a page's time in memory depends on the zone that it was given: age \
               inversion."
            .into(),
        x: "time since the experiment began".into(),
        y: "mean age of the pages that leave the zone, s".into(),
        plots: runs.map(plot_of_ages).collect(),
        basis: basis(found),
        ..Lines::default()
    }
}

fn plot_of_ages(run: &Run) -> Plot {
    let zones = run.phases.first().map_or(&[][..], |p| &p.zones).iter().enumerate();
    let is_used = |i: usize| {
        let mut stats = run.phases.iter().filter_map(|p| Some(p.zones.get(i)?.stats));
        stats.any(|s| s.allocated > 0)
    };
    // A zone that no page leaves keeps its colour.
    let line = |(i, zone)| {
        let points: Vec<(f64, f64)> = run.ages.get(i).cloned().unwrap_or_default();
        let stuck = if points.is_empty() { ": nothing leaves" } else { "" };
        ChartLine { name: name_of(zone) + stuck, points }
    };
    let s = if run.threads == 1 { "" } else { "s" };
    let name = format!("{}, {} thread{s}", run.policy, run.threads);
    Plot { name, lines: zones.filter(|(i, _)| is_used(*i)).map(line).collect() }
}

fn name_of(zone: &ZoneFigures) -> String {
    format!("node {} {}", zone.node, zone.kind)
}

/// Rates of sequential reads, over the number of threads: a plot for each policy, with the
/// published rates.
#[must_use]
pub fn rates(found: &Fairzone) -> Lines {
    let mut threads: Vec<u32> = found.runs.iter().map(|r| r.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let place = |t: u32| threads.iter().position(|&x| x == t).unwrap_or(0) as f64;
    let plot = |policy: &str| {
        let points = |rate: &dyn Fn(u32) -> Option<f64>| -> Vec<(f64, f64)> {
            threads.iter().filter_map(|&t| Some((place(t), rate(t)?))).collect()
        };
        let ours = points(&|t| found.phase(policy, t, DRAWN_PHASE).map(|p| p.mb_s));
        let theirs = points(&|t| published(policy, DRAWN_PHASE, t).map(|p| p.0));
        let line = |name: &str, points| ChartLine { name: name.into(), points };
        let lines = vec![line("simulated", ours), line("published, of another machine", theirs)];
        let lines = lines.into_iter().filter(|l| !l.points.is_empty()).collect();
        Plot { name: policy.into(), lines }
    };
    Lines {
        title: "Streaming readers".into(),
        note: format!("{DRAWN_PHASE}: each thread reads a file of its own that was just written"),
        x: "threads".into(),
        y: "10^6 bytes a second".into(),
        marks: threads.iter().map(|&t| (place(t), t.to_string())).collect(),
        plots: found.policies().into_iter().map(plot).collect(),
        basis: basis(found),
    }
}

fn basis(found: &Fairzone) -> String {
    format!("Simulated: {}. {}. Seed {}.", found.machine, found.workload, found.seed)
}
