//! Properties that hold after random maps, unmaps, growth, exec and ends between steps.

use super::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use isotherm_core::{PAGE_SIZE, Source, Step, Thresholds, Unknown};
use proptest::prelude::*;

/// An event of a target; places and sizes are in pages of a space of 4096.
#[derive(Debug, Clone)]
enum Event {
    Map(u64, u64),
    Unmap(u64, u64),
    Grow(u64, u64),
    Touch(u64, u64, f64),
    Unknown(u64, u64),
    Exec,
    End,
    Spawn,
    Attrs(Attrs),
    Wait(u64),
}

fn attrs() -> impl Strategy<Value = Attrs> {
    let times = (1u64..30, 2u32..12, 1u64..400);
    let counts = (3u32..40, 0u32..100, 0u32..6, 0u32..9);
    let splits = (2u32..6, 1u32..3, any::<bool>(), any::<bool>());
    (times, counts, splits).prop_map(
        |((sample, samples, update), (min, more, unit, window), (parts, every, uniform, extra))| {
            Attrs {
                sample: Duration::from_millis(sample),
                aggr: Duration::from_millis(sample) * samples + Duration::from_micros(300),
                update: Duration::from_millis(update),
                min_regions: min,
                max_regions: min + more,
                min_region_size: PAGE_SIZE << unit,
                window: PAGE_SIZE << window,
                split_parts: parts,
                clear_every: every,
                split_uniform: uniform,
                extra_split: extra,
                ..Attrs::default()
            }
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let (at, len) = (0u64..4096, 1u64..600);
    prop_oneof![
        6 => (at.clone(), len.clone()).prop_map(|(at, len)| Event::Map(at, len)),
        // Many small ones, so that there are more areas than regions.
        2 => (at.clone(), 1u64..4).prop_map(|(at, len)| Event::Map(at, len)),
        4 => (at.clone(), len.clone()).prop_map(|(at, len)| Event::Unmap(at, len)),
        3 => (at.clone(), len.clone()).prop_map(|(at, len)| Event::Grow(at, len)),
        3 => (at.clone(), len.clone(), 0.5f64..200.0).prop_map(|(at, len, hz)| Event::Touch(at, len, hz)),
        1 => (at, len).prop_map(|(at, len)| Event::Unknown(at, len)),
        1 => Just(Event::Exec),
        1 => Just(Event::End),
        1 => Just(Event::Spawn),
        1 => attrs().prop_map(Event::Attrs),
        16 => (1u64..900).prop_map(Event::Wait),
    ]
}

fn pages(at: u64, len: u64) -> AddrRange {
    // Not aligned to 2 MiB, and across several multiples of it.
    let start = 0x1234_5000 + at * PAGE_SIZE;
    AddrRange::new(start, start + len * PAGE_SIZE)
}

/// Checks requests to the operations set against the mappings that it has reported.
struct Checked {
    ops: Ops,
    told: Rc<RefCell<BTreeMap<TargetId, Vec<AddrRange>>>>,
    max_regions: Rc<RefCell<u32>>,
    cleared: Vec<Ask>,
    read: Vec<Ask>,
}

impl Space for Checked {
    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<Liveness, OpsError> {
        let alive = self.ops.mappings(target, out)?;
        self.told
            .borrow_mut()
            .insert(target, isotherm_core::join_touching(out.iter().map(|m| m.range)));
        Ok(alive)
    }
    fn ran(&mut self, target: TargetId) -> Option<Duration> {
        self.ops.ran(target)
    }
}

impl Look for Checked {
    fn look(&mut self, asks: &[Ask], out: &mut Vec<Seen>) -> Result<Cost, OpsError> {
        assert!(asks.len() <= *self.max_regions.borrow() as usize, "{} asks", asks.len());
        for Ask { target, range, .. } in asks {
            let reported = &self.told.borrow()[target];
            assert!(
                reported.iter().any(|m| m.intersect(range) == Some(*range)),
                "{range:?} {reported:?}"
            );
            assert!(
                range.start % PAGE_SIZE == 0 && range.end % PAGE_SIZE == 0 && !range.is_empty()
            );
            assert_eq!(range.start >> 21, (range.end - 1) >> 21, "{range:?} crosses 2 MiB");
        }
        // A batch clears, or it reads windows that were cleared before, perhaps repeatedly.
        if asks.iter().all(|a| a.clear) {
            self.cleared.retain(|a| self.read.contains(a));
            self.cleared.extend(asks);
        } else {
            self.read = asks.iter().map(|a| Ask { clear: true, ..*a }).collect();
            let cleared = |a: &Ask| self.cleared.contains(&Ask { clear: true, ..*a });
            assert!(asks.iter().all(|a| !a.clear && cleared(a)), "{asks:?}");
        }
        self.ops.look(asks, out)
    }
}

struct World {
    ops: Ops,
    targets: Vec<TargetId>,
    monitor: RegionSampler<Checked>,
    told: Rc<RefCell<BTreeMap<TargetId, Vec<AddrRange>>>>,
    max_regions: Rc<RefCell<u32>>,
    next_seq: u64,
    ended: bool,
}

impl World {
    fn new(attrs: Attrs, seed: u64) -> World {
        let (ops, target) = machine(seed, |m, t| {
            m.map(t, pages(0, 500), MappingSpec::anonymous()).unwrap();
        });
        let reported = Rc::default();
        let max_regions = Rc::new(RefCell::new(attrs.max_regions));
        let checked = Checked {
            ops: ops.clone(),
            told: Rc::clone(&reported),
            max_regions: Rc::clone(&max_regions),
            cleared: Vec::new(),
            read: Vec::new(),
        };
        let monitor = RegionSampler::new(checked, attrs, &[target], seed).unwrap();
        World {
            ops,
            targets: vec![target],
            monitor,
            told: reported,
            max_regions,
            next_seq: 0,
            ended: false,
        }
    }

    /// Skips impossible events (mapping used addresses, touching unmapped ones).
    fn happen(&mut self, event: &Event, which: usize) {
        let t = self.targets[which % self.targets.len()];
        let mut m = self.ops.machine();
        match *event {
            Event::Map(at, len) => _ = m.map(t, pages(at, len), MappingSpec::anonymous()),
            Event::Unmap(at, len) => _ = m.unmap(t, pages(at, len)),
            Event::Grow(at, len) => {
                _ = m.grow(t, pages(at, 1).start, pages(at.saturating_sub(len), 2 * len));
            }
            Event::Touch(at, len, hz) => _ = m.touch(t, pages(at, len), poisson(hz)),
            Event::Unknown(at, len) => {
                _ = m.set_unknown(t, pages(at, len), Some(Unknown::Mlocked));
            }
            Event::Exec => _ = m.exec(t),
            Event::End => _ = m.end(t),
            Event::Spawn => {
                let new = m.spawn();
                self.targets.push(new);
                m.map(new, pages(7, 900), MappingSpec::anonymous().on_touch()).unwrap();
                drop(m);
                self.monitor.set_targets(&self.targets);
            }
            Event::Attrs(attrs) => {
                drop(m);
                *self.max_regions.borrow_mut() = attrs.max_regions;
                self.monitor.set_attrs(attrs).unwrap();
            }
            Event::Wait(ms) => {
                let until = m.now() + Duration::from_millis(ms);
                drop(m);
                self.wait(until);
            }
        }
        self.check_regions();
    }

    fn wait(&mut self, until: Nanos) {
        loop {
            let now = self.ops.machine().now();
            let step = self.monitor.step(now).unwrap();
            self.check_regions();
            match step {
                Step::Wait(next) if next <= until => self.ops.machine().advance_to(next),
                Step::Wait(_) => break,
                Step::Snapshot(s) => self.check_snapshot(&s),
                Step::End(_) => {
                    self.ended = true;
                    assert!(self.monitor.targets().is_empty());
                    break;
                }
            }
        }
        self.ops.machine().advance_to(until);
    }

    fn check_regions(&self) {
        let max = self.monitor.attrs().max_regions as usize;
        let count: usize = self.monitor.targets().iter().map(|t| t.regions().len()).sum();
        assert!(count <= max, "{count} regions of at most {max}");
        for r in self.monitor.targets().iter().flat_map(|t| t.regions()) {
            assert!(
                !r.range.is_empty()
                    && r.range.start % PAGE_SIZE == 0
                    && r.range.end % PAGE_SIZE == 0
            );
            assert!(r.accesses_bp <= 10_000);
        }
        for t in self.monitor.targets() {
            assert!(t.regions().windows(2).all(|w| w[0].range.end <= w[1].range.start));
        }
    }

    fn check_snapshot(&mut self, s: &Snapshot) {
        assert_eq!(s.seq, self.next_seq);
        self.next_seq += 1;
        assert!(s.start < s.end && s.nr_regions() <= s.attrs.max_regions as usize);
        let areas: usize = s.targets.iter().map(|v| areas(v).len()).sum();
        let left_out: u64 = s.targets.iter().map(|v| v.left_out).sum();
        assert!(left_out == 0 || areas > s.attrs.max_regions as usize, "{left_out} {areas}");
        s.targets.iter().for_each(|v| check_view(v, s));
    }
}

fn areas(view: &TargetView) -> Vec<AddrRange> {
    isotherm_core::join_touching(view.mappings.iter().map(|m| m.range))
}

/// The regions cover whole areas, and exactly those that are not left out.
fn check_view(view: &TargetView, s: &Snapshot) {
    let covered = isotherm_core::join_touching(view.regions.iter().map(|r| r.range));
    let areas = areas(view);
    assert!(covered.iter().all(|c| areas.contains(c)), "{covered:?} {areas:?}");
    let bytes: u64 = covered.iter().map(AddrRange::len).sum();
    assert_eq!(bytes + view.left_out, view.mapped());
    for r in &view.regions {
        let b = r.bytes(&Thresholds::default());
        assert_eq!(b.resident() + b.absent, r.range.len(), "{r:?}");
        assert!(r.age <= s.end.since(Nanos(0)), "{r:?} at {:?}", s.end);
        assert!(r.rate.low <= r.rate.hz && r.rate.hz <= r.rate.high, "{r:?}");
        assert!(r.resident_bp <= 10_000 && r.accesses_bp <= 10_000);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn regions_and_asks_stay_within_bounds(
        attrs in attrs(), seed: u64,
        events in prop::collection::vec((event(), 0usize..8), 10..60),
    ) {
        let mut world = World::new(attrs, seed);
        for (event, which) in &events {
            world.happen(event, *which);
            if world.ended {
                break;
            }
        }
        if !world.ended {
            // Once events end, exactly the mapped memory is covered.
            let until = world.ops.machine().now() + Duration::from_secs(2);
            world.wait(until);
            for t in world.monitor.targets() {
                let now: Vec<Mapping> = world.ops.machine().space(t.id()).unwrap().mappings().collect();
                prop_assert_eq!(&isotherm_core::join_touching(now.iter().map(|m| m.range)), &world.told.borrow()[&t.id()]);
            }
        }
    }
}
