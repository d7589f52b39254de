//! What `isotherm report need`, `isotherm report advice` and `isotherm whatif` predict for a process.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::bootstrap::middle;
use crate::program::ChildGuard;
use crate::user::User;

/// A point of the curve of `report need`.
#[derive(Debug, Clone, Copy)]
pub struct PredictedPoint {
    /// idle time in s
    pub age: f64,
    /// memory that is idle for this time or longer, in bytes
    pub saved: f64,
    /// such memory that comes back per second, in bytes
    pub returned: f64,
}

/// Starts to record `user` for some seconds.
///
/// # Errors
/// If that fails.
pub fn record(isotherm: &Path, user: &User, to: &Path, seconds: u64) -> Result<ChildGuard> {
    let child: Child = Command::new(isotherm)
        .args(["record", "--pid", &user.pid().to_string()])
        .args(["--duration", &format!("{seconds}s"), "-o"])
        .arg(to)
        .stderr(Stdio::null())
        .spawn()?;
    Ok(ChildGuard(child))
}

/// The curve of a record, the shortest idle time first.
///
/// # Errors
/// If there is no such report.
pub fn curve(isotherm: &Path, record: &Path) -> Result<Vec<PredictedPoint>> {
    let need = report(isotherm, "need", record)?;
    points(&need["needs"][0]["curve"], "saved_bytes", ("returned_bytes_per_second", 1.0))
}

/// What `isotherm report advice` says of the same record.
///
/// # Errors
/// If there is no such report.
pub fn advised(isotherm: &Path, record: &Path) -> Result<Vec<PredictedPoint>> {
    let advice = report(isotherm, "advice", record)?;
    points(&advice["sizing"][0]["idle"], "idle_bytes", ("returned_bytes_per_min", 60.0))
}

fn report(isotherm: &Path, name: &str, record: &Path) -> Result<Value> {
    let report = ["report", name, "--json", "-i"];
    let out = Command::new(isotherm).args(report).arg(record).output()?;
    serde_json::from_slice(&out.stdout).context("no report")
}

/// Points of a table with these keys; the returned memory is per so many seconds.
fn points(
    table: &Value,
    saved: &str,
    (returned, seconds): (&str, f64),
) -> Result<Vec<PredictedPoint>> {
    let figure = |p: &Value, key: &str| p[key].as_f64().context("no figure");
    let point = |p| {
        let (age, saved) = (figure(p, "idle_ms")? / 1e3, figure(p, saved)?);
        Ok(PredictedPoint { age, saved, returned: figure(p, returned)? / seconds })
    };
    table.as_array().context("no curve")?.iter().map(point).collect()
}

/// What `isotherm whatif` says of `reclaim --pages` at these minimum ages in s, without quotas.
///
/// # Errors
/// If it refuses one of them.
pub fn played(isotherm: &Path, record: &Path, ages: &[u64]) -> Result<Vec<PredictedPoint>> {
    let mut command = Command::new(isotherm);
    command.arg("whatif").arg(record).args(["--pages", "--json"]);
    command.args(["--quota", "none", "--quota-size", "none"]);
    for age in ages {
        command.args(["--min-age", &format!("{age}s")]);
    }
    let played: Value = serde_json::from_slice(&command.output()?.stdout).context("no report")?;
    let settings = played["settings"].as_array().context("no settings")?;
    let point = |(setting, age): (&Value, &u64)| {
        let figure = |key: &str| setting[key].as_f64().context("no figure");
        let (saved, returned) = (figure("saved_bytes")?, figure("returned_bytes_per_second")?);
        Ok(PredictedPoint { age: *age as f64, saved, returned })
    };
    settings.iter().zip(ages).map(point).collect()
}

/// The median factor between predictions and measurements, `None` without any, and how many of all are within 1.5.
#[must_use]
pub fn factors(of: impl Iterator<Item = (f64, f64)>) -> (Option<f64>, usize, usize) {
    let factor =
        |(predicted, measured): (f64, f64)| (predicted.max(1.0) / measured).ln().abs().exp();
    let factors: Vec<f64> = of.map(factor).collect();
    let (within, all) = (factors.iter().filter(|f| **f <= 1.5).count(), factors.len());
    (middle(factors), within, all)
}
