//! Ctrl-C. All code that waits checks for it, so that changes of the machine are restored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use isotherm_linux::sys::is_ignored;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

const POLL: Duration = Duration::from_millis(50);

/// Whether a signal has arrived.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// From now on a signal does not end the process by itself. An ignored signal stays ignored, as `nohup`
    /// intends.
    pub fn at_signals() -> Result<Self> {
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|&s| !is_ignored(s)) {
            signal_hook::flag::register(signal, Arc::clone(&stop.0))?;
        }
        Ok(stop)
    }

    /// Whether a signal has arrived.
    pub fn is_over(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Checks that no signal has arrived.
    pub fn check(&self) -> Result<()> {
        if self.is_over() {
            bail!("stopped by a signal");
        }
        Ok(())
    }

    /// Sleeps.
    pub fn sleep(&self, length: Duration) -> Result<()> {
        self.until(length, || Ok(false)).map(drop)
    }

    /// Waits until a condition holds, at most for `most`. Returns whether it holds.
    pub fn until(&self, most: Duration, mut is_so: impl FnMut() -> Result<bool>) -> Result<bool> {
        let begin = Instant::now();
        loop {
            self.check()?;
            if is_so()? {
                return Ok(true);
            }
            let left = most.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            std::thread::sleep(left.min(POLL));
        }
    }
}
