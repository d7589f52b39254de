//! A process whose memory becomes idle stretch by stretch, and that records the last touch of each page.

use std::io::{BufRead, Read, Write};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use isotherm_core::{AddrRange, PAGE_SIZE};
use isotherm_linux::sys::{self, Arena, ArenaKind};

use crate::program::{Helper, asked};

/// The argument with which a bench starts itself as this process.
const ARGUMENT: &str = "--be-the-fading";
/// Interval between touches of memory that is not idle yet.
const TOUCH_INTERVAL: Duration = Duration::from_millis(200);

/// Runs as this process until its standard input ends, if the command line asks for it. Otherwise does nothing.
pub fn run_if_asked() -> Result<()> {
    let Some(mut words) = asked(ARGUMENT)? else { return Ok(()) };
    let pages: u64 = words.next().context("no pages")?.parse()?;
    let ends = words.map(|ms| Ok(Duration::from_millis(ms.parse()?))).collect::<Result<_>>()?;
    fade(pages, ends)?;
    std::process::exit(0)
}

/// `ends`: from when on each stretch of `pages` pages is idle.
fn fade(pages: u64, ends: Vec<Duration>) -> Result<()> {
    let all = pages * ends.len() as u64;
    let memory = Arena::map(all * PAGE_SIZE)?;
    memory.back(AddrRange::new(0, all * PAGE_SIZE), ArenaKind::Base)?;
    (0..all).for_each(|page| memory.write(page));
    let mut out = std::io::stdout();
    writeln!(out, "{}", memory.range().start)?;
    let mut input = std::io::stdin().lock();
    input.read_line(&mut String::new())?;
    let mut last = vec![0; usize::try_from(all)?];
    let begin = Instant::now();
    while ends.iter().any(|end| *end > begin.elapsed()) {
        let stretches = ends.iter().zip(last.chunks_mut(usize::try_from(pages)?)).zip(0..);
        for ((_, times), i) in stretches.filter(|((end, _), _)| **end > begin.elapsed()) {
            for (time, page) in times.iter_mut().zip(i * pages..) {
                memory.read(page);
                *time = sys::monotonic().0;
            }
        }
        sleep(TOUCH_INTERVAL);
    }
    out.write_all(&last.iter().flat_map(|t: &u64| t.to_ne_bytes()).collect::<Vec<u8>>())?;
    out.flush()?;
    // The memory stays until the parent writes a line or closes the pipe.
    input.read_line(&mut String::new())?;
    Ok(())
}

/// The process, killed when dropped.
#[derive(Debug)]
pub struct Fading {
    process: Helper,
    range: AddrRange,
}

impl Fading {
    /// Starts this program again, with a stretch of `pages` pages for each of `ends`. A stretch becomes idle at
    /// that time after [`Fading::begin`].
    pub fn start(pages: u64, ends: &[Duration]) -> Result<Self> {
        let ends_ms = ends.iter().map(|end| end.as_millis().to_string());
        let words = std::iter::once(pages.to_string()).chain(ends_ms);
        let mut process = Helper::again(ARGUMENT, words)?;
        let start: u64 = process.line()?.parse()?;
        let range = AddrRange::new(start, start + pages * ends.len() as u64 * PAGE_SIZE);
        Ok(Fading { process, range })
    }

    /// Its pid.
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// All its memory.
    pub fn range(&self) -> AddrRange {
        self.range
    }

    /// Starts the clock of `ends`.
    pub fn begin(&mut self) -> Result<()> {
        self.process.tell("begin")
    }

    /// When each page was touched last, in ns of the monotonic clock. Waits until all is idle.
    pub fn last_touches(&mut self) -> Result<Vec<u64>> {
        let mut bytes = vec![0; usize::try_from(self.range.len() / PAGE_SIZE * 8)?];
        self.process.from.read_exact(&mut bytes).context("the process that fades has ended")?;
        let (words, rest) = bytes.as_chunks();
        ensure!(rest.is_empty(), "half a number");
        Ok(words.iter().map(|&word| u64::from_ne_bytes(word)).collect())
    }
}
