//! The random numbers of one trial.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Random numbers that depend only on the seed of the campaign and on the number of the trial, so that any trial
/// can be repeated alone.
pub struct Random {
    trial: u64,
    generator: Xoshiro256PlusPlus,
}

impl Random {
    pub fn new(seed: u64, trial: u64) -> Self {
        let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(trial);
        Random { trial, generator: Xoshiro256PlusPlus::seed_from_u64(mixed) }
    }

    /// The number of the trial.
    pub fn trial(&self) -> u64 {
        self.trial
    }

    /// A number from 0 to `end`, exclusive. `end` must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.generator.next_u64() % end as u64).unwrap_or_default()
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}
