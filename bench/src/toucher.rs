//! A process that touches pages on request, and keeps a CPU busy otherwise.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use isotherm_core::{AddrRange, PAGE_SIZE};
use isotherm_linux::sys::{Arena, ArenaKind};

use crate::program::{Helper, asked};

/// The argument with which a bench starts itself as this process.
const ARGUMENT: &str = "--be-the-toucher";

/// The work of the thread that keeps a CPU busy. 0: only that; [`REST`]: nothing at all; any other number: it
/// also reads every page whose number is a multiple of it.
static STEP: AtomicU64 = AtomicU64::new(0);
const REST: u64 = u64::MAX;
/// The longest time of one touch by that thread, in ns.
static MAX_TOUCH_NS: AtomicU64 = AtomicU64::new(0);

/// If the command line requests it, executes orders until its standard input ends. Does nothing otherwise.
pub fn run_if_asked() -> Result<()> {
    let Some(mut words) = asked(ARGUMENT)? else { return Ok(()) };
    let len: u64 = words.next().context("no size")?.parse()?;
    let backing = match words.next().as_deref() {
        Some("huge") => Some(ArenaKind::Huge),
        Some("small") => Some(ArenaKind::Base),
        _ => None,
    };
    let memory: &'static Arena = Box::leak(Box::new(Arena::map(len)?));
    if let Some(backing) = backing {
        memory.back(AddrRange::new(0, len), backing)?;
    }
    (0..len / PAGE_SIZE).for_each(|page| memory.write(page));
    std::thread::spawn(|| keep_busy(memory));
    answer(memory.range().start)?;
    for line in std::io::stdin().lines() {
        let line = line?;
        let mut words = line.split(' ');
        let order = words.next().unwrap_or_default();
        let mut number =
            || words.next().context("a number is missing")?.parse::<u64>().context("no number");
        answer(match order {
            "touch" => {
                let (pages, step) = (number()?, number()?);
                (0..pages).for_each(|i| memory.read(i * step));
                0
            }
            "keep-touching" => {
                STEP.store(number()?, Relaxed);
                0
            }
            "longest" => MAX_TOUCH_NS.swap(0, Relaxed),
            "words" => wrong_words(memory, number()?),
            other => bail!("no such order: {other}"),
        })?;
    }
    std::process::exit(0)
}

fn keep_busy(memory: &Arena) -> ! {
    let pages = memory.range().len() / PAGE_SIZE;
    loop {
        match STEP.load(Relaxed) {
            0 => std::hint::spin_loop(),
            REST => std::thread::sleep(Duration::from_millis(1)),
            step => {
                let mut last = Instant::now();
                for page in (0..pages).step_by(usize::try_from(step).unwrap_or(1)) {
                    memory.read(page);
                    let now = Instant::now();
                    let took = u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX);
                    MAX_TOUCH_NS.fetch_max(took, Relaxed);
                    last = now;
                }
            }
        }
    }
}

/// Writes all words. In each of `rounds` rounds checks them and writes others. Returns the number of wrong
/// words.
fn wrong_words(memory: &Arena, rounds: u64) -> u64 {
    STEP.store(REST, Relaxed);
    let expected =
        |i: usize, round: u64| (i as u64 ^ round << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let words = memory.words();
    words.iter().enumerate().for_each(|(i, word)| word.store(expected(i, 0), Relaxed));
    (1..=rounds)
        .flat_map(|round| words.iter().enumerate().map(move |(i, word)| (round, i, word)))
        .filter(|&(round, i, word)| {
            word.swap(expected(i, round), Relaxed) != expected(i, round - 1)
        })
        .count() as u64
}

fn answer(value: u64) -> Result<()> {
    println!("{value}");
    Ok(std::io::stdout().flush()?)
}

/// The process, killed when dropped.
#[derive(Debug)]
pub struct Toucher {
    process: Helper,
    range: AddrRange,
}

impl Toucher {
    /// Starts this program again, with `len` bytes of memory: in huge pages, in base pages, or by the setting
    /// of the machine.
    pub fn start(len: u64, huge: Option<bool>) -> Result<Self> {
        let kind = huge.map_or("plain", |huge| if huge { "huge" } else { "small" });
        let mut process = Helper::again(ARGUMENT, [len.to_string().as_str(), kind])?;
        let start: u64 = process.line()?.parse()?;
        Ok(Toucher { process, range: AddrRange::new(start, start + len) })
    }

    /// Its pid.
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// The addresses of its memory.
    pub fn range(&self) -> AddrRange {
        self.range
    }

    /// Makes it touch `pages` pages, from the first on, every `step`-th.
    pub fn touch(&mut self, pages: u64, step: u64) -> Result<()> {
        self.process.ask(&format!("touch {pages} {step}")).map(drop)
    }

    /// Makes it touch every `step`-th page repeatedly, in addition to its other work.
    pub fn keep_touching(&mut self, step: u64) -> Result<()> {
        self.process.ask(&format!("keep-touching {step}")).map(drop)
    }

    /// Makes it touch nothing until the next order.
    pub fn rest(&mut self) -> Result<()> {
        self.keep_touching(REST)
    }

    /// The longest time of one of these touches since the last request.
    pub fn longest(&mut self) -> Result<Duration> {
        Ok(Duration::from_nanos(self.process.ask("longest")?.parse()?))
    }

    /// Makes it check and rewrite all words of its memory, `rounds` times. Returns the number of wrong words.
    pub fn wrong_words(&mut self, rounds: u64) -> Result<u64> {
        Ok(self.process.ask(&format!("words {rounds}"))?.parse()?)
    }
}
