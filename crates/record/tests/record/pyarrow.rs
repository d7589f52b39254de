use std::process::Command;

use isotherm_core::Thresholds;
use isotherm_record::{export_arrow, export_parquet};

use crate::python::python_with;
use crate::samples::{few, reader, record, record_attributed};

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

/// Checks the tables of an exported folder: its argument is the folder.
const PARQUET: &str = r#"
import sys
import pyarrow.dataset as ds

def table(name):
    folder = ds.dataset(f"{sys.argv[1]}/{name}", partitioning="hive")
    return folder.to_table()

regions, snapshots, targets = table("regions"), table("snapshots"), table("targets")
assert regions.num_rows == 120 and snapshots.num_rows == 40, (regions.num_rows, snapshots.num_rows)
assert set(snapshots["host"].to_pylist()) == {"lab"}
assert len(set(snapshots["day"].to_pylist())) == 1, set(snapshots["day"].to_pylist())
assert regions["start"].to_pylist()[:3] == [0x1000, 0x2000, 0x3000]
assert set(regions["bytes"].to_pylist()) == {0x1000}
assert regions["seq"].to_pylist() == [n // 3 for n in range(120)]
assert regions["rate_hz"].to_pylist()[:4] == [0.5, 0.5, 0.5, 0.75]
assert regions["age_ms"].to_pylist()[119] == 400 * 39
assert snapshots["cgroup"].to_pylist()[:2] == ["", "/system.slice/app.service"]
heat = ["hot_bytes", "warm_bytes", "cold_bytes", "unknown_bytes", "absent_bytes"]
for row in snapshots.to_pylist():
    assert sum(row[name] for name in heat) == 0x3000, row
    assert row["length_us"] == 400_000 and row["ran_us"] == 390_000
first, last = snapshots["time"][0].as_py(), snapshots["time"][39].as_py()
assert round((last - first).total_seconds() * 1000) == 39 * 400 and first.utcoffset().total_seconds() == 0
assert round(first.timestamp() * 1000) == 1_795_000_000_000 + 400
read, unread = targets.slice(0, 40), targets.slice(40).to_pylist()
assert read["swapped_bytes"].to_pylist() == [n << 20 for n in range(40)]
assert set(read["pid"].to_pylist()) == {4001}
assert [(row["target"], row["pid"], row["cgroup"]) for row in unread] == [(0, 4000, None), (2, 4002, None)], unread
"#;

#[test]
fn pyarrow_reads_parquet() {
    let Some(python) = python_with("pyarrow", "pyarrow") else { return };
    let dir = tempfile::tempdir().unwrap();
    let bytes = record_attributed(&few(40));
    let limits = Thresholds::default();
    let exported = export_parquet(reader(&bytes), &limits, dir.path()).unwrap();
    assert_eq!(exported.snapshots, 40);
    let out = Command::new(python).args(["-c", PARQUET]).arg(dir.path()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    // What is there is never overwritten.
    assert!(export_parquet(reader(&bytes), &limits, dir.path()).is_err());
}
