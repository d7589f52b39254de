//! The terminal: its own screen while the view runs, and the old state after it, however it ends.

use std::io::{self, IsTerminal, Stdout};
use std::sync::Once;

use anyhow::{Context, Result, bail};
use crossterm::cursor::Show;
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};

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
