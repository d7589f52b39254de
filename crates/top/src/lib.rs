//! The terminal view: a table of processes or control groups, and a page for each process with its heat over time
//! and address, its mappings and its idle ages.
//!
//! A thread delivers the events of a recording ([`source`]): of live processes, of a running service, or of a record
//! that is played. [`App`] is the state of the view: it receives events and keys, and does no I/O. [`draw`] draws it
//! to any backend. [`run`] connects these with a terminal.

mod app;
mod color;
mod draw;
mod keys;
mod save;
#[cfg(test)]
#[path = "../../report/tests/scene/mod.rs"]
mod scene;
pub mod source;
mod terminal;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use crossterm::event::{self, Event as Input, KeyEventKind};
use isotherm::stop::Stop;
use isotherm_core::Thresholds;
use isotherm_linux::sys::{KeptCapabilities, drop_watching};

pub use app::{App, Effect, KeyMode, ViewPage};
pub use color::Colors;
pub use draw::draw;
use source::{SourceEvent, ViewSource};
use terminal::{Screen, Wake};

/// How to show a source.
#[derive(Debug, Clone)]
pub struct TopOptions {
    /// limits of hot and cold at the start
    pub thresholds: Thresholds,
    /// time between two refreshes
    pub refresh: Duration,
    /// maximum memory of the history, in bytes
    pub memory: usize,
    /// whether the first table has control groups
    pub groups: bool,
    /// the colours of the terminal
    pub colors: Colors,
    /// file name that is suggested for a saved span
    pub save_to: PathBuf,
}

/// Shows `source` until the user or a signal ends it.
///
/// # Errors
/// If the source cannot start, or the terminal cannot be used.
pub fn run(source: ViewSource, options: &TopOptions, stop: &Stop) -> Result<()> {
    let mut feed = source.start()?;
    // The source has those that it needs. This thread shows names of strangers; to save a span in a folder of another
    // user, as with sudo, it keeps one.
    drop_watching(KeptCapabilities { writing: true, ..KeptCapabilities::default() })
        .context("cannot give up capabilities")?;
    let mut app = App::new(options);
    // An error at the start is printed as that of any other command.
    let result = match feed.next(stop) {
        Some(SourceEvent::Ended(Err(e))) => return Err(e),
        Some(news) => {
            app.news(news);
            show(&mut app, &mut feed, options, stop)
        }
        // A signal came first.
        None => Ok(()),
    };
    stop.end_all();
    feed.join();
    result?;
    match app.failure.take() {
        Some(failure) => bail!("{failure}"),
        None => Ok(()),
    }
}

fn show(app: &mut App, feed: &mut source::Feed, options: &TopOptions, stop: &Stop) -> Result<()> {
    let mut screen = Screen::open()?;
    let mut next = Instant::now();
    while !stop.is_over() {
        let now = Instant::now();
        if now >= next {
            // A source that ends says so, unless it has panicked.
            if !feed.drain(|news| app.news(news)) && app.ended.is_none() {
                return Ok(());
            }
            app.tick();
            screen.draw(|frame| draw(frame, app))?;
            next = now + options.refresh;
        }
        match terminal::wait(next.saturating_duration_since(Instant::now()))? {
            Wake::Input => {}
            Wake::Time => continue,
            // Nobody is left to read the screen.
            Wake::HungUp => return Ok(()),
        }
        // It may have read several keys at once. With a time of zero, crossterm does not look.
        while event::poll(Duration::from_millis(1))? {
            let Input::Key(key) = event::read()? else { continue };
            let effect = if key.kind == KeyEventKind::Release { None } else { app.key(key) };
            match effect {
                Some(Effect::Quit) => return Ok(()),
                Some(Effect::Save(path, span)) => app.saved(save::save(app.view(), &span, &path)),
                Some(Effect::Redraw) => screen.clear()?,
                None => {}
            }
        }
        next = Instant::now();
    }
    Ok(())
}
