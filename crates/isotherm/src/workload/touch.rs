//! The threads that touch memory.

use std::time::Duration;

use isotherm_core::Nanos;
use isotherm_linux::sys::{self, Arena};
use isotherm_sim::workload::{Op, TouchRate, Walk};

use super::access_counts::AccessCounts;
use crate::stop::Stop;

/// Sleep of a thread after it has made all touches that are due.
const SLEEP_TIME: Duration = Duration::from_millis(1);
/// Touches that are overdue by more than this are dropped, because a burst would not look like a rate.
const MAX_OVERDUE: Duration = Duration::from_millis(10);
/// For an access without pauses: touches between two readings of the clock.
const BATCH_TOUCHES: u64 = 1024;

/// The memory that a phase touches, and its start and end.
pub struct Stage<'a> {
    pub arena: &'a Arena,
    pub access_counts: &'a AccessCounts,
    pub begin: Nanos,
    pub end: Nanos,
    pub stop: &'a Stop,
}

/// One thread's part of an access.
pub struct Toucher {
    walk: Walk,
    op: Op,
    /// touches per second; `None`: without pauses
    pace: Option<f64>,
    /// touches made or dropped
    done: u64,
    /// touches in this slice of time, by part of the walk
    counts: Vec<u64>,
}

impl Toucher {
    /// One of `threads` threads that together touch at `rate`.
    pub fn new(walk: Walk, op: Op, rate: TouchRate, threads: u32) -> Self {
        let pace = match rate {
            TouchRate::Max => None,
            TouchRate::Hz(hz) => Some(hz * walk.pages() as f64 / f64::from(threads.max(1))),
        };
        let counts = vec![0; walk.parts()];
        Toucher { walk, op, pace, done: 0, counts }
    }

    /// Whether it never pauses, and therefore requires a thread of its own.
    pub fn is_restless(&self) -> bool {
        self.pace.is_none()
    }

    /// Makes the touches that are due at time `since` after the start of the phase.
    fn work(&mut self, stage: &Stage<'_>, since: Duration) {
        let due = self.pace.map_or(BATCH_TOUCHES, |pace| {
            let by_now = (pace * since.as_secs_f64()) as u64;
            let most = (pace * MAX_OVERDUE.as_secs_f64()).ceil() as u64;
            self.done = self.done.max(by_now.saturating_sub(most));
            by_now - self.done.min(by_now)
        });
        self.done += due;
        let interval = stage.access_counts.interval();
        for _ in 0..due {
            let Some((part, page)) = self.walk.next(since) else { break };
            match self.op {
                Op::Read => stage.arena.read(page),
                Op::Write => stage.arena.write(page),
            }
            stage.access_counts.stamp(page, interval);
            self.counts[part] += 1;
        }
        self.flush(stage.access_counts);
    }

    fn flush(&mut self, access_counts: &AccessCounts) {
        for (i, count) in self.counts.iter_mut().enumerate().filter(|(_, n)| **n > 0) {
            if let Some(part) = self.walk.part(i) {
                access_counts.count(part, *count);
            }
            *count = 0;
        }
    }
}

/// Touches until the end of the stage: all `touchers` in turn, in slices of time.
pub fn work(mut touchers: Vec<Toucher>, stage: &Stage<'_>) {
    let restless = touchers.iter().any(Toucher::is_restless);
    loop {
        let now = sys::monotonic();
        if now >= stage.end || stage.stop.is_over() {
            return;
        }
        let since = now.since(stage.begin);
        touchers.iter_mut().for_each(|t| t.work(stage, since));
        if !restless {
            std::thread::sleep(SLEEP_TIME);
        }
    }
}
