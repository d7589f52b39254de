//! How things are while schemes are at work: what `isotherm service status` shows.

use isotherm_core::Attrs;
use isotherm_linux::sys;
use serde::Serialize;

use super::running::Running;
use super::table::Table;
use crate::commands::watch::{self, Status};

/// `docs/abi/testing/control.md`.
#[derive(Debug, Serialize)]
pub struct State {
    #[serde(flatten)]
    watched: watch::State,
    #[serde(flatten)]
    table: Table,
}

impl State {
    /// As of the last snapshot.
    pub fn new(r: &Running, attrs: Attrs, status: &Status) -> Self {
        let time = sys::monotonic().since(r.begin);
        let record = r.recording.state();
        State {
            watched: watch::State::new(&r.scene(status), Some(attrs), r.paused, record),
            table: Table::new(&r.engine, time, r.dry),
        }
    }
}
