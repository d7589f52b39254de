//! `isotherm system doctor`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use isotherm_linux::doctor::{CheckResult, Finding, examine};
use textwrap::fill;

use crate::cli::Doctor;

/// Reports which features work on this machine.
pub fn run(o: &Doctor) -> Result<ExitCode> {
    let findings = examine("/".as_ref());
    let written = print(&findings, o.json);
    written.context("cannot write to standard output")?;
    Ok(if all_work(&findings) { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn all_work(findings: &[Finding]) -> bool {
    findings.iter().all(|f| f.state != CheckResult::Fails)
}

fn print(findings: &[Finding], json: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        let all = serde_json::json!({ "schema_version": 1, "findings": findings });
        writeln!(out, "{all}")?;
    } else {
        for f in findings {
            let mut lines = f.detail.lines().chain(f.advice.as_deref());
            let first = lines.next().unwrap_or_default();
            let first = format!("{:7} {}: {first}", f.state.word(), f.what);
            writeln!(out, "{}", fill(&first, lines_of("", INDENT)))?;
            for line in lines {
                writeln!(out, "{}", fill(line, lines_of(INDENT, INDENT)))?;
            }
        }
        let works = if all_work(findings) { "recording works" } else { "recording does not work" };
        writeln!(out, "{works} on this machine")?;
    }
    out.flush()
}

const INDENT: &str = "        ";

fn lines_of(first: &'static str, others: &'static str) -> textwrap::Options<'static> {
    textwrap::Options::new(100).initial_indent(first).subsequent_indent(others)
}
