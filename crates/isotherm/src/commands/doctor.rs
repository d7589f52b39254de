//! `isotherm doctor`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use isotherm_linux::doctor::{State, examine};

use crate::cli::Doctor;

/// Tells what works here.
pub fn run(o: &Doctor) -> Result<ExitCode> {
    let findings = examine("/".as_ref());
    let mut out = std::io::stdout().lock();
    if o.json {
        let all = serde_json::json!({ "schema_version": 1, "findings": findings });
        writeln!(out, "{all}")?;
    } else {
        for f in &findings {
            writeln!(out, "{:7} {}: {}", f.state.word(), f.what, f.detail)?;
            if let Some(advice) = &f.advice {
                writeln!(out, "        {advice}")?;
            }
        }
    }
    let works = findings.iter().all(|f| f.state != State::Fails);
    Ok(if works { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
