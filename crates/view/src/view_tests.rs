use isotherm_core::{Attrs, RegionView, TargetView};
use isotherm_report::Cell;

use super::*;
use crate::scene;
use crate::table::sort;

const MIB: u64 = 1 << 20;

fn attribution(target: u32, cgroup: &str, major_faults: u64, at: Nanos) -> Event {
    Event::Attribution(Attribution {
        target: TargetId(target),
        at,
        comm: format!("app{target}").into(),
        cgroup: cgroup.into(),
        swapped: 100 * u64::from(target),
        major_faults,
    })
}

fn target(id: u32, regions: Vec<RegionView>) -> TargetView {
    let maps =
        vec![scene::mapping(0, 8 * MIB, "[heap]"), scene::mapping(64 * MIB, 80 * MIB, "/x/y.so")];
    scene::target(id, maps, regions)
}

/// Two processes in one group, and one beside it, over ten snapshots of 1 s. Each second, the first waits for two
/// pages. In the first half of the time it is hot.
fn filled() -> View {
    let mut view = View::new(16 << 20);
    for (id, cgroup) in [(0, "/a/b"), (1, "/a"), (2, "/c")] {
        let command = format!("/usr/bin/app{id} --option");
        let fact = TargetInfo { id: TargetId(id), pid: Some(100 + id), command };
        view.push(Event::Target(fact));
        view.push(attribution(id, cgroup, 7, Nanos(0)));
    }
    for seq in 0..10 {
        let hz = if seq < 5 { 100.0 } else { 1.0 };
        let targets = vec![
            target(0, vec![scene::region(0, 2 * MIB, hz), scene::region(64 * MIB, 65 * MIB, 0.0)]),
            target(1, vec![scene::region(0, 4 * MIB, 0.0)]),
            target(2, vec![scene::region(0, MIB, 50.0)]),
        ];
        let s = scene::snapshot(seq, 1.0, targets);
        view.set_pressure([("/a".into(), 1.5), ("/".into(), 0.5)].into());
        view.push(attribution(0, "/a/b", 7 + 2 * (seq + 1), s.end));
        view.push(Event::Snapshot(s.into()));
    }
    view
}

fn span(view: &View) -> Range<Nanos> {
    view.ring().span().unwrap()
}

#[test]
fn groups_sum_their_processes_and_processes_sort_by_any_column() {
    let view = filled();
    let now = view.ring().last().unwrap();
    let mut rows = view.table(now, By::Cgroup);
    sort(&mut rows, Column::Resident, true);
    let shown: Vec<_> = rows
        .iter()
        .map(|r| (r.name.as_str(), r.processes, r.figures.heat.resident() / MIB))
        .collect();
    assert_eq!(shown, [("/", 3, 8), ("/a", 2, 7), ("/a/b", 1, 3), ("/c", 1, 1)]);
    assert_eq!((rows[1].figures.saved, rows[1].pressure), (100, Some(1.5)));
    assert_eq!(rows[1].refaults_per_second, 2.0);
    let mut rows = view.table(now, By::Process);
    let names = |rows: &[TableRow]| rows.iter().map(|r| r.name.clone()).collect::<Vec<_>>();
    sort(&mut rows, Column::Hot, true);
    assert_eq!(names(&rows), ["app2", "app0", "app1"]);
    sort(&mut rows, Column::Cold, false);
    assert_eq!(names(&rows), ["app2", "app0", "app1"]);
    sort(&mut rows, Column::Pid, true);
    assert_eq!(names(&rows), ["app2", "app1", "app0"]);
    assert_eq!(rows[2].figures.oldest_cold, Some(Duration::from_secs(60)));
    assert!(rows[0].matches("APP2") && rows[0].matches("/c") && rows[0].matches("102"));
    assert!(!rows[0].matches("app1") && !rows[0].matches("10"));
}

/// Three processes of which none is the first in all columns. Memory of process 2 is not cold, and the pressure of
/// its group is not known.
fn unlike() -> View {
    let mut view = View::new(16 << 20);
    let groups = ["/a/b", "/a", "/c"];
    for (id, cgroup) in (0..).zip(groups) {
        view.push(attribution(id, cgroup, 0, Nanos(0)));
    }
    let pressures = [("/", 0.5), ("/a", 1.5), ("/a/b", 2.5)];
    view.set_pressure(pressures.map(|(group, p)| (group.into(), p)).into());
    let unknown =
        |mib: u64| scene::unknown(64 * MIB, (64 + mib) * MIB, isotherm_core::Unknown::Mlocked);
    let aged = |mib: u64, seconds| RegionView {
        age: Duration::from_secs(seconds),
        ..scene::region(0, mib * MIB, 0.0)
    };
    for seq in 0..4 {
        let targets = vec![
            target(0, vec![aged(2, 60), unknown(1)]),
            target(1, vec![aged(1, 90), unknown(3)]),
            target(2, vec![scene::region(0, 6 * MIB, 50.0), unknown(2)]),
        ];
        let s = scene::snapshot(seq, 1.0, targets);
        for (id, faults) in [(0, 3), (2, 1)] {
            view.push(attribution(id, groups[id as usize], faults * (seq + 1), s.end));
        }
        view.push(Event::Snapshot(s.into()));
    }
    view
}

#[test]
fn processes_and_groups_sort_by_what_is_not_heat() {
    let view = unlike();
    let names = |by, column, descending| {
        let mut rows = view.table(view.ring().last().unwrap(), by);
        sort(&mut rows, column, descending);
        rows.into_iter().map(|row| row.name).collect::<Vec<_>>()
    };
    for (column, processes, groups) in [
        (Column::Unknown, [1, 2, 0], ["/", "/a", "/c", "/a/b"]),
        (Column::OldestCold, [1, 0, 2], ["/", "/a", "/a/b", "/c"]),
        (Column::Saved, [2, 1, 0], ["/", "/c", "/a", "/a/b"]),
        (Column::Refaults, [0, 2, 1], ["/", "/a", "/a/b", "/c"]),
        (Column::Pressure, [0, 1, 2], ["/a/b", "/a", "/", "/c"]),
        (Column::OwnCost, [2, 1, 0], ["/", "/c", "/a", "/a/b"]),
    ] {
        let mut processes = processes.map(|id| format!("app{id}"));
        assert_eq!(names(By::Process, column, true), processes, "{column:?}");
        assert_eq!(names(By::Cgroup, column, true), groups, "{column:?}");
        processes.reverse();
        assert_eq!(names(By::Process, column, false), processes, "{column:?}");
    }
}

#[test]
fn a_series_shows_when_memory_was_hot() {
    let view = filled();
    let hot = |key, columns| view.series(&key, Column::Hot, &span(&view), columns);
    let two = (2 * MIB) as f64;
    assert_eq!(hot(Key::Process(TargetId(0)), 2), [Some(two), Some(0.0)]);
    let one = MIB as f64;
    assert_eq!(hot(Key::Cgroup("/".into()), 2), [Some(two + one), Some(one)]);
    assert_eq!(hot(Key::Process(TargetId(9)), 2), [None, None]);
    let later = Range { end: span(&view).end + Duration::from_secs(10), ..span(&view) };
    let refaults = view.series(&Key::Process(TargetId(0)), Column::Refaults, &later, 2);
    assert_eq!(refaults, [Some(2.0), None]);
    let pressure = view.series(&Key::Cgroup("/a".into()), Column::Pressure, &span(&view), 1);
    assert_eq!(pressure, [Some(1.5)]);
}

#[test]
fn cells_are_rates_by_time_and_address() {
    let view = filled();
    let cells = view.cells(TargetId(0), &span(&view), AddrRange::new(0, 4 * MIB), (2, 2));
    let get = |column, row| cells.get(column, row);
    assert_eq!([get(0, 0), get(1, 0)], [Cell::Rate(100.0), Cell::Rate(1.0)]);
    assert_eq!([get(0, 1), get(1, 1)], [Cell::Unmapped; 2]);
}

/// As of an import of another tool's recording.
#[test]
fn memory_whose_residency_is_missing_is_not_called_resident() {
    let mut view = filled();
    let mut facts = view.header_from(Nanos(0), Attrs::default());
    facts.missing.residency = true;
    view.push(Event::Header(facts));
    let areas = view.areas(view.ring().last().unwrap(), TargetId(0), None, 24);
    assert!(areas.len() == 2 && areas.iter().all(|a| a.resident.is_none()), "{areas:?}");
    let known = |column| view.series(&Key::All, column, &span(&view), 2)[0].is_some();
    assert_eq!([Column::Resident, Column::Hot].map(known), [false, true]);
}

#[test]
fn a_process_has_areas_and_mappings() {
    let view = filled();
    let now = view.ring().last().unwrap();
    let areas = view.areas(now, TargetId(0), None, 24);
    let names: Vec<_> =
        areas.iter().map(|a| (a.name.as_str(), a.resident.unwrap() / MIB)).collect();
    assert_eq!(names, [("y.so", 1), ("[heap]", 2)]);
    assert!(areas.iter().map(|a| a.rows + 2).sum::<usize>() <= 24);
    let maps = view.mappings(now, TargetId(0));
    assert_eq!(maps.len(), 2);
    assert_eq!(
        (maps[0].name.as_str(), maps[0].heat.warm, maps[0].hottest_hz),
        ("[heap]", 2 * MIB, 1.0)
    );
    assert_eq!((maps[1].range.len(), maps[1].heat.cold), (16 * MIB, MIB));
    assert!(view.mappings(now, TargetId(9)).is_empty());
    assert!(view.areas(now, TargetId(9), None, 24).is_empty());
}

/// What is saved can be written as a record, and read by a view again.
#[test]
fn a_span_is_a_record_of_itself() {
    let view = filled();
    let all = span(&view);
    let part = Nanos(all.start.0 + 3_000_000_000)..Nanos(all.start.0 + 6_000_000_000);
    let mut again = View::new(16 << 20);
    let facts = RecordingHeader::new("0.1.0", Attrs::default(), part.start);
    let mut writer = isotherm_record::Writer::to(
        Vec::new(),
        "memory".as_ref(),
        &facts,
        isotherm_record::Limits::default(),
    )
    .unwrap();
    let events = view.events(&part, usize::MAX);
    let _ = writer.part(events.clone()).unwrap();
    events.into_iter().for_each(|event| again.push(event));
    assert_eq!(span(&again), part);
    assert_eq!(again.name(TargetId(1)), "app1");
    let hot = |view: &View| view.series(&Key::Process(TargetId(0)), Column::Hot, &part, 3);
    assert_eq!(hot(&again), hot(&view));
}

/// What a service hands over piece by piece is what it has: also bytes in swap and refaults of earlier times.
#[test]
fn a_history_moves_to_another_view_in_pieces() {
    let mut view = filled();
    let Event::Attribution(a) = attribution(1, "/a", 7, span(&view).end) else { unreachable!() };
    view.push(Event::Attribution(Attribution { swapped: 5000, ..a }));
    let last = Snapshot::clone(&view.ring().last().unwrap().snapshot);
    let (start, end) = (last.end, last.end + Duration::from_secs(1));
    view.push(Event::Snapshot(Snapshot { seq: 10, start, end, ..last }.into()));
    let all = span(&view);
    let mut again = View::new(16 << 20);
    let (mut from, mut pieces) = (all.start, 0);
    while from < all.end {
        // Each snapshot has four regions.
        let events = view.events(&(from..all.end), 13);
        let Some(Event::Snapshot(s)) = events.last() else { panic!("{events:?}") };
        (from, pieces) = (s.end, pieces + 1);
        events.into_iter().for_each(|event| again.push(event));
    }
    assert_eq!(pieces, 4);
    assert_eq!(span(&again), all);
    for (id, column) in [(0, Column::Refaults), (1, Column::Saved), (2, Column::Saved)] {
        let course = |view: &View| view.series(&Key::Process(TargetId(id)), column, &all, 11);
        assert_eq!(course(&again), course(&view), "{column:?}");
    }
    let saved = view.series(&Key::Process(TargetId(1)), Column::Saved, &all, 11);
    assert_eq!((saved[9], saved[10]), (Some(100.0), Some(5000.0)));
}

#[test]
fn a_part_has_a_time_only_if_the_whole_has_one() {
    let mut view = View::new(1 << 20);
    let attrs = Attrs::default();
    for (whole, part) in [(0, 0), (1_000_000, 1_005_000)] {
        let facts = RecordingHeader::new("0.1.0", attrs, Nanos(1_000_000_000));
        view.push(Event::Header(RecordingHeader { started_unix_ms: whole, ..facts }));
        assert_eq!(view.header_from(Nanos(6_000_000_000), attrs).started_unix_ms, part);
    }
}

#[test]
fn the_newest_snapshot_has_attributions_in_the_order_of_their_times() {
    let mut view = filled();
    view.push(attribution(1, "/a", 7, span(&view).end));
    view.push(attribution(0, "/a/b", 30, Nanos(3)));
    let facts = RecordingHeader::new("0.1.0", Attrs::default(), Nanos(0));
    let limits = isotherm_record::Limits::default();
    let mut writer =
        isotherm_record::Writer::to(Vec::new(), "memory".as_ref(), &facts, limits).unwrap();
    let newest = view.newest();
    assert_eq!(newest.len(), 7);
    let _ = writer.part(newest).unwrap();
}

/// As on a machine whose processes live for a moment.
#[test]
fn targets_are_known_as_long_as_a_moment_has_them() {
    let mut view = View::new(1 << 20);
    for id in 0..5000u32 {
        view.push(Event::Target(TargetInfo {
            id: TargetId(id),
            pid: Some(id),
            command: "a".into(),
        }));
        // The snapshot is from before the target was found.
        let known = id.saturating_sub(1);
        let of = target(known, vec![scene::region(0, MIB, 1.0)]);
        view.push(Event::Snapshot(scene::snapshot(id.into(), 1.0, vec![of]).into()));
    }
    let all = view.ring().between(&span(&view), Duration::ZERO);
    let ids = all.iter().flat_map(|m| &m.snapshot.targets).map(|view| view.id);
    let held: BTreeSet<TargetId> = ids.collect();
    assert!(held.len() > 10 && held.iter().all(|id| view.targets.contains_key(id)));
    assert!(view.targets.contains_key(&TargetId(4999)), "the newest");
    assert!(view.targets.len() <= FEW_TARGETS + 1, "{}", view.targets.len());
}

#[test]
fn cost_is_a_share_of_a_cpu() {
    let view = filled();
    let cost = view.cost(view.ring().last().unwrap());
    assert!((cost.looking - 0.01).abs() < 1e-6 && cost.lost == 0.0, "{cost:?}");
    // Rows have their parts of it by their 3, 4 and 1 MiB.
    let now = view.ring().last().unwrap();
    for (by, parts) in [(By::Process, vec![3.0, 4.0, 1.0]), (By::Cgroup, vec![8.0, 7.0, 3.0, 1.0])]
    {
        let own: Vec<f64> =
            view.table(now, by).iter().map(|row| row.own_cpu * 100.0 * 8.0).collect();
        assert!(own.iter().zip(&parts).all(|(own, part)| (own - part).abs() < 1e-4), "{own:?}");
    }
    assert!((view.total(now).own_cpu - cost.looking).abs() < 1e-9);
    // Of a second, and of ten seconds that were joined.
    for columns in [10, 1] {
        let series =
            view.series(&Key::Process(TargetId(1)), Column::OwnCost, &span(&view), columns);
        assert_eq!(series.len(), columns);
        assert!(series.iter().all(|own| (own.unwrap() - 0.005).abs() < 1e-6), "{series:?}");
    }
}
