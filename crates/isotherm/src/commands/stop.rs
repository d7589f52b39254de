//! What ends a command from outside: its time, or a signal.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Result;
use isotherm_core::Nanos;
use isotherm_linux::sys;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Tells when it is over.
pub struct Stop {
    end: Option<Nanos>,
    /// the last signal; none yet is 0
    signal: Arc<AtomicUsize>,
    /// SIGHUP has come, where that is no end
    reload: Arc<AtomicBool>,
}

/// Why it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    Duration,
    Signal(i32),
}

impl Stop {
    /// At a signal. One that is ignored stays so: that is what `nohup` is for.
    pub fn at_signals() -> Result<Self> {
        Stop::of(&[SIGINT, SIGTERM, SIGHUP])
    }

    /// At a signal but SIGHUP, at which all is read anew.
    pub fn at_signals_but_reload() -> Result<Self> {
        let stop = Stop::of(&[SIGINT, SIGTERM])?;
        if !sys::is_ignored(SIGHUP) {
            signal_hook::flag::register(SIGHUP, Arc::clone(&stop.reload))?;
        }
        Ok(stop)
    }

    fn of(signals: &[i32]) -> Result<Self> {
        let signal = Arc::new(AtomicUsize::new(0));
        for &number in signals.iter().filter(|&&n| !sys::is_ignored(n)) {
            let value = usize::try_from(number)?;
            signal_hook::flag::register_usize(number, Arc::clone(&signal), value)?;
        }
        Ok(Stop { end: None, signal, reload: Arc::default() })
    }

    /// Whether SIGHUP has come since the last call.
    pub fn takes_reload(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }

    /// At this time as well.
    pub fn at(self, end: Option<Nanos>) -> Self {
        Stop { end, ..self }
    }

    /// When it is over without a signal.
    pub fn end(&self) -> Option<Nanos> {
        self.end
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.cause().is_some()
    }

    /// Whether it is over, and why.
    pub fn cause(&self) -> Option<Cause> {
        match i32::try_from(self.signal.load(Ordering::Relaxed)) {
            Ok(0) | Err(_) => {
                self.end.filter(|&end| sys::monotonic() >= end).map(|_| Cause::Duration)
            }
            Ok(signal) => Some(Cause::Signal(signal)),
        }
    }
}

impl Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Duration => f.write_str("--duration is over"),
            Cause::Signal(n) => {
                let name = signal_hook::low_level::signal_name(*n).unwrap_or("a signal");
                write!(f, "stopped by {name}")
            }
        }
    }
}
