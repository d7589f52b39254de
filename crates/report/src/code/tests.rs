use isotherm_core::AddrRange;

use super::*;
use crate::scene;

/// A fault of target 0 at a page, with one frame.
pub(super) fn fault(kind: FaultKind, address: u64, frame: u64) -> Fault {
    Fault {
        target: TargetId(0),
        at: Nanos(0),
        kind,
        tid: 1,
        thread: "main".into(),
        range: AddrRange::new(address, address + 0x1000),
        weight: 64,
        frames: [frame].into(),
    }
}

/// Calls each address by its number.
struct Numbers;

impl FindFunctions for Numbers {
    fn functions(&mut self, at: &CodeAddress<'_>) -> Vec<(String, Option<String>)> {
        match at.address {
            0x999 => Vec::new(),
            n => vec![(format!("f{n:x}"), Some(format!("a.c:{n}")))],
        }
    }

    /// A variable in the last hot quarter and the first cold third of the memory.
    fn variables(&mut self, code: &CodeMapping) -> Vec<(AddrRange, String)> {
        let mib = 1 << 20;
        vec![(AddrRange::new(mib + 3 * mib / 4, 3 * mib), format!("table of {}", code.path))]
    }
}

/// 1 MiB hot from 1 MiB on, and 3 MiB cold after it.
fn snapshot(seq: u64) -> Arc<Snapshot> {
    let mib = 1 << 20;
    let maps = vec![scene::mapping(mib, 5 * mib, "[heap]")];
    let regions = vec![scene::region(mib, 2 * mib, 50.0), scene::region(2 * mib, 5 * mib, 0.0)];
    Arc::new(scene::snapshot(seq, 1.0, vec![scene::target(0, maps, regions)]))
}

pub(super) fn built(by: CodeBy, faults: &[Fault]) -> Code {
    let mut builder = CodeBuilder::new(Options::default(), by);
    faults.iter().for_each(|f| builder.fault(f));
    builder.push(&snapshot(0));
    builder.finish(&mut Numbers).unwrap()
}

fn mib(e: Estimate) -> f64 {
    e.bytes / f64::from(1 << 20)
}

#[test]
fn bytes_of_a_function_are_its_samples_times_their_weight() {
    // Each sample stands for 64 pages, 256 KiB.
    let hot = (0..4).map(|i| fault(FaultKind::Minor, (1 << 20) + i * 0x4_0000, 0xa));
    let cold = (0..8).map(|i| fault(FaultKind::Minor, (2 << 20) + i * 0x4_0000, 0xb));
    let code = built(CodeBy::Function, &hot.chain(cold).collect::<Vec<_>>());
    let row = |r: &CodeRow| (r.name.clone(), mib(r.memory.hot), mib(r.memory.cold));
    let rows: Vec<_> = code.rows.iter().map(row).collect();
    assert_eq!(rows, [("fb".to_owned(), 0.0, 2.0), ("fa".to_owned(), 1.0, 0.0)]);
    let b = code.rows[0].memory;
    assert!(b.cold.low < b.cold.bytes && b.cold.bytes < b.cold.high, "{b:?}");
    assert_eq!(b.idle_ms, 60_000.0);
    assert_eq!(
        (code.samples, mib(code.with_stack.of_any_heat), mib(code.all.of_any_heat)),
        (12, 3.0, 4.0)
    );
    assert_eq!(code.short_stacks, 1.0, "one frame is a short stack");
}

#[test]
fn swapped_and_freed_pages_are_no_bytes() {
    let at = 2u64 << 20;
    let minor = |page: u64| fault(FaultKind::Minor, at + page * 0x1000, 0xb);
    let faults = [
        minor(0),
        minor(1),
        minor(2),
        fault(FaultKind::Freed, at, 0),
        fault(FaultKind::Swapped, at + 0x1000, 0),
    ];
    assert_eq!(built(CodeBy::Function, &faults).samples, 1);
}

/// Of a huge page, half was freed, and a quarter was filled again by other code: together they were more than there is.
#[test]
fn a_huge_page_counts_as_far_as_it_is_resident_and_not_filled_again() {
    let mut huge = fault(FaultKind::Minor, 2 << 20, 0xa);
    (huge.range.end, huge.weight) = (4 << 20, 1);
    let pages = [0, 5].map(|n| fault(FaultKind::Minor, (2 << 20) + n * 0x1000, 0xb));
    let mut builder = CodeBuilder::new(Options::default(), CodeBy::Function);
    [huge].iter().chain(&pages).for_each(|f| builder.fault(f));
    let region = scene::region(2 << 20, 4 << 20, 0.0);
    let regions = vec![RegionView { resident_bp: 5000, ..region }];
    let maps = vec![scene::mapping(2 << 20, 4 << 20, "[heap]")];
    builder.push(&Arc::new(scene::snapshot(0, 1.0, vec![scene::target(0, maps, regions)])));
    let code = builder.finish(&mut Numbers).unwrap();
    let row = |r: &CodeRow| (r.name.clone(), mib(r.memory.cold));
    let rows: Vec<_> = code.rows.iter().map(row).collect();
    assert_eq!(rows, [("fa".to_owned(), 0.75), ("fb".to_owned(), 0.5)]);
}

/// One program that allocates hid the memory of all others.
#[test]
fn a_target_without_allocations_shows_first_touches() {
    let of = |target, kind, address, frame| Fault {
        target: TargetId(target),
        ..fault(kind, address, frame)
    };
    let faults = [
        of(0, FaultKind::Allocated, 2 << 20, 0xa),
        of(0, FaultKind::Minor, 2 << 20, 0xb),
        of(1, FaultKind::Minor, 2 << 20, 0xc),
    ];
    let mut builder = CodeBuilder::new(Options::default(), CodeBy::Function);
    faults.iter().for_each(|f| builder.fault(f));
    let target = |id| {
        let maps = vec![scene::mapping(2 << 20, 4 << 20, "[heap]")];
        scene::target(id, maps, vec![scene::region(2 << 20, 4 << 20, 0.0)])
    };
    builder.push(&Arc::new(scene::snapshot(0, 1.0, vec![target(0), target(1)])));
    let code = builder.finish(&mut Numbers).unwrap();
    let mut names: Vec<_> = code.rows.iter().map(|r| &*r.name).collect();
    names.sort_unstable();
    assert_eq!((names, code.owner), (vec!["fa", "fc"], "allocation"));
}

#[test]
fn rows_are_lines_paths_threads_and_mappings() {
    let mut f = fault(FaultKind::Minor, 2 << 20, 0xb);
    f.frames = [0xb, 0x2001, 0x99a].into();
    let name = |by| built(by, &[f.clone()]).rows.first().map(|r| r.name.clone()).unwrap();
    assert_eq!(name(CodeBy::Line), "fb a.c:11");
    assert_eq!(name(CodeBy::Path), "[unknown] > f2000 > fb", "return addresses are after a call");
    assert_eq!(name(CodeBy::Thread), "main");
    assert_eq!(name(CodeBy::Library), "[unknown]");
    assert_eq!(name(CodeBy::Data), "[heap]");
}

#[test]
fn memory_of_global_variables_is_theirs() {
    let code = CodeMapping {
        range: AddrRange::new(0x1000, 0x2000),
        offset: 0,
        path: "a".into(),
        build_id: "".into(),
    };
    let mut builder = CodeBuilder::new(Options::default(), CodeBy::Data);
    builder.code(TargetId(0), &Arc::new(vec![code]));
    builder.push(&snapshot(0));
    let code = builder.finish(&mut Numbers).unwrap();
    let row = |r: &CodeRow| (r.name.clone(), mib(r.memory.hot), mib(r.memory.cold));
    let rows: Vec<_> = code.rows.iter().map(row).collect();
    assert_eq!(rows, [("[heap]".to_owned(), 0.75, 2.0), ("table of a".to_owned(), 0.25, 1.0)]);
}

#[test]
fn major_faults_are_counted_by_stack() {
    let mut major = fault(FaultKind::Major, 2 << 20, 0xc);
    major.weight = 1;
    let minor = fault(FaultKind::Minor, 2 << 20, 0xb);
    let code = built(CodeBy::Function, &[minor, major.clone(), major]);
    assert_eq!(code.rows.len(), 1, "the page stays that of its first touch");
    assert_eq!((code.refaults[0].faults, code.refaults[0].per_second), (2, 2.0));
    assert_eq!(&*code.refaults[0].frames[0].function, "fc");
}

#[test]
fn frames_of_the_sampling_library_are_left_out() {
    let code = CodeMapping {
        range: AddrRange::new(0xa000, 0xb000),
        offset: 0,
        path: "/a/libisotherm-alloc-7.so".into(),
        build_id: "".into(),
    };
    let mut builder = CodeBuilder::new(Options::default(), CodeBy::Path);
    builder.code(TargetId(0), &Arc::new(vec![code]));
    let frames = [0xa010, 0xa020, 0xc].into();
    builder.fault(&Fault { frames, ..fault(FaultKind::Minor, 2 << 20, 0) });
    builder.push(&snapshot(0));
    let code = builder.finish(&mut Numbers).unwrap();
    assert_eq!(code.rows.iter().map(|r| &*r.name).collect::<Vec<_>>(), ["fb"]);
}

#[test]
fn saved_memory_is_the_mean_of_the_snapshots() {
    let mut builder = CodeBuilder::new(Options::default(), CodeBy::Function);
    let mut add = |swapped: Option<u64>, target, seq| {
        if let Some(swapped) = swapped {
            let (comm, cgroup) = ("a".into(), "".into());
            let target = TargetId(target);
            let at = Nanos(0);
            builder.attribution(&Attribution {
                target,
                at,
                comm,
                cgroup,
                swapped,
                major_faults: 0,
            });
        }
        builder.push(&snapshot(seq));
    };
    // Nothing is known at first; target 1 is in no snapshot.
    [(None, 0), (Some(100), 0), (Some(7), 1), (Some(400), 0)]
        .into_iter()
        .zip(0..)
        .for_each(|((swapped, target), seq)| add(swapped, target, seq));
    let code = builder.finish(&mut Numbers).unwrap();
    assert_eq!(code.saved_bytes, Some(200.0));
    assert_eq!(built(CodeBy::Function, &[]).saved_bytes, None);
}

#[test]
fn faults_after_the_selected_time_do_not_count() {
    let time = Some(Duration::ZERO..Duration::from_secs(1));
    let options = Options {
        filter: crate::RecordFilter { time, ..Default::default() },
        ..Options::default()
    };
    let mut builder = CodeBuilder::new(options, CodeBy::Function);
    builder.fault(&fault(FaultKind::Minor, 2 << 20, 0xb));
    builder.push(&snapshot(0));
    builder.push(&snapshot(1));
    builder.fault(&fault(FaultKind::Minor, 3 << 20, 0xb));
    assert_eq!(builder.finish(&mut Numbers).unwrap().samples, 1);
}

/// A record contains the faults of 5 s before the snapshots of that time.
#[test]
fn faults_before_snapshots_belong_to_their_own_time() {
    let time = Some(Duration::from_secs(1)..Duration::from_secs(2));
    let options = Options {
        filter: crate::RecordFilter { time, ..Default::default() },
        ..Options::default()
    };
    let mut builder = CodeBuilder::new(options, CodeBy::Function);
    let begin = snapshot(0).start;
    for ms in [500, 1500, 2500] {
        let at = begin + Duration::from_millis(ms);
        let minor = fault(FaultKind::Minor, (2 << 20) + ms / 100 * 0x1000, 0xb);
        builder.fault(&Fault { at, ..minor });
        builder.fault(&Fault { at, weight: 1, ..fault(FaultKind::Major, 4 << 20, ms) });
    }
    (0..3).for_each(|seq| builder.push(&snapshot(seq)));
    let code = builder.finish(&mut Numbers).unwrap();
    let refaults = code.refaults.iter().map(|r| (&*r.frames[0].function, r.per_second));
    assert_eq!((code.samples, refaults.collect::<Vec<_>>()), (2, vec![("f5dc", 1.0)]));
}

/// A program that grew during the last snapshot had more memory with a stack than memory.
#[test]
fn memory_that_a_snapshot_has_read_before_it_was_touched_does_not_count() {
    let at = snapshot(0).start + Duration::from_millis(900);
    let page = |at, page: u64, frame| Fault {
        at,
        ..fault(FaultKind::Minor, (1 << 20) + page * 0x2_0000, frame)
    };
    // Of 4 MiB, samples of 256 KiB each: 3 MiB from before, and 2 MiB.
    let earlier: Vec<_> = (0..12).map(|i| page(Nanos(0), i, 0xa)).collect();
    let later: Vec<_> = (12..20).map(|i| page(at, i, 0xb)).collect();
    let of = |faults: &[Fault], frame| {
        let code = built(CodeBy::Function, faults);
        code.rows.iter().find(|r| r.name == frame).map(|r| mib(r.memory.of_any_heat))
    };
    let all = [earlier.clone(), later.clone()].concat();
    assert_eq!((of(&all, "fa"), of(&all, "fb")), (Some(3.0), Some(1.0)));
    assert_eq!(of(&later, "fb"), Some(2.0), "what there is room for");
    let more: Vec<_> = (0..20).map(|i| page(Nanos(0), i, 0xa)).collect();
    assert_eq!(of(&more, "fa"), Some(5.0), "earlier samples are a sample");
}

/// As in a record that was joined with a recording of another tool.
#[test]
fn memory_whose_residency_is_missing_is_not_called_resident() {
    let missing = Missing { residency: true, ..Missing::default() };
    let mut builder = CodeBuilder::new(Options { missing, ..Options::default() }, CodeBy::Function);
    builder.fault(&fault(FaultKind::Minor, 2 << 20, 0xb));
    builder.push(&snapshot(0));
    let code = builder.finish(&mut Numbers).unwrap();
    let of_rows = code.rows.iter().map(|r| &r.memory);
    let all: Vec<&CodeMemory> = of_rows.chain([&code.all, &code.with_stack]).collect();
    assert!(all.len() == 3 && all.iter().all(|m| m.resident.is_none()), "{all:?}");
    assert_eq!((mib(code.all.of_any_heat), mib(code.rows[0].memory.cold)), (4.0, 0.25));
    let json = serde_json::to_value(&code).unwrap();
    assert!(
        json["all"]["resident_bytes"].is_null() && json["stacks"][0]["resident_bytes"].is_null()
    );
    let text = crate::code_text(&code, 10);
    let of = |name: &str| text.lines().find(|line| line.ends_with(name)).unwrap().to_owned();
    assert!([of("fb"), of("(without a stack)")].iter().all(|line| line.contains(" ? ")), "{text}");
    assert!(!crate::flame_graph(&code).contains("resident"));
    let change = CodeChange::between(code.clone(), code);
    assert!(change.rows[0].before.resident.is_none());
    assert!(crate::code_change_text(&change, 10).contains("? resident, 3.0 MiB cold"));
}
