//! `isotherm interleave verify`.

use std::process::ExitCode;

use anyhow::Result;
use isotherm::interleave::verify;

use crate::cli::Verify;
use crate::commands::report::output::show;

/// Compares the placement of memory with the weights, or tests the kernel's policies.
pub fn run(o: &Verify) -> Result<ExitCode> {
    let Some(pid) = o.pid else { return of_kernel(o.json) };
    let verified = verify(pid, &o.layout.chosen())?;
    show(o.json, &verified, || verified.text())?;
    Ok(ExitCode::from(u8::from(verified.differs())))
}

/// Tests the kernel's policies.
fn of_kernel(as_json: bool) -> Result<ExitCode> {
    let tried = isotherm_conform::try_all()?;
    show(as_json, &tried, || tried.text())?;
    Ok(ExitCode::from(u8::from(tried.failed())))
}
