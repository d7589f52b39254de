//! When memory is read, and for how long the target could touch it before that.

use std::time::Duration;

use crate::time::Nanos;

/// Delays of the early reads after a clear. Two per decade are sufficient to estimate a rate.
pub(super) const EARLY_READS: [Duration; 6] = [
    Duration::from_millis(1),
    Duration::from_millis(3),
    Duration::from_millis(10),
    Duration::from_millis(30),
    Duration::from_millis(100),
    Duration::from_millis(300),
];
/// The early reads, the next four reads of all memory, and one class for all later reads.
pub(super) const READS: usize = EARLY_READS.len() + 5;

/// While nothing changes, memory is cleared and a snapshot published about once in this time. The rounds
/// between only read.
pub(super) const CALM_INTERVAL: Duration = Duration::from_secs(1);

/// Resolution of a target's run-time clock, in s: one tick at 250 Hz.
const RUN_CLOCK_TICK_S: f64 = 0.004;

/// A task that wants a CPU waits for less than this time, in s: the period of a limit on CPU time is 100 ms.
pub(super) const MAX_SCHED_DELAY_S: f64 = 0.1;

/// The time of a read or a clear, and the run time of the target at that time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Moment {
    pub at: Nanos,
    /// the same time in ms since the monitor began
    pub ms: u32,
    /// `None` if the run time is not available
    pub ran: Option<Duration>,
}

/// Parameters for interpreting the exposures of a target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ExposureTerms {
    /// fraction of the time in which the target runs
    pub share: f64,
    /// A sign of heat at most this many ms before a clear confirms touches found after the clear.
    pub recent: u32,
    /// Memory untouched for more than this many s was idle: its next touch is a new access pattern.
    pub long: f64,
}

/// Time since a clear, in s: wall time, and run time of the target.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Elapsed {
    pub wall: f32,
    /// equal to wall time if the run time is not available
    pub ran: f32,
}

impl Elapsed {
    pub const UNREAD: Elapsed = Elapsed { wall: f32::NAN, ran: f32::NAN };

    pub fn between(from: &Moment, to: &Moment) -> Self {
        let wall = to.at.since(from.at).as_secs_f32();
        let ran = to.ran.zip(from.ran).map(|(to, from)| to.saturating_sub(from).as_secs_f32());
        Elapsed { wall, ran: ran.unwrap_or(wall) }
    }

    /// Time in which the target could touch pages, in s: wall time, unless the target ran for less than its
    /// usual share of it.
    ///
    /// Example: a target that usually runs all the time was stopped just after the clear, and ran for 6 of
    /// 100 ms. It could touch pages for 10 ms, which includes one clock tick. A target that usually runs for
    /// 1 % of the time could touch pages for all 100 ms.
    pub fn open(self, share: f64) -> f64 {
        ((f64::from(self.ran) + RUN_CLOCK_TICK_S) / share.max(1e-6)).min(f64::from(self.wall))
    }

    /// Lower bound of [`Elapsed::open`]: a run time of one tick may mean that the target did not run.
    /// However, a task that has not run for longer than [`MAX_SCHED_DELAY_S`] was not waiting for a CPU; it touches
    /// nothing, and wall time beyond [`MAX_SCHED_DELAY_S`] counts.
    pub fn surely_open(self, share: f64) -> f64 {
        let ran = (f64::from(self.ran) - RUN_CLOCK_TICK_S).max(0.0);
        let wall = f64::from(self.wall);
        (ran / share.max(1e-6)).min(wall).max(wall - MAX_SCHED_DELAY_S)
    }
}
