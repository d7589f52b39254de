//! `fork(2)`, for a child that only keeps its memory mapped.

use std::io;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// A sleeping child with a copy of our memory. It ends when this is dropped, or with this process.
#[derive(Debug)]
pub struct SleepingChild {
    pid: libc::pid_t,
}

impl SleepingChild {
    /// Forks.
    ///
    /// # Errors
    /// Those of `fork`.
    pub fn fork() -> io::Result<Self> {
        let parent = rustix::process::getpid().as_raw_nonzero().get();
        // SAFETY: the child calls nothing but `sleep_beside`, which is fit for a child of a
        // process with threads.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => sleep_beside(parent),
            pid => Ok(SleepingChild { pid }),
        }
    }

    /// The pid of the child.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }
}

impl Drop for SleepingChild {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            // A child that a sandbox does not let us kill ends with this process.
            if kill_process(pid, Signal::KILL).is_ok() {
                let _ = waitpid(Some(pid), WaitOptions::empty());
            }
        }
    }
}

/// Sleeps until the parent kills the child or ends.
fn sleep_beside(parent: libc::pid_t) -> ! {
    // SAFETY: all of these calls are async-signal-safe, and touch no memory.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // A parent that ended before that sends no signal. But then the child has another parent.
        while libc::getppid() == parent {
            libc::pause();
        }
        libc::_exit(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::without;

    /// Found by `harden run matrix`: isotherm waited for ever.
    #[test]
    fn a_child_that_cannot_be_killed_is_not_awaited() {
        let child = SleepingChild::fork().unwrap();
        let pid = child.pid();
        without(libc::SYS_kill, || drop(child));
        // It still sleeps; without the filter it can be killed.
        drop(SleepingChild { pid });
    }
}
