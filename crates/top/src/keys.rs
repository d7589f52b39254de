//! The keys: one table for the dispatcher, the help page and the documentation.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use isotherm_view::By;

use crate::app::{App, Effect, KeyMode};

/// Keys and what they do, as the help page shows them.
pub const HELP: [(&str, &str); 17] = [
    ("up, down, j, k", "select a row; PgUp and PgDn move by ten rows"),
    ("Enter", "open a process or the processes of a group; zoom into a mapping"),
    ("Esc", "zoom out, go back, or show all rows again"),
    ("Tab, g", "switch between processes and control groups"),
    ("s, S", "sort by the next column, or by the previous one"),
    ("r", "reverse the order"),
    ("/", "filter by name, command line, group or pid: type, then Enter"),
    ("space, p", "pause, or return to the present"),
    ("left, right", "go back or forward in time; [ and ] go ten times as far"),
    ("End", "return to the present"),
    ("+, -", "show a longer or shorter time"),
    ("h, H", "lower or raise the limit of hot"),
    ("c, C", "lower or raise the limit of cold"),
    ("m", "mark the start of a time, then its end"),
    ("w", "save the marked time as a record; without marks, the shown time"),
    ("Ctrl-L", "draw the screen again"),
    ("q, Ctrl-C", "quit"),
];

impl App {
    /// Takes a key.
    pub fn key(&mut self, key: KeyEvent) -> Option<Effect> {
        self.message.clear();
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Some(Effect::Quit),
                KeyCode::Char('l') => Some(Effect::Redraw),
                _ => None,
            };
        }
        let effect = match std::mem::replace(&mut self.mode, KeyMode::Normal) {
            KeyMode::Normal => self.command(key.code),
            // Any key closes the help page.
            KeyMode::Help => None,
            KeyMode::Filter(text) => {
                match edited(text, key.code) {
                    Edited::More(text) => {
                        self.filter.clone_from(&text);
                        self.mode = KeyMode::Filter(text);
                    }
                    Edited::Done(text) => self.filter = text,
                    Edited::Left => self.filter.clear(),
                }
                None
            }
            KeyMode::Save(text) => match edited(text, key.code) {
                Edited::More(text) => {
                    self.mode = KeyMode::Save(text);
                    None
                }
                Edited::Done(path) => self.save(path),
                Edited::Left => None,
            },
        };
        self.tick();
        effect
    }

    fn command(&mut self, code: KeyCode) -> Option<Effect> {
        match code {
            KeyCode::Char('q') => return Some(Effect::Quit),
            KeyCode::Char('?') | KeyCode::F(1) => self.mode = KeyMode::Help,
            KeyCode::Up | KeyCode::Char('k') => self.select(-1),
            KeyCode::Down | KeyCode::Char('j') => self.select(1),
            KeyCode::PageUp => self.select(-10),
            KeyCode::PageDown => self.select(10),
            KeyCode::Enter => self.open(),
            KeyCode::Esc | KeyCode::Backspace => self.back(),
            KeyCode::Tab | KeyCode::Char('g') => {
                self.by = if self.by == By::Process { By::Cgroup } else { By::Process };
            }
            KeyCode::Char('s' | '>') => self.sort_by(1),
            KeyCode::Char('S' | '<') => self.sort_by(-1),
            KeyCode::Char('r') => self.descending = !self.descending,
            KeyCode::Char('/') => self.mode = KeyMode::Filter(self.filter.clone()),
            KeyCode::Char(' ' | 'p') => self.pause(),
            KeyCode::Left => self.seek(-1),
            KeyCode::Right => self.seek(1),
            KeyCode::Char('[') => self.seek(-10),
            KeyCode::Char(']') => self.seek(10),
            KeyCode::End => self.at = None,
            KeyCode::Char('+' | '=') => self.stretch(1),
            KeyCode::Char('-') => self.stretch(-1),
            KeyCode::Char('h') => self.hot(-1),
            KeyCode::Char('H') => self.hot(1),
            KeyCode::Char('c') => self.cold(-1),
            KeyCode::Char('C') => self.cold(1),
            KeyCode::Char('m') => self.mark(),
            KeyCode::Char('w') => self.ask_where_to_save(),
            _ => {}
        }
        None
    }
}

/// The result of a key in a line of text.
enum Edited {
    More(String),
    Done(String),
    Left,
}

/// Maximum length of a typed line.
const MAX_TYPED: usize = 4096;

fn edited(mut text: String, code: KeyCode) -> Edited {
    match code {
        KeyCode::Enter => return Edited::Done(text),
        KeyCode::Esc => return Edited::Left,
        KeyCode::Backspace => _ = text.pop(),
        KeyCode::Char(c) if text.len() < MAX_TYPED => text.push(c),
        _ => {}
    }
    Edited::More(text)
}
