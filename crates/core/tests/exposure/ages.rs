use super::*;
use isotherm_core::{Monitor, Unknown};
use proptest::prelude::*;

/// Something that a target does, at some stretch of 4096 pages.
#[derive(Debug, Clone)]
enum Change {
    Touch(u64, u64, f64),
    /// once, by each page
    Once(u64, u64),
    Rest(u64, u64),
    Hide(u64, u64),
    Show(u64, u64),
    Remap(u64, u64),
}

fn change() -> impl Strategy<Value = Change> {
    let (at, len) = (0u64..4000, 1u64..500);
    prop_oneof![
        3 => (at.clone(), len.clone(), 0.02f64..300.0).prop_map(|(at, len, hz)| Change::Touch(at, len, hz)),
        2 => (at.clone(), len.clone()).prop_map(|(at, len)| Change::Once(at, len)),
        3 => (at.clone(), len.clone()).prop_map(|(at, len)| Change::Rest(at, len)),
        1 => (at.clone(), len.clone()).prop_map(|(at, len)| Change::Hide(at, len)),
        1 => (at.clone(), len.clone()).prop_map(|(at, len)| Change::Show(at, len)),
        1 => (at, len).prop_map(|(at, len)| Change::Remap(at, len)),
    ]
}

fn within(at: u64, len: u64) -> AddrRange {
    pages(at, len.min(4096 - at))
}

/// Does a change; what cannot be done is not done. Returns what it makes young.
fn happen(ops: &Ops, target: TargetId, change: &Change) -> Option<AddrRange> {
    let mut m = ops.machine();
    match *change {
        Change::Touch(at, len, hz) => _ = m.touch(target, within(at, len), poisson(hz)),
        Change::Once(at, len) => {
            let every = ms(1);
            if m.touch(target, within(at, len), Pattern::Periodic { every }).is_ok() {
                m.advance(ms(1));
                m.rest(target, within(at, len)).unwrap();
            }
        }
        Change::Rest(at, len) => m.rest(target, within(at, len)).unwrap(),
        Change::Hide(at, len) => {
            m.set_unknown(target, within(at, len), Some(Unknown::Mlocked)).unwrap();
        }
        Change::Show(at, len) => m.set_unknown(target, within(at, len), None).unwrap(),
        Change::Remap(at, len) => {
            m.unmap(target, within(at, len)).unwrap();
            m.map(target, within(at, len), Memory::anonymous()).unwrap();
            return Some(within(at, len));
        }
    }
    None
}

/// When each page of `range` was last touched, at the latest; mapping it counts.
fn last_touch(
    ops: &Ops,
    target: TargetId,
    range: AddrRange,
    mapped: &[Nanos],
    end: Nanos,
) -> Nanos {
    let machine = ops.machine();
    let truth = machine.truth(target).unwrap();
    let each = (range.start..range.end).step_by(PAGE_SIZE as usize).map(|addr| {
        let page = ((addr - BASE) / PAGE_SIZE) as usize;
        truth.last_touch(addr, end).unwrap_or_default().max(mapped[page])
    });
    each.max().unwrap()
}

/// No region is called untouched for longer than all of its pages were.
fn check(s: &Snapshot, ops: &Ops, target: TargetId, mapped: &[Nanos]) -> Result<(), TestCaseError> {
    for r in s.targets.iter().flat_map(|t| &t.regions) {
        if r.touched_bp > 0 || r.unknown_bp.total() > 0 || r.resident_bp == 0 {
            continue;
        }
        let last = last_touch(ops, target, r.range, mapped, s.end);
        let true_age = s.end.since(last);
        prop_assert!(
            r.age <= true_age + ms(1),
            "{:?} was touched {true_age:?} before {:?}, not {:?}",
            r.range,
            s.end,
            r.age
        );
    }
    Ok(())
}

fn ages_are_true(seed: u64, changes: &[(Change, u64)], attrs: Attrs) -> Result<(), TestCaseError> {
    let (ops, target) = machine(seed, |m, t| {
        m.map(t, pages(0, 4096), Memory::anonymous()).unwrap();
    });
    let mut mapped = vec![Nanos(0); 4096];
    let mut monitor = isotherm_core::watch(ops.clone(), attrs, &[target], seed).unwrap();
    for (change, wait) in changes {
        if let Some(range) = happen(&ops, target, change) {
            let first = ((range.start - BASE) / PAGE_SIZE) as usize;
            mapped[first..first + (range.len() / PAGE_SIZE) as usize].fill(ops.machine().now());
        }
        let until = ops.machine().now() + ms(*wait);
        for s in run(&mut *monitor as &mut dyn Monitor<Ops = Ops>, &ops, until).unwrap() {
            check(&s, &ops, target, &mapped)?;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_called_untouched_for_longer_than_it_was(
        seed: u64, windows: bool,
        changes in prop::collection::vec((change(), 50u64..4000), 3..20),
    ) {
        ages_are_true(seed, &changes, Attrs { windows, ..Attrs::default() })?;
    }

    #[test]
    fn nor_by_the_page_scan(
        seed: u64, windows: bool,
        changes in prop::collection::vec((change(), 50u64..2000), 3..10),
    ) {
        let monitor = isotherm_core::MonitorKind::Pages;
        ages_are_true(seed, &changes, Attrs { windows, monitor, ..Attrs::default() })?;
    }
}

#[test]
fn cold_memory_is_cold_as_soon_as_it_is_old_enough() {
    let (ops, target) = machine(1, a_quarter_hot);
    let (snapshots, _) = watched(12.0, Attrs::default(), &ops, target, |_| {});
    let cold = |s: &Snapshot| s.bytes(&Thresholds::default()).cold / MIB;
    for s in snapshots.iter().filter(|s| s.end < seconds(5.0)) {
        assert_eq!(cold(s), 0, "{:?}", s.end);
    }
    assert!(cold(snapshots.last().unwrap()) >= 47, "{} MiB", cold(snapshots.last().unwrap()));
}

/// Memory that is shared for some time, and never touched, is not known to have been cold then.
#[test]
fn memory_is_not_cold_for_the_time_it_was_unknown() {
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 64), Memory::anonymous()).unwrap();
        m.set_unknown(t, mib(32, 32), Some(Unknown::Shared)).unwrap();
    });
    let mut monitor = monitor(Tapped::new(&ops), Attrs::default(), &[target]);
    run_until(&mut monitor, &ops, 8.0);
    ops.machine().set_unknown(target, mib(32, 32), None).unwrap();
    let s = run_until(&mut monitor, &ops, 10.0).pop().unwrap();
    let old = |range| bytes_where(&s.targets[0], range, |r| r.age > Duration::from_secs(3)) / MIB;
    assert_eq!((old(mib(0, 30)), old(mib(34, 30))), (30, 0));
}
