//! Tests on real kernels: boots them under QEMU with several nodes, runs the static `isotherm` inside,
//! and checks what it says. `README.md` tells how to use it, and how to add a scenario.

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

/// Where scenarios, topologies and what runs inside are.
#[must_use]
pub fn room() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
