use isotherm_core::Attrs;

use super::*;
use crate::damon::own_kdamond::tests::{free, read};

fn asked() -> ReclaimSpec {
    ReclaimSpec {
        attrs: KdamondAttrs::from(Attrs::default()),
        memory: vec![AddrRange::new(0x1000, 0x8000), AddrRange::new(0x10_0000, 0x20_0000)],
        min_age: Duration::from_secs(120),
        time: Some(Duration::from_millis(10)),
        bytes: Some(128 << 20),
        window: Duration::from_secs(1),
        watermarks: Some(([5000, 4000, 2000], Duration::from_secs(5))),
        stalled: Some(Duration::from_millis(1)),
        skip_anon: false,
        dry: false,
    }
}

#[test]
fn requests_use_the_files_of_the_kernel() {
    let context = context(&asked(), ExcludedMemory::Nothing).unwrap();
    assert_eq!(context.operations, Operations::Paddr);
    assert_eq!(context.targets[0].regions[1], Region { start: 0x10_0000, end: 0x20_0000 });
    let scheme = &context.schemes[0];
    assert_eq!(scheme.action, Action::PageOut);
    // Intervals of 400 ms.
    assert_eq!(scheme.access_pattern.age.min, 300);
    assert_eq!(scheme.access_pattern.nr_accesses, Bounds { min: 0, max: 0 });
    let quotas = &scheme.quotas;
    assert_eq!((quotas.ms, quotas.bytes, quotas.reset_interval_ms), (10, 128 << 20, 1000));
    assert_eq!(quotas.goals[0].target_value, 1000);
    let marks = &scheme.watermarks;
    assert_eq!((marks.metric, marks.interval_us), (WatermarkMetric::FreeMemRate, 5_000_000));
    assert_eq!((marks.high, marks.mid, marks.low), (500, 400, 200));
}

#[test]
fn no_bound_is_zero() {
    let none = ReclaimSpec { time: None, bytes: None, watermarks: None, stalled: None, ..asked() };
    let scheme = &context(&none, ExcludedMemory::Nothing).unwrap().schemes[0];
    assert_eq!((scheme.quotas.ms, scheme.quotas.bytes, scheme.quotas.goals.len()), (0, 0, 0));
    assert_eq!(scheme.watermarks.metric, WatermarkMetric::None);
    let least = ReclaimSpec { time: Some(Duration::ZERO), bytes: Some(0), ..asked() };
    let quotas = &context(&least, ExcludedMemory::Nothing).unwrap().schemes[0].quotas;
    assert_eq!((quotas.ms, quotas.bytes), (1, 1), "what is bounded never becomes unbounded");
    let files = ReclaimSpec { skip_anon: true, ..asked() };
    let [filter] = &context(&files, ExcludedMemory::Nothing).unwrap().schemes[0].filters[..] else {
        panic!()
    };
    assert_eq!((filter.kind, filter.matching), (FilterType::Anon, true));
    let dry = ReclaimSpec { dry: true, ..asked() };
    assert_eq!(context(&dry, ExcludedMemory::Nothing).unwrap().schemes[0].action, Action::Stat);
    assert!(matches!(
        context(&ReclaimSpec { memory: Vec::new(), ..asked() }, ExcludedMemory::Nothing),
        Err(DamonError::NoTargets)
    ));
}

#[test]
fn excluded_memory_has_a_rejecting_filter() {
    let filters = |spared, skip_anon| {
        let asked = ReclaimSpec { skip_anon, ..asked() };
        let filters = context(&asked, spared).unwrap().schemes.remove(0).filters;
        filters.iter().map(|f| (f.kind, f.matching)).collect::<Vec<_>>()
    };
    assert_eq!(filters(ExcludedMemory::Nothing, false), []);
    assert_eq!(filters(ExcludedMemory::Unmapped, false), [(FilterType::Unmapped, true)]);
    assert_eq!(filters(ExcludedMemory::Files, false), [(FilterType::Anon, false)]);
    let both = [(FilterType::Anon, true), (FilterType::Unmapped, true)];
    assert_eq!(filters(ExcludedMemory::Unmapped, true), both);
}

/// In a tree, which is no kernel: where a file is missing, nothing is started.
#[test]
fn nothing_is_left_where_it_cannot_be_set_up() {
    let machine = free();
    let refused = ReclaimKdamond::start(machine.path(), &asked()).err().unwrap();
    assert!(matches!(refused, DamonError::NoOperations(Operations::Paddr)), "{refused}");
    assert_eq!(read(machine.path(), "nr_kdamonds"), "0");
    assert_eq!(read(machine.path(), "0/state"), "off");
    assert!(!machine.path().join("run/isotherm/damon.json").exists());
}
