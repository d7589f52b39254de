//! Tables of runs with locked memory.

use isotherm_bench::bootstrap::middle;

use super::{LIMITS, Run, RunConditions, SwapKind};
use crate::statistics::mean;
use crate::table::{Table, number};

/// In the mails: at best, and on average.
const PUBLISHED: [f64; 2] = [2.55, 1.65];
/// At least so many times as fast: at best, on average, and in each case.
const BOUNDS: [f64; 3] = [2.0, 1.3, 0.97];

/// A program with swap and limit.
struct Cell<'a> {
    program: &'a str,
    swap: SwapKind,
    limit: u64,
    runs: Vec<&'a Run>,
}

impl Cell<'_> {
    fn median(&self, locked: bool, of: impl Fn(&Run) -> f64) -> Option<f64> {
        let own = self.runs.iter().filter(|run| run.turn.locked == locked);
        middle(own.map(|run| of(run)).collect())
    }

    /// How many times as fast it is with its hot memory locked.
    fn speedup(&self) -> Option<f64> {
        self.ratio(|run| run.rate)
    }

    /// Major faults for the same work, in percent of those without locks. They hardly depend on the speed of the
    /// machine.
    fn faults_left(&self) -> Option<f64> {
        self.ratio(|run| run.faults / run.rate).map(|ratio| 100.0 * ratio)
    }

    /// The ratio of a figure with locks to that without: the median over repetitions, each compared with the run
    /// next to it.
    fn ratio(&self, of: impl Fn(&Run) -> f64) -> Option<f64> {
        let base = |turn: &RunConditions| RunConditions { locked: false, ..turn.clone() };
        let pairs = self.runs.iter().filter(|run| run.turn.locked).filter_map(|run| {
            let other = self.runs.iter().find(|other| other.turn == base(&run.turn))?;
            let base = of(other);
            (base > 0.0).then(|| of(run) / base)
        });
        middle(pairs.collect())
    }
}

fn cells(runs: &[Run]) -> Vec<Cell<'_>> {
    let mut names: Vec<&str> = Vec::new();
    for run in runs {
        if !names.contains(&run.turn.program.as_str()) {
            names.push(&run.turn.program);
        }
    }
    let kinds = || SwapKind::ALL.into_iter().flat_map(|swap| LIMITS.map(|limit| (swap, limit)));
    let cell = |program, (swap, limit)| {
        let is_own = |run: &&Run| {
            run.turn.program == program && (run.turn.swap, run.turn.limit) == (swap, limit)
        };
        Cell { program, swap, limit, runs: runs.iter().filter(is_own).collect() }
    };
    names.into_iter().flat_map(|name| kinds().map(move |kind| cell(name, kind))).collect()
}

/// How many times as fast each program is, and each run in detail.
pub fn tables(runs: &[Run]) -> Vec<Table> {
    let cells = cells(runs);
    let heads = SwapKind::ALL.into_iter().flat_map(|s| LIMITS.map(|l| format!("{s}, {l} %")));
    let head = ["program".to_owned()].into_iter().chain(heads).chain(["mean".to_owned()]);
    let rows = cells.chunk_by(|a, b| a.program == b.program).map(|own| {
        let speedups: Vec<Option<f64>> = own.iter().map(Cell::speedup).collect();
        let all: Vec<f64> = speedups.iter().flatten().copied().collect();
        let name = own.first().map_or(String::new(), |cell| cell.program.to_owned());
        let numbers = speedups.into_iter().chain([mean(&all)]).map(|n| number(n, 2));
        [name].into_iter().chain(numbers).collect()
    });
    let overview = Table {
        title: "times as fast with hot memory locked, by swap and limit".to_owned(),
        head: head.collect(),
        rows: rows.collect(),
    };
    let head = [
        "program",
        "uses, MiB",
        "swap",
        "limit",
        "locked, MiB",
        "major faults/s",
        "with locks",
        "faults for the same work, %",
        "times as fast",
    ];
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let rows = cells.iter().map(|cell| {
        vec![
            cell.program.to_owned(),
            number(cell.median(false, |run| mib(run.used as f64)), 0),
            cell.swap.to_string(),
            format!("{} %", cell.limit),
            number(cell.median(true, |run| mib(run.locked_bytes as f64)), 0),
            number(cell.median(false, |run| run.faults), 0),
            number(cell.median(true, |run| run.faults), 0),
            number(cell.faults_left(), 0),
            number(cell.speedup(), 2),
        ]
    });
    let details = Table {
        title: "each program".to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    };
    vec![overview, details]
}

/// The bounds, each with whether it holds. The average is over the programs, however many cells each has.
pub fn bounds(runs: &[Run]) -> Vec<(String, bool)> {
    let cells = cells(runs);
    let of_program = cells.chunk_by(|a, b| a.program == b.program);
    let of_program = of_program.map(|own| own.iter().filter_map(Cell::speedup).collect::<Vec<_>>());
    let means: Vec<f64> = of_program.filter_map(|own| mean(&own)).collect();
    let all: Vec<f64> = cells.iter().filter_map(Cell::speedup).collect();
    let Some(mean) = mean(&means) else { return Vec::new() };
    let best = all.iter().copied().fold(f64::MIN, f64::max);
    let worst = all.iter().copied().fold(f64::MAX, f64::min);
    let [at_best, on_average, in_each] = BOUNDS;
    let line = |name: &str, value: f64, bound: f64, published: Option<f64>| {
        let holds = value >= bound;
        let word = if holds { "held" } else { "BROKEN" };
        let mails = published.map_or(String::new(), |p| format!(", {p} in the mails"));
        (format!("{name}: {value:.2} times as fast (bound {bound}{mails}): {word}"), holds)
    };
    vec![
        line("at best", best, at_best, Some(PUBLISHED[0])),
        line("on average", mean, on_average, Some(PUBLISHED[1])),
        line("at worst", worst, in_each, None),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(program: &str, limit: u64, repetition: u32, locked: bool, rate: f64) -> Run {
        let turn = RunConditions {
            program: program.to_owned(),
            swap: SwapKind::Zram,
            limit,
            repetition,
            locked,
        };
        Run { turn, used: 1 << 20, rate, faults: 10.0, locked_bytes: 0 }
    }

    #[test]
    fn each_run_is_compared_with_the_one_next_to_it() {
        let rates = [(0, 10.0, 25.0), (1, 20.0, 50.0), (2, 10.0, 5.0)];
        let of = |(i, orig, lock)| [run("a", 90, i, false, orig), run("a", 90, i, true, lock)];
        let mut runs: Vec<Run> = rates.into_iter().flat_map(of).collect();
        runs.extend([run("b", 50, 0, false, 10.0), run("b", 50, 0, true, 9.0)]);
        let all = tables(&runs);
        assert_eq!(all[0].rows[0][1..4], ["2.50", "-", "-"]);
        assert_eq!(all[0].rows[1][7], "0.90");
        let held: Vec<bool> = bounds(&runs).into_iter().map(|(_, holds)| holds).collect();
        assert_eq!(held, [true, true, false], "{:?}", bounds(&runs));
        // Programs count equally: (2.5 + 0.9) / 2, also if one has a further cell.
        runs.extend([run("a", 70, 0, false, 10.0), run("a", 70, 0, true, 25.0)]);
        assert!(bounds(&runs)[1].0.starts_with("on average: 1.70 "), "{:?}", bounds(&runs));
    }

    #[test]
    fn nothing_has_no_bounds() {
        assert!(bounds(&[]).is_empty());
    }
}
