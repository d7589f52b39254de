//! What `isotherm report need` and `isotherm whatif` predict for page-out at a minimum age, and what happens, with real
//! programs under a steady load. Each is recorded, and then reclaimed at each minimum age, the longest first.

use std::fs::{File, read_to_string, write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{sleep, spawn};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use isotherm_bench::bootstrap::middle;
use isotherm_bench::postgres;
use isotherm_bench::prediction::{PredictedPoint, curve, factors, played};
use isotherm_bench::program::{ChildGuard, beside, dependent};
use isotherm_core::PAGE_SIZE;
use isotherm_evaluation::latency::Latencies;
use isotherm_evaluation::stop::Stop;
use isotherm_evaluation::workload::{Keys, OpenLoop, Redis, Server};
use isotherm_linux::swap::Swap;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const MIB: f64 = 1_048_576.0;
/// Most memory of a program, in bytes.
const MEMORY: u64 = 1280 << 20;
const REDIS_BYTES: u64 = 256 << 20;
const REDIS_RATE: u64 = 4000;
/// Scale of pgbench: 16 times 15 MB.
const SCALE: u32 = 16;
const PROGRAMS: [&str; 5] = ["redis-strewn", "redis-together", "postgres", "node", "java"];

#[derive(Parser)]
struct Options {
    /// programs: redis-strewn, redis-together, postgres, node and java
    #[arg(long, value_delimiter = ',', default_values_t = PROGRAMS.map(String::from))]
    programs: Vec<String>,
    /// minimum ages in s
    #[arg(long, value_delimiter = ',', default_value = "5,10,20,30")]
    ages: Vec<u64>,
    /// time before the record, in s
    #[arg(long, default_value_t = 30)]
    lead_in: u64,
    /// length of the record in s
    #[arg(long, default_value_t = 90)]
    record: u64,
    /// time before the measurement, in s, beyond the minimum age
    #[arg(long, default_value_t = 20)]
    settle: u64,
    /// time of the measurement in s
    #[arg(long, default_value_t = 20)]
    measure: u64,
}

/// Bytes that are saved, and pages that come back per second.
#[derive(Debug, Clone, Copy)]
struct Figures {
    saved: f64,
    returned: f64,
}

impl From<PredictedPoint> for Figures {
    fn from(p: PredictedPoint) -> Self {
        Figures { saved: p.saved, returned: p.returned / PAGE_SIZE as f64 }
    }
}

struct Cell {
    need: Figures,
    whatif: Figures,
    real: Figures,
}

/// A program with its load; both end on drop.
struct Loaded {
    pid: i32,
    /// whether its memory is that of its children, too
    has_children: bool,
    _held: Vec<Box<dyn std::any::Any>>,
}

fn main() -> Result<()> {
    let mut o = Options::parse();
    o.ages.sort_unstable_by(|a, b| b.cmp(a));
    let isotherm = beside()?;
    println!("MiB saved and pages read back a second: by report need, by whatif, real\n");
    let mut cells = Vec::new();
    for name in &o.programs {
        let found = one(&isotherm, name, &o).with_context(|| name.clone())?;
        for (age, Cell { need, whatif, real }) in o.ages.iter().zip(&found) {
            let [need, whatif, real] =
                [need, whatif, real].map(|f| format!("{:.0}/{:.0}", f.saved / MIB, f.returned));
            println!("{name:<16}{age:>4} s{need:>14}{whatif:>14}{real:>14}");
        }
        cells.extend(found);
    }
    println!();
    summary("report need", &cells, |c| c.need);
    summary("whatif", &cells, |c| c.whatif);
    Ok(())
}

/// The cells of a program, in the order of the ages.
fn one(isotherm: &Path, name: &str, o: &Options) -> Result<Vec<Cell>> {
    let swap = Swap::start(MEMORY)?;
    eprintln!("{name}; if this is killed, put back what it has changed: {}", Swap::HOW_TO_REMOVE);
    let dir = tempfile::tempdir()?;
    let loaded = start(name, dir.path())?;
    sleep(Duration::from_secs(o.lead_in));
    let record = dir.path().join("record");
    let mut recorder = Command::new(isotherm);
    recorder.args(["record", "--duration", &format!("{}s", o.record), "-o"]).arg(&record);
    let mut recorder = watching(recorder, &loaded)?;
    ensure!(recorder.0.wait()?.success(), "the recorder failed");
    let (need, whatif) = (curve(isotherm, &record)?, played(isotherm, &record, &o.ages)?);
    let device = format!("/dev/{}", swap.device());
    let cells = o.ages.iter().map(|&age| {
        let of = |curve: &[PredictedPoint]| {
            let found = curve.iter().find(|p| (p.age - age as f64).abs() < 0.1);
            found.copied().map(Figures::from).context("the record is too short for this age")
        };
        let mut reclaim = Command::new(isotherm);
        reclaim.args(["reclaim", "--pages", "--min-age", &format!("{age}s")]);
        reclaim.args(["--watermarks", "none", "--control", "none"]);
        reclaim.args(["--quota", "none", "--quota-size", "none"]);
        let running = watching(reclaim, &loaded)?;
        sleep(Duration::from_secs(age + o.settle));
        let (before, mut saved) = (swapped_in()?, 0.0);
        for _ in 0..o.measure {
            sleep(Duration::from_secs(1));
            saved += used(&device)? / o.measure as f64;
        }
        let returned = (swapped_in()? - before) / o.measure as f64;
        drop(running);
        Ok(Cell { need: of(&need)?, whatif: of(&whatif)?, real: Figures { saved, returned } })
    });
    let cells = cells.collect();
    drop(loaded);
    swap.end()?;
    cells
}

/// Starts isotherm on the program.
fn watching(mut command: Command, of: &Loaded) -> Result<ChildGuard> {
    command.args(["--pid", &of.pid.to_string()]);
    if of.has_children {
        command.arg("--children");
    }
    Ok(ChildGuard(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
}

fn start(name: &str, dir: &Path) -> Result<Loaded> {
    let command = |words: &[&str]| {
        let (program, words) = words.split_first().context("no command")?;
        let mut command = dependent(program.as_ref());
        command.args(words).stdout(File::create(dir.join("out"))?).stderr(Stdio::null());
        let child = ChildGuard(command.spawn()?);
        Ok(Loaded { pid: child.pid(), has_children: false, _held: vec![Box::new(child)] })
    };
    match name {
        "redis-strewn" => redis(dir, Keys::Hashed),
        "redis-together" => redis(dir, Keys::Together),
        "postgres" => database(),
        "node" => command(&["node", "evaluation/programs/node.mjs"]),
        "java" => command(&["java", "-Xms700m", "-Xmx1g", "evaluation/programs/Catalogue.java"]),
        other => bail!("there is no program {other}: choose of {PROGRAMS:?}"),
    }
}

/// A redis-server that is asked for keys by a zipf law, at a fixed rate.
fn redis(dir: &Path, keys: Keys) -> Result<Loaded> {
    let redis = Redis { keys, bytes: REDIS_BYTES, rate: REDIS_RATE, seed: 1 };
    let (stop, count) = (Stop::default(), redis.count());
    let server = Server::start(&redis, dir, true, &stop)?;
    let pid = isotherm_evaluation::workload::Running::pid(&server);
    let open = OpenLoop::start(&dir.join("redis.sock"), REDIS_RATE)?;
    let (sums, mut random) = (zipf(count, 0.9), Xoshiro256PlusPlus::seed_from_u64(1));
    let mut seen = Latencies::new()?;
    // The load ends with the server.
    spawn(move || {
        let key = || {
            let drawn = random.next_u32() as f64 / f64::from(u32::MAX) * sums[sums.len() - 1];
            let rank = sums.partition_point(|sum| *sum < drawn).min(sums.len() - 1) as u64;
            let spread = if keys == Keys::Hashed { 7_368_787 } else { 1 };
            (rank * spread % u64::from(count)) as u32
        };
        open.run(Duration::from_secs(86_400), key, &mut seen, &stop)
    });
    Ok(Loaded { pid, has_children: false, _held: vec![Box::new(server)] })
}

/// Sums of the shares of a zipf law.
fn zipf(count: u32, exponent: f64) -> Vec<f64> {
    let shares = (1..=count).map(|rank| f64::from(rank).powf(-exponent));
    let sum = |sum: &mut f64, share| {
        *sum += share;
        Some(*sum)
    };
    shares.scan(0.0, sum).collect()
}

/// A PostgreSQL server with all rows in its shared buffers, whose rows are read by a zipf law, at a fixed rate.
fn database() -> Result<Loaded> {
    // Its user can enter no folder of ours.
    let home = tempfile::Builder::new().prefix("returns").tempdir()?;
    let place: PathBuf = home.path().to_owned();
    postgres::init(&place, SCALE)?;
    let server = postgres::start_with(&place, "300MB")?;
    let prewarm = ["create extension pg_prewarm", "select pg_prewarm('pgbench_accounts')"];
    let mut client = postgres::program("psql")?;
    client.arg("-h").arg(&place).args(["-U", "postgres"]);
    client.args(prewarm.iter().flat_map(|word| ["-c", *word]));
    ensure!(client.status()?.success(), "cannot read the rows");
    let script = place.join("script");
    let rows = u64::from(SCALE) * 100_000;
    write(
        &script,
        format!(
            "\\set id random_zipfian(1, {rows}, 1.05)\nselect abalance from pgbench_accounts where aid = :id;\n"
        ),
    )?;
    let mut load = postgres::pgbench(&place)?;
    load.args(["-n", "-c", "1", "-M", "prepared", "--rate", "3000", "-T", "86400", "-f"]);
    let load = ChildGuard(load.arg(&script).arg("postgres").spawn()?);
    let pid = server.pid();
    // In the order in which they end.
    let server = Database(Some(server));
    let held: Vec<Box<dyn std::any::Any>> = vec![Box::new(load), Box::new(server), Box::new(home)];
    Ok(Loaded { pid, has_children: true, _held: held })
}

/// A server that is shut down on drop, with its processes.
struct Database(Option<ChildGuard>);

impl Drop for Database {
    fn drop(&mut self) {
        if let Some(Err(e)) = self.0.take().map(postgres::stop) {
            eprintln!("the server was not shut down: {e}");
        }
    }
}

/// Bytes in use on a swap device.
fn used(device: &str) -> Result<f64> {
    let text = read_to_string("/proc/swaps")?;
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(device));
    let kib = line.and_then(|line| line.split_whitespace().nth(3)?.parse::<f64>().ok());
    Ok(kib.with_context(|| format!("{device} is no swap"))? * 1024.0)
}

/// Pages that the machine has read from swap so far.
fn swapped_in() -> Result<f64> {
    let text = read_to_string("/proc/vmstat")?;
    let count = text.lines().find_map(|line| line.strip_prefix("pswpin ")?.parse().ok());
    count.context("/proc/vmstat has no pswpin")
}

fn summary(name: &str, cells: &[Cell], of: fn(&Cell) -> Figures) {
    let errors = cells.iter().map(|c| (of(c).saved / c.real.saved.max(1.0) - 1.0).abs());
    let error = middle(errors.collect()).unwrap_or(f64::NAN) * 100.0;
    let many = cells.iter().filter(|c| c.real.returned >= 50.0);
    let (factor, within, all) = factors(many.map(|c| (of(c).returned, c.real.returned)));
    println!(
        "{name}: saved, median error {error:.1} %; read back, where 50 or more pages a second came: median factor \
         {:.2}, {within} of {all} within 1.5",
        factor.unwrap_or(f64::NAN)
    );
}
