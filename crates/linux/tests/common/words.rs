//! Words with known values, which are checked and rewritten repeatedly.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

static WRONG: AtomicU64 = AtomicU64::new(0);
static CHECKING: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

/// The value of word `i` after `round` rounds.
fn expected(i: u64, round: u64) -> u64 {
    (i ^ round << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Writes all words of `pages` pages. In each of `rounds` rounds checks them and writes others, in a thread
/// of its own.
pub fn start(start: u64, pages: u64, rounds: u64) -> u64 {
    let checking = std::thread::spawn(move || {
        let word = |i: u64| (start + i * 8) as *mut u64;
        let words = pages * 512;
        (0..words).for_each(|i| unsafe { word(i).write_volatile(expected(i, 0)) });
        for round in 1..=rounds {
            for i in 0..words {
                if unsafe { word(i).read_volatile() } != expected(i, round - 1) {
                    WRONG.fetch_add(1, Ordering::Relaxed);
                }
                unsafe { word(i).write_volatile(expected(i, round)) };
            }
        }
    });
    *CHECKING.lock().unwrap() = Some(checking);
    0
}

/// The number of wrong words plus one, once it has finished; 0 before.
pub fn wrong() -> u64 {
    let mut checking = CHECKING.lock().unwrap();
    match checking.take_if(|c| c.is_finished()) {
        Some(done) => {
            done.join().unwrap();
            WRONG.load(Ordering::Relaxed) + 1
        }
        None => 0,
    }
}
