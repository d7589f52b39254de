//! The browser view of isotherm: a small HTTP server whose page shows live processes, a running service, or records.
//!
//! The server listens on loopback unless it has a certificate, and answers only requests that have the token of the
//! printed address ([`guard`]). It changes nothing. A slow browser cannot slow the monitor: the monitor hands its
//! snapshots to a thread of the server and never waits for it, and clients get the newest state when they read.
//!
//! [`Index`] is what the page is drawn from. It keeps the heat of each target in a [`Pyramid`](pyramid::Pyramid) of
//! bounded memory. `docs/abi/testing/web.md` describes the HTTP interface.

mod api;
pub mod axis;
pub mod cell;
pub mod guard;
mod index;
mod live;
mod patience;
mod places;
pub mod pyramid;
mod record;
pub mod series;
mod server;
mod service;
mod source;

pub use index::{Index, Limits, SchemeMark};
pub use live::{LiveOptions, watch};
pub use record::{RecordInput, show};
pub use server::{ListenOptions, Server, ServerError};
pub use service::follow;
pub use source::{Kind, Source, SourceError};

use std::time::Duration;

use isotherm_core::Thresholds;

use crate::pyramid::Keep;

/// Memory for the heat over time, of all targets of a source, in runs of 8 bytes: 128 MiB.
const RUNS: usize = 16 << 20;
/// Memory for whole snapshots of live processes, in bytes.
const RING: usize = 128 << 20;

/// What the commands have in common.
#[derive(Debug, Clone)]
pub struct WebOptions {
    /// where to listen
    pub listen: ListenOptions,
    /// limits of hot and cold
    pub thresholds: Thresholds,
    /// The server ends after this time.
    pub duration: Option<Duration>,
}

fn limits(keep: Keep, thresholds: Thresholds) -> Limits {
    let ring = if keep == Keep::Newest { RING } else { 0 };
    Limits { keep, runs: RUNS, ring, bridge: false, thresholds }
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
