//! Clocks: monotonic time, and CPU time of any process.

use std::time::Duration;

use isotherm_core::Nanos;
use rustix::time::{ClockId, Timespec, clock_gettime};

fn nanos(t: Timespec) -> u64 {
    t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs()
}

/// Monotonic time since boot, not counting suspension.
#[must_use]
pub fn monotonic() -> Nanos {
    Nanos(nanos(clock_gettime(ClockId::Monotonic)))
}

/// CPU time of this process so far.
#[must_use]
pub fn own_cpu() -> Duration {
    Duration::from_nanos(nanos(clock_gettime(ClockId::ProcessCPUTime)))
}

/// CPU time of the calling thread so far.
#[must_use]
pub fn thread_cpu() -> Duration {
    Duration::from_nanos(nanos(clock_gettime(ClockId::ThreadCPUTime)))
}

/// CPU time of the calling thread, lap by lap.
#[derive(Debug)]
pub struct CpuLaps(Duration);

impl CpuLaps {
    /// The first lap begins.
    #[must_use]
    pub fn begin() -> Self {
        CpuLaps(thread_cpu())
    }

    /// What was used since the last call.
    pub fn lap(&mut self) -> Duration {
        let now = thread_cpu();
        now.saturating_sub(std::mem::replace(&mut self.0, now))
    }

    /// So much of this lap does not count.
    pub fn leave_out(&mut self, used: Duration) {
        self.0 += used;
    }
}

/// CPU time of process `pid` so far, exact to the nanosecond; `None` if there is none.
#[must_use]
pub fn process_cpu(pid: i32) -> Option<Duration> {
    let mut clock: libc::clockid_t = 0;
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls only write to the two locals that they are given.
    let ok = unsafe {
        libc::clock_getcpuclockid(pid, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut t) == 0
    };
    ok.then(|| Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_process_uses_cpu_time() {
        let pid = crate::walker::own_pid();
        let before = process_cpu(pid).unwrap();
        let mut x = 1u64;
        while process_cpu(pid).unwrap() < before + Duration::from_millis(5) {
            x = x.wrapping_mul(3);
        }
        assert!(own_cpu() >= before && x != 0);
        assert_eq!(process_cpu((1 << 22) + 1), None, "above the highest pid there can be");
    }
}
