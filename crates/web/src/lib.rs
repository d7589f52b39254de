//! The browser view of isotherm: a small HTTP server whose page shows live processes, a running service, or records.
//!
//! The server listens on loopback unless it has a certificate, and answers only requests that have the token of
//! the printed address ([`guard`]). It changes nothing. A slow browser cannot slow the monitor. The monitor passes
//! its snapshots to a thread of the server and never waits for it, and clients get the newest state when they
//! read.
//!
//! The page is drawn from an [`Index`](isotherm_view::Index). `docs/abi/testing/web.md` describes the HTTP interface.

mod api;
#[cfg(test)]
mod color_tests;
pub mod guard;
mod live;
mod record;
#[cfg(test)]
#[path = "../../report/tests/scene/mod.rs"]
mod scene;
mod seeker;
mod server;
mod service;
mod source;
mod write_timeout;

pub use live::{WatchOptions, watch};
pub use record::{RecordInput, load as load_record, show};
pub use server::{ListenOptions, Server, ServerError};
pub use service::follow;
pub use source::{PageSource, SourceError, SourceKind};

use std::time::Duration;

use isotherm_core::Thresholds;
use isotherm_view::index::IndexLimits;
use isotherm_view::pyramid::Retention;

/// Memory for the heat over time of a record, in bytes.
const RECORD_MEMORY: usize = 128 << 20;
/// The same for what is happening now, and for its whole snapshots: a view that runs for days stays small.
const LIVE_MEMORY: usize = 20 << 20;
const LIVE_RING: usize = 20 << 20;

/// The common options of the commands.
#[derive(Debug, Clone)]
pub struct WebOptions {
    /// where to listen
    pub listen: ListenOptions,
    /// limits of hot and cold
    pub thresholds: Thresholds,
    /// The server ends after this time.
    pub duration: Option<Duration>,
}

/// The limits of a live view.
#[must_use]
pub fn live_limits(thresholds: Thresholds) -> IndexLimits {
    let retention = Retention::Newest;
    IndexLimits { retention, memory: LIVE_MEMORY, ring: LIVE_RING, bridge: false, thresholds }
}

/// The limits of the view of a record.
fn record_limits(thresholds: Thresholds) -> IndexLimits {
    let retention = Retention::Evenly;
    IndexLimits { retention, memory: RECORD_MEMORY, ring: 0, bridge: false, thresholds }
}

/// Prints where the page is.
fn announce(server: &Server) {
    // Data, for a script that reads it; a terminal shows it all the same.
    println!("{}", server.address());
    tracing::info!(
        "the address contains the token: whoever has it sees what you see. Ctrl-C ends the server"
    );
}

/// Prints what was refused.
fn farewell(server: &Server) {
    if let Some(refused) = server.refused() {
        tracing::info!("refused: {refused}");
    }
}
