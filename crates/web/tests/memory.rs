//! A live view stays within its memory, as the allocator counts it.

#![allow(clippy::unwrap_used, missing_docs, reason = "tests, and what helps them")]

#[path = "../../../fuzz/src/heap.rs"]
mod heap;
mod scene;

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, Attribution, Nanos, Snapshot, TargetId, TargetView, Thresholds};
use isotherm_record::{Event, TargetInfo};
use isotherm_view::Index;
use isotherm_view::index::IndexLimits;
use isotherm_web::live_limits;

const EVERY: Duration = Duration::from_secs(1);

/// Of `targets`, `regions` of 1 MiB each, one in ten of which has changed its heat since the last snapshot.
fn snapshot(seq: u32, targets: impl Iterator<Item = u32>, regions: u64) -> Event {
    let template = scene::snapshot(0, 1);
    let view = &template.targets[0];
    let region = |i: u64| {
        let mut region = view.regions[0];
        region.range = AddrRange::new(i << 20, (i + 1) << 20);
        region.rate.hz = ((i * 7 + (u64::from(seq) + i) / 10) % 13) as f32;
        region
    };
    let ages = view.ages.as_ref().filter(|_| seq.is_multiple_of(10));
    let targets = targets.map(|id| TargetView {
        id: TargetId(id),
        regions: (0..regions).map(region).collect(),
        ages: ages.map(|ages| Arc::new((**ages).clone())),
        // As a monitor that has read them again.
        mappings: Arc::new((*view.mappings).clone()),
        ..view.clone()
    });
    let start = Nanos(0) + EVERY * seq;
    let targets = targets.collect();
    Event::Snapshot(Arc::new(Snapshot {
        seq: seq.into(),
        start,
        end: start + EVERY,
        targets,
        ..template
    }))
}

/// The greatest memory that it takes to add events to an index.
fn most(limits: IndexLimits, events: impl Iterator<Item = Event>) -> (Index, usize) {
    heap::most(|| {
        let mut index = Index::new(limits);
        events.for_each(|event| index.push(event));
        index
    })
}

#[test]
fn a_day_of_300_regions_stays_within_40_mib() {
    let limits = live_limits(Thresholds::default());
    let events = (0..86_400).map(|seq| snapshot(seq, 0..1, 300));
    let (index, most) = most(limits, events);
    assert_eq!(index.counts(), (86_400, 86_400 * 300));
    // The heat of the whole day is there, and uses the memory it may.
    assert!(index.bytes() > limits.memory / 3, "{} bytes", index.bytes());
    assert!(most < 42 << 20, "{most} bytes");
}

#[test]
fn processes_that_come_and_go_stay_within_the_limit() {
    let limits =
        IndexLimits { memory: 4 << 20, ring: 4 << 20, ..live_limits(Thresholds::default()) };
    let fact =
        |id| TargetInfo { id: TargetId(id), pid: Some(id), command: format!("process {id}") };
    let attribution = |id: u32, seq: u32| Attribution {
        target: TargetId(id),
        at: Nanos(0) + EVERY * seq,
        comm: format!("p{id}").into(),
        cgroup: format!("/services/{id}").into(),
        swapped: 0,
        major_faults: 0,
    };
    // Fifty at a time, five of which end with each snapshot.
    let events = (0..2000u32).flat_map(|seq| {
        let live = 5 * seq..5 * seq + 50;
        let new = (5 * seq + 45..5 * seq + 50).map(|id| Event::Target(fact(id)));
        let known = live.clone().map(move |id| Event::Attribution(attribution(id, seq)));
        new.chain(known).chain([snapshot(seq, live, 10)])
    });
    let (index, most) = most(limits, events);
    assert!(index.bytes() <= limits.memory, "{} bytes", index.bytes());
    assert!(index.targets(usize::MAX).len() >= 50);
    // Beside them, names of 10,000 targets, and what a snapshot takes while it is added.
    let names = 6 << 20;
    assert!(most < limits.memory + limits.ring + names, "{most} bytes");
}

/// Of each process, many columns of 1000 runs wait to be joined.
#[test]
fn many_large_processes_stay_within_the_limit() {
    let limits =
        IndexLimits { memory: 2 << 20, ring: 2 << 20, ..live_limits(Thresholds::default()) };
    // So many that three columns wait in each of the finer levels.
    let snapshots = 511;
    let (index, _) = most(limits, (0..snapshots).map(|seq| snapshot(seq, 0..25, 1000)));
    assert!(index.bytes() <= limits.memory, "{} bytes", index.bytes());
    let all = Duration::ZERO..EVERY * snapshots;
    for id in 0..25 {
        let columns = index.pyramid(TargetId(id)).unwrap().columns(&all, EVERY);
        let first = columns.iter().map(|c| c.time.start).min();
        assert!(first.is_some_and(|first| first < EVERY * 256), "{id}: from {first:?} on");
    }
}
