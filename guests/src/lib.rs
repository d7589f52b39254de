//! Tests on real kernels: boots them under QEMU with several nodes, runs the static `isotherm` inside,
//! and checks what it says. `README.md` tells how to use it, and how to add a scenario.

use std::path::{Path, PathBuf};

pub mod apt;
pub mod cache;
pub mod cpio;
pub mod image;
pub mod inside;
pub mod kernels;
pub mod modules;
pub mod qemu;
pub mod scenario;
pub mod score;
pub mod suite;
pub mod table;
pub mod topology;

/// Where scenarios, topologies and what runs inside are.
#[must_use]
pub fn room() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The static program, beside which this one was built; `$ISOTHERM_GUESTS_BINARY` if that is set.
///
/// # Errors
/// If it is not there.
pub fn program() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os("ISOTHERM_GUESTS_BINARY") {
        return Ok(path.into());
    }
    let own = std::env::current_exe()?;
    let places = own.ancestors().map(|d| d.join("x86_64-unknown-linux-gnu/release/isotherm"));
    let there = places.into_iter().find(|path| path.is_file());
    there.ok_or_else(|| anyhow::anyhow!("the static isotherm is not there: make release"))
}
