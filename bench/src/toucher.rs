//! A process of its own that touches the pages it is told to, and keeps a CPU busy meanwhile.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result};
use isotherm_core::{AddrRange, PAGE_SIZE};
use isotherm_linux::sys::{Arena, Backing};
use rustix::process::{Signal, set_parent_process_death_signal};

/// The word by which a bench starts itself as this.
const ARGUMENT: &str = "--be-the-toucher";

/// Does as it is told until its standard input ends, if the command line asks for that. Nothing
/// happens otherwise.
///
/// # Errors
/// If there is no memory, or an order makes no sense.
pub fn run_if_asked() -> Result<()> {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() != Some(ARGUMENT) {
        return Ok(());
    }
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let len: u64 = words.next().context("no size")?.parse()?;
    let backing =
        if words.next().as_deref() == Some("huge") { Backing::Huge } else { Backing::Base };
    let memory = Arena::map(len)?;
    memory.back(AddrRange::new(0, len), backing)?;
    (0..len / PAGE_SIZE).for_each(|page| memory.write(page));
    std::thread::spawn(|| {
        loop {
            std::hint::spin_loop();
        }
    });
    answer(memory.range().start)?;
    for line in std::io::stdin().lines() {
        let line = line?;
        let mut numbers = line.split(' ').map(str::parse);
        let mut number = || numbers.next().context("a number is missing")?.context("no number");
        let (pages, step): (u64, u64) = (number()?, number()?);
        (0..pages).for_each(|i| memory.read(i * step));
        answer(0)?;
    }
    std::process::exit(0)
}

fn answer(value: u64) -> Result<()> {
    println!("{value}");
    Ok(std::io::stdout().flush()?)
}

/// The process, killed when dropped.
#[derive(Debug)]
pub struct Toucher {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    range: AddrRange,
}

impl Toucher {
    /// Starts this very program again, with `len` bytes of memory, of huge pages or of small ones.
    ///
    /// # Errors
    /// If that fails.
    pub fn start(len: u64, huge: bool) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([ARGUMENT, &len.to_string(), if huge { "huge" } else { "small" }])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let to = child.stdin.take().context("no standard input")?;
        let from = BufReader::new(child.stdout.take().context("no standard output")?);
        let mut toucher = Toucher { child, to, from, range: AddrRange::default() };
        let start = toucher.answer()?;
        toucher.range = AddrRange::new(start, start + len);
        Ok(toucher)
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(0)
    }

    /// All its memory.
    #[must_use]
    pub fn range(&self) -> AddrRange {
        self.range
    }

    /// Has it touch so many pages, from the first on, each `step`-th.
    ///
    /// # Errors
    /// If it has ended.
    pub fn touch(&mut self, pages: u64, step: u64) -> Result<()> {
        writeln!(self.to, "{pages} {step}")?;
        self.answer().map(drop)
    }

    fn answer(&mut self) -> Result<u64> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        line.trim().parse().context("the process that touches pages has ended")
    }
}

impl Drop for Toucher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
