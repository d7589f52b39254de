//! `isotherm doctor`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use isotherm_linux::doctor::{Finding, State, examine};

use crate::cli::Doctor;

/// Tells what works here.
pub fn run(o: &Doctor) -> Result<ExitCode> {
    let findings = examine("/".as_ref());
    let written = print(&findings, o.json);
    written.context("cannot write to standard output")?;
    let works = findings.iter().all(|f| f.state != State::Fails);
    Ok(if works { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn print(findings: &[Finding], json: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        let all = serde_json::json!({ "schema_version": 1, "findings": findings });
        writeln!(out, "{all}")?;
    } else {
        for f in findings {
            writeln!(out, "{:7} {}: {}", f.state.word(), f.what, f.detail)?;
            if let Some(advice) = &f.advice {
                writeln!(out, "        {advice}")?;
            }
        }
    }
    out.flush()
}
