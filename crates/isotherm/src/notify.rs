//! What the manager of services is told: `sd_notify(3)`.

use std::time::Duration;

use isotherm_core::Nanos;
use sd_notify::NotifyState;

/// Speaks with the manager of services, if there is one; nobody need listen.
#[derive(Default)]
pub struct Notify {
    /// how often it is to be told that we live
    every: Option<Duration>,
    next: Nanos,
}

impl Notify {
    /// As the environment says. A watchdog is told twice as often as must be.
    pub fn from_env() -> Self {
        let every = sd_notify::watchdog_enabled().map(|time| time / 2);
        Notify { every, next: Nanos(0) }
    }

    /// Says this.
    pub fn say(states: &[NotifyState<'_>]) {
        let _ = sd_notify::notify(states);
    }

    /// When it is time to say that we live, if anybody wants to know.
    pub fn by(&self) -> Option<Nanos> {
        self.every.map(|_| self.next)
    }

    /// Says that we live, if it is time.
    pub fn alive(&mut self, now: Nanos) {
        if let Some(every) = self.every.filter(|_| now >= self.next) {
            self.next = now + every;
            Notify::say(&[NotifyState::Watchdog]);
        }
    }
}
