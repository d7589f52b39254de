//! The terminal: its own screen while the view runs, and the old state after it, however it ends.

use std::io::{self, IsTerminal, Stdout};
use std::sync::Once;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use crossterm::cursor::Show;
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// The screen of the view. Dropping it restores the terminal; so does a panic of any thread.
pub struct Screen(Terminal<CrosstermBackend<Stdout>>);

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// If standard input or output is no terminal.
    pub fn open() -> Result<Self> {
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            bail!(
                "isotherm top requires a terminal as standard input and output: isotherm now prints the regions of a \
                 process, and isotherm record writes a record"
            );
        }
        restore_at_panic();
        enable_raw_mode().context("cannot read single keys from the terminal")?;
        let screen = execute!(io::stdout(), EnterAlternateScreen)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        screen.map(Screen).inspect_err(|_| restore()).context("cannot draw on the terminal")
    }

    /// Draws a frame; only differences to the previous one are written.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> Result<()> {
        self.0.draw(draw).context("cannot draw on the terminal")?;
        Ok(())
    }

    /// Makes the next frame write every cell, after another program has written to the terminal.
    pub fn clear(&mut self) -> Result<()> {
        self.0.clear().context("cannot clear the terminal")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Why a wait has ended.
pub enum Wake {
    /// there may be a key, or the terminal has another size
    Input,
    /// the time is over
    Time,
    /// the terminal is gone
    HungUp,
}

/// Waits for input, a signal, or the end of this time. crossterm's own wait neither ends at a signal nor at the end
/// of the terminal.
///
/// # Errors
/// If the terminal cannot be waited for.
pub fn wait(time: Duration) -> Result<Wake> {
    let time =
        Timespec { tv_sec: i64::try_from(time.as_secs())?, tv_nsec: time.subsec_nanos().into() };
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    match poll(&mut fds, Some(&time)) {
        Ok(0) => Ok(Wake::Time),
        Ok(_) if fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) => Ok(Wake::HungUp),
        // A change of the size is a signal.
        Ok(_) | Err(Errno::INTR) => Ok(Wake::Input),
        Err(e) => Err(e).context("cannot wait for the terminal"),
    }
}

/// Restores the terminal. Nothing can be done if that fails.
fn restore() {
    let _ = disable_raw_mode();
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
}

/// Restores the terminal before a panic prints its message.
fn restore_at_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
    });
}
