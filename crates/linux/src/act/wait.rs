//! Waiting for touches.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::proc::{ThreadTime, is_runnable, threads};

/// Threads of a process that are looked at.
const THREADS: usize = 64;
/// Who does not get to run in so many intervals is not waited for any longer.
const INTERVALS: u32 = 10;

/// When is looked in between, in eighths of the interval since the last time; the rest follows.
const LOOKS: [u32; 2] = [1, 3];

/// Waits for `interval`, and again if in all of that time a thread of `pids` that wanted to run did not
/// get to: what it uses would look idle. Has somebody `look` in between: others clear bits, and flush no
/// TLB.
///
/// # Errors
/// That of `look`.
pub(super) fn wait<E>(
    root: &Path,
    pids: &[i32],
    interval: Duration,
    mut look: impl FnMut() -> Result<(), E>,
) -> Result<(), E> {
    let times = || -> Vec<(i32, ThreadTime)> {
        pids.iter()
            .flat_map(|&p| threads(root, p, THREADS).into_iter().map(move |t| (p, t)))
            .collect()
    };
    let mut before = times();
    for _ in 0..INTERVALS {
        for eighths in LOOKS {
            sleep(interval / 8 * eighths);
            look()?;
        }
        sleep(interval / 8 * (8 - LOOKS.iter().sum::<u32>()));
        let now = times();
        let stood = before.iter().filter(|thread| now.contains(thread));
        if !stood.into_iter().any(|(pid, t)| is_runnable(root, *pid, t.tid)) {
            break;
        }
        before = now;
    }
    Ok(())
}
