use std::process::Command;

use isotherm_record::export_arrow;

use crate::python::python_with;
use crate::samples::{few, reader, record};

/// Checks an exported stream. Its arguments are the file and the expected number of snapshots.
const SCRIPT: &str = r#"
import sys
import pyarrow as pa

with pa.OSFile(sys.argv[1]) as file:
    table = pa.ipc.open_stream(file).read_all()
table.validate(full=True)
n = int(sys.argv[2])
assert table.num_rows == n, table.num_rows
assert table["seq"].to_pylist() == list(range(n))
assert table["start"].to_pylist() == [[0x1000, 0x2000, 0x3000]] * n
assert table["regions"].to_pylist() == [[3]] * n
assert table["rate_high_hz"][0].as_py() == [float("inf")] * 3
assert table["mapping_set"].to_pylist() == [[0]] * (n // 2) + [[1]] * (n - n // 2)
assert table.schema.metadata[b"isotherm.host"] == b"lab"
assert table.schema.metadata[b"isotherm.seed"] == b"7"
"#;

#[test]
fn pyarrow_opens_an_export() {
    let Some(python) = python_with("pyarrow", "pyarrow") else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("export.arrows");
    let exported =
        export_arrow(reader(&record(&few(40))), std::fs::File::create(&file).unwrap()).unwrap();
    assert_eq!(exported.snapshots, 40);
    assert!(exported.torn.is_none());
    let out = Command::new(python).args(["-c", SCRIPT]).arg(&file).arg("40").output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn a_torn_record_is_exported_as_far_as_it_goes() {
    let bytes = record(&few(40));
    let mut stream = Vec::new();
    let exported = export_arrow(reader(&bytes[..bytes.len() - 1]), &mut stream).unwrap();
    assert_eq!(exported.snapshots, 40);
    assert!(exported.torn.is_some());
    assert!(stream.ends_with(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]));
}
