//! The cost of clearing for the target: measured once, on isotherm's own memory.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::mm::Advice;
use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::sys::{OwnPages, online_cpus};

/// Costs of clearing for the target, in CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ops) struct Price {
    /// of a TLB shootdown, on each CPU that it interrupts
    pub shootdown: Duration,
    /// of touching a cleared page, beyond the cost of touching any page
    pub touch: Duration,
}

/// Used where the costs cannot be measured: those of a virtual machine, where both are high (bench `looks`).
const VIRTUAL_MACHINE_PRICE: Price =
    Price { shootdown: Duration::from_micros(12), touch: Duration::from_nanos(300) };
/// Measurements outside of these ranges are discarded as disturbed.
const SHOOTDOWNS: std::ops::RangeInclusive<Duration> =
    Duration::from_nanos(100)..=Duration::from_micros(100);
const TOUCHES: std::ops::RangeInclusive<Duration> =
    Duration::from_nanos(2)..=Duration::from_micros(2);

/// Number of pages to touch: few enough for the TLB, so that the difference comes from the clear.
const PAGES: u64 = 512;
const ROUNDS: usize = 9;
/// Shootdowns per round.
const SHOTS: u32 = 20;
const SHOT_PAUSE: Duration = Duration::from_micros(100);
/// Longest duration of the whole measurement.
const MAX_MEASUREMENT: Duration = Duration::from_millis(10);

impl Price {
    /// The costs on this machine, measured once in this process.
    pub fn here() -> Self {
        static HERE: OnceLock<Price> = OnceLock::new();
        *HERE.get_or_init(|| {
            let believed = |price: Option<Duration>, range: std::ops::RangeInclusive<_>, other| {
                price.filter(|p| range.contains(p)).unwrap_or(other)
            };
            Price {
                shootdown: believed(
                    shootdown().ok().flatten(),
                    SHOOTDOWNS,
                    VIRTUAL_MACHINE_PRICE.shootdown,
                ),
                touch: believed(touch().ok(), TOUCHES, VIRTUAL_MACHINE_PRICE.touch),
            }
        })
    }

    /// The cost of `shootdowns` on `cpus` CPUs each, and of `young` cleared young pages.
    pub fn of(&self, shootdowns: u64, cpus: u32, young: u64) -> Duration {
        let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let shot = count(shootdowns).saturating_mul(cpus);
        self.shootdown.saturating_mul(shot) + self.touch.saturating_mul(count(young))
    }
}

/// Cost per page of a pass over cleared pages, minus that of a pass over pages just touched.
fn touch() -> io::Result<Duration> {
    // New pages wait in a per-CPU batch, and cannot be cleared until more pages follow.
    let mut own = OwnPages::map(PAGES + 64)?;
    (0..PAGES + 64).for_each(|page| own.write(page, 1));
    let pass = || {
        let begin = Instant::now();
        for page in 0..PAGES {
            std::hint::black_box(own.read(page));
        }
        begin.elapsed()
    };
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        own.advise(0..PAGES, Advice::LinuxCold)?;
        let cleared = pass();
        rounds.push(cleared.saturating_sub(pass().min(pass())));
    }
    Ok(median(rounds) / u32::try_from(PAGES).unwrap_or(u32::MAX))
}

/// The work that a second thread loses because of shootdowns, as time per shootdown; `None` on a machine with
/// one CPU.
fn shootdown() -> io::Result<Option<Duration>> {
    if online_cpus() < 2 {
        return Ok(None);
    }
    let mut own = OwnPages::map(PAGES + 64)?;
    (0..PAGES + 64).for_each(|page| own.write(page, 1));
    let ours = sched_getcpu();
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let other = std::thread::Builder::new().spawn_scoped(scope, || {
            keep_off(ours);
            while !stop.load(Relaxed) {
                // The counter is alone on its cache line most of the time: it is read four times per round.
                done.fetch_add(1, Relaxed);
            }
        });
        let begin = Instant::now();
        let mut lost = Ok(Vec::new());
        // The thread may sometimes have to wait for a CPU.
        while let Ok(rounds) = &mut lost
            && other.is_ok()
            && rounds.len() < ROUNDS
            && begin.elapsed() < MAX_MEASUREMENT
        {
            match shots(&mut own, &done) {
                Ok(round) => rounds.extend(round),
                Err(e) => lost = Err(e),
            }
        }
        stop.store(true, Relaxed);
        Ok(Some(lost?)
            .filter(|rounds| rounds.len() > ROUNDS / 2)
            .map(|rounds| median(rounds) / SHOTS))
    })
}

/// Avoids the CPU `cpu`. If that is not permitted, the scheduler most likely avoids it anyway.
fn keep_off(cpu: usize) {
    if let Ok(mut cpus) = sched_getaffinity(None) {
        cpus.unset(cpu);
        let _ = sched_setaffinity(None, &cpus);
    }
}

/// One round: the time that the other thread has lost; `None` if it did not run.
fn shots(own: &mut OwnPages, done: &AtomicU64) -> io::Result<Option<Duration>> {
    let before = (Instant::now(), done.load(Relaxed));
    while before.0.elapsed() < SHOT_PAUSE {
        std::hint::spin_loop();
    }
    let quiet = (before.0.elapsed(), done.load(Relaxed) - before.1);
    let before = (Instant::now(), done.load(Relaxed));
    for page in 0..u64::from(SHOTS) {
        own.write(page, page);
        own.advise(page..page + 1, Advice::LinuxCold)?;
    }
    let (took, got) = (before.0.elapsed(), done.load(Relaxed) - before.1);
    let worth = quiet.0.as_secs_f64() * got as f64 / quiet.1 as f64;
    Ok((quiet.1 > 0 && got > 0).then(|| took.saturating_sub(Duration::from_secs_f64(worth))))
}

fn median(mut rounds: Vec<Duration>) -> Duration {
    rounds.sort();
    rounds.get(rounds.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_sane_and_add_up() {
        let here = Price::here();
        assert!(SHOOTDOWNS.contains(&here.shootdown) && TOUCHES.contains(&here.touch), "{here:?}");
        let price = Price { shootdown: Duration::from_micros(3), touch: Duration::from_nanos(20) };
        assert_eq!(price.of(5, 2, 1000), Duration::from_micros(50));
        assert_eq!(price.of(5, 0, 1000), Duration::from_micros(20));
    }
}
