use super::*;
use crate::filter::RecordFilter;
use crate::scene::{mapping, region, snapshot, target, unknown};
use isotherm_core::{TargetView, Unknown};

const KIB: u64 = 1024;

/// 64 KiB of a target: the first half is touched if `hot`, the rest is idle for long.
fn view(id: u32, hot: bool) -> TargetView {
    let hz = if hot { 50.0 } else { 0.0 };
    let regions = vec![region(0, 0x8000, hz), unknown(0x8000, 0x10000, Unknown::Dma)];
    target(id, vec![mapping(0, 0x10000, "[heap]")], regions)
}

/// After `second` seconds of the record.
fn reported(id: u32, second: f64, cgroup: &str, swapped: u64, major_faults: u64) -> Attribution {
    Attribution {
        target: TargetId(id),
        at: snapshot(0, 1.0, vec![]).start + Duration::from_secs_f64(second),
        comm: "app".into(),
        cgroup: cgroup.into(),
        swapped,
        major_faults,
    }
}

/// Ten seconds; target 0 is hot in `/a/x`, target 1 cold in `/a/y` and ends after five.
fn builder(by: By, every: Option<u64>, options: Options) -> GroupsBuilder {
    let all = |second: u64| {
        [
            reported(0, second as f64 + 0.5, "/a/x", 0, 7),
            reported(1, second as f64 + 0.5, "/a/y", second * KIB, 10 * second),
        ]
    };
    let mut b = GroupsBuilder::new(options, by, every.map(Duration::from_secs));
    b.begin(all(0));
    for second in 0..10 {
        let n = if second < 5 { 2 } else { 1 };
        // They come in front of all snapshots that waited with them.
        if second % 5 == 0 {
            (second..second + 5).for_each(|s| all(s).iter().take(n).for_each(|a| b.attribution(a)));
        }
        let views = [view(0, true), view(1, false)];
        b.push(&snapshot(second, 1.0, views.into_iter().take(n).collect()));
    }
    b
}

fn row<'a>(groups: &'a Groups, label: &str) -> &'a GroupRow {
    groups.rows.iter().find(|row| row.label == label).unwrap()
}

#[test]
fn groups_include_the_groups_below() {
    let groups = builder(By::Cgroup, None, Options::default()).finish().unwrap();
    let labels: Vec<&str> = groups.rows.iter().map(|row| &*row.label).collect();
    assert_eq!(labels[..3], ["/", "/a", "/a/x"]);
    assert_eq!(row(&groups, "/").mean, row(&groups, "/a").mean);
    let (x, y) = (row(&groups, "/a/x"), row(&groups, "/a/y"));
    assert_eq!((x.mean.hot_bytes, x.mean.cold_bytes, x.mean.saved_bytes), (32 * KIB, 0, Some(0)));
    // There for half of the time; 0 to 4 KiB saved.
    assert_eq!((y.mean.cold_bytes, y.mean.unknown_bytes), (16 * KIB, 16 * KIB));
    assert_eq!((y.mean.saved_bytes, y.refaulted_bytes), (Some(KIB), Some(40 * 4096)));
    assert_eq!((y.last.resident_bytes, x.last.resident_bytes), (Some(0), Some(64 * KIB)));
    let all = row(&groups, "/a");
    assert_eq!(all.mean.resident_bytes, Some(96 * KIB));
    assert_eq!((all.refaulted_bytes, all.mean.saved_bytes), (Some(40 * 4096), Some(KIB)));
}

/// The last minute of a long record is short enough for parts of a second.
#[test]
fn parts_begin_with_the_selected_time() {
    let s = Duration::from_secs;
    let filter = RecordFilter { time: Some(s(6000)..s(6060)), ..RecordFilter::default() };
    let options = Options { filter, ..Options::default() };
    let mut b = GroupsBuilder::new(options, By::Process, Some(s(1)));
    (0..6100).for_each(|second| b.push(&snapshot(second, 1.0, vec![view(0, true)])));
    let groups = b.finish().unwrap();
    let times: Vec<_> = groups.rows[0].over_time.iter().map(|p| (p.from_ms, p.to_ms)).collect();
    assert_eq!((groups.every_ms, times.len()), (1000.0, 60));
    assert_eq!(times[59], (6_059_000.0, 6_060_000.0));
}

#[test]
fn parts_of_the_time_add_up_to_the_whole() {
    let groups = builder(By::Process, Some(4), Options::default()).finish().unwrap();
    assert_eq!(groups.every_ms, 4000.0);
    let one = groups.rows.iter().find(|row| row.target == Some(1)).unwrap();
    assert_eq!(one.cgroup.as_deref(), Some("/a/y"));
    let cold: Vec<_> = one.over_time.iter().map(|p| (p.from_ms, p.mean.cold_bytes)).collect();
    assert_eq!(cold, [(0.0, 32 * KIB), (4000.0, 8 * KIB)]);
    let faults: u64 = one.over_time.iter().filter_map(|p| p.refaulted_bytes).sum();
    assert_eq!(Some(faults), one.refaulted_bytes);
    let zero = groups.rows.iter().find(|row| row.target == Some(0)).unwrap();
    assert_eq!(zero.over_time.iter().map(|p| p.mean.hot_bytes).collect::<Vec<_>>(), [32 * KIB; 3]);
}

#[test]
fn only_the_time_wanted_counts() {
    let mut options = Options::default();
    options.filter.time = Some(Duration::from_secs(3)..Duration::from_secs(5));
    let groups = builder(By::Cgroup, None, options).finish().unwrap();
    let y = row(&groups, "/a/y");
    assert_eq!((y.refaulted_bytes, y.mean.cold_bytes), (Some(20 * 4096), 32 * KIB));
    assert_eq!(y.mean.saved_bytes, Some(3 * KIB + KIB / 2));
}

/// Records of before version 3.
#[test]
fn missing_figures_are_not_zero() {
    let mut b = GroupsBuilder::new(Options::default(), By::Cgroup, None);
    b.push(&snapshot(0, 1.0, vec![view(0, true)]));
    let groups = b.finish().unwrap();
    let only = &groups.rows[0];
    assert_eq!((groups.rows.len(), &*only.label), (1, "(unknown group)"));
    assert_eq!((only.mean.saved_bytes, only.refaulted_bytes), (None, None));
    assert_eq!(only.mean.hot_bytes, 32 * KIB);
}

/// A recording of another tool does not show which memory is resident.
#[test]
fn memory_whose_residency_is_missing_is_not_called_resident() {
    let missing = isotherm_core::Missing { residency: true, ..Default::default() };
    let options = Options { missing, ..Options::default() };
    let groups = builder(By::Process, Some(4), options).finish().unwrap();
    for row in &groups.rows {
        let over_time = row.over_time.iter().map(|part| part.mean);
        let all = over_time.chain([row.mean, row.last]);
        assert!(all.map(|s| s.resident_bytes).eq((0..row.over_time.len() + 2).map(|_| None)));
    }
    assert_eq!(groups.rows[0].mean.hot_bytes, 32 * KIB);
    let text = crate::groups_text(&groups, 10, false);
    assert!(text.contains("         ?"), "{text}");
}

#[test]
fn long_records_and_many_groups_are_bounded() {
    let mut b = GroupsBuilder::new(Options::default(), By::Process, None);
    for seq in 0..3000 {
        b.push(&snapshot(seq, 1.0, vec![view(seq as u32, true)]));
    }
    let groups = b.finish().unwrap();
    assert_eq!((groups.rows.len(), groups.others), (MAX_ROWS + 1, 3000 - MAX_ROWS as u64));
    assert_eq!(groups.every_ms, 4000.0);
    let all: f64 = groups.rows.iter().map(|row| row.mean.hot_bytes as f64).sum();
    let off = all - 32.0 * 1024.0;
    assert!(off.abs() < 512.0, "rounded in each row: {all}");
}

/// `cat a.rec b.rec`: both have a target 0, and snapshots from 0 on.
#[test]
fn recordings_one_behind_the_other_are_of_different_processes() {
    let mut b = GroupsBuilder::new(Options::default(), By::Cgroup, None);
    b.begin([reported(0, 0.5, "/a", KIB, 1000)]);
    b.attribution(&reported(0, 0.5, "/a", KIB, 1000));
    b.attribution(&reported(0, 99.0, "/a", KIB, 9000));
    b.push(&snapshot(0, 1.0, vec![view(0, true)]));
    b.begin([reported(0, 1.5, "/b", 0, 5000)]);
    b.attribution(&reported(0, 1.5, "/b", 0, 5000));
    b.attribution(&reported(0, 1.8, "/b", 0, 5003));
    let second = snapshot(1, 1.0, vec![view(0, true)]);
    b.push(&Snapshot { seq: 0, ..second });
    let groups = b.finish().unwrap();
    let (all, a, b) = (row(&groups, "/"), row(&groups, "/a"), row(&groups, "/b"));
    assert_eq!((a.refaulted_bytes, b.refaulted_bytes), (Some(0), Some(3 * 4096)));
    assert_eq!((a.mean.saved_bytes, b.mean.saved_bytes), (Some(KIB / 2), Some(0)));
    assert_eq!((a.last.resident_bytes, b.last.resident_bytes), (Some(0), Some(64 * KIB)));
    assert_eq!(
        (all.last.resident_bytes, all.mean.resident_bytes),
        (Some(64 * KIB), Some(64 * KIB))
    );
}

#[test]
fn processes_of_a_row_count_once() {
    let mut b = GroupsBuilder::new(Options::default(), By::Cgroup, None);
    // The root, and a group for each but one process, fill the rows.
    let full = MAX_ROWS as u32 - 1;
    let of = |id: u32| match id < full {
        true => reported(id, 0.1, &format!("/{id}"), 0, 0),
        false => reported(id, 0.1, "/x/y/z", KIB, 0),
    };
    b.begin((0..=full).map(of));
    let views: Vec<_> = (0..=full).map(|id| view(id, true)).collect();
    b.push(&snapshot(0, 1.0, views.clone()));
    b.attribution(&Attribution { major_faults: 2, ..of(full) });
    b.push(&snapshot(1, 1.0, views));
    let groups = b.finish().unwrap();
    let others = row(&groups, "(others)");
    assert_eq!((groups.rows.len(), groups.others), (MAX_ROWS + 1, 3));
    assert_eq!(
        (others.mean.resident_bytes, others.last.resident_bytes),
        (Some(64 * KIB), Some(64 * KIB))
    );
    assert_eq!((others.mean.saved_bytes, others.refaulted_bytes), (Some(KIB), Some(2 * 4096)));
}

#[test]
fn implausible_values_are_bounded() {
    let mut b = GroupsBuilder::new(Options::default(), By::Process, None);
    b.begin([reported(0, 0.0, "/", 0, 0), reported(1, 0.0, "/", 0, 0)]);
    let never = Nanos(u64::MAX);
    for id in 0..2 * MAX_WAITING_ATTRIBUTIONS as u32 {
        b.attribution(&Attribution { at: never, ..reported(id, 0.0, "/", 0, 0) });
    }
    assert_eq!(b.waiting.len(), MAX_WAITING_ATTRIBUTIONS);
    b.begin([reported(0, 0.0, "/", 0, 0), reported(1, 0.0, "/", 0, 0)]);
    for faults in [u64::MAX, 0, u64::MAX] {
        b.attribution(&reported(0, 0.5, "/", u64::MAX, faults));
    }
    b.push(&snapshot(0, 1.0, vec![view(0, true)]));
    let groups = b.finish().unwrap();
    assert_eq!(groups.rows[0].refaulted_bytes, Some(u64::MAX));
    assert_eq!(groups.rows[0].mean.saved_bytes, Some(u64::MAX));
    let mut b = GroupsBuilder::new(Options::default(), By::Process, None);
    let most = (MAX_ROWS + MAX_OTHERS + 9) as u32;
    b.push(&snapshot(0, 1.0, (0..most).map(|id| view(id, false)).collect()));
    assert_eq!(b.finish().unwrap().others, MAX_OTHERS as u64);
}
