//! Clocks: monotonic time, and CPU time of any process.

use std::time::Duration;

use isotherm_core::Nanos;
use rustix::time::{ClockId, Timespec, clock_gettime};

fn nanos(t: Timespec) -> u64 {
    t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs()
}

/// Monotonic time since boot, without suspension.
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

/// Measures CPU time of the calling thread, lap by lap.
#[derive(Debug)]
pub struct CpuLaps(Duration);

impl CpuLaps {
    /// Starts the first lap.
    #[must_use]
    pub fn begin() -> Self {
        CpuLaps(thread_cpu())
    }

    /// The CPU time since the last call.
    pub fn lap(&mut self) -> Duration {
        let now = thread_cpu();
        now.saturating_sub(std::mem::replace(&mut self.0, now))
    }

    /// Excludes `used` from this lap.
    pub fn leave_out(&mut self, used: Duration) {
        self.0 += used;
    }
}

/// Measures how long this thread works. Time in which it waits for a CPU that another task has does not
/// count, because it uses nothing then. Time in which it waits for a lock or a disk counts.
///
/// Example: of 16 ms in which it ran for 4 ms, waited 2 ms for a lock and 10 ms for a CPU, 6 ms count.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch {
    began: Nanos,
    waited: Duration,
}

impl Stopwatch {
    /// Starts the measurement.
    #[must_use]
    pub fn start() -> Self {
        Stopwatch { began: monotonic(), waited: waited_for_cpu() }
    }

    /// Wall time since the start.
    #[must_use]
    pub fn wall(&self) -> Duration {
        monotonic().since(self.began)
    }

    /// Time of work since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        let waited = waited_for_cpu().saturating_sub(self.waited);
        self.wall().saturating_sub(waited)
    }
}

/// The time for which the calling thread was ready to run while other tasks ran. Zero if the kernel does not
/// count it (`CONFIG_SCHED_INFO`).
fn waited_for_cpu() -> Duration {
    let read_time = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        // The fields are CPU time, waiting time, and the number of time slices.
        Some(Duration::from_nanos(text.split(' ').nth(1)?.parse().ok()?))
    };
    read_time().unwrap_or_default()
}

/// CPU time of process `pid` so far, exact to the nanosecond. `None` if there is no such process.
#[must_use]
pub fn process_cpu(pid: i32) -> Option<Duration> {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call only writes to the given local variable.
    let ok = pid > 0 && unsafe { libc::clock_gettime(clock_of(pid), &raw mut t) == 0 };
    ok.then(|| Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap_or(0)))
}

/// The clock of the CPU time of process `pid`, computed as the kernel and both C libraries do
/// (`MAKE_PROCESS_CPUCLOCK`). `clock_getcpuclockid` would check that the process exists, which reading the
/// clock does as well.
fn clock_of(pid: i32) -> libc::clockid_t {
    const CPUCLOCK_SCHED: libc::clockid_t = 2;
    !pid << 3 | CPUCLOCK_SCHED
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More threads than CPUs, each working for 50 ms: by wall time some need twice as long.
    #[test]
    fn waiting_for_a_turn_is_no_work() {
        let cpus = std::thread::available_parallelism().unwrap().get();
        let work = || {
            let (watch, wall) = (Stopwatch::start(), monotonic());
            let begin = thread_cpu();
            while thread_cpu() < begin + Duration::from_millis(50) {}
            (watch.elapsed(), monotonic().since(wall))
        };
        let threads: Vec<_> = (0..3 * cpus).map(|_| std::thread::spawn(work)).collect();
        let took: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        let (at_work, wall): (Vec<_>, Vec<_>) = took.into_iter().unzip();
        let sum = |of: &[Duration]| of.iter().sum::<Duration>();
        assert!(at_work.iter().all(|t| *t >= Duration::from_millis(45)), "{at_work:?}");
        assert!(sum(&at_work) < sum(&wall) * 2 / 3, "{at_work:?} of {wall:?}");
    }

    #[test]
    fn waiting_for_something_else_counts() {
        let watch = Stopwatch::start();
        std::thread::sleep(Duration::from_millis(30));
        assert!(watch.elapsed() >= Duration::from_millis(25), "{:?}", watch.elapsed());
    }

    #[test]
    fn our_own_process_uses_cpu_time() {
        let pid = crate::walker::own_pid();
        let before = process_cpu(pid).unwrap();
        let mut x = 1u64;
        while process_cpu(pid).unwrap() < before + Duration::from_millis(5) {
            x = x.wrapping_mul(3);
        }
        assert!(own_cpu() >= before && x != 0);
        for none in [(1 << 22) + 1, 0, -1] {
            assert_eq!(process_cpu(none), None, "no pid can be {none}");
        }
    }

    #[test]
    fn the_clock_of_a_process_is_that_of_the_c_library() {
        let pid = crate::walker::own_pid();
        let mut clock: libc::clockid_t = 0;
        // SAFETY: the call only writes to the given local variable.
        assert_eq!(unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) }, 0);
        assert_eq!(clock, clock_of(pid));
    }
}
