//! Reasons outside of a command to end it: its duration, or a signal.

use std::fmt::{self, Display};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use isotherm_core::Nanos;
use isotherm_linux::sys;
use rustix::event::{PollFd, PollFlags};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::served::{self, Wait};

/// Failures of catching signals.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StopError {
    /// the error of the operating system
    #[error("cannot catch signals: {0}")]
    Signals(#[from] io::Error),
}

/// Reports whether the command must end.
pub struct Stop {
    end: Option<Nanos>,
    /// the last signal; 0: none yet
    signal: Arc<AtomicUsize>,
    /// SIGHUP has arrived, for a command that does not end at SIGHUP
    reload: Arc<AtomicBool>,
    /// readable once a signal has arrived, so that a wait ends; `None`: no signal is caught
    wake_pipe: Option<UnixStream>,
}

/// The reason for ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopCause {
    /// the duration is over
    Duration,
    /// this signal has arrived
    Signal(i32),
}

impl Stop {
    /// Ends at a signal. A signal that is ignored at the start stays ignored, as `nohup` requires.
    pub fn at_signals() -> Result<Self, StopError> {
        Stop::of(&[SIGINT, SIGTERM, SIGHUP], &[])
    }

    /// Never ends, and catches no signal.
    #[must_use]
    pub fn never() -> Self {
        let (signal, reload) = (Arc::default(), Arc::default());
        Stop { end: None, signal, reload, wake_pipe: None }
    }

    /// Ends at a signal other than SIGHUP, which causes a reload.
    pub fn at_signals_but_reload() -> Result<Self, StopError> {
        Stop::of(&[SIGINT, SIGTERM], &[SIGHUP])
    }

    fn of(ending: &[i32], reloading: &[i32]) -> Result<Self, StopError> {
        let (signal, reload) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (wake_pipe, waker) = UnixStream::pair()?;
        wake_pipe.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        // The pipe is registered after the flag, so that a thread that the pipe wakes finds the flag set.
        for &number in ending.iter().filter(|&&n| !sys::is_ignored(n)) {
            let value = usize::try_from(number).map_err(io::Error::other)?;
            signal_hook::flag::register_usize(number, Arc::clone(&signal), value)?;
            pipe::register(number, waker.try_clone()?)?;
        }
        for &number in reloading.iter().filter(|&&n| !sys::is_ignored(n)) {
            signal_hook::flag::register(number, Arc::clone(&reload))?;
            pipe::register(number, waker.try_clone()?)?;
        }
        Ok(Stop { end: None, signal, reload, wake_pipe: Some(wake_pipe) })
    }

    /// Whether SIGHUP has arrived since the last call.
    pub fn take_reload_request(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }

    /// Ends at this time as well.
    pub fn at(self, end: Option<Nanos>) -> Self {
        Stop { end, ..self }
    }

    /// A copy that ends at `end` at the latest.
    pub fn until(&self, end: Nanos) -> Result<Self, StopError> {
        Ok(Stop {
            end: Some(self.end.map_or(end, |own| own.min(end))),
            signal: Arc::clone(&self.signal),
            reload: Arc::clone(&self.reload),
            wake_pipe: self.wake_pipe.as_ref().map(UnixStream::try_clone).transpose()?,
        })
    }

    /// The time at which it ends without a signal.
    pub fn end(&self) -> Option<Nanos> {
        self.end
    }

    /// Waits until the command must end.
    pub fn wait(&self) {
        self.sleep_until(Nanos(u64::MAX));
    }

    /// Waits until this time, or until the command must end.
    pub fn sleep_until(&self, time: Nanos) {
        while sys::monotonic() < time && !self.is_over() {
            let mut signals = self;
            served::wait(&mut [&mut signals], self.end.map_or(time, |end| end.min(time)));
        }
    }

    /// Ends everything in this process that ends at a signal, as SIGTERM does.
    pub fn end_all(&self) {
        self.signal.store(SIGTERM.unsigned_abs() as usize, Ordering::Relaxed);
        // Wakes the waiting threads. A failure only means that they notice the end a little later.
        let _ = signal_hook::low_level::raise(SIGTERM);
    }

    /// Whether the command must end.
    pub fn is_over(&self) -> bool {
        self.cause().is_some()
    }

    /// The reason to end; `None` if there is none yet.
    pub fn cause(&self) -> Option<StopCause> {
        match i32::try_from(self.signal.load(Ordering::Relaxed)) {
            Ok(0) | Err(_) => {
                self.end.filter(|&end| sys::monotonic() >= end).map(|_| StopCause::Duration)
            }
            Ok(signal) => Some(StopCause::Signal(signal)),
        }
    }
}

/// A signal ends the wait.
impl Wait for &Stop {
    fn settle(&mut self, _: Nanos) -> bool {
        false
    }

    fn fds<'a>(&'a self, out: &mut Vec<PollFd<'a>>) {
        out.extend(self.wake_pipe.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
    }

    fn go_on(&mut self, ready: &[bool]) {
        if ready.contains(&true) {
            // Each signal writes one byte. Bytes beyond these remain for the next read.
            let _ = self.wake_pipe.as_ref().map(|mut wake_pipe| wake_pipe.read(&mut [0; 64]));
        }
    }
}

impl Display for StopCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopCause::Duration => f.write_str("--duration is over"),
            StopCause::Signal(n) => {
                let name = signal_hook::low_level::signal_name(*n).unwrap_or("a signal");
                write!(f, "stopped by {name}")
            }
        }
    }
}
