//! Contents of memory before it is touched. They compress about 3:1, as memory of real programs does, so that
//! the size of compressed swap is realistic.

use std::sync::atomic::Ordering;

use isotherm_core::PAGE_SIZE;
use isotherm_linux::sys::{Arena, ArenaKind};
use isotherm_sim::workload::{MemoryKind, WorkloadLayout};

use super::WorkloadRunError;
use super::marks::mark;

/// Words per page.
const WORDS: usize = PAGE_SIZE as usize / size_of::<u64>();
/// Number of random words per page; the others are zero.
const RANDOM_WORDS: usize = 150;

/// Maps all memory, and writes to each page.
///
/// # Errors
/// If it cannot be mapped.
pub fn populated(layout: &WorkloadLayout, seed: u64) -> Result<Arena, WorkloadRunError> {
    let too_big = |e| WorkloadRunError::Map(layout.len() >> 20, e);
    let arena = Arena::map(layout.len()).map_err(too_big)?;
    for (range, memory) in layout.mappings() {
        let backing = match memory {
            MemoryKind::Base => ArenaKind::Base,
            MemoryKind::Huge => ArenaKind::Huge,
            MemoryKind::Shared => ArenaKind::Inherited,
        };
        arena.back(range, backing).map_err(WorkloadRunError::Backing)?;
    }
    fill(&arena, seed);
    (0..layout.len() / PAGE_SIZE).for_each(|page| arena.write(page));
    mark(&arena);
    Ok(arena)
}

/// Fills all pages.
fn fill(arena: &Arena, seed: u64) {
    for (page, words) in (0u64..).zip(arena.words().chunks(WORDS)) {
        let numbers = (page * WORDS as u64..).map(|i| mixed(seed ^ i));
        words
            .iter()
            .take(RANDOM_WORDS)
            .zip(numbers)
            .for_each(|(word, n)| word.store(n, Ordering::Relaxed));
    }
}

/// A pseudo-random number: the finalizer of `SplitMix64` (Steele, Lea and Flood 2014).
fn mixed(number: u64) -> u64 {
    let z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn less_than_a_third_is_random_and_no_two_pages_are_alike() {
        let arena = Arena::map(16 * PAGE_SIZE).unwrap();
        fill(&arena, 1);
        let words: Vec<u64> = arena.words().iter().map(|w| w.load(Ordering::Relaxed)).collect();
        let distinct: BTreeSet<u64> = words.iter().copied().filter(|w| *w != 0).collect();
        assert_eq!(distinct.len(), 16 * RANDOM_WORDS);
        let ones: u32 = distinct.iter().map(|w| w.count_ones()).sum();
        assert!((28..36).contains(&(ones / distinct.len() as u32)), "{ones} bits are set");
    }
}
