//! Tables of runs with locked memory.

use isotherm_bench::bootstrap::middle;

use super::{LIMITS, LockedResults, LockedRun, RunConditions, SwapKind};
use crate::statistics::mean;
use crate::table::{TextTable, number};
use crate::verdict::Verdict;

/// In the mails: at best, and on average.
const PUBLISHED: [f64; 2] = [2.55, 1.65];
/// At least so many times as fast: at best, on average, and in each case.
const BOUNDS: [f64; 3] = [2.0, 1.3, 0.97];

/// A program with swap and limit.
struct Cell<'a> {
    program: &'a str,
    swap: SwapKind,
    limit: u64,
    runs: Vec<&'a LockedRun>,
}

impl<'a> Cell<'a> {
    fn median(&self, locked: bool, of: impl Fn(&LockedResults) -> f64) -> Option<f64> {
        let own = self.runs.iter().filter(|run| run.conditions.locked == locked);
        middle(own.filter_map(|run| run.outcome.as_ref().ok().map(&of)).collect())
    }

    /// Each run without locks, and the run next to it with locks; `None` if that has failed.
    fn pairs(&self) -> impl Iterator<Item = (&'a LockedResults, Option<&'a LockedResults>)> {
        self.runs.iter().filter(|run| run.conditions.locked).filter_map(|run| {
            let base = RunConditions { locked: false, ..run.conditions.clone() };
            let base = self.runs.iter().find(|other| other.conditions == base)?;
            Some((base.outcome.as_ref().ok()?, run.outcome.as_ref().ok()))
        })
    }

    /// How many times as fast it is with its hot memory locked: the median over repetitions. A program that fails
    /// only with locks does no work.
    fn speedup(&self) -> Option<f64> {
        let pairs = self.pairs().filter(|(base, _)| base.rate > 0.0);
        middle(pairs.map(|(base, own)| own.map_or(0.0, |own| own.rate / base.rate)).collect())
    }

    /// Whether a repetition failed only with locks.
    fn fails_with_locks(&self) -> bool {
        self.pairs().any(|(_, own)| own.is_none())
    }

    /// Major faults for the same work, in percent of those without locks. They hardly depend on the speed of the
    /// machine.
    fn faults_left(&self) -> Option<f64> {
        let of = |run: &LockedResults| run.faults / run.rate;
        let pairs = self.pairs().filter(|(base, _)| of(base) > 0.0);
        middle(pairs.filter_map(|(base, own)| Some(100.0 * of(own?) / of(base))).collect())
    }
}

fn cells<'a>(runs: &[&'a LockedRun]) -> Vec<Cell<'a>> {
    let mut names: Vec<&str> = Vec::new();
    for run in runs {
        if !names.contains(&run.conditions.program.as_str()) {
            names.push(&run.conditions.program);
        }
    }
    let kinds = || SwapKind::ALL.into_iter().flat_map(|swap| LIMITS.map(|limit| (swap, limit)));
    let cell = |program, (swap, limit)| {
        let is_own = |run: &&&LockedRun| {
            let of = &run.conditions;
            of.program == program && (of.swap, of.limit) == (swap, limit)
        };
        Cell { program, swap, limit, runs: runs.iter().filter(is_own).copied().collect() }
    };
    names.into_iter().flat_map(|name| kinds().map(move |kind| cell(name, kind))).collect()
}

/// How many times as fast each program is, and each run in detail.
pub fn tables(runs: &[&LockedRun]) -> Vec<TextTable> {
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
    let overview = TextTable {
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
    let details = TextTable {
        title: "each program".to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    };
    vec![overview, details]
}

/// The bounds. The average is over the programs, however many cells each has. A repetition that fails only with locks
/// breaks the last bound, whatever the median over repetitions is.
pub fn bounds(runs: &[&LockedRun]) -> [Verdict; 3] {
    let cells = cells(runs);
    let of_program = cells.chunk_by(|a, b| a.program == b.program);
    let of_program = of_program.map(|own| own.iter().filter_map(Cell::speedup).collect::<Vec<_>>());
    let means: Vec<f64> = of_program.filter_map(|own| mean(&own)).collect();
    let all = || cells.iter().filter_map(Cell::speedup);
    let failed = cells.iter().any(Cell::fails_with_locks).then_some(0.0);
    let [at_best, on_average, in_each] = BOUNDS;
    let of = |name: &str, value, bound, how: Option<String>| {
        Verdict::of(format!("{name}: times as fast"), value).at_least(bound).with(how)
    };
    let [best, average] = PUBLISHED.map(|published| Some(format!("{published} in the mails")));
    [
        of("at best", all().reduce(f64::max), at_best, best),
        of("on average", mean(&means), on_average, average),
        of(
            "at worst",
            all().chain(failed).reduce(f64::min),
            in_each,
            failed.map(|_| "a program fails only with locks".to_owned()),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(program: &str, limit: u64, repetition: u32, locked: bool, rate: f64) -> LockedRun {
        let conditions = RunConditions {
            program: program.to_owned(),
            swap: SwapKind::Zram,
            limit,
            repetition,
            locked,
        };
        let outcome = Ok(LockedResults { used: 1 << 20, rate, faults: 10.0, locked_bytes: 0 });
        LockedRun { conditions, outcome }
    }

    fn failed(run: LockedRun) -> LockedRun {
        LockedRun { outcome: Err("it was killed".to_owned()), ..run }
    }

    /// Whether the bounds hold, and the table of all programs.
    fn results(runs: &[LockedRun]) -> ([Option<bool>; 3], TextTable) {
        let runs: Vec<&LockedRun> = runs.iter().collect();
        (bounds(&runs).map(|bound| bound.holds()), tables(&runs).remove(0))
    }

    #[test]
    fn each_run_is_compared_with_the_one_next_to_it() {
        let rates = [(0, 10.0, 25.0), (1, 20.0, 50.0), (2, 10.0, 5.0)];
        let of = |(i, orig, lock)| [run("a", 90, i, false, orig), run("a", 90, i, true, lock)];
        let mut runs: Vec<LockedRun> = rates.into_iter().flat_map(of).collect();
        runs.extend([run("b", 50, 0, false, 10.0), run("b", 50, 0, true, 9.0)]);
        let (held, table) = results(&runs);
        assert_eq!(table.rows[0][1..4], ["2.50", "-", "-"]);
        assert_eq!(table.rows[1][7], "0.90");
        assert_eq!(held, [true, true, false].map(Some));
        // Programs count equally: (2.5 + 0.9) / 2, also if one has a further cell.
        runs.extend([run("a", 70, 0, false, 10.0), run("a", 70, 0, true, 25.0)]);
        let average = bounds(&runs.iter().collect::<Vec<_>>())[1].found.unwrap();
        assert!((average - 1.7).abs() < 1e-9, "{average}");
    }

    #[test]
    fn a_program_that_fails_only_with_locks_breaks_the_bound_of_each_case() {
        let of = |i, lock| [run("a", 90, i, false, 10.0), run("a", 90, i, true, lock)];
        let mut runs: Vec<LockedRun> = (0..3).flat_map(|i| of(i, 25.0)).collect();
        assert_eq!(results(&runs).0, [true, true, true].map(Some));
        runs[1] = failed(runs[1].clone());
        let (held, table) = results(&runs);
        assert_eq!(held, [true, true, false].map(Some));
        assert_eq!(table.rows[0][1], "2.50", "the median");
        // If it fails without locks too, the locks are not the cause.
        runs[0] = failed(runs[0].clone());
        assert_eq!(results(&runs).0, [true, true, true].map(Some));
    }

    #[test]
    fn failed_runs_alone_have_no_bounds() {
        assert_eq!(results(&[]).0, [None; 3]);
        let runs = [false, true].map(|locked| failed(run("a", 90, 0, locked, 1.0)));
        assert_eq!(results(&runs).0, [None; 3]);
    }
}
