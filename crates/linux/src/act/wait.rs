//! The wait for touches before an action.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::proc::{ThreadTime, is_runnable, threads};

/// Threads of a process that the wait considers.
const MAX_THREADS: usize = 64;
/// After so many intervals isotherm no longer waits for a thread that does not run.
const MAX_INTERVALS: u32 = 10;

/// Times between looks, in eighths of the interval. The remaining eighths follow the last look.
const LOOKS_AT_EIGHTHS: [u32; 2] = [1, 3];

/// Waits for `interval`. Waits again if a thread of `pids` was ready to run but did not run during the whole
/// interval: the memory it uses would look idle. Calls `look` in between, because kswapd and others clear
/// bits without a TLB flush.
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
            .flat_map(|&p| threads(root, p, MAX_THREADS).into_iter().map(move |t| (p, t)))
            .collect()
    };
    let mut before = times();
    for _ in 0..MAX_INTERVALS {
        for eighths in LOOKS_AT_EIGHTHS {
            sleep(interval / 8 * eighths);
            look()?;
        }
        sleep(interval / 8 * (8 - LOOKS_AT_EIGHTHS.iter().sum::<u32>()));
        let now = times();
        let stood = before.iter().filter(|thread| now.contains(thread));
        if !stood.into_iter().any(|(pid, t)| is_runnable(root, *pid, t.tid)) {
            break;
        }
        before = now;
    }
    Ok(())
}
