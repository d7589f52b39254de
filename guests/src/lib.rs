//! Tests on real kernels: boots them under QEMU with several nodes, runs the static `isotherm` inside, and
//! checks its results. `README.md` describes how to use it, and how to add a scenario.

use std::path::Path;

pub mod apt;
pub mod cache;
pub mod cpio;
pub mod guest;
pub mod image;
pub mod inside;
pub mod kernels;
pub mod lab;
pub mod modules;
pub mod qemu;
pub mod scenario;
pub mod score;
pub mod suite;
pub mod table;
pub mod topology;
pub mod watch;

/// Directory of the scenarios, the topologies, and the files that run inside of guests.
pub fn room() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
