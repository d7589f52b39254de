//! Ctrl-C: all that waits asks for it, so that what was changed is put back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use isotherm_linux::sys::is_ignored;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

const POLL: Duration = Duration::from_millis(50);

/// Whether a signal has come.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// From now on a signal ends nothing by itself. One that is ignored stays so: that is what `nohup` is
    /// for.
    ///
    /// # Errors
    /// If signals cannot be caught.
    pub fn at_signals() -> Result<Self> {
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|&s| !is_ignored(s)) {
            signal_hook::flag::register(signal, Arc::clone(&stop.0))?;
        }
        Ok(stop)
    }

    /// Whether one has come.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// That none has come.
    ///
    /// # Errors
    /// If one has.
    pub fn check(&self) -> Result<()> {
        if self.is_over() {
            bail!("stopped by a signal");
        }
        Ok(())
    }

    /// Sleeps.
    ///
    /// # Errors
    /// If a signal comes meanwhile.
    pub fn sleep(&self, length: Duration) -> Result<()> {
        self.until(length, || Ok(false)).map(drop)
    }

    /// Waits until something is so, and says whether it is; at most for so long.
    ///
    /// # Errors
    /// If a signal comes meanwhile, or it cannot be told.
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
