//! What `record --alloc` costs a program that allocates and frees all the time.

use std::hint::black_box;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use isotherm_bench::bootstrap::median_of;
use isotherm_linux::allocations::{BYTES_VARIABLE, DEFAULT_BYTES, write_library};
use tempfile::TempDir;

/// Measures the time of an allocation and its release: without the library, with it, and while isotherm samples. The
/// three take turns.
#[derive(Parser)]
struct Options {
    /// rounds
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// allocations in a run
    #[arg(long, default_value_t = 20_000_000)]
    allocations: u64,
    /// run as the program instead of measuring it
    #[arg(long, hide = true)]
    be: bool,
}

/// Number of blocks that are allocated at a time.
const LIVE: usize = 1024;

fn main() -> Result<()> {
    let o = Options::parse();
    if o.be {
        println!("{}", churn(o.allocations));
        return Ok(());
    }
    let dir = TempDir::new()?;
    let library = write_library(dir.path())?;
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..o.rounds {
        times[0].push(measured(&o, None, None)?);
        times[1].push(measured(&o, Some(&library), None)?);
        times[2].push(measured(&o, Some(&library), Some(&dir.path().join("rec")))?);
    }
    let names = ["without the library", "with the library", "while isotherm samples"];
    let medians = times.map(|t| median_of(&t, 1).map_or(f64::NAN, |e| e.median));
    println!("{:<24} {:>12} {:>10}", "", "ns per pair", "ratio");
    for (name, median) in names.into_iter().zip(medians) {
        println!("{name:<24} {median:>12.1} {:>10.3}", median / medians[0]);
    }
    Ok(())
}

/// Allocates blocks of 16 to 515 bytes and frees others. Returns the ns that each pair took.
fn churn(allocations: u64) -> f64 {
    let mut live: Vec<Vec<u8>> = vec![Vec::new(); LIVE];
    let begin = Instant::now();
    for i in 0..allocations {
        // Fibonacci hashing spreads the blocks.
        let at = (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % LIVE;
        let size = 16 + (i % 500) as usize;
        live[at] = black_box(Vec::with_capacity(size));
    }
    begin.elapsed().as_secs_f64() * 1e9 / allocations as f64
}

/// `record` is where a recorder writes to.
fn measured(o: &Options, library: Option<&Path>, record: Option<&Path>) -> Result<f64> {
    let me = std::env::current_exe()?;
    let mut command = Command::new(&me);
    command.args(["--be", "--allocations", &o.allocations.to_string()]).stdout(Stdio::piped());
    if let Some(library) = library {
        command.env("LD_PRELOAD", library).env(BYTES_VARIABLE, DEFAULT_BYTES.to_string());
    }
    let program = command.spawn()?;
    let isotherm = me.with_file_name("isotherm");
    let recorder = record.map(|record| recorder(&isotherm, &program, record)).transpose()?;
    let done = program.wait_with_output()?;
    if let Some(mut recorder) = recorder {
        recorder.wait()?;
    }
    ensure!(done.status.success(), "the program failed: {}", done.status);
    String::from_utf8(done.stdout)?.trim().parse().context("the program printed no time")
}

/// Records the program until it ends. Its start is part of the measurement, as it takes 0.1 s of some seconds.
fn recorder(isotherm: &Path, program: &Child, record: &Path) -> Result<Child> {
    // The program loads the library first.
    std::thread::sleep(Duration::from_millis(50));
    let mut command = Command::new(isotherm);
    command.args(["record", "--alloc", "--pid", &program.id().to_string(), "-o"]).arg(record);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    child.context("cannot start isotherm: build it beside this program (cargo build --release -p isotherm-cli)")
}
