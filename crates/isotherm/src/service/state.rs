//! The state of a service with schemes, as `isotherm service status` shows it.

use isotherm_core::Attrs;
use serde::Serialize;

use super::refaults::RefaultRates;
use super::running::SchemeJob;
use super::table::{SchemeRow, SchemeTable};
use crate::session::{self, SessionState};

/// `docs/abi/testing/control.md`.
#[derive(Debug, Serialize)]
pub struct ServiceStatus {
    #[serde(flatten)]
    watched: session::WatchStatus,
    schema_version: u32,
    dry_run: bool,
    schemes: Vec<SchemeRow>,
    /// `None` without `--stacks`
    refaults: Option<RefaultRates>,
}

impl ServiceStatus {
    /// The state at the last snapshot.
    pub fn new(r: &SchemeJob, attrs: Attrs, watched: &SessionState) -> Self {
        let record = r.recording.state();
        let scene = watched.scene(Some(&r.engine));
        let SchemeTable { schema_version, dry_run, schemes, .. } =
            SchemeTable::new(&r.engine, watched.status.time(), r.dry());
        ServiceStatus {
            watched: session::WatchStatus::new(&scene, Some(attrs), r.paused, record),
            schema_version,
            dry_run,
            schemes,
            refaults: r.refault_rates(),
        }
    }
}
