//! Does `report need` predict what a memory limit costs? Each workload is recorded without a limit. Then its limit
//! is lowered in steps, and its major faults are compared with the prediction. Beside it is what `report advice` says.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use isotherm_bench::limited::Limited;
use isotherm_bench::prediction::{PredictedPoint, advised, curve, factors, record};
use isotherm_bench::program::{ChildGuard, beside};
use isotherm_bench::user::{self, User, WORKLOADS, touches_per_second};
use isotherm_core::PAGE_SIZE;
use isotherm_linux::swap::Swap;

#[derive(Parser)]
struct Options {
    /// length of the records in s
    #[arg(long, default_value_t = 150)]
    record: u64,
    /// time at each limit before faults are counted, in s
    #[arg(long, default_value_t = 35)]
    settle: u64,
    /// time in which they are counted, in s
    #[arg(long, default_value_t = 20)]
    measure: u64,
    /// limits, in percent of the memory in use
    #[arg(long, value_delimiter = ',', default_value = "95,90,80,70,60,50")]
    limits: Vec<u64>,
}

/// A workload in its group, with its recorder.
struct Case {
    name: &'static str,
    // Dropped before its group.
    user: User,
    group: Limited,
    /// memory in use without a limit, in bytes
    rest: u64,
    /// what is predicted, by idle time
    curve: Vec<PredictedPoint>,
    /// what `report advice` says
    advised: Vec<PredictedPoint>,
}

/// Bounds: the mean error of the miss ratio in points, and the median factor.
const MAX_ERROR: f64 = 0.5;
const MAX_FACTOR: f64 = 1.1;

/// The predicted and the measured rate of faults, per second.
struct Cell {
    predicted: f64,
    advised: f64,
    measured: f64,
    touches: f64,
}

fn main() -> Result<()> {
    user::run_if_asked()?;
    let o = Options::parse();
    ensure!(o.limits.iter().all(|p| (10..100).contains(p)), "limits are 10 to 99 percent");
    let isotherm = beside()?;
    let _swap = Swap::start(2 << 30)?;
    eprintln!("if this program is killed, restore its changes by hand: {}", Swap::HOW_TO_REMOVE);
    let dir = tempfile::tempdir()?;
    let mut cases = WORKLOADS
        .iter()
        .map(|(name, mib)| {
            let group = Limited::named(name, 4 << 30)?;
            let user = group.within(|| User::start(name, *mib))?;
            Ok(Case { name, user, group, rest: 0, curve: Vec::new(), advised: Vec::new() })
        })
        .collect::<Result<Vec<Case>>>()?;
    sleep(Duration::from_secs(5));
    let recorders = cases
        .iter()
        .map(|case| record(&isotherm, &case.user, &dir.path().join(case.name), o.record))
        .collect::<Result<Vec<ChildGuard>>>()?;
    for mut recorder in recorders {
        ensure!(recorder.0.wait()?.success(), "a recorder failed");
    }
    for case in &mut cases {
        case.rest = case.group.group().memory_current()?;
        let path = dir.path().join(case.name);
        (case.curve, case.advised) = (curve(&isotherm, &path)?, advised(&isotherm, &path)?);
    }
    println!(
        "faults a second by report need / by report advice / measured, at limits in percent of the memory in use\n"
    );
    print!("{:<16}", "");
    o.limits.iter().for_each(|percent| print!("{percent:>18} %"));
    println!();
    let mut cells: Vec<Vec<Cell>> = cases.iter().map(|_| Vec::new()).collect();
    for percent in &o.limits {
        let lower = |case: &Case| case.group.move_to(case.rest * percent / 100, case.rest / 20);
        cases.iter().try_for_each(lower)?;
        sleep(Duration::from_secs(o.settle));
        let before = faults(&cases)?;
        sleep(Duration::from_secs(o.measure));
        let after = faults(&cases)?;
        for (i, case) in cases.iter().enumerate() {
            let gone = (case.rest - case.rest * percent / 100) as f64;
            cells[i].push(Cell {
                predicted: returned(&case.curve, gone) / PAGE_SIZE as f64,
                advised: returned(&case.advised, gone) / PAGE_SIZE as f64,
                measured: (after[i] - before[i]) as f64 / o.measure as f64,
                touches: touches_per_second(case.name)?,
            });
        }
    }
    for (case, cells) in cases.iter().zip(&cells) {
        print!("{:<16}", case.name);
        let text = |c: &Cell| format!("{:.0}/{:.0}/{:.0}", c.predicted, c.advised, c.measured);
        cells.iter().for_each(|c| print!("{:>20}", text(c)));
        println!();
    }
    let cells: Vec<Cell> = cells.into_iter().flatten().collect();
    println!();
    summary("report advice", &cells, |c| c.advised);
    let (error, factor) = summary("report need", &cells, |c| c.predicted);
    ensure!(error <= MAX_ERROR, "the mean error of the miss ratio is above {MAX_ERROR} points");
    let factor = factor.context("too few pages came back to compare their number")?;
    ensure!(factor <= MAX_FACTOR, "the median factor is above {MAX_FACTOR}");
    Ok(())
}

/// Bytes that return per second if `gone` bytes have no room. Memory that is idle for longer than is known does
/// not come back at one end, and at the rate of the longest known time at the other.
fn returned(curve: &[PredictedPoint], gone: f64) -> f64 {
    // The longer a time, the less is idle for it.
    let more = curve.partition_point(|p| p.saved >= gone);
    let (x1, y1) = curve.get(more).map_or((0.0, 0.0), |p| (p.saved, p.returned));
    match more.checked_sub(1).and_then(|at| curve.get(at)) {
        Some(p) => y1 + (p.returned - y1) * (gone - x1) / (p.saved - x1).max(1.0),
        None => y1,
    }
}

/// Major faults of each workload so far.
fn faults(cases: &[Case]) -> Result<Vec<u64>> {
    cases.iter().map(|case| case.user.major_faults()).collect()
}

/// Prints the mean error of the miss ratio in points, and the median factor, and returns them.
fn summary(name: &str, cells: &[Cell], predicted: fn(&Cell) -> f64) -> (f64, Option<f64>) {
    let error: f64 = cells.iter().map(|c| (predicted(c) - c.measured).abs() / c.touches).sum();
    let error = error / cells.len().max(1) as f64 * 100.0;
    let many = cells.iter().filter(|c| c.measured >= 50.0);
    let (median, within, of) = factors(many.map(|c| (predicted(c), c.measured)));
    println!(
        "{name}: miss ratio with a mean error of {error:.2} points; where 50 or more faults a second came: median \
         factor {:.2}, {within} of {of} within 1.5",
        median.unwrap_or(f64::NAN)
    );
    (error, median)
}
