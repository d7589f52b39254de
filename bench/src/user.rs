//! A process that uses memory page by page, at random or in turn, so that each page has an age of its own.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use isotherm_core::{AddrRange, PAGE_SIZE};
use isotherm_linux::sys::{Arena, Backing};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::process::{Signal, set_parent_process_death_signal};

/// The argument with which a bench starts itself as this process.
const ARGUMENT: &str = "--be-the-user";
/// Interval between touches.
const TICK: Duration = Duration::from_millis(2);
const PAGES_A_MIB: u64 = (1 << 20) / PAGE_SIZE;

/// How a part of the memory is used.
#[derive(Debug, Clone)]
enum Use {
    /// Pages by a zipf law with this exponent; strewn over the part, or the most used first.
    Zipf { exponent: f64, strewn: bool },
    /// All pages with equal probability.
    Even,
    /// One page after the other.
    InTurn,
    /// One eighth of the part at random, and another every 4 s.
    Moving,
}

/// A part of the memory, by its MiB and touches per second.
#[derive(Debug, Clone)]
struct UsedPart {
    mib: u64,
    touches: f64,
    by: Use,
}

/// The workloads, each with its size in MiB.
pub const WORKLOADS: [(&str, u64); 5] =
    [("zipf-strewn", 256), ("zipf-together", 320), ("mix", 320), ("scan", 256), ("move", 320)];

fn parts(name: &str) -> Result<Vec<UsedPart>> {
    let part = |mib, touches, by| UsedPart { mib, touches, by };
    let hz = |mib, hz: f64| part(mib, hz * (mib * PAGES_A_MIB) as f64, Use::Even);
    let in_turn = |mib, seconds: f64| part(mib, (mib * PAGES_A_MIB) as f64 / seconds, Use::InTurn);
    let zipf = |exponent, strewn| part(256, 20_000.0, Use::Zipf { exponent, strewn });
    Ok(match name {
        "zipf-strewn" => vec![zipf(0.9, true)],
        "zipf-together" => vec![zipf(1.0, false)],
        "mix" => vec![hz(64, 1.8), hz(64, 0.1), hz(64, 0.02), in_turn(64, 16.0)],
        "scan" => vec![hz(48, 1.6), in_turn(128, 16.0)],
        "move" => vec![part(256, 20_000.0, Use::Moving), hz(32, 1.2)],
        _ => bail!("there is no workload {name}"),
    })
}

/// Touches a second of a workload.
pub fn touches_per_second(name: &str) -> Result<f64> {
    Ok(parts(name)?.iter().map(|p| p.touches).sum())
}

/// Runs as this process until its standard input ends, if the command line asks for it. Otherwise does nothing.
pub fn run_if_asked() -> Result<()> {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() != Some(ARGUMENT) {
        return Ok(());
    }
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let name = words.next().context("no workload")?;
    let mib: u64 = words.next().context("no size")?.parse()?;
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0)
    });
    use_memory(&parts(&name)?, mib)
}

fn use_memory(parts: &[UsedPart], mib: u64) -> Result<()> {
    let memory = Arena::map(mib << 20)?;
    memory.back(AddrRange::new(0, mib << 20), Backing::Base)?;
    (0..mib * PAGES_A_MIB).for_each(|page| memory.write(page));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut users = Vec::new();
    let mut first = 0;
    for part in parts {
        users.push(PartUser::new(part, first));
        first += part.mib * PAGES_A_MIB;
    }
    let begin = Instant::now();
    let mut last = 0.0;
    loop {
        sleep(TICK);
        let now = begin.elapsed().as_secs_f64();
        for user in &mut users {
            user.due += user.part.touches * (now - last);
            while user.due >= 1.0 {
                user.due -= 1.0;
                memory.read(user.next(&mut random, now));
            }
        }
        last = now;
    }
}

/// The state of a part that is used.
struct PartUser<'a> {
    part: &'a UsedPart,
    first: u64,
    pages: u64,
    /// touches that are due
    due: f64,
    in_turn: u64,
    /// for a zipf law: the sums of the shares, by rank
    sums: Vec<f64>,
}

impl<'a> PartUser<'a> {
    fn new(part: &'a UsedPart, first: u64) -> Self {
        let pages = part.mib * PAGES_A_MIB;
        let sums = match part.by {
            Use::Zipf { exponent, .. } => {
                let mut sum = 0.0;
                let add = |rank: u64| {
                    sum += (rank as f64 + 1.0).powf(-exponent);
                    sum
                };
                (0..pages).map(add).collect()
            }
            _ => Vec::new(),
        };
        PartUser { part, first, pages, due: 0.0, in_turn: 0, sums }
    }

    fn next(&mut self, random: &mut impl Rng, now: f64) -> u64 {
        let pages = self.pages;
        let page = match self.part.by {
            Use::Even => random.next_u64() % pages,
            Use::InTurn => {
                self.in_turn = (self.in_turn + 1) % pages;
                self.in_turn
            }
            Use::Moving => (now / 4.0) as u64 % 8 * (pages / 8) + random.next_u64() % (pages / 8),
            Use::Zipf { strewn, .. } => {
                let all = self.sums.last().copied().unwrap_or(1.0);
                let at = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64 * all;
                let rank = self.sums.partition_point(|sum| *sum < at) as u64;
                // Multiplication by an odd number permutes the pages of a power of two.
                if strewn { rank.wrapping_mul(0x9E37_79B1) % pages } else { rank }
            }
        };
        self.first + page.min(pages - 1)
    }
}

/// The process, killed when dropped.
#[derive(Debug)]
pub struct User(Child);

impl User {
    /// Starts this program again as the workload `name`, with `mib` MiB.
    pub fn start(name: &str, mib: u64) -> Result<Self> {
        let args = [ARGUMENT.to_owned(), name.to_owned(), mib.to_string()];
        let child =
            Command::new(std::env::current_exe()?).args(args).stdin(Stdio::piped()).spawn()?;
        Ok(User(child))
    }

    /// Its pid.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap_or(0)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
