//! On copies of the trees that three kernels show; `fixtures/` has each used file with its text.

use std::fs;

use super::*;

const KERNELS: [(&str, &str); 3] = [
    ("6.12", include_str!("fixtures/6.12.txt")),
    ("6.18", include_str!("fixtures/6.18.txt")),
    ("7.2", include_str!("fixtures/7.2.txt")),
];

fn files(list: &str) -> impl Iterator<Item = (&str, &str)> {
    list.lines().map(|line| line.split_once(' ').unwrap_or((line, "")))
}

fn tree(list: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files(list) {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }
    dir
}

fn all(dir: &tempfile::TempDir) -> Result<Vec<Kdamond>, SysfsError> {
    read(dir.path())
}

/// Without any one file, something is missing: so each is read.
#[test]
fn every_file_is_read() {
    for (kernel, list) in KERNELS {
        let dir = tree(list);
        let whole = all(&dir).unwrap();
        for (path, text) in files(list) {
            let path = dir.path().join(path);
            fs::remove_file(&path).unwrap();
            assert!(all(&dir).ok().as_ref() != Some(&whole), "{kernel}: {}", path.display());
            fs::write(&path, text).unwrap();
        }
    }
}

/// Reading one tree and writing it to another makes both equal, except for files that the kernel
/// only shows.
#[test]
fn every_file_is_written() {
    for (kernel, list) in KERNELS {
        let (from, to) = (tree(list), tree(list));
        let is_shown = |path: &str| {
            let shown = ["avail_operations", "state", "pid", "effective_bytes", "total_bytes"];
            path.contains("/stats/") || shown.iter().any(|name| path.ends_with(&format!("/{name}")))
        };
        let texts = |dir: &tempfile::TempDir| -> Vec<String> {
            files(list)
                .map(|(path, _)| fs::read_to_string(dir.path().join(path)).unwrap())
                .collect()
        };
        let before = texts(&to);
        for (path, _) in files(list).filter(|(path, _)| !is_shown(path)) {
            fs::write(to.path().join(path), "?").unwrap();
        }
        write(to.path(), &all(&from).unwrap()).unwrap();
        for (((path, _), is), was) in files(list).zip(texts(&to)).zip(before) {
            // Paths of cgroups that are empty are not written.
            if !path.ends_with("path") {
                assert_eq!(is.trim(), was.trim(), "{kernel}: {path}");
            }
        }
    }
}

#[test]
fn values_are_those_of_the_kernel() {
    let [kdamond] = &all(&tree(KERNELS[0].1)).unwrap()[..] else { panic!("one kdamond") };
    let context = &kdamond.contexts[0];
    assert_eq!(context.avail_operations.0.0, Operations::ALL);
    let intervals = &context.monitoring_attrs.intervals;
    assert_eq!((intervals.sample_us, intervals.update_us), (5000, 60_000_000));
    assert_eq!((intervals.intervals_goal.as_ref(), context.addr_unit), (None, None));
    assert_eq!(context.schemes[0].target_nid, -1);
    assert_eq!((kdamond.pid.0, kdamond.state.0), (-1, Command::Off));
    let [kdamond] = &all(&tree(KERNELS[2].1)).unwrap()[..] else { panic!("one kdamond") };
    assert_eq!(kdamond.contexts[0].addr_unit, Some(1));
}

/// An error about a missing feature names the file and the kernel that has it.
#[test]
fn a_missing_file_is_named() {
    let dir = tree(KERNELS[0].1);
    let mut kdamonds = all(&dir).unwrap();
    kdamonds[0].contexts[0].addr_unit = Some(1);
    let error = write(dir.path(), &kdamonds).unwrap_err().to_string();
    assert!(
        error.contains("0/contexts/0/addr_unit does not exist") && error.contains("6.18"),
        "{error}"
    );
    kdamonds[0].contexts[0].addr_unit = None;
    let intervals = &mut kdamonds[0].contexts[0].monitoring_attrs.intervals;
    intervals.intervals_goal = Some(IntervalsGoal::default());
    let error = write(dir.path(), &kdamonds).unwrap_err().to_string();
    assert!(error.contains("intervals_goal/access_bp") && error.contains("6.15"), "{error}");
}

#[test]
fn nonsense_is_said() {
    let dir = tree(KERNELS[0].1);
    for (path, text) in [("0/contexts/0/operations", "none such"), ("nr_kdamonds", "-1")] {
        let before = fs::read_to_string(dir.path().join(path)).unwrap();
        fs::write(dir.path().join(path), text).unwrap();
        let error = all(&dir).unwrap_err();
        assert!(matches!(&error, SysfsError::Parse { text: t, .. } if t == text), "{error}");
        fs::write(dir.path().join(path), before).unwrap();
    }
}

#[test]
fn tried_regions_come_in_the_order_of_their_numbers() {
    let dir = tree(KERNELS[0].1);
    let tried = dir.path().join("0/contexts/0/schemes/0/tried_regions");
    for (n, start) in [(10, 4096), (9, 0)] {
        let region = tried.join(n.to_string());
        fs::create_dir(&region).unwrap();
        for (name, value) in
            [("start", start), ("end", start + 4096), ("nr_accesses", 3), ("age", 7)]
        {
            fs::write(region.join(name), format!("{value}\n")).unwrap();
        }
    }
    // As 7.2 has them.
    for (probe, hits) in [(0, 20), (1, 0)] {
        let dir = tried.join("10/probes").join(probe.to_string());
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("hits"), format!("{hits}\n")).unwrap();
    }
    let regions: TriedRegions = read(&tried).unwrap();
    let starts: Vec<u64> = regions.regions.0.iter().map(|r| r.start.0).collect();
    assert_eq!(starts, [0, 4096]);
}
