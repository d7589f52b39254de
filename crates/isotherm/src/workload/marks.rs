//! Marks in each page, to check that no contents are lost when another party moves the pages.

use std::sync::atomic::{AtomicU64, Ordering};

use isotherm_core::PAGE_SIZE;
use isotherm_linux::sys::Arena;

use super::WorkloadRunError;

/// Words per page.
const WORDS: usize = PAGE_SIZE as usize / size_of::<u64>();

/// Writes the number of each page to its last word. Touches use the first byte.
pub fn mark(arena: &Arena) {
    last_words(arena).for_each(|(page, word)| word.store(page, Ordering::Relaxed));
}

/// Checks that all pages still hold their numbers.
pub fn check(arena: &Arena) -> Result<(), WorkloadRunError> {
    let wrong = last_words(arena).filter(|(page, word)| word.load(Ordering::Relaxed) != *page);
    let wrong = wrong.count();
    if wrong == 0 { Ok(()) } else { Err(WorkloadRunError::Lost(wrong)) }
}

/// The last word of each page, and its expected value: pages are numbered from 1.
fn last_words(arena: &Arena) -> impl Iterator<Item = (u64, &AtomicU64)> {
    (1..).zip(arena.words().iter().skip(WORDS - 1).step_by(WORDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_lost_or_exchanged_show() {
        let arena = Arena::map(8 * PAGE_SIZE).unwrap();
        assert!(check(&arena).unwrap_err().to_string().contains("8 pages"));
        mark(&arena);
        (0..8).for_each(|page| arena.write(page));
        check(&arena).unwrap();
        let word = |page: usize| &arena.words()[page * WORDS + WORDS - 1];
        let first = word(0).swap(word(7).load(Ordering::Relaxed), Ordering::Relaxed);
        word(7).store(first, Ordering::Relaxed);
        assert!(check(&arena).unwrap_err().to_string().contains("2 pages"));
    }
}
