//! The small tables, targets and end, and the columns of all tables.

use std::sync::Arc;

use arrow_array::{RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::{ArrowError, SchemaRef};
use isotherm_core::TargetId;

use crate::ages::from_ages;
use crate::attributions::from_attributions;
use crate::bad::InvalidField;
use crate::columns::SnapshotColumns;
use crate::faults::{from_code, from_faults};
use crate::frame::FrameKind;
use crate::header::{End, FileEndReason, TargetInfo};
use crate::lists::{batch, column, numbers, plain, words};
use crate::mappings::from_sets;
use crate::traces::from_traces;
use crate::versions;

/// The columns of each table in the current version.
pub(crate) struct Schemas {
    snapshots: SchemaRef,
    /// columns of version 1
    snapshots_1: SchemaRef,
    /// columns of versions 2 and 3
    snapshots_3: SchemaRef,
    /// columns of versions 4 to 7
    snapshots_7: SchemaRef,
    mappings: SchemaRef,
    targets: SchemaRef,
    end: SchemaRef,
    attribution: SchemaRef,
    ages: SchemaRef,
    faults: SchemaRef,
    code: SchemaRef,
    traces: SchemaRef,
}

impl Schemas {
    pub(crate) fn new() -> Result<Self, ArrowError> {
        let snapshots = SnapshotColumns::default().take()?.schema();
        Ok(Schemas {
            snapshots_1: versions::of_1(&snapshots),
            snapshots_3: versions::of_3(&snapshots),
            snapshots_7: versions::of_7(&snapshots),
            snapshots,
            mappings: from_sets(&[])?.schema(),
            targets: from_targets(&[])?.schema(),
            end: from_ends(&[])?.schema(),
            attribution: from_attributions(&[])?.schema(),
            ages: from_ages(&[])?.schema(),
            faults: from_faults(&[])?.schema(),
            code: from_code(&[])?.schema(),
            traces: from_traces(&[])?.schema(),
        })
    }

    pub(crate) fn of(&self, kind: FrameKind) -> &SchemaRef {
        match kind {
            FrameKind::Snapshots => &self.snapshots,
            FrameKind::Mappings => &self.mappings,
            FrameKind::Targets => &self.targets,
            FrameKind::End => &self.end,
            FrameKind::Attribution => &self.attribution,
            FrameKind::Ages => &self.ages,
            FrameKind::Faults => &self.faults,
            FrameKind::Code => &self.code,
            FrameKind::Traces => &self.traces,
        }
    }

    /// The columns of a table in frames of `version`.
    pub(crate) fn of_version(&self, version: u16, kind: FrameKind) -> &SchemaRef {
        match (kind, version) {
            (FrameKind::Snapshots, 1) => &self.snapshots_1,
            (FrameKind::Snapshots, 2..=3) => &self.snapshots_3,
            (FrameKind::Snapshots, 4..=7) => &self.snapshots_7,
            _ => self.of(kind),
        }
    }
}

pub(crate) fn from_targets(targets: &[TargetInfo]) -> Result<RecordBatch, ArrowError> {
    let ids = UInt32Array::from_iter_values(targets.iter().map(|t| t.id.0));
    let pids = UInt32Array::from_iter(targets.iter().map(|t| t.pid));
    batch(vec![
        plain("id", false, Arc::new(ids)),
        plain("pid", true, Arc::new(pids)),
        plain("command", false, words(targets.iter().map(|t| &*t.command))),
    ])
}

pub(crate) fn to_targets(batch: &RecordBatch) -> Result<Vec<TargetInfo>, InvalidField> {
    let ids: UInt32Array = column(batch, "id")?;
    let pids: UInt32Array = column(batch, "pid")?;
    let commands: StringArray = column(batch, "command")?;
    let row = |((id, pid), command): ((Option<u32>, _), Option<&str>)| {
        Some(TargetInfo { id: TargetId(id?), pid, command: command?.to_owned() })
    };
    let rows: Option<Vec<_>> = ids.iter().zip(&pids).zip(&commands).map(row).collect();
    rows.ok_or(InvalidField::new("a target is null"))
}

pub(crate) fn from_ends(ends: &[End]) -> Result<RecordBatch, ArrowError> {
    batch(vec![
        plain("why", false, words(ends.iter().map(|e| e.why.name()))),
        plain("note", false, words(ends.iter().map(|e| &*e.note))),
        plain("snapshots", false, numbers(ends.iter().map(|e| e.snapshots))),
        plain("files", false, numbers(ends.iter().map(|e| e.files))),
    ])
}

pub(crate) fn to_end(batch: &RecordBatch) -> Result<End, InvalidField> {
    let why: StringArray = column(batch, "why")?;
    let note: StringArray = column(batch, "note")?;
    let snapshots: UInt64Array = column(batch, "snapshots")?;
    let files: UInt64Array = column(batch, "files")?;
    if batch.num_rows() != 1 {
        return Err(InvalidField::new("there is not one row of an end, but none or several"));
    }
    let unknown =
        || InvalidField::because(format!("it ends for an unknown reason, {:?}", why.value(0)));
    Ok(End {
        why: FileEndReason::from_name(why.value(0)).ok_or_else(unknown)?,
        note: note.value(0).to_owned(),
        snapshots: snapshots.value(0),
        files: files.value(0),
    })
}
