//! The program that is measured.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

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

/// Starts `isotherm reclaim` for a process with this objective, without watermarks or quotas.
pub fn reclaim_by_aim(isotherm: &Path, pid: i32, aim: &str) -> Result<Ended> {
    let child = Command::new(isotherm)
        .args(["reclaim", "--pid", &pid.to_string(), "--aim", aim])
        .args(["--watermarks", "none", "--control", "none"])
        .args(["--quota", "none", "--quota-size", "none"])
        .stdout(Stdio::null())
        .spawn()?;
    Ok(Ended(child))
}
