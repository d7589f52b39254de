//! `isotherm interleave verify`.

use std::process::ExitCode;

use anyhow::Result;
use isotherm::interleave::verify;
use isotherm_report::json;

use crate::cli::Verify;
use crate::commands::report::output::print;

/// Compares the placement of memory with the weights, or tests the kernel's policies.
pub fn run(o: &Verify) -> Result<ExitCode> {
    let Some(pid) = o.pid else { return of_kernel(o.json) };
    let verified = verify(pid, &o.layout.chosen())?;
    let text = if o.json { json(&verified)? + "\n" } else { verified.text() };
    print(text.as_bytes())?;
    Ok(ExitCode::from(u8::from(verified.differs())))
}

/// Tests the kernel's policies.
fn of_kernel(as_json: bool) -> Result<ExitCode> {
    let tried = isotherm_conform::try_all()?;
    let text = if as_json { json(&tried)? + "\n" } else { tried.text() };
    print(text.as_bytes())?;
    Ok(ExitCode::from(u8::from(tried.failed())))
}
