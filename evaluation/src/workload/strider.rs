//! Memory of which every `step`-th page is touched at random. If all pages are touched, huge pages are a
//! gain; if few are, they are a waste.

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context, Result};
use isotherm_core::PAGE_SIZE;
use isotherm_linux::sys::Arena;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::counted::CountedProcess;
use super::counting::{CountingProcess, TouchCount};
use super::{Contents, Running, Workload};
use crate::stop::Stop;

/// The argument with which the bench starts itself as this process.
const ARGUMENT: &str = "--be-the-strider";
/// Touches between two reports.
const BATCH_TOUCHES: u64 = 1 << 18;
/// Words per page.
const WORDS: usize = PAGE_SIZE as usize / size_of::<u64>();

/// The workload.
#[derive(Debug, Clone, Copy)]
pub struct Strider {
    /// size of all its memory
    pub bytes: u64,
    /// of this many pages the first is touched
    pub step: u64,
}

impl Workload for Strider {
    fn name(&self) -> &str {
        if self.step == 1 { "huge-gain" } else { "huge-waste" }
    }

    fn memory(&self) -> u64 {
        self.bytes
    }

    /// It has a twin without huge pages, for which the setting of huge pages makes no difference.
    fn start(&self, place: &Path, stop: &Stop) -> Result<Box<dyn Running>> {
        let words = [ARGUMENT, &self.bytes.to_string(), &self.step.to_string()];
        let start =
            |place: &Path, huge| CountingProcess::start(self.name(), &words, place, huge, stop);
        Ok(Box::new(CountedProcess::start(place, true, start)?))
    }
}

/// If the command line requests it, touches memory until killed. Does nothing otherwise.
pub fn run_if_asked() -> Result<()> {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() != Some(ARGUMENT) {
        return Ok(());
    }
    let mut number = || -> Result<u64> { Ok(words.next().context("no number")?.parse()?) };
    let (bytes, step) = (number()?, number()?.max(1));
    let memory = Arena::map(bytes)?;
    let pages = bytes / PAGE_SIZE;
    let mut contents = Contents::new(step);
    (0..pages).step_by(usize::try_from(step)?).for_each(|page| fill(&memory, page, &mut contents));
    let mut count = TouchCount::new()?;
    count.add(0)?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(bytes);
    let touched = pages.div_ceil(step).max(1);
    let words_of_memory = memory.words();
    loop {
        for _ in 0..BATCH_TOUCHES {
            let drawn = random.next_u64();
            let word = (drawn % touched * step) as usize * WORDS + (drawn >> 48) as usize % WORDS;
            std::hint::black_box(words_of_memory.get(word).map(|w| w.load(Relaxed)));
        }
        count.add(BATCH_TOUCHES)?;
    }
}

fn fill(memory: &Arena, page: u64, contents: &mut Contents) {
    let words = memory.words();
    let first = usize::try_from(page).unwrap_or(usize::MAX).saturating_mul(WORDS);
    let mut bytes = [0; PAGE_SIZE as usize];
    contents.fill(&mut bytes);
    let values = bytes.chunks_exact(8).map(|c| c.try_into().map_or(0, u64::from_ne_bytes));
    let place = words.get(first..first + WORDS).unwrap_or_default();
    place.iter().zip(values).for_each(|(word, value)| {
        word.store(value, Relaxed);
    });
}
