//! Does PostgreSQL do more transactions if isotherm protects and prefetches the hot parts of its files? Its control
//! group has less memory than the database. Runs without and with isotherm take turns.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use isotherm_bench::bootstrap::middle;
use isotherm_bench::limited::Limited;
use isotherm_bench::page_cache::drop_cache;
use isotherm_bench::postgres;
use isotherm_bench::program::{ChildGuard, beside, dependent};
use rustix::process::Signal;

#[derive(Parser)]
struct Options {
    /// create the database in this folder
    #[arg(long, default_value = ".")]
    within: PathBuf,
    /// memory limit of the server's group, in MiB
    #[arg(long, default_value_t = 160)]
    limit: u64,
    /// scale of the database: 15 MB each
    #[arg(long, default_value_t = 24)]
    scale: u32,
    /// seconds before transactions are counted, and seconds in which they are
    #[arg(long, default_value_t = 15)]
    settle: u64,
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// pairs of runs without and with isotherm
    #[arg(long, default_value_t = 3)]
    pairs: usize,
    /// only this case; may be given several times
    #[arg(long)]
    only: Vec<String>,
    /// the program [default: that next to this one]
    #[arg(long)]
    isotherm: Option<PathBuf>,
}

const ACCOUNTS: u64 = 100_000;
/// Rate from which on a part is hot.
const SCHEMES: [&str; 2] =
    ["4K max  1Hz max  min max  protect", "4K max  1Hz max  1s max  prefetch"];

/// Where the most used accounts lie, and whether another client reads the whole table at the same time.
const CASES: [(&str, bool, bool); 4] = [
    ("together", false, false),
    ("together, scans", false, true),
    ("strewn", true, false),
    ("strewn, scans", true, true),
];

fn main() -> Result<()> {
    let o = Options::parse();
    let isotherm = o.isotherm.clone().map_or_else(beside, Ok)?;
    let dir = tempfile::tempdir_in(&o.within)?;
    let path = dir.path().canonicalize()?;
    postgres::init(&path, o.scale)?;
    println!(
        "{:<18}{:>14}{:>14}{:>10}  of each pair",
        "hot accounts", "without /s", "with /s", "factor"
    );
    let is_wanted = |name: &str| o.only.is_empty() || o.only.iter().any(|only| name == only);
    for (name, is_strewn, scans) in CASES.into_iter().filter(|case| is_wanted(case.0)) {
        let script = path.join("transaction.sql");
        std::fs::write(&script, transaction(o.scale, is_strewn))?;
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..o.pairs {
            without.push(run(&o, &path, &script, scans, None)?);
            with.push(run(&o, &path, &script, scans, Some(&isotherm))?);
        }
        let mut factors: Vec<f64> = without.iter().zip(&with).map(|(a, b)| b / a).collect();
        factors.sort_by(f64::total_cmp);
        let all: Vec<String> = factors.iter().map(|factor| format!("{factor:.2}")).collect();
        let [without, with, factor] =
            [without, with, factors].map(|of| middle(of).unwrap_or(f64::NAN));
        println!("{name:<18}{without:>14.0}{with:>14.0}{factor:>10.2}  {}", all.join(" "));
    }
    Ok(())
}

/// Two accounts by a zipf law: those with low numbers, which lie together, or any.
fn transaction(scale: u32, is_strewn: bool) -> String {
    let accounts = ACCOUNTS * u64::from(scale);
    let factor = if is_strewn { 1_566_083_941 } else { 1 };
    let select = |id: &str| {
        format!(
            "\\set rank random_zipfian(1, {accounts}, 1.05)\n\\set {id} (:rank * {factor}) % {accounts} + 1\n\
             SELECT abalance FROM pgbench_accounts WHERE aid = :{id};\n"
        )
    };
    select("one") + &select("two")
}

/// Transactions a second in a group with the limit, from an empty cache.
fn run(
    o: &Options,
    dir: &Path,
    script: &Path,
    scans: bool,
    isotherm: Option<&Path>,
) -> Result<f64> {
    drop_cache(dir)?;
    let group = Limited::start(o.limit << 20)?;
    let server = group.within(|| postgres::start(dir))?;
    let acting = isotherm.map(|isotherm| start_isotherm(isotherm, dir)).transpose()?;
    let scanning = scans.then(|| scan(dir)).transpose()?;
    let for_seconds = |seconds: u64| -> Result<String> {
        let mut run = postgres::pgbench(dir)?;
        run.args(["-n", "-c", "4", "-T", &seconds.to_string(), "-f"]).arg(script).arg("postgres");
        let out = run.stdout(Stdio::piped()).output()?;
        ensure!(out.status.success(), "pgbench has failed");
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    };
    for_seconds(o.settle)?;
    let text = for_seconds(o.seconds)?;
    drop(scanning);
    acting.map(|acting| acting.stop(Signal::INT)).transpose()?;
    postgres::stop(server)?;
    let rate =
        text.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    rate.context("pgbench has printed no rate")
}

/// Reads the whole table repeatedly.
fn scan(dir: &Path) -> Result<ChildGuard> {
    let script = dir.join("scan.sql");
    std::fs::write(&script, "SELECT sum(abalance) FROM pgbench_accounts;\n")?;
    let mut run = postgres::pgbench(dir)?;
    run.args(["-n", "-c", "1", "-T", "3600", "-f"]).arg(&script).arg("postgres");
    Ok(ChildGuard(run.spawn()?))
}

fn start_isotherm(isotherm: &Path, dir: &Path) -> Result<ChildGuard> {
    let mut command = dependent(isotherm);
    command.args(["run", "--dir"]).arg(dir.join("data/base"));
    SCHEMES.iter().for_each(|line| _ = command.args(["--scheme-line", line]));
    let acting = ChildGuard(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    sleep(Duration::from_secs(1));
    Ok(acting)
}
