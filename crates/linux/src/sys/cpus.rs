//! The number of CPUs.

use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use isotherm_core::Nanos;

use super::monotonic;

/// CPUs come and go only by hand, and the C library reads a file to count them.
const COUNTED_EVERY: Duration = Duration::from_secs(10);

/// The number of online CPUs, at least one. At most 10 s old.
#[must_use]
pub fn online_cpus() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    static COUNTED: AtomicU64 = AtomicU64::new(0);
    let now = monotonic();
    if COUNT.load(Relaxed) == 0 || now.since(Nanos(COUNTED.load(Relaxed))) >= COUNTED_EVERY {
        COUNT.store(count(), Relaxed);
        COUNTED.store(now.0, Relaxed);
    }
    COUNT.load(Relaxed)
}

/// The numbers of the online CPUs; of CPU 0 if the kernel does not list them.
#[must_use]
pub fn online_cpu_list(root: &Path) -> Vec<i32> {
    let text = std::fs::read_to_string(root.join("sys/devices/system/cpu/online"));
    let list = parse_list(text.unwrap_or_default().trim());
    if list.is_empty() { vec![0] } else { list }
}

/// Parses ranges such as `0-3,8`. What cannot be parsed is left out.
fn parse_list(text: &str) -> Vec<i32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<i32>().ok()?..=last.parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

fn count() -> u32 {
    // SAFETY: the call accesses no memory.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u32::try_from(cpus).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(parse_list("0-3,8,10-11"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse_list(""), [0; 0]);
        let own = online_cpu_list("/".as_ref());
        assert_eq!(u32::try_from(own.len()), Ok(online_cpus()));
    }
}
