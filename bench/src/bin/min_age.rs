//! Does `reclaim --pages --min-age` save what is idle for this time, and does `report need` predict it? Each workload
//! is recorded, then reclaimed at each minimum age, the longest first. The workloads themselves know the truth.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use isotherm_bench::prediction::{PredictedPoint, curve, factors, played, record};
use isotherm_bench::program::{ChildGuard, beside};
use isotherm_bench::user::{self, IDLE_TIMES_S, User, WORKLOADS};
use isotherm_core::PAGE_SIZE;
use isotherm_linux::proc;
use isotherm_linux::swap::Swap;

#[derive(Parser)]
struct Options {
    /// length of the records in s
    #[arg(long, default_value_t = 120)]
    record: u64,
    /// minimum ages in s: 5, 10, 20, 30, 40, 50, 60, and the multiples of 5 between them
    #[arg(long, value_delimiter = ',', default_value = "5,10,20,30,60")]
    ages: Vec<u64>,
    /// time before the measurement, in s, beyond the minimum age
    #[arg(long, default_value_t = 20)]
    settle: u64,
    /// time of the measurement in s
    #[arg(long, default_value_t = 20)]
    measure: u64,
}

const MIB: f64 = 1_048_576.0;

/// Memory in bytes, and pages per second.
struct Cell {
    predicted: PredictedPoint,
    /// what `isotherm whatif` predicts
    played: PredictedPoint,
    saved: f64,
    refaults: f64,
    idle: f64,
    returned: f64,
}

fn main() -> Result<()> {
    user::run_if_asked()?;
    let mut o = Options::parse();
    ensure!(o.ages.iter().all(|age| IDLE_TIMES_S.contains(age)), "ages are among {IDLE_TIMES_S:?}");
    o.ages.sort_unstable_by(|a, b| b.cmp(a));
    let isotherm = beside()?;
    let _swap = Swap::start(2 << 30)?;
    eprintln!("if this is killed, put back what it has changed: {}", Swap::HOW_TO_REMOVE);
    let dir = tempfile::tempdir()?;
    let mut users = WORKLOADS
        .iter()
        .map(|(name, mib)| User::start(name, *mib))
        .collect::<Result<Vec<User>>>()?;
    sleep(Duration::from_secs(5));
    let of = |i: usize| dir.path().join(WORKLOADS[i].0);
    let begin = |(i, user)| record(&isotherm, user, &of(i), o.record);
    for mut recorder in users.iter().enumerate().map(begin).collect::<Result<Vec<ChildGuard>>>()? {
        ensure!(recorder.0.wait()?.success(), "a recorder failed");
    }
    let predict = |i| Ok((curve(&isotherm, &of(i))?, played(&isotherm, &of(i), &o.ages)?));
    let curves = (0..users.len()).map(predict).collect::<Result<Vec<_>>>()?;
    println!(
        "MiB saved and pages read back a second: by report need, by whatif, real; and by truth, if none were late\n"
    );
    let mut cells = Vec::new();
    for age in &o.ages {
        let running = users
            .iter()
            .map(|user| reclaim(&isotherm, user, *age))
            .collect::<Result<Vec<ChildGuard>>>()?;
        sleep(Duration::from_secs(age + o.settle));
        for (i, cell) in measure(&mut users, *age, o.measure, &curves)?.into_iter().enumerate() {
            println!(
                "{:<16}{age:>4} s{:>14}{:>14}{:>14}{:>14}",
                WORKLOADS[i].0,
                point(&cell.predicted),
                point(&cell.played),
                format!("{:.0}/{:.0}", cell.saved / MIB, cell.refaults),
                format!("{:.0}/{:.0}", cell.idle / MIB, cell.returned)
            );
            cells.push(cell);
        }
        drop(running);
    }
    summary(&cells);
    Ok(())
}

fn point(p: &PredictedPoint) -> String {
    format!("{:.0}/{:.0}", p.saved / MIB, pages(p.returned))
}

fn pages(bytes: f64) -> f64 {
    bytes / PAGE_SIZE as f64
}

fn reclaim(isotherm: &Path, user: &User, age: u64) -> Result<ChildGuard> {
    let child = Command::new(isotherm)
        .args(["reclaim", "--pages", "--pid", &user.pid().to_string()])
        .args(["--min-age", &format!("{age}s"), "--watermarks", "none", "--control", "none"])
        .args(["--quota", "none", "--quota-size", "none"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(ChildGuard(child))
}

fn measure(
    users: &mut [User],
    age: u64,
    seconds: u64,
    curves: &[(Vec<PredictedPoint>, Vec<PredictedPoint>)],
) -> Result<Vec<Cell>> {
    let at = IDLE_TIMES_S.iter().position(|a| *a == age).context("no such age")?;
    let mut cells = Vec::new();
    for (user, (curve, played)) in users.iter_mut().zip(curves) {
        let find = |of: &[PredictedPoint]| {
            let found = of.iter().find(|p| (p.age - age as f64).abs() < 0.1).copied();
            found.context("the record is too short for this age")
        };
        let (predicted, played) = (find(curve)?, find(played)?);
        let refaults = -(user.major_faults()? as f64);
        let returned = -pages(user.idle()?.returned[at]);
        cells.push(Cell { predicted, played, saved: 0.0, refaults, idle: 0.0, returned });
    }
    for _ in 0..seconds {
        sleep(Duration::from_secs(1));
        for (user, cell) in users.iter_mut().zip(&mut cells) {
            cell.saved += proc::swapped("/".as_ref(), user.pid())? as f64 / seconds as f64;
            cell.idle += user.idle()?.idle[at] / seconds as f64;
        }
    }
    for (user, cell) in users.iter_mut().zip(&mut cells) {
        cell.refaults = (cell.refaults + user.major_faults()? as f64) / seconds as f64;
        cell.returned = (cell.returned + pages(user.idle()?.returned[at])) / seconds as f64;
    }
    Ok(cells)
}

fn summary(cells: &[Cell]) {
    let median = |of: &dyn Fn(&Cell) -> f64| {
        let mut all: Vec<f64> = cells.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0) * 100.0
    };
    let reported = |name: &str, error: f64, of: fn(&Cell) -> &PredictedPoint| {
        let many = cells.iter().filter(|c| c.refaults >= 50.0);
        let (factor, within, all) = factors(many.map(|c| (pages(of(c).returned), c.refaults)));
        println!(
            "{name}: saved, median error {error:.1} %; read back, where 50 or more pages a second came: median \
             factor {:.2}, {within} of {all} within 1.5",
            factor.unwrap_or(f64::NAN)
        );
    };
    let off = |p: &PredictedPoint, c: &Cell| (p.saved / c.saved.max(1.0) - 1.0).abs();
    println!(
        "\n{:.1} % of what was idle is saved in the median",
        median(&|c| c.saved / c.idle.max(1.0))
    );
    reported("report need", median(&|c| off(&c.predicted, c)), |c| &c.predicted);
    reported("whatif", median(&|c| off(&c.played, c)), |c| &c.played);
}
