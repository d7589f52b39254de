//! How fast the time stamp counter runs.

use std::arch::x86_64::_rdtsc;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Long enough for an error of a few in ten thousand.
const SPAN: Duration = Duration::from_millis(100);
/// Between two readings of the clock, where nobody has interrupted us.
const TIGHT: Duration = Duration::from_micros(20);
/// Attempts to read the clock and the counter at once.
const ATTEMPTS: u32 = 1000;

/// In kHz. The emulator hands its counter on to guests, whose kernels take its speed from other
/// emulated clocks: on a machine that is busy, wrong by a factor of ten.
pub static KHZ: LazyLock<u64> = LazyLock::new(measured);

fn measured() -> u64 {
    let (begin, first) = at_once();
    std::thread::sleep(SPAN);
    let (end, last) = at_once();
    let nanos = end.duration_since(begin).as_nanos().max(1);
    u64::try_from(u128::from(last.saturating_sub(first)) * 1_000_000 / nanos).unwrap_or(u64::MAX)
}

/// The clock and the counter.
fn at_once() -> (Instant, u64) {
    let read = || {
        // SAFETY: all x86-64 have it, and no kernel that people have forbids it.
        (Instant::now(), unsafe { _rdtsc() }, Instant::now())
    };
    let mut readings = (0..ATTEMPTS).map(|_| read());
    let tight = readings.find(|(before, _, after)| *after - *before < TIGHT);
    let (before, ticks, _) = tight.unwrap_or_else(read);
    (before, ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_measurements_agree() {
        let (a, b) = (measured(), measured());
        assert!(a.abs_diff(b) < a / 100, "{a} {b}");
        assert!(a > 100_000, "{a} kHz");
    }
}
