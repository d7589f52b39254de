//! When memory is read, and how long the target could touch it until then.

use std::time::Duration;

use crate::time::Nanos;

/// Delays of the reads of what was just cleared; two a decade are enough for a rate.
pub(super) const EARLY: [Duration; 6] = [
    Duration::from_millis(1),
    Duration::from_millis(3),
    Duration::from_millis(10),
    Duration::from_millis(30),
    Duration::from_millis(100),
    Duration::from_millis(300),
];
/// Those, the next four readings of everything, and the last of all later ones.
pub(super) const READS: usize = EARLY.len() + 5;

/// The grain of the clock that tells how long a target has run, in s: a tick at 250 Hz.
const GRAIN: f64 = 0.004;

/// For longer than that, in s, nobody is kept from a CPU that wants one.
const STALL: f64 = 0.3;

/// When something was read or cleared, and how long the target had run then.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Moment {
    pub at: Nanos,
    /// the same in ms since the monitor began
    pub ms: u32,
    /// none if that cannot be told
    pub ran: Option<Duration>,
}

/// What exposures of a target are judged by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ExposureTerms {
    /// part of the time in which it runs
    pub share: f64,
    /// A sign of heat so many ms before a clear confirms what is seen after it.
    pub recent: u32,
    /// Memory that was untouched for so many s has been idle: what touches it then is new.
    pub long: f64,
}

/// Time since a clear, in s: of the wall, and of the target.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Elapsed {
    pub wall: f32,
    /// as much as wall time if that cannot be told
    pub ran: f32,
}

impl Elapsed {
    pub const UNREAD: Elapsed = Elapsed { wall: f32::NAN, ran: f32::NAN };

    pub fn between(from: &Moment, to: &Moment) -> Self {
        let wall = to.at.since(from.at).as_secs_f32();
        let ran = to.ran.zip(from.ran).map(|(to, from)| to.saturating_sub(from).as_secs_f32());
        Elapsed { wall, ran: ran.unwrap_or(wall) }
    }

    /// For how long the target could touch pages: wall time, unless it ran for less than its share of
    /// it.
    ///
    /// E.g. a target that runs all the time, was stopped just after the clear and ran for 6 of 100 ms
    /// could for 10, a grain included. One that always runs for a hundredth could for all 100.
    pub fn open(self, share: f64) -> f64 {
        ((f64::from(self.ran) + GRAIN) / share.max(1e-6)).min(f64::from(self.wall))
    }

    /// The same, at least: who has not run for a grain may not have run at all. But who does not run for longer than
    /// another could keep it from its CPU touches nothing: then wall time counts.
    pub fn surely_open(self, share: f64) -> f64 {
        let ran = (f64::from(self.ran) - GRAIN).max(0.0);
        let wall = f64::from(self.wall);
        (ran / share.max(1e-6)).min(wall).max(wall - STALL)
    }
}
