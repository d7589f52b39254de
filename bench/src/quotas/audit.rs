//! The log of the program: `docs/abi/testing/audit-log.md`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use isotherm_core::AddrRange;
use serde::{Deserialize, Deserializer, de::Error};

/// An action in the log.
#[derive(Debug, Clone, Deserialize)]
pub struct AuditLine {
    /// the target
    pub pid: i32,
    #[serde(deserialize_with = "address")]
    start: u64,
    #[serde(deserialize_with = "address")]
    end: u64,
    /// number of the window of the quota
    pub window: u64,
    /// bytes to which it was applied
    pub applied: u64,
    /// its duration
    took_us: u64,
}

fn address<'de, D: Deserializer<'de>>(text: D) -> Result<u64, D::Error> {
    let text = String::deserialize(text)?;
    u64::from_str_radix(text.trim_start_matches("0x"), 16).map_err(D::Error::custom)
}

impl AuditLine {
    /// Its addresses.
    pub fn range(&self) -> AddrRange {
        AddrRange::new(self.start, self.end)
    }
}

/// Reads a whole log.
pub fn read(path: &Path) -> Result<Vec<AuditLine>> {
    parse(&std::fs::read_to_string(path).context("no log")?)
}

/// Parses the lines of a log.
pub fn parse(text: &str) -> Result<Vec<AuditLine>> {
    let line = |l: &str| serde_json::from_str(l).with_context(|| format!("in the log: {l}"));
    text.lines().map(line).collect()
}

/// The sum of the actions in a window of the quota.
#[derive(Debug, Clone, Copy)]
pub struct QuotaWindow {
    /// its number
    pub number: u64,
    /// bytes in it
    pub applied: u64,
    /// time in it
    pub took: Duration,
    /// bytes up to the end of this window
    pub so_far: u64,
}

/// The windows with actions.
pub fn windows(log: &[AuditLine]) -> Vec<QuotaWindow> {
    let mut so_far = 0;
    let window = |lines: &[AuditLine]| {
        let number = lines.first().map_or(0, |l| l.window);
        let applied = lines.iter().map(|l| l.applied).sum();
        so_far += applied;
        let took = Duration::from_micros(lines.iter().map(|l| l.took_us).sum());
        QuotaWindow { number, applied, took, so_far }
    };
    log.chunk_by(|a, b| a.window == b.window).map(window).collect()
}
