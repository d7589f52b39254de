//! The state of a service with schemes, as `isotherm service status` shows it.

use isotherm_core::Attrs;
use isotherm_linux::sys;
use serde::Serialize;

use super::refaults::RefaultRates;
use super::running::SchemeJob;
use super::table::SchemeTable;
use crate::session::{self, SessionState};

/// `docs/abi/testing/control.md`.
#[derive(Debug, Serialize)]
pub struct ServiceStatus {
    #[serde(flatten)]
    watched: session::WatchStatus,
    #[serde(flatten)]
    table: SchemeTable,
    /// `None` without `--stacks`
    refaults: Option<RefaultRates>,
}

impl ServiceStatus {
    /// The state at the last snapshot.
    pub fn new(r: &SchemeJob, attrs: Attrs, watched: &SessionState) -> Self {
        let time = sys::monotonic().since(r.begin);
        let record = r.recording.state();
        let scene = watched.scene(Some(&r.engine));
        ServiceStatus {
            watched: session::WatchStatus::new(&scene, Some(attrs), r.paused, record),
            table: SchemeTable::new(&r.engine, time, r.dry()),
            refaults: r.refault_rates(),
        }
    }
}
