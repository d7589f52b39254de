//! Notifications to the service manager: `sd_notify(3)`.

use std::time::Duration;

use isotherm_core::Nanos;
use sd_notify::NotifyState;

/// Notifies the service manager. Without a manager, every call does nothing.
#[derive(Default)]
pub struct Notify {
    /// interval of watchdog notifications
    every: Option<Duration>,
    next: Nanos,
}

impl Notify {
    /// As the environment specifies. Watchdog notifications are sent twice as often as required.
    pub fn from_env() -> Self {
        let every = sd_notify::watchdog_enabled().map(|time| time / 2);
        Notify { every, next: Nanos(0) }
    }

    /// Sends these states.
    pub fn say(states: &[NotifyState<'_>]) {
        let _ = sd_notify::notify(states);
    }

    /// When the next watchdog notification is due, if the watchdog is on.
    pub fn by(&self) -> Option<Nanos> {
        self.every.map(|_| self.next)
    }

    /// Sends a watchdog notification if it is due.
    pub fn alive(&mut self, now: Nanos) {
        if let Some(every) = self.every.filter(|_| now >= self.next) {
            self.next = now + every;
            Notify::say(&[NotifyState::Watchdog]);
        }
    }
}
