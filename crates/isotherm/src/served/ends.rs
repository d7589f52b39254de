//! Waiting for the end of targets.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use isotherm_core::Nanos;
use isotherm_linux::{Hold, sys};
use rustix::event::{PollFd, PollFlags};

use super::Wait;

/// Where there is nothing that tells of all targets, they are asked this often.
const ASKED: Duration = Duration::from_millis(100);

/// The end of any target ends the wait.
pub struct Ends<'a> {
    fd: Option<BorrowedFd<'a>>,
    asked_by: Nanos,
    /// Some may have ended.
    pub come: bool,
}

impl<'a> Ends<'a> {
    /// Of those that are held.
    pub fn of(held: &'a dyn Hold) -> Self {
        Self::of_process(held.ends())
    }

    /// By a descriptor that is readable then; without one it is to be asked again and again.
    pub fn of_process(fd: Option<BorrowedFd<'a>>) -> Self {
        Ends { fd, asked_by: sys::monotonic() + ASKED, come: false }
    }

    /// When to wait no longer.
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
