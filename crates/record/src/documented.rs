//! Checks that the specification and the program agree.

use std::collections::BTreeSet;

use arrow_schema::{DataType, Field};
use isotherm_core::{Attrs, Nanos};

use crate::frame::FrameKind;
use crate::header::RecordingHeader;
use crate::tables::Schemas;

const SPECIFICATION: &str = include_str!("../../../docs/abi/testing/record.md");

/// Rows `| name | type | ...` of the Markdown table below `heading`.
fn documented(heading: &str) -> BTreeSet<(String, String)> {
    let (_, section) = SPECIFICATION.split_once(heading).expect(heading);
    section
        .lines()
        .skip_while(|line| !line.starts_with("| `"))
        .take_while(|line| line.starts_with("| `"))
        .map(|line| {
            let mut cells = line.split('|').map(|cell| cell.trim().replace('`', ""));
            let name = cells.nth(1).unwrap();
            (name, cells.next().unwrap())
        })
        .collect()
}

fn type_name(field: &Field) -> String {
    let nullable = if field.is_nullable() { ", null" } else { "" };
    let name = match field.data_type() {
        DataType::List(item) => format!("list<{}>", type_name(item)),
        other => format!("{other:?}").to_lowercase(),
    };
    name + nullable
}

#[test]
fn every_column_is_documented_and_every_documented_column_exists() {
    let schemas = Schemas::new().unwrap();
    for (kind, heading) in [
        (FrameKind::Snapshots, "### Snapshots"),
        (FrameKind::Mappings, "### Mappings"),
        (FrameKind::Targets, "### Targets"),
        (FrameKind::End, "### End"),
        (FrameKind::Attribution, "### Attribution"),
        (FrameKind::Ages, "### Ages"),
        (FrameKind::Faults, "### Faults"),
        (FrameKind::Code, "### Code"),
        (FrameKind::Traces, "### Traces"),
    ] {
        let fields = schemas.of(kind).fields();
        let there = fields.iter().map(|f| (f.name().clone(), type_name(f))).collect();
        assert_eq!(documented(heading), there, "{heading}");
    }
}

#[test]
fn every_fact_is_documented_and_every_documented_fact_exists() {
    let there = RecordingHeader::new("", Attrs::default(), Nanos(0)).metadata().unwrap();
    let there: BTreeSet<String> = there.into_keys().collect();
    let documented = documented("### Facts").into_iter().map(|(name, _)| name).collect();
    assert_eq!(there, documented);
}
