//! The memory that reading a file of a lake needs.

#![allow(clippy::unwrap_used)]

#[path = "../../../fuzz/src/heap.rs"]
mod heap;

use isotherm_fleet::{Effort, Group, LakeRow, Writer, decode};

/// A text of 1 MiB, which is compressed to 100 bytes, needed 1 GiB for 1024 rows.
#[test]
fn a_text_that_many_rows_share_is_kept_once() {
    let rows = vec![LakeRow::default(); 3000];
    let groups = [Group { command: "x".repeat(1 << 20), ..Group::default() }];
    let mut writer = Writer::new(Vec::new(), Effort::Small).unwrap();
    writer.write(&groups, &rows).unwrap();
    let file = writer.finish().unwrap();
    assert!(file.len() < 100 << 10, "{}", file.len());
    let (read, most) = heap::most(|| decode(file, 3000).unwrap());
    assert_eq!((&read.groups[..], read.rows), (&groups[..], rows));
    assert!(most < 64 << 20, "{most}");
}
