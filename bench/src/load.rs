//! A process of its own that touches memory in a known way.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use isotherm_core::{AddrRange, PAGE_SIZE};

const MIB: u64 = 1 << 20;
/// The memory of the process, and its parts as offsets.
pub const TOTAL: u64 = 1024 * MIB;
/// Touched over and over. Begins at an odd page, so that nothing is right by alignment.
pub const HOT: AddrRange =
    AddrRange { start: 250 * MIB + 3 * PAGE_SIZE, end: 314 * MIB + 3 * PAGE_SIZE };
/// Touched once a second.
pub const WARM: AddrRange = AddrRange { start: 600 * MIB + PAGE_SIZE, end: 728 * MIB + PAGE_SIZE };

/// The word by which a bench starts itself as the load.
pub const ARGUMENT: &str = "--be-the-load";

/// Touches `HOT` without pause and `WARM` once a second, until killed; says first where its memory
/// is. The counter printed to the end of a line each second is the sweeps over `HOT` so far.
///
/// # Errors
/// If standard output is gone.
pub fn run() -> Result<()> {
    let len = usize::try_from(TOTAL)?;
    let mut memory = vec![0u8; len + 4096];
    let start = memory.as_ptr().align_offset(4096);
    let memory = &mut memory[start..start + len];
    touch(memory, AddrRange::new(0, TOTAL));
    println!("{:x}", memory.as_ptr() as usize);
    std::io::stdout().flush()?;
    let mut sweeps = 0u64;
    let mut next_warm = Instant::now();
    loop {
        touch(memory, HOT);
        sweeps += 1;
        if Instant::now() >= next_warm {
            touch(memory, WARM);
            next_warm += Duration::from_secs(1);
            println!("{sweeps}");
        }
    }
}

fn touch(memory: &mut [u8], range: AddrRange) {
    let (start, end) = (range.start as usize, range.end as usize);
    for byte in memory[start..end].iter_mut().step_by(4096) {
        *byte = std::hint::black_box(byte.wrapping_add(1));
    }
}

/// The load as a child process, killed when dropped.
#[derive(Debug)]
pub struct Load {
    child: Child,
    base: u64,
}

impl Load {
    /// Starts this very program again as the load and waits until its memory is there.
    ///
    /// # Errors
    /// If that fails.
    pub fn start() -> Result<Self> {
        let me = std::env::current_exe()?;
        let mut child = Command::new(me).arg(ARGUMENT).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let out = child.stdout.as_mut().context("no standard output")?;
        BufReader::with_capacity(64, out).read_line(&mut line)?;
        let base = u64::from_str_radix(line.trim(), 16).context("the load said no address")?;
        Ok(Load { child, base })
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(0)
    }

    /// A part of its memory, as addresses.
    #[must_use]
    pub fn at(&self, part: AddrRange) -> AddrRange {
        AddrRange::new(self.base + part.start, self.base + part.end)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
