//! `isotherm system doctor`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use isotherm_linux::doctor::{Findings, examine};
use textwrap::fill;

use crate::cli::Doctor;

/// Reports which features work on this machine.
pub fn run(o: &Doctor) -> Result<ExitCode> {
    let findings = examine("/".as_ref());
    let written = print(&findings, o.json);
    written.context("cannot write to standard output")?;
    Ok(if findings.recording_works() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(all: &Findings, json: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string(all)?)?;
    } else {
        for f in &all.findings {
            let mut lines = f.detail.lines().chain(f.advice.as_deref());
            let first = lines.next().unwrap_or_default();
            let first = format!("{:7} {}: {first}", f.state.word(), f.what);
            writeln!(out, "{}", fill(&first, lines_of("", INDENT)))?;
            for line in lines {
                writeln!(out, "{}", fill(line, lines_of(INDENT, INDENT)))?;
            }
        }
        let works = if all.recording_works() { "works" } else { "does not work" };
        writeln!(out, "recording {works} on this machine")?;
    }
    out.flush()
}

const INDENT: &str = "        ";

fn lines_of(first: &'static str, others: &'static str) -> textwrap::Options<'static> {
    textwrap::Options::new(100).initial_indent(first).subsequent_indent(others)
}
