//! A Python that can check files for other software.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

fn has(python: &Path, module: &str) -> bool {
    let status = Command::new(python).args(["-c", &format!("import {module}")]).output();
    status.is_ok_and(|out| out.status.success())
}

/// A Python with `module`, which `package` provides; installs it if necessary. If all tests must run, its
/// absence is a failure.
pub fn python_with(module: &str, package: &str) -> Option<PathBuf> {
    let found = find(module, package);
    let required = std::env::var("ISOTHERM_REQUIRE_ALL").is_ok_and(|v| v == "1");
    assert!(found.is_some() || !required, "{package} is neither there nor can it be installed");
    if found.is_none() {
        eprintln!("skipped: {package} is neither there nor can it be installed");
    }
    found
}

fn find(module: &str, package: &str) -> Option<PathBuf> {
    // Two tests must not create the same environment at the same time.
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _installing = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let system = PathBuf::from("python3");
    if has(&system, module) {
        return Some(system);
    }
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join(package);
    let python = venv.join("bin/python");
    if !has(&python, module) {
        Command::new(system).args(["-m", "venv"]).arg(&venv).output().ok()?;
        Command::new(&python).args(["-m", "pip", "install", "-q", package]).output().ok()?;
    }
    has(&python, module).then_some(python)
}
