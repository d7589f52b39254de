//! Figures, groups and names, without a machine.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::Nanos;
use isotherm_linux::page_cache::{CachedRange, PageMarks};
use isotherm_linux::proc::Mount;
use serde_json::Value;

use super::kept::Kept;
use super::page_use::FileKind;
use super::reader::hides_reads;
use super::scope::{ChosenMount, is_within, mount_of, mounts_of};
use super::*;

const PAGE: u64 = 4096;
const KIND: FileKind =
    FileKind { is_tmpfs: false, hides_reads: false, is_mapped: false, is_two_lists: true };

fn part(cached: u32, sample: Option<(bool, bool, u64)>) -> CachedRange {
    let sample = sample.map(|(referenced, active, group)| PageMarks { referenced, active, group });
    CachedRange { first: 0, cached, evicted: 3, dirty: 2, writeback: 1, sample }
}

#[test]
fn a_sample_stands_for_its_part() {
    let mut pages = PageUse::of_size(100 * PAGE);
    pages.add_part(&part(10, Some((true, false, 0))), &KIND);
    pages.add_part(&part(20, Some((false, true, 0))), &KIND);
    pages.add_part(&part(30, Some((false, false, 0))), &KIND);
    pages.add_part(&part(5, None), &KIND);
    let marks = pages.marks.unwrap();
    let in_pages = |n: u64| n / PAGE;
    assert_eq!((in_pages(pages.resident_bytes), in_pages(marks.sampled_bytes)), (65, 60));
    assert_eq!(in_pages(marks.referenced_bytes), 30, "what is active was read, too");
    assert_eq!(marks.active_bytes.map(in_pages), Some(20));
    assert_eq!(pages.dirty_bytes.map(in_pages), Some(8));
    assert_eq!((pages.evicted_bytes.map(in_pages), pages.swapped_bytes), (Some(12), Some(0)));
    // With MGLRU it is not known what is active; the rest is.
    pages.add_part(&part(1, Some((true, false, 0))), &FileKind { is_two_lists: false, ..KIND });
    assert_eq!(pages.marks.unwrap().active_bytes, None);
    assert_eq!(in_pages(pages.marks.unwrap().referenced_bytes), 31);
}

#[test]
fn absent_pages_of_tmpfs_are_in_swap() {
    let mut pages = PageUse::of_size(0);
    pages.add_part(&part(1, None), &FileKind { is_tmpfs: true, is_mapped: true, ..KIND });
    assert_eq!((pages.evicted_bytes, pages.swapped_bytes), (Some(0), Some(3 * PAGE)));
    assert_eq!(pages.mapped_bytes, Some(PAGE));
}

fn file(name: &str, resident: u64, groups: &[(u64, u64)]) -> FileUse {
    let pages = |resident| PageUse { resident_bytes: resident, ..PageUse::of_size(100) };
    FileUse {
        name: name.into(),
        file_system: "/".into(),
        id: resident,
        pages: pages(resident),
        groups: groups.iter().map(|&(group, resident)| (group, pages(resident))).collect(),
        kind: KIND,
    }
}

fn reading() -> CacheReading {
    CacheReading {
        files: vec![
            file("/a/b/x", 10, &[(1, 4), (2, 6)]),
            file("/a/b/y", 20, &[(2, 20)]),
            file("/a/z", 30, &[(0, 30)]),
            file("[tmpfs 0:1]/m (deleted)", 5, &[]),
        ],
        holders: HashMap::from([(10, vec!["p 1".into(), "q 2".into()]), (20, vec!["p 1".into()])]),
        ..CacheReading::default()
    }
}

fn kept(order: RowOrder) -> Kept {
    Kept::new(reading(), order, 2, Nanos(0))
}

/// Rows as name, files and resident bytes.
fn shown(by: By, depth: Option<usize>) -> Vec<(String, u64, u64)> {
    let kept = kept(RowOrder { by, depth, sort: SortBy::Resident, limit: 9 });
    assert_eq!((kept.total().files, kept.total().pages.resident_bytes), (4, 65));
    let rows = kept.first_rows().rows.into_iter();
    rows.map(|r| (r.name.to_string(), r.files, r.pages.resident_bytes)).collect()
}

#[test]
fn rows_of_each_kind() {
    let row = |name: &str, files, resident| (name.to_owned(), files, resident);
    assert_eq!(shown(By::File, None)[0], row("/a/z", 1, 30));
    assert_eq!(shown(By::Dir, None)[..2], [row("/a", 1, 30), row("/a/b", 2, 30)]);
    assert_eq!(shown(By::Dir, Some(1)), [row("/a", 3, 60), row("[tmpfs 0:1]", 1, 5)]);
    assert_eq!(shown(By::Dir, Some(0))[0], row("/", 3, 60));
    assert_eq!(shown(By::Filesystem, None), [row("/", 4, 65)]);
    let groups = shown(By::Cgroup, None);
    assert_eq!(groups[0], row("[not charged or evicted]", 1, 30));
    assert_eq!(groups[1], row("[removed group 2]", 2, 26));
    let processes = shown(By::Process, None);
    assert_eq!(processes, [row("[no process]", 2, 35), row("p 1", 2, 30), row("q 2", 1, 10)]);
}

#[test]
fn files_that_are_read_again_change_the_rows_and_the_sum() {
    let mut of = kept(RowOrder { limit: 1, ..RowOrder::default() });
    assert_eq!(of.first_rows().rows[0].name, "/a/z");
    // `/a/b/y` has grown.
    let grown = of.scan.files.iter_mut().find(|f| f.name == "/a/b/y").unwrap();
    grown.pages.recount(50, 100);
    let first = of.first_rows();
    assert_eq!((&*first.rows[0].name, first.rows[0].pages.resident_bytes), ("/a/b/y", 50));
    assert_eq!((first.nr_rows, first.rest_bytes), (4, 45));
    assert_eq!(of.total().pages.resident_bytes, 95);
}

#[test]
fn order_and_limit() {
    let order = RowOrder { sort: SortBy::Name, limit: 2, ..RowOrder::default() };
    assert!(kept(order).first_rows().rows.iter().map(|r| &r.name).is_sorted());
    let by_name = kept(RowOrder { limit: 1, ..order });
    let table =
        FilesOutput::new(&by_name, By::File, None, Nanos(41_500_000_000)).text(false, false);
    assert!(table.contains("/a/b/x\n3 more, 55 B: --limit"), "{table}");
    assert!(table.contains("All files were listed 42 s ago"), "{table}");
    assert!(!table.contains("/a/b/y"), "{table}");
}

#[test]
fn each_kind_of_row_has_the_heat_of_its_files() {
    let heat = |hot_bytes, cold_bytes, unknown_bytes| CacheHeat {
        hot_bytes,
        cold_bytes,
        unknown_bytes,
        ..CacheHeat::default()
    };
    // `/a/b/x` has 10 bytes, 4 of them in group 1, and `/a/b/y` has 20. The others were not watched.
    let by_file = HashMap::from([(10, heat(10, 0, 0)), (20, heat(5, 15, 0))]);
    let watched = Duration::from_millis(10_500);
    let heats = FileHeat { by_file, watched, cpu: Duration::ZERO };
    let mut scan = reading();
    let seen = Observed { heat: Some(&heats), reads: None };
    scan.files.iter_mut().for_each(|file| file.set_observed(seen));
    let rows = |by| {
        let order = RowOrder { by, limit: 9, sort: SortBy::Cold, ..RowOrder::default() };
        let kept = Kept::new(scan.clone(), order, 9, Nanos(0));
        let out = FilesOutput::new(&kept, by, Some(watched), Nanos(0));
        let json = serde_json::to_value(&out).unwrap();
        let rows = json["rows"].as_array().unwrap().iter().chain([&json["total"]]);
        let of = |heat: &Value| {
            ["hot", "cold", "unknown"].map(|k| heat[format!("{k}_bytes")].as_u64().unwrap())
        };
        rows.map(|row| (row["name"].as_str().unwrap().to_owned(), of(&row["heat"])))
            .collect::<Vec<_>>()
    };
    let expect = |by, expected: &[(&str, [u64; 3])]| {
        let rows = rows(by);
        for (name, heat) in expected {
            assert!(rows.contains(&((*name).to_owned(), *heat)), "{name} of {rows:?}");
        }
    };
    let total = ("total", [15, 15, 35]);
    expect(By::File, &[("/a/b/y", [5, 15, 0]), ("/a/z", [0, 0, 30]), total]);
    assert_eq!(rows(By::File)[0].0, "/a/b/y", "the most cold bytes first");
    expect(By::Dir, &[("/a/b", [15, 15, 0]), total]);
    expect(By::Filesystem, &[("/", [15, 15, 35]), total]);
    expect(By::Process, &[("p 1", [15, 15, 0]), ("q 2", [10, 0, 0])]);
    expect(By::Cgroup, &[("[removed group 1]", [4, 0, 0]), ("[removed group 2]", [11, 15, 0])]);
    let kept = Kept::new(scan.clone(), RowOrder { limit: 9, ..RowOrder::default() }, 9, Nanos(0));
    let text = FilesOutput::new(&kept, By::File, Some(watched), Nanos(0)).text(false, true);
    assert!(text.contains("accesses of the last 10 s"), "{text}");
    let line = text.lines().find(|line| line.ends_with("/a/b/y")).unwrap();
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert!(cells.join(" ").ends_with("- 5 B - 15 B - /a/b/y"), "{line}");
    // A file that was watched has grown since, and its rows have.
    let mut grown =
        Kept::new(scan.clone(), RowOrder { limit: 9, ..RowOrder::default() }, 9, Nanos(0));
    grown.scan.files.iter_mut().for_each(|file| file.pages.recount(40, 100));
    let json =
        serde_json::to_value(FilesOutput::new(&grown, By::File, Some(watched), Nanos(0))).unwrap();
    let sum: u64 = ["hot", "warm", "cold", "unknown"]
        .iter()
        .map(|k| json["total"]["heat"][format!("{k}_bytes")].as_u64().unwrap())
        .sum();
    assert_eq!(sum, json["total"]["resident_bytes"].as_u64().unwrap());
}

#[test]
fn files_that_are_only_counted_change_no_row_and_no_sum() {
    let order = RowOrder { sort: SortBy::Resident, limit: 7, ..RowOrder::default() };
    let mut all = CacheReading::default();
    let mut first = CacheReading::default();
    for i in 0..50_000_u64 {
        // Some have the same size.
        let mut file = file(&i.to_string(), i.wrapping_mul(0x9e37_79b9) % 9_973, &[]);
        file.pages.read_bytes_per_second = (i % 3 == 0).then_some(i);
        all.files.push(file.clone());
        first.files.push(file);
        first.keep_first(order.sort, order.limit);
    }
    assert!(first.files.len() < 15_000, "{}", first.files.len());
    let [all, first] = [all, first].map(|scan| Kept::new(scan, order, 9, Nanos(0)));
    assert_eq!(all.total(), first.total());
    assert_eq!(all.total().files, 50_000);
    let [all, first] = [all.first_rows(), first.first_rows()];
    assert_eq!(all.rows, first.rows);
    assert_eq!((all.nr_rows, all.rest_bytes), (first.nr_rows, first.rest_bytes));
}

fn mount(device: u32, root: &str, point: &str) -> Mount {
    Mount {
        device: (0, device),
        root: root.into(),
        point: point.into(),
        fs_type: "ext4".into(),
        options: String::new(),
    }
}

#[test]
fn mounts_of_folders() {
    let mounts = [mount(1, "/", "/"), mount(2, "/", "/home"), mount(3, "/x", "/home/a/b")];
    let of = |path: &str| mount_of(&mounts, Path::new(path)).unwrap().device.1;
    assert_eq!([of("/etc"), of("/home/a"), of("/home/a/b/c"), of("/homes")], [1, 2, 3, 1]);
    let folders = [PathBuf::from("/home/a")];
    let within: Vec<u32> = mounts_of(&mounts, &folders).iter().map(|m| m.device.1).collect();
    assert_eq!(within, [2, 3], "its own, and the one below");
    assert_eq!(mounts_of(&mounts, &[]).len(), 3);
    assert!(
        is_within(Path::new("/home/a/x"), &folders) && !is_within(Path::new("/home/ab"), &folders)
    );
}

#[test]
fn a_chosen_mount_is_no_other_one_later() {
    let (root, chosen, later) = (mount(1, "/", "/"), mount(2, "/", "/srv"), mount(3, "/", "/srv"));
    let at = |mounts: &[&Mount]| mounts.iter().map(|m| (*m).clone()).collect::<Vec<_>>();
    let srv = ChosenMount::find("/srv/a".into(), &at(&[&root, &chosen])).unwrap();
    assert_eq!(srv.device(&at(&[&root, &chosen])), Some((0, 2)));
    assert_eq!(srv.device(&at(&[&root])), None, "unmounted");
    assert_eq!(srv.device(&at(&[&root, &chosen, &later])), None, "hidden by another one");
    // Another file system may get the number of its device.
    assert_eq!(srv.device(&at(&[&root, &mount(2, "/", "/other")])), None);
    assert!(matches!(ChosenMount::find("/".into(), &[]), Err(ScopeError::NoMount(_))));
}

/// Found by a review: the metadata of a file system is read all the time, and was cold.
#[test]
fn reads_of_metadata_are_hidden() {
    let [ext4, btrfs, bdev, tmpfs] = [0xef53, 0x9123_683e, 0x6264_6576, 0x0102_1994];
    assert!(hides_reads(bdev, 7, 0) && hides_reads(tmpfs, 7, 9) && hides_reads(btrfs, 1, 0));
    assert!(!hides_reads(ext4, 1, 0) && !hides_reads(btrfs, 257, 0) && !hides_reads(btrfs, 1, 9));
}
