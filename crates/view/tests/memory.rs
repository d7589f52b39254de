//! The ring stays within its memory, as the allocator counts it.

#![allow(clippy::unwrap_used, missing_docs, reason = "tests, and what helps them")]

#[path = "../../../fuzz/src/heap.rs"]
mod heap;
#[path = "../../report/tests/scene/mod.rs"]
mod scene;

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AgeHistogram, HugeAges, Mapping, PageAges, TargetView, Thresholds};
use isotherm_view::{Moment, Ring};

/// What a recording consists of.
#[derive(Debug, Clone, Copy)]
struct Recording {
    targets: u32,
    regions: u64,
    mappings: u64,
    /// Mappings change with every so many snapshots.
    remaps_every: u64,
    /// control groups with a pressure
    groups: u64,
    seconds: f64,
}

/// Snapshots of a recording, which share what snapshots of a monitor share.
struct Moments {
    of: Recording,
    seq: u64,
    maps: Vec<Arc<Vec<Mapping>>>,
}

impl Moments {
    fn of(of: Recording) -> Self {
        Moments { of, seq: 0, maps: Vec::new() }
    }

    fn next(&mut self) -> Moment {
        let Recording { targets, regions, mappings, remaps_every, groups, seconds } = self.of;
        let seq = self.seq;
        self.seq += 1;
        if seq.is_multiple_of(remaps_every) {
            let mapping = |i: u64| {
                scene::mapping(i << 20, (i + 1) << 20, &format!("/usr/lib/{seq}/library-{i}.so"))
            };
            let all = || Arc::new((0..mappings).map(mapping).collect());
            self.maps = (0..targets).map(|_| all()).collect();
        }
        let region = |i: u64| scene::region(i << 20, (i + 1) << 20, ((i * 7 + seq) % 5) as f32);
        let view = |(id, mappings): (u32, &Arc<_>)| {
            let mut idle = AgeHistogram::default();
            idle.add(1000 * (seq % 60), 7);
            let huge = Some(Box::<HugeAges>::default());
            let ages =
                seq.is_multiple_of(10).then(|| PageAges { idle, huge, ..PageAges::default() });
            TargetView {
                mappings: Arc::clone(mappings),
                ages: ages.map(Arc::new),
                ..scene::target(id, vec![], (0..regions).map(region).collect())
            }
        };
        let views: Vec<TargetView> = (0..).zip(&self.maps).map(view).collect();
        let snapshot = Arc::new(scene::snapshot(seq, seconds, views));
        let mut moment = Moment::new(snapshot, &Thresholds::default());
        let pressure = |i: u64| (format!("/services/{seq}/{i}").into(), 0.5);
        moment.pressure = Arc::new((0..groups).map(pressure).collect());
        moment
    }
}

/// Fills a ring of `memory` bytes; returns the share of it that is in use at the end.
fn fill(memory: usize, of: Recording, snapshots: u64) -> f64 {
    let before = heap::held();
    let mut moments = Moments::of(of);
    let mut ring = Ring::new(memory);
    let held = || usize::try_from(heap::held() - before).unwrap();
    for seq in 0..snapshots {
        ring.push(moments.next());
        let counted = ring.bytes();
        assert!(counted <= memory, "{counted} of {memory} after {seq} snapshots of {of:?}");
        assert!(held() <= counted, "{} are held, {counted} are counted: {of:?}", held());
    }
    held() as f64 / memory as f64
}

const RECORDING: Recording =
    Recording { targets: 3, regions: 20, mappings: 10, remaps_every: 50, groups: 0, seconds: 1.0 };

#[test]
fn what_is_held_is_counted_and_within_the_limit() {
    let all = [
        RECORDING,
        Recording { seconds: 0.25, ..RECORDING },
        Recording { seconds: 20.0, ..RECORDING },
        // Little but mappings, which never change, rarely or always.
        Recording { regions: 1, mappings: 200, remaps_every: u64::MAX, ..RECORDING },
        Recording { regions: 1, mappings: 200, ..RECORDING },
        Recording { regions: 1, mappings: 200, remaps_every: 1, ..RECORDING },
        // Little but pressures.
        Recording { regions: 1, mappings: 0, groups: 256, ..RECORDING },
        // Almost nothing in each target, and in each snapshot.
        Recording { targets: 200, regions: 1, mappings: 1, ..RECORDING },
        Recording { targets: 1, regions: 1, mappings: 1, ..RECORDING },
    ];
    for of in all {
        let used = fill(3 << 20, of, 2000);
        // A ring that keeps nothing is within its limit, too.
        assert!(used > 0.1, "{used} of the memory is in use: {of:?}");
    }
}

/// A day of snapshots of 300 regions, one a second.
#[test]
fn a_day_stays_within_the_limit() {
    let memory = 24 << 20;
    let of = Recording { targets: 1, regions: 300, mappings: 100, ..RECORDING };
    let (ring, most) = heap::most(|| {
        let (mut moments, mut ring) = (Moments::of(of), Ring::new(memory));
        (0..86_400).for_each(|_| ring.push(moments.next()));
        ring
    });
    let held = ring.span().map(|span| span.end.since(span.start)).unwrap();
    assert!(held > Duration::from_secs(3600), "only {held:?} are left");
    // While moments are joined, the parts and the result exist together.
    assert!(most < memory + memory / 16, "{most} bytes at the most");
}
