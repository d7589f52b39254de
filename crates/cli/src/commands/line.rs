//! The status line on standard error.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use isotherm::session::Progress;
use isotherm_core::Nanos;
use isotherm_linux::sys;

use crate::log::say;

/// Time between two lines if standard error is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// A line that is updated in place on a terminal; else one line every `LINE_INTERVAL`.
pub struct StatusLine {
    bar: ProgressBar,
    next: Nanos,
}

impl StatusLine {
    /// Starts the interval now.
    pub fn new() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let to =
            if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, to);
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            bar.set_style(style);
        }
        StatusLine { bar, next: if is_terminal { Nanos(u64::MAX) } else { sys::monotonic() } }
    }
}

impl Progress for StatusLine {
    fn is_wanted(&self, now: Nanos) -> bool {
        now >= self.next || !self.bar.is_hidden()
    }

    fn show(&mut self, now: Nanos, text: String) {
        if now >= self.next {
            self.next = now + LINE_INTERVAL;
            say(&text);
        }
        self.bar.set_message(text);
    }

    fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
