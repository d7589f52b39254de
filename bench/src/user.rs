//! A process that uses memory page by page, at random or in turn, so that each page has an age of its own.

use std::sync::mpsc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use isotherm_core::{AddrRange, PAGE_SIZE};
use isotherm_linux::sys::{Arena, ArenaKind};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::program::{Helper, asked};
use crate::usage::{self, own_major_faults};

/// The argument with which a bench starts itself as this process.
const ARGUMENT: &str = "--be-the-user";
/// Interval between touches.
const TICK: Duration = Duration::from_millis(2);
/// Time after which a moving part uses its next eighth, in s.
const MOVING_S: f64 = 4.0;
/// Idle times of [`User::idle`], in s.
pub const IDLE_TIMES_S: [u64; 10] = [5, 10, 15, 20, 25, 30, 35, 40, 50, 60];
/// A touch that takes longer may have waited for a page.
const LONG_TOUCH: Duration = Duration::from_micros(4);
const PAGES_A_MIB: u64 = (1 << 20) / PAGE_SIZE;

/// How a part of the memory is used.
#[derive(Debug, Clone)]
enum Use {
    /// Pages by a zipf law with this exponent.
    Zipf { exponent: f64, order: Order },
    /// All pages with equal probability.
    Even,
    /// One page after the other.
    InTurn,
    /// One eighth of the part at random, and another every [`MOVING_S`].
    Moving,
}

/// Where the most used pages of a zipf law are.
#[derive(Debug, Clone, Copy)]
enum Order {
    Strewn,
    First,
    /// At the beginning, and every ten minutes a quarter of the part further on.
    Shifting,
}

/// How the touches per second of a part change.
#[derive(Debug, Clone, Copy)]
enum Load {
    Steady,
    /// Between an eighth and all of them, as a cosine with a period of twenty minutes.
    Daily,
    /// All of them for five minutes, then none for ten.
    Jobs,
}

impl Load {
    /// The share of the touches at this time, in s.
    fn share(self, now: f64) -> f64 {
        match self {
            Load::Steady => 1.0,
            Load::Daily => (9.0 + 7.0 * (now / 1200.0 * std::f64::consts::TAU).cos()) / 16.0,
            Load::Jobs => f64::from(u8::from(now % 900.0 < 300.0)),
        }
    }
}

/// A part of the memory, by its MiB and touches per second.
#[derive(Debug, Clone)]
struct UsedPart {
    mib: u64,
    touches: f64,
    by: Use,
    load: Load,
}

/// The workloads whose load is steady, each with its size in MiB.
pub const WORKLOADS: [(&str, u64); 5] =
    [("zipf-strewn", 256), ("zipf-together", 320), ("mix", 320), ("scan", 256), ("move", 320)];
/// The workloads whose load changes from minute to minute, each with its size in MiB.
pub const CHANGING: [(&str, u64); 4] =
    [("daily", 256), ("daily-mix", 320), ("shift", 320), ("jobs", 256)];

/// How much larger and slower than usual a workload is.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// of all sizes, in percent
    pub size: u64,
    /// of all times, in percent
    pub time: u64,
}

impl Default for Scale {
    fn default() -> Self {
        Scale { size: 100, time: 100 }
    }
}

impl Scale {
    /// Seconds that the usual workload would have taken.
    fn usual(self, seconds: f64) -> f64 {
        seconds * 100.0 / self.time as f64
    }

    fn part(self, part: &UsedPart) -> UsedPart {
        let (mib, size) = (part.mib * self.size / 100, self.size as f64 / 100.0);
        UsedPart { mib, touches: self.usual(part.touches * size), ..part.clone() }
    }
}

fn parts(name: &str) -> Result<Vec<UsedPart>> {
    let part = |mib, touches, by| UsedPart { mib, touches, by, load: Load::Steady };
    let with = |load, parts: Vec<UsedPart>| {
        parts.into_iter().map(|part| UsedPart { load, ..part }).collect::<Vec<_>>()
    };
    let hz = |mib, hz: f64| part(mib, hz * (mib * PAGES_A_MIB) as f64, Use::Even);
    let in_turn = |mib, seconds: f64| part(mib, (mib * PAGES_A_MIB) as f64 / seconds, Use::InTurn);
    let zipf = |exponent, order| part(256, 20_000.0, Use::Zipf { exponent, order });
    Ok(match name {
        "zipf-strewn" => vec![zipf(0.9, Order::Strewn)],
        "zipf-together" => vec![zipf(1.0, Order::First)],
        "mix" => vec![hz(64, 1.8), hz(64, 0.1), hz(64, 0.02), in_turn(64, 16.0)],
        "scan" => vec![hz(48, 1.6), in_turn(128, 16.0)],
        "move" => vec![part(256, 20_000.0, Use::Moving), hz(32, 1.2)],
        "daily" => with(Load::Daily, parts("zipf-strewn")?),
        "daily-mix" => with(Load::Daily, parts("mix")?),
        "shift" => vec![zipf(1.0, Order::Shifting)],
        "jobs" => [vec![hz(48, 1.6)], with(Load::Jobs, vec![in_turn(128, 16.0)])].concat(),
        _ => bail!("there is no workload {name}"),
    })
}

/// Touches a second of a workload.
pub fn touches_per_second(name: &str) -> Result<f64> {
    Ok(parts(name)?.iter().map(|p| p.touches).sum())
}

/// The most memory of a workload of steady load that any policy can keep out of memory while `faults` pages a second
/// come back, in bytes. Touches at random do not announce themselves. So a page that is touched at `hz` comes back at
/// `hz` times the share of the time for which it is out, and the best policy keeps the pages of the lowest rates out
/// all the time. A page that is touched once in a period comes back once in a period, if it is ever out.
///
/// # Errors
/// If there is no such workload.
pub fn most_saved(name: &str, mib: u64, faults: f64) -> Result<f64> {
    let parts = parts(name)?;
    let used: u64 = parts.iter().map(|part| part.mib).sum();
    let mut hz: Vec<f64> = parts.iter().flat_map(page_hz).collect();
    hz.sort_by(f64::total_cmp);
    let mut pages = (mib.saturating_sub(used) * PAGES_A_MIB) as f64;
    let mut left = faults;
    for hz in hz {
        pages += (left / hz).clamp(0.0, 1.0);
        left -= hz;
    }
    Ok(pages * PAGE_SIZE as f64)
}

/// How often each page of a part comes back per second if it is always out.
fn page_hz(part: &UsedPart) -> Vec<f64> {
    let pages = part.mib * PAGES_A_MIB;
    match part.by {
        Use::Even | Use::InTurn => vec![part.touches / pages as f64; pages as usize],
        Use::Moving => vec![1.0 / (MOVING_S * 8.0); pages as usize],
        Use::Zipf { exponent, .. } => {
            let shares = (1..=pages).map(|rank| (rank as f64).powf(-exponent));
            let all: f64 = shares.clone().sum();
            shares.map(|share| part.touches * share / all).collect()
        }
    }
}

/// Runs as this process until its standard input ends, if the command line asks for it. Otherwise does nothing.
pub fn run_if_asked() -> Result<()> {
    let Some(mut words) = asked(ARGUMENT)? else { return Ok(()) };
    let name = words.next().context("no workload")?;
    let mut number =
        || -> Result<u64> { Ok(words.next().context("a number is missing")?.parse()?) };
    let (mib, scale) = (number()?, Scale { size: number()?, time: number()? });
    let (send, requests) = mpsc::channel();
    std::thread::spawn(move || {
        for _ in std::io::stdin().lines().map_while(Result::ok) {
            let _ = send.send(());
        }
        std::process::exit(0)
    });
    let parts: Vec<UsedPart> = parts(&name)?.iter().map(|part| scale.part(part)).collect();
    use_memory(&parts, mib * scale.size / 100, scale, &requests)
}

/// What is known of all pages.
struct Truth {
    /// time of the last touch in s, by page
    last: Vec<f32>,
    /// number of touches of pages that were idle for each of [`IDLE_TIMES_S`]
    returned: [u64; IDLE_TIMES_S.len()],
    /// major faults so far, and the time of the touches that had them
    faults: u64,
    stalled: Duration,
}

impl Truth {
    /// Notes how long a touch took. One that takes long may have waited for a page.
    fn waited(&mut self, time: Duration) {
        if time > LONG_TOUCH {
            let faults = own_major_faults();
            if faults > self.faults {
                self.stalled += time;
            }
            self.faults = faults;
        }
    }

    fn touch(&mut self, page: u64, now: f64) {
        let last = std::mem::replace(&mut self.last[page as usize], now as f32);
        let age = now - f64::from(last);
        let counts = self.returned.iter_mut().zip(IDLE_TIMES_S);
        counts.for_each(|(n, least)| *n += u64::from(age >= least as f64));
    }

    /// Idle pages and returned pages, for each of [`IDLE_TIMES_S`].
    fn line(&self, now: f64) -> String {
        let idle = IDLE_TIMES_S.map(|age| {
            let since = (now - age as f64) as f32;
            self.last.iter().filter(|last| **last <= since).count() as u64
        });
        let stalled = u64::try_from(self.stalled.as_micros()).unwrap_or(u64::MAX);
        let all = idle.into_iter().chain(self.returned).chain([stalled]);
        all.map(|n| n.to_string() + " ").collect()
    }
}

fn use_memory(
    parts: &[UsedPart],
    mib: u64,
    scale: Scale,
    requests: &mpsc::Receiver<()>,
) -> Result<()> {
    let memory = Arena::map(mib << 20)?;
    memory.back(AddrRange::new(0, mib << 20), ArenaKind::Base)?;
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
    let pages = (mib * PAGES_A_MIB) as usize;
    let mut truth = Truth {
        last: vec![0.0; pages],
        returned: [0; IDLE_TIMES_S.len()],
        faults: 0,
        stalled: Duration::ZERO,
    };
    loop {
        sleep(TICK);
        let now = begin.elapsed().as_secs_f64();
        for user in &mut users {
            let share = user.part.load.share(scale.usual(now));
            user.due += user.part.touches * share * (now - last);
            while user.due >= 1.0 {
                user.due -= 1.0;
                let page = user.next(&mut random, scale.usual(now));
                let before = Instant::now();
                memory.read(page);
                truth.waited(before.elapsed());
                truth.touch(page, now);
            }
        }
        last = now;
        if requests.try_recv().is_ok() {
            println!("{}", truth.line(now));
        }
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
            Use::Moving => {
                (now / MOVING_S) as u64 % 8 * (pages / 8) + random.next_u64() % (pages / 8)
            }
            Use::Zipf { order, .. } => {
                let all = self.sums.last().copied().unwrap_or(1.0);
                let at = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64 * all;
                let rank = self.sums.partition_point(|sum| *sum < at) as u64;
                // Multiplication by an odd number permutes the pages of a power of two.
                match order {
                    Order::Strewn => rank.wrapping_mul(0x9E37_79B1) % pages,
                    Order::First => rank,
                    Order::Shifting => (rank + (now / 600.0) as u64 % 4 * (pages / 4)) % pages,
                }
            }
        };
        self.first + page.min(pages - 1)
    }
}

/// The process, killed when dropped.
#[derive(Debug)]
pub struct User(Helper);

/// The truth about a [`User`] for each of [`IDLE_TIMES_S`], in bytes.
#[derive(Debug, Clone, Copy)]
pub struct IdleBytes {
    /// idle for so long
    pub idle: [f64; IDLE_TIMES_S.len()],
    /// touched after so long, since the start
    pub returned: [f64; IDLE_TIMES_S.len()],
    /// time for which its touches have waited for pages, since the start
    pub stalled: Duration,
}

impl User {
    /// Starts this program again as the workload `name`, with `mib` MiB.
    pub fn start(name: &str, mib: u64) -> Result<Self> {
        User::start_scaled(name, mib, Scale::default())
    }

    /// The same, larger or slower.
    pub fn start_scaled(name: &str, mib: u64, scale: Scale) -> Result<Self> {
        let numbers = [mib, scale.size, scale.time].map(|n| n.to_string());
        let args = std::iter::once(name.to_owned()).chain(numbers);
        Ok(User(Helper::again(ARGUMENT, args)?))
    }

    /// Its pid.
    pub fn pid(&self) -> i32 {
        self.0.pid()
    }

    /// How much of its memory is idle, and was touched after it was idle.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn idle(&mut self) -> Result<IdleBytes> {
        let line = self.0.ask("")?;
        let counts = line.split_whitespace().map(str::parse::<u64>);
        let mut counts = counts.collect::<Result<Vec<u64>, _>>()?;
        let stalled = Duration::from_micros(counts.pop().context("no answer")?);
        let bytes: Vec<f64> = counts.into_iter().map(|n| (n * PAGE_SIZE) as f64).collect();
        let (idle, returned) = bytes.split_at(bytes.len() / 2);
        Ok(IdleBytes { idle: idle.try_into()?, returned: returned.try_into()?, stalled })
    }

    /// Its major faults since the start.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn major_faults(&self) -> Result<u64> {
        Ok(usage::of(self.pid())?.major_faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_that_can_be_saved() {
        let mib = |name, mib, faults| most_saved(name, mib, faults).unwrap() / f64::from(1 << 20);
        // 64 MiB are unused, and all of the 64 MiB at 0.02 Hz come back 16384 x 0.02 = 327.68 times a second.
        assert_eq!(mib("mix", 320, 0.0), 64.0);
        assert!((mib("mix", 320, 32.768) - 70.4).abs() < 1e-6);
        assert!((mib("mix", 320, 327.68) - 128.0).abs() < 1e-6);
        // Of 128 MiB that are passed through in 16 s, 4 pages a second are 64 pages.
        assert!((mib("scan", 256, 4.0) - 80.25).abs() < 1e-6);
        // The rarest page of 65536 by a zipf law of 1 is touched at 20000 / 11.667 / 65536 = 0.026 Hz.
        assert!((mib("zipf-together", 320, 0.026) - 64.0).abs() < 1.01 / 256.0);
        assert!(mib("zipf-together", 320, 1e9) > 319.9);
    }
}
