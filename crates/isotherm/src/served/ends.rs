//! Waiting for the end of targets.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use isotherm_core::Nanos;
use isotherm_linux::{Hold, sys};
use rustix::event::{PollFd, PollFlags};

use super::Wait;

/// Interval at which to check for ended targets if no descriptor reports their end.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A wait that ends when any target ends.
pub struct Ends<'a> {
    fd: Option<BorrowedFd<'a>>,
    asked_by: Nanos,
    /// Some targets may have ended.
    pub come: bool,
}

impl<'a> Ends<'a> {
    /// For the targets that `held` holds.
    pub fn of(held: &'a dyn Hold) -> Self {
        Self::of_process(held.ends())
    }

    /// For a descriptor that becomes readable at the end; without one, the wait ends at regular intervals.
    pub fn of_process(fd: Option<BorrowedFd<'a>>) -> Self {
        Ends { fd, asked_by: sys::monotonic() + END_CHECK_INTERVAL, come: false }
    }

    /// The latest end of the wait.
    pub fn by(&self, until: Nanos) -> Nanos {
        if self.fd.is_some() { until } else { until.min(self.asked_by) }
    }
}

impl Wait for Ends<'_> {
    fn settle(&mut self, _: Nanos) -> bool {
        false
    }

    fn fds<'a>(&'a self, out: &mut Vec<PollFd<'a>>) {
        out.extend(self.fd.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    }

    fn go_on(&mut self, ready: &[bool]) {
        self.come = self.fd.is_none() || ready.contains(&true);
    }
}
