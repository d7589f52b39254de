//! What ends a command from outside: its time, or a signal.

use std::fmt::{self, Display};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Result;
use isotherm_core::Nanos;
use isotherm_linux::sys;
use rustix::event::{PollFd, PollFlags};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::served::Wait;

/// Tells when it is over.
pub struct Stop {
    end: Option<Nanos>,
    /// the last signal; none yet is 0
    signal: Arc<AtomicUsize>,
    /// SIGHUP has come, where that is no end
    reload: Arc<AtomicBool>,
    /// readable once a signal has come, so that a wait ends
    awoken: UnixStream,
}

/// Why it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// its time is over
    Duration,
    /// this signal has come
    Signal(i32),
}

impl Stop {
    /// At a signal. One that is ignored stays so: that is what `nohup` is for.
    pub fn at_signals() -> Result<Self> {
        Stop::of(&[SIGINT, SIGTERM, SIGHUP], &[])
    }

    /// Never.
    pub fn never() -> Result<Self> {
        Stop::of(&[], &[])
    }

    /// At a signal but SIGHUP, at which all is read anew.
    pub fn at_signals_but_reload() -> Result<Self> {
        Stop::of(&[SIGINT, SIGTERM], &[SIGHUP])
    }

    fn of(ending: &[i32], reloading: &[i32]) -> Result<Self> {
        let (signal, reload) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (awoken, waker) = UnixStream::pair()?;
        awoken.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        // The pipe comes after the flag: whoever is awoken finds that set.
        for &number in ending.iter().filter(|&&n| !sys::is_ignored(n)) {
            let value = usize::try_from(number)?;
            signal_hook::flag::register_usize(number, Arc::clone(&signal), value)?;
            pipe::register(number, waker.try_clone()?)?;
        }
        for &number in reloading.iter().filter(|&&n| !sys::is_ignored(n)) {
            signal_hook::flag::register(number, Arc::clone(&reload))?;
            pipe::register(number, waker.try_clone()?)?;
        }
        Ok(Stop { end: None, signal, reload, awoken })
    }

    /// Whether SIGHUP has come since the last call.
    pub fn takes_reload(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }

    /// At this time as well.
    pub fn at(self, end: Option<Nanos>) -> Self {
        Stop { end, ..self }
    }

    /// The same, but over at `end` at the latest.
    pub fn until(&self, end: Nanos) -> Result<Self> {
        Ok(Stop {
            end: Some(self.end.map_or(end, |own| own.min(end))),
            signal: Arc::clone(&self.signal),
            reload: Arc::clone(&self.reload),
            awoken: self.awoken.try_clone()?,
        })
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

impl AsFd for Stop {
    /// Readable once a signal has come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.awoken.as_fd()
    }
}

/// A signal ends the wait.
impl Wait for &Stop {
    fn settle(&mut self, _: Nanos) -> bool {
        false
    }

    fn fds<'a>(&'a self, out: &mut Vec<PollFd<'a>>) {
        out.push(PollFd::from_borrowed_fd(self.as_fd(), PollFlags::IN));
    }

    fn go_on(&mut self, ready: &[bool]) {
        if ready.contains(&true) {
            // Each signal writes a byte; more than these wait for the next time.
            let _ = (&self.awoken).read(&mut [0; 64]);
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
