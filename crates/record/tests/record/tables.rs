//! The tables of a record: figures that it does not have are null.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use isotherm_core::{Attribution, Missing, Nanos, RateSupport, Thresholds};
use isotherm_record::{
    FileEndReason, Limits, Reader, RecordingHeader, Table, TargetInfo, Writer, export_parquet,
};

use crate::samples::{
    attribution, facts, few, reader, record, record_attributed, record_with, target,
};

/// The rows of a table of at most one batch.
fn rows(table: Table, record: &[u8]) -> RecordBatch {
    let mut batches = table.read(reader(record), &Thresholds::default()).unwrap();
    let rows = batches.next().unwrap().unwrap();
    assert!(batches.next().is_none());
    rows
}

/// Whether all values of a column are null, or none is.
fn is_null(rows: &RecordBatch, column: &str) -> bool {
    let column = rows.column_by_name(column).unwrap();
    assert!([0, rows.num_rows()].contains(&column.null_count()), "{column:?}");
    column.null_count() > 0
}

#[test]
fn what_an_import_lacks_is_null() {
    let imported = RecordingHeader {
        started_unix_ms: 0,
        missing: Missing { ages: true, residency: true },
        ..facts()
    };
    for (facts, lacks) in [(facts(), false), (imported, true)] {
        let record = record_with(&facts, &few(4));
        let regions = rows(Table::Regions, &record);
        for (column, null) in [
            ("age_ms", lacks),
            ("resident_bp", lacks),
            ("touched_bp", false),
            ("unknown_bp", false),
        ] {
            assert_eq!(is_null(&regions, column), null, "{column}");
        }
        let snapshots = rows(Table::Snapshots, &record);
        for (column, null) in [("time", lacks), ("absent_bytes", lacks), ("hot_bytes", false)] {
            assert_eq!(is_null(&snapshots, column), null, "{column}");
        }
        let elapsed = snapshots.column_by_name("elapsed_us").unwrap();
        assert_eq!(
            elapsed.as_primitive::<UInt64Type>().values(),
            &[400_000, 800_000, 1_200_000, 1_600_000]
        );
    }
}

#[test]
fn regions_have_the_support_of_their_rates() {
    let mut snapshots = few(4);
    let supports = [
        None,
        Some(RateSupport { measured_bp: 7_500, extended_bp: 1_250 }),
        Some(RateSupport::OLD),
    ];
    for s in &mut snapshots {
        for (region, support) in s.targets[0].regions.iter_mut().zip(supports) {
            region.support = support;
        }
    }
    let regions = rows(Table::Regions, &record(&snapshots));
    for (name, of) in [
        ("measured_bp", (|s| s.measured_bp) as fn(RateSupport) -> u32),
        ("extended_bp", |s| s.extended_bp),
    ] {
        let found = regions.column_by_name(name).unwrap().as_primitive::<UInt16Type>();
        let found: Vec<_> = found.iter().map(|bp| bp.map(u32::from)).collect();
        let views = snapshots.iter().flat_map(|s| &s.targets).flat_map(|t| &t.regions);
        assert_eq!(found, views.map(|r| r.support.map(of)).collect::<Vec<_>>(), "{name}");
    }
}

/// Found by a review: a column of 65,536 rows with a long command exceeded 2 GiB.
#[test]
fn a_long_command_is_cut() {
    let mut bytes = Vec::new();
    let mut writer = Writer::to(&mut bytes, Path::new(""), &facts(), Limits::default()).unwrap();
    for id in 0..3 {
        let command = "é".repeat(1 << 20);
        let _ = writer.target(TargetInfo { command, ..target(id) }).unwrap();
    }
    for s in few(4) {
        let _ = writer.snapshot(&s).unwrap();
    }
    writer.finish(FileEndReason::Stopped, "").unwrap();
    for table in [Table::Snapshots, Table::Targets] {
        let rows = rows(table, &bytes);
        let commands = rows["command"].as_string::<i32>();
        assert!(commands.iter().all(|c| c.is_some_and(|c| c.len() == TargetInfo::MAX_COMMAND)));
    }
}

#[test]
fn a_target_without_attribution_has_a_row() {
    // Target 1 has attributions in one of these records.
    for (record, unread) in
        [(record(&few(4)), vec![0, 1, 2]), (record_attributed(&few(4)), vec![0, 2])]
    {
        let targets = rows(Table::Targets, &record);
        let from = targets.num_rows() - unread.len();
        let (read, unread_rows) = (targets.slice(0, from), targets.slice(from, unread.len()));
        let of = |rows: &RecordBatch| rows["target"].as_primitive::<UInt32Type>().values().to_vec();
        assert!(of(&read).iter().all(|target| *target == 1), "{read:?}");
        assert_eq!(of(&unread_rows), unread);
        for column in ["time", "comm", "cgroup", "swapped_bytes", "major_faults"] {
            assert!(
                is_null(&unread_rows, column) && (from == 0 || !is_null(&read, column)),
                "{column}"
            );
        }
        assert!(!is_null(&unread_rows, "pid") && !is_null(&unread_rows, "command"));
    }
}

/// All files below a folder, by their paths in it.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path.strip_prefix(folder).unwrap().display().to_string()),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn recordings_of_unknown_times_lie_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let export = |started: Nanos| {
        let facts = RecordingHeader { started_unix_ms: 0, started, host: String::new(), ..facts() };
        export_parquet(reader(&record_with(&facts, &few(4))), &Thresholds::default(), dir.path())
    };
    export(Nanos(7)).unwrap();
    export(Nanos(5)).unwrap();
    let expected: Vec<String> = ["regions", "snapshots", "targets"]
        .iter()
        .flat_map(|table| {
            ["at5", "at7"].map(|start| {
                format!("{table}/host=unknown/day=__HIVE_DEFAULT_PARTITION__/{start}.parquet")
            })
        })
        .collect();
    assert_eq!(files(dir.path()), expected);
}

/// A record of 16 s, which ends 3 s after midnight, with the attribution of target 1 at the end of each snapshot.
fn over_midnight() -> Vec<u8> {
    let snapshots = few(40);
    let to_midnight = snapshots[32].end.since(facts().started).as_millis() as u64;
    let facts = RecordingHeader { started_unix_ms: 20_000 * 86_400_000 - to_midnight, ..facts() };
    let mut bytes = Vec::new();
    let limits = Limits::default();
    let mut writer = Writer::to(&mut bytes, Path::new("record"), &facts, limits).unwrap();
    let _ = writer.target(target(1)).unwrap();
    for s in &snapshots {
        let at = s.end;
        let _ = writer.attribution(Attribution { at, ..attribution(s) }).unwrap();
        let _ = writer.snapshot(s).unwrap();
    }
    writer.finish(FileEndReason::Stopped, "").unwrap();
    bytes
}

/// Found by an audit: attributions of the second day, which precede the snapshots of the first, turned the day back.
#[test]
fn each_day_has_one_file_of_a_table() {
    let dir = tempfile::tempdir().unwrap();
    export_parquet(reader(&over_midnight()), &Thresholds::default(), dir.path()).unwrap();
    let files = files(dir.path());
    for table in ["regions", "snapshots", "targets"] {
        let of_table = files.iter().filter(|path| path.starts_with(table));
        let found: Vec<_> = of_table.map(|p| p.split(['=', '/']).nth(4).unwrap()).collect();
        assert_eq!(found, ["2024-10-03", "2024-10-04"], "{table}");
    }
}

/// Few bytes of a record at a time, while no file of its export may have its name.
struct Watched {
    record: std::io::Cursor<Vec<u8>>,
    dir: PathBuf,
    most_hidden: Arc<AtomicUsize>,
}

impl std::io::Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let files = files(&self.dir);
        assert!(files.iter().all(|path| path.contains("/.")), "{files:?}");
        self.most_hidden.fetch_max(files.len(), Ordering::Relaxed);
        let len = buffer.len().min(64);
        self.record.read(&mut buffer[..len])
    }
}

/// Found by an audit: an export that was killed left files that broke the whole folder.
#[test]
fn files_have_their_names_when_all_are_complete() {
    let dir = tempfile::tempdir().unwrap();
    let most_hidden = Arc::new(AtomicUsize::new(0));
    let export = |record: Vec<u8>| {
        let (record, dir) = (std::io::Cursor::new(record), dir.path().to_owned());
        let watched = Watched { record, dir: dir.clone(), most_hidden: Arc::clone(&most_hidden) };
        let reader = Reader::new(watched, Path::new("record")).unwrap();
        export_parquet(reader, &Thresholds::default(), &dir)
    };
    let mut damaged = over_midnight();
    let last = damaged.len() - 30;
    damaged[last] ^= 1;
    assert!(export(damaged).is_err());
    assert!(
        most_hidden.swap(0, Ordering::Relaxed) > 0,
        "the first day was not written before the end"
    );
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    export(over_midnight()).unwrap();
    assert_eq!(files(dir.path()).len(), 6);
}

/// An export that fails removes its own files only.
#[test]
fn an_export_replaces_nothing_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let export = |dir: &Path| export_parquet(reader(&record(&few(4))), &Thresholds::default(), dir);
    export(dir.path()).unwrap();
    let before = files(dir.path());
    let of_targets = before.iter().find(|path| path.starts_with("targets")).unwrap();
    for removed in before.iter().filter(|path| *path != of_targets) {
        std::fs::remove_file(dir.path().join(removed)).unwrap();
    }
    let content = std::fs::read(dir.path().join(of_targets)).unwrap();
    assert!(export(dir.path()).is_err());
    assert_eq!(files(dir.path()), std::slice::from_ref(of_targets));
    assert_eq!(std::fs::read(dir.path().join(of_targets)).unwrap(), content);
}
