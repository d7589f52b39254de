//! Does PostgreSQL do more transactions if isotherm protects and prefetches the hot parts of its files? Its control
//! group has less memory than the database. Runs without and with isotherm take turns. How many transactions the best
//! choice of pages would permit is computed from the law by which accounts are selected.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use isotherm_bench::bootstrap::middle;
use isotherm_bench::limited::Limited;
use isotherm_bench::page_cache::{drop_cache, file_cache, fill_cache, read_bytes};
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
    /// rate from which on isotherm protects a part
    #[arg(long, default_value = "1Hz")]
    rate: String,
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
/// A page of PostgreSQL, in bytes, how many rows of accounts it holds, and how many entries of their index.
const PAGE: u64 = 8 << 10;
const ROWS: u64 = 61;
const ENTRIES: u64 = 366;
/// Buffers of the server, in bytes (`postgres::start`).
const BUFFERS: u64 = 16 << 20;
/// Exponent of the zipf law.
const EXPONENT: f64 = 1.05;
/// Accounts of a transaction.
const SELECTED: f64 = 2.0;
/// Memory for the whole database, in MiB.
const PLENTY: u64 = 4096;
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
        "{:<18}{:>22}{:>22}{:>12}{:>8}{:>10}  of each pair",
        "hot accounts",
        "without /s (pages)",
        "with /s (pages)",
        "least pages",
        "factor",
        "possible"
    );
    let is_wanted = |name: &str| o.only.is_empty() || o.only.iter().any(|only| name == only);
    for (name, is_strewn, scans) in CASES.into_iter().filter(|case| is_wanted(case.0)) {
        let script = path.join("transaction.sql");
        std::fs::write(&script, transaction(o.scale, is_strewn))?;
        let load = Load { dir: &path, script: &script, scans };
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..o.pairs {
            drop_cache(&path)?;
            without.push(run(&o, o.limit, &load, None)?);
            drop_cache(&path)?;
            with.push(run(&o, o.limit, &load, Some(&isotherm))?);
        }
        let mut factors: Vec<f64> =
            without.iter().zip(&with).map(|(a, b)| b.rate / a.rate).collect();
        factors.sort_by(f64::total_cmp);
        let all: Vec<String> = factors.iter().map(|factor| format!("{factor:.2}")).collect();
        let [without, with] = [&without, &with].map(|runs| Ran::middle(runs));
        let factor = middle(factors).unwrap_or(f64::NAN);
        // A scan takes CPU time as well, more of it when it waits less, and its processes read pages too.
        let best = (!scans).then(|| best(&o, &load, &without, is_strewn)).transpose()?;
        let [least, possible] = best.map_or(["-".into(), "-".into()], |(least, factor)| {
            [format!("{least:.2}"), format!("{factor:.2}")]
        });
        let [without, with] = [without, with].map(|ran| match scans {
            true => format!("{:.0}", ran.rate),
            false => format!("{:.0} ({:.2})", ran.rate, ran.pages),
        });
        let all = all.join(" ");
        println!("{name:<18}{without:>22}{with:>22}{least:>12}{factor:>8.2}{possible:>10}  {all}");
    }
    Ok(())
}

/// The smallest number of pages that a transaction reads from the disk if the cache always holds the pages most likely
/// to be read, and the factor of transactions that this permits. The time that a transaction waits for the disk is in
/// proportion to the pages that it reads.
fn best(o: &Options, load: &Load<'_>, without: &Ran, is_strewn: bool) -> Result<(f64, f64)> {
    let bytes = without.cache + BUFFERS;
    let least = SELECTED * missed(ACCOUNTS * u64::from(o.scale), factor(is_strewn), bytes / PAGE);
    fill_cache(load.dir)?;
    let all_cached = run(o, PLENTY, load, None)?;
    ensure!(all_cached.pages < without.pages / 10.0, "the cache was not filled");
    let waits = 1.0 / without.rate - 1.0 / all_cached.rate;
    let best = 1.0 / all_cached.rate + waits * least / without.pages;
    Ok((least, 1.0 / without.rate / best))
}

/// The mean number of pages per selected account that are not among the `cached` most likely ones. Each account has a
/// row in a page of the table, and an entry in a page of the index.
fn missed(accounts: u64, factor: u64, cached: u64) -> f64 {
    let table_pages = accounts.div_ceil(ROWS);
    let pages = table_pages + accounts.div_ceil(ENTRIES);
    let mut likely = vec![0.0; pages as usize];
    for rank in 1..=accounts {
        let share = (rank as f64).powf(-EXPONENT);
        let account = rank * factor % accounts;
        likely[(account / ROWS) as usize] += share;
        likely[(table_pages + account / ENTRIES) as usize] += share;
    }
    likely.sort_by(|a, b| b.total_cmp(a));
    let all: f64 = likely.iter().sum();
    let missed: f64 = likely.iter().skip(cached as usize).sum();
    2.0 * missed / all
}

/// A run in which transactions were counted.
struct Ran {
    /// transactions per second
    rate: f64,
    /// pages read from the disk per transaction
    pages: f64,
    /// page cache of the server's group, in bytes
    cache: u64,
}

impl Ran {
    /// The median of each figure.
    fn middle(runs: &[Ran]) -> Ran {
        let of =
            |figure: fn(&Ran) -> f64| middle(runs.iter().map(figure).collect()).unwrap_or(f64::NAN);
        let cache = of(|ran| ran.cache as f64) as u64;
        Ran { rate: of(|ran| ran.rate), pages: of(|ran| ran.pages), cache }
    }
}

/// What a server does.
struct Load<'a> {
    /// the folder of its database
    dir: &'a Path,
    /// a transaction
    script: &'a Path,
    /// whether another client scans the table
    scans: bool,
}

/// The account of a rank is its product with this.
fn factor(is_strewn: bool) -> u64 {
    if is_strewn { 1_566_083_941 } else { 1 }
}

/// Two accounts by a zipf law: those with low numbers, which lie together, or any.
fn transaction(scale: u32, is_strewn: bool) -> String {
    let accounts = ACCOUNTS * u64::from(scale);
    let factor = factor(is_strewn);
    let select = |id: &str| {
        format!(
            "\\set rank random_zipfian(1, {accounts}, {EXPONENT})\n\\set {id} (:rank * {factor}) % {accounts} + 1\n\
             SELECT abalance FROM pgbench_accounts WHERE aid = :{id};\n"
        )
    };
    select("one") + &select("two")
}

/// Runs a server in a group with a limit in MiB.
fn run(o: &Options, limit: u64, load: &Load<'_>, isotherm: Option<&Path>) -> Result<Ran> {
    let group = Limited::start(limit << 20)?;
    let server = group.within(|| postgres::start(load.dir))?;
    let start = |isotherm| start_isotherm(isotherm, load.dir, &o.rate);
    let acting = isotherm.map(start).transpose()?;
    let scanning = load.scans.then(|| scan(load.dir)).transpose()?;
    let for_seconds = |seconds: u64| -> Result<String> {
        let mut run = postgres::pgbench(load.dir)?;
        run.args(["-n", "-c", "4", "-T", &seconds.to_string(), "-f"]);
        let out = run.arg(load.script).arg("postgres").stdout(Stdio::piped()).output()?;
        ensure!(out.status.success(), "pgbench has failed");
        // The processes of its connections end a moment later, and only then does the server have their count of bytes.
        sleep(Duration::from_millis(300));
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let bytes = || read_bytes(&server.0.id().to_string()).context("no count of bytes");
    for_seconds(o.settle)?;
    let (before, cache) = (bytes()?, file_cache(&group)?);
    let text = for_seconds(o.seconds)?;
    let (after, cache) = (bytes()?, u64::midpoint(cache, file_cache(&group)?));
    drop(scanning);
    acting.map(|acting| acting.stop(Signal::INT)).transpose()?;
    postgres::stop(server)?;
    let number = |name: &str| -> Result<f64> {
        let of = |line: &str| line.strip_prefix(name)?.split([' ', '/']).next()?.parse().ok();
        text.lines().find_map(of).with_context(|| format!("pgbench has printed no {name}"))
    };
    let transactions = number("number of transactions actually processed: ")?;
    let pages = (after - before) as f64 / PAGE as f64 / transactions;
    Ok(Ran { rate: number("tps = ")?, pages, cache })
}

/// Reads the whole table repeatedly.
fn scan(dir: &Path) -> Result<ChildGuard> {
    let script = dir.join("scan.sql");
    std::fs::write(&script, "SELECT sum(abalance) FROM pgbench_accounts;\n")?;
    let mut run = postgres::pgbench(dir)?;
    run.args(["-n", "-c", "1", "-T", "3600", "-f"]).arg(&script).arg("postgres");
    Ok(ChildGuard(run.spawn()?))
}

fn start_isotherm(isotherm: &Path, dir: &Path, rate: &str) -> Result<ChildGuard> {
    let mut command = dependent(isotherm);
    command.args(["run", "--dir"]).arg(dir.join("data/base"));
    command.args(["--scheme-line", &format!("4K max  {rate} max  min max  protect")]);
    let mut acting = ChildGuard(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    sleep(Duration::from_secs(1));
    ensure!(acting.0.try_wait()?.is_none(), "isotherm run has ended: {command:?}");
    Ok(acting)
}
