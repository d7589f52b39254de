//! Contents of memory. They compress about 3:1, as memory of real programs does.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Number of random bytes per 100 bytes.
const RANDOM_BYTES: usize = 28;
const PATTERN: &[u8] = b"isotherm ";

/// Makes values, which depend only on the seed.
#[derive(Debug)]
pub struct Contents(Xoshiro256PlusPlus);

impl Contents {
    /// From this seed on.
    pub fn new(seed: u64) -> Self {
        Contents(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Fills a value: random bytes, then a pattern over and over.
    pub fn fill(&mut self, value: &mut [u8]) {
        let (random, rest) = value.split_at_mut(value.len() * RANDOM_BYTES / 100);
        self.0.fill_bytes(random);
        rest.iter_mut().zip(PATTERN.iter().cycle()).for_each(|(to, from)| *to = *from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_alike_and_a_seed_tells_all() {
        let mut contents = Contents::new(1);
        let mut next = || {
            let mut value = [0; 1000];
            contents.fill(&mut value);
            value
        };
        let (a, b) = (next(), next());
        assert_ne!(a[..280], b[..280]);
        assert_eq!(a[280..], b[280..]);
        let mut again = [0; 1000];
        Contents::new(1).fill(&mut again);
        assert_eq!(a, again);
    }
}
