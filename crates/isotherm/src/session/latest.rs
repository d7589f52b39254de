//! The last snapshot of a session, for other programs.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use isotherm_core::{Attrs, Snapshot};
use isotherm_record::{Limits, TargetFact, Why, WriteError, Writer};
use serde::Serialize;

use super::scene::Scene;
use crate::record::facts;

/// `docs/abi/testing/control.md`.
#[derive(Debug, Serialize)]
pub struct LatestSnapshot {
    seq: u64,
    record: String,
}

impl LatestSnapshot {
    /// The last snapshot as a record that contains only it, with the names of its targets; `None` if it is not
    /// later than the snapshot number `after`.
    ///
    /// # Errors
    /// If the snapshot cannot be encoded.
    pub fn of(scene: &Scene<'_>, after: Option<u64>) -> Result<Option<Self>, WriteError> {
        let Some(s) = scene.snapshot.filter(|s| after.is_none_or(|after| s.seq > after)) else {
            return Ok(None);
        };
        let record = encode(scene, s, s.attrs)?;
        Ok(Some(LatestSnapshot { seq: s.seq, record: BASE64_STANDARD.encode(record) }))
    }
}

fn encode(scene: &Scene<'_>, s: &Snapshot, attrs: Attrs) -> Result<Vec<u8>, WriteError> {
    let mut bytes = Vec::new();
    let facts = facts(attrs, 0, String::new());
    let mut writer = Writer::to(&mut bytes, "in memory".as_ref(), &facts, Limits::default())?;
    let pids = scene.follower.pid_of();
    for view in &s.targets {
        let a = scene.attributions.of(view.id);
        let pid = pids.get(&view.id).and_then(|pid| u32::try_from(*pid).ok());
        let command = a.map_or_else(String::new, |a| a.comm.to_string());
        let _ = writer.target(TargetFact { id: view.id, pid, command })?;
        if let Some(a) = a {
            let _ = writer.attribution(a.clone())?;
        }
    }
    let _ = writer.snapshot(&Snapshot { seq: 0, ..s.clone() })?;
    writer.finish(Why::Stopped, "")?;
    Ok(bytes)
}
