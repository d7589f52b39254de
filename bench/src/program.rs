//! The program that is measured.

use std::path::PathBuf;
use std::process::Child;

use anyhow::{Result, bail};

/// `isotherm`, which is built into the directory of the benches.
pub fn beside() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("isotherm");
    if !path.is_file() {
        bail!(
            "{} does not exist: build it (cargo build --release -p isotherm-cli)",
            path.display()
        );
    }
    Ok(path)
}

/// A process that is ended when this is dropped.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
