//! On how many CPUs a process runs: each is interrupted by a TLB shootdown.

use std::time::Duration;

use isotherm_core::Nanos;

use crate::sys::{monotonic, online_cpus, process_cpu};

/// How many CPUs a process keeps busy.
#[derive(Debug)]
pub(super) struct Busy {
    since: Nanos,
    /// CPU time that it had used then
    ran: Duration,
    pub threads: u32,
    cpus: u32,
}

impl Busy {
    /// Shorter times tell nothing: it may have waited for a CPU, or for us.
    const SHORTEST: Duration = Duration::from_millis(20);

    pub fn begin(pid: i32) -> Self {
        let ran = process_cpu(pid).unwrap_or_default();
        Busy { since: monotonic(), ran, threads: 1, cpus: 1 }
    }

    /// On how many CPUs it has run since this was asked last.
    pub fn cpus(&mut self, pid: i32) -> u32 {
        let now = monotonic();
        let time = now.since(self.since);
        if let Some(ran) = process_cpu(pid).filter(|_| time >= Self::SHORTEST) {
            self.cpus = running(ran.saturating_sub(self.ran), time, self.threads, online_cpus());
            (self.since, self.ran) = (now, ran);
        }
        self.cpus
    }
}

/// On how many CPUs a process runs that used so much CPU time in so much time: rounded up, but not
/// for a trifle.
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
