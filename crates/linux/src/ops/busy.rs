//! The number of CPUs on which a process runs: a TLB shootdown interrupts each of them.

use std::time::Duration;

use isotherm_core::Nanos;

use crate::sys::{monotonic, online_cpus, process_cpu};

/// Estimates how many CPUs a process keeps busy.
#[derive(Debug)]
pub(super) struct Busy {
    since: Nanos,
    /// CPU time that the process had used at `since`
    ran: Duration,
    pub threads: u32,
    cpus: u32,
}

impl Busy {
    /// Shorter intervals are not used: during them the process, or isotherm, may have waited for a CPU.
    const MIN_INTERVAL: Duration = Duration::from_millis(20);

    pub fn begin(pid: i32) -> Self {
        let ran = process_cpu(pid).unwrap_or_default();
        Busy { since: monotonic(), ran, threads: 1, cpus: 1 }
    }

    /// The mean number of CPUs on which the process has run since the last call. Calls within less than
    /// `MIN_INTERVAL` return the previous result.
    pub fn cpus(&mut self, pid: i32) -> u32 {
        let now = monotonic();
        let time = now.since(self.since);
        if let Some(ran) = process_cpu(pid).filter(|_| time >= Self::MIN_INTERVAL) {
            self.cpus = running(ran.saturating_sub(self.ran), time, self.threads, online_cpus());
            (self.since, self.ran) = (now, ran);
        }
        self.cpus
    }
}

/// The mean number of CPUs of a process that used `used` CPU time in `time`, rounded up; an excess of up to
/// 0.02 CPUs is ignored. 0 if it used none, else from 1 to the smaller of `threads` and `cpus`.
fn running(used: Duration, time: Duration, threads: u32, cpus: u32) -> u32 {
    let busy = used.as_secs_f64() / time.as_secs_f64();
    if !busy.is_finite() || used.is_zero() {
        return 0;
    }
    let most = threads.min(cpus).max(1);
    ((busy - 0.02).ceil().clamp(1.0, f64::from(most))) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_that_run_a_process() {
        let ms = Duration::from_millis;
        assert_eq!(running(ms(0), ms(100), 8, 8), 0, "it sleeps");
        assert_eq!(running(ms(1), ms(100), 8, 8), 1);
        assert_eq!(running(ms(101), ms(100), 8, 8), 1, "a trifle");
        assert_eq!(running(ms(150), ms(100), 8, 8), 2);
        assert_eq!(running(ms(800), ms(100), 3, 8), 3);
        assert_eq!(running(ms(800), ms(100), 9, 2), 2);
        assert_eq!(running(ms(1), ms(0), 9, 2), 0, "no time has passed");
    }
}
